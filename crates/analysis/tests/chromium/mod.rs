//! Headless Chromium, driven over WebDriver: as much of it as the tests need.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)] // tests say so by panicking; each file uses a part

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For everything that a browser is waited for: far more than it takes, so that a busy machine fails no test.
const PATIENCE: Duration = Duration::from_secs(150);

/// A browser with one page, ended when the value is dropped.
pub struct Browser {
    driver: Child,
    agent: ureq::Agent,
    session: String,
    // Its profile; removed after the browser is gone.
    _profile: tempfile::TempDir,
}

/// Where a program of one of these names lies: the one that the variable names, else the first in `PATH`.
fn program(variable: &str, names: &[&str]) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    let in_path = |name: &&str| std::env::split_paths(&path).map(|d| d.join(name)).find(|p| p.is_file());
    names.iter().find_map(in_path)
}

impl Browser {
    /// Starts a browser; `None` where there is none, which is an error if `SGS_REQUIRE` names `chromium`.
    pub fn start() -> Option<Self> {
        let chromium = program("SGS_CHROMIUM", &["chromium", "chromium-browser", "google-chrome", "chrome"]);
        let driver = program("SGS_CHROMEDRIVER", &["chromedriver"]);
        let (Some(chromium), Some(driver)) = (chromium, driver) else {
            let required = std::env::var("SGS_REQUIRE").unwrap_or_default();
            assert!(!required.contains("chromium"), "SGS_REQUIRE names chromium, which is not installed");
            eprintln!("skipped: no Chromium with chromedriver (Debian: chromium chromium-driver)");
            return None;
        };
        Some(Self::start_with(&chromium, &driver))
    }

    fn start_with(chromium: &Path, driver: &Path) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new(driver)
            .args(["--port=0", "--log-level=WARNING"])
            .env("TMPDIR", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(driver.stdout.take().unwrap());
        let (mut line, mut port) = (String::new(), None);
        while port.is_none() && said.read_line(&mut line).unwrap() > 0 {
            let rest = line.split("started successfully on port ").nth(1);
            port = rest.and_then(|r| r.trim().trim_end_matches('.').parse::<u16>().ok());
            line.clear();
        }
        // Whatever it says later is read away, so that it never waits for a reader.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
        let mut browser = Self {
            driver,
            agent: config.build().into(),
            session: format!("http://127.0.0.1:{}/session", port.expect("chromedriver names its port")),
            _profile: profile,
        };
        let user_data = format!("--user-data-dir={}", browser._profile.path().join("profile").display());
        let capabilities = json!({
            "goog:chromeOptions": {"binary": chromium, "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--window-size=1200,900",
                user_data,
                "about:blank",
            ]},
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
            "timeouts": {"script": PATIENCE.as_millis() as u64, "pageLoad": PATIENCE.as_millis() as u64},
        });
        let started = browser.post("", &json!({"capabilities": {"alwaysMatch": capabilities}}));
        browser.session = format!("{}/{}", browser.session, started["sessionId"].as_str().unwrap());
        // What it asked itself for before there was a page is not the page's.
        browser.open("about:blank");
        browser.requests();
        browser
    }

    /// A command of WebDriver; its value.
    #[track_caller]
    fn post(&self, command: &str, body: &Value) -> Value {
        let request = self.agent.post(format!("{}{command}", self.session));
        let request = request.header("content-type", "application/json");
        let answer = request.send(body.to_string()).unwrap().body_mut().read_to_string().unwrap();
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{command} {body}: {value}");
        value
    }

    /// A command of Chromium's own protocol.
    fn chromium(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Opens a page and waits until it has loaded.
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// What the body of a function gives, run in the page.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn value(&self, expression: &str) -> Value {
        self.run(&format!("return {expression}"))
    }

    /// A text in the page.
    #[track_caller]
    pub fn text(&self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression in the page is true.
    #[track_caller]
    pub fn wait(&self, expression: &str) {
        let start = Instant::now();
        while self.value(expression) != true {
            assert!(
                start.elapsed() < PATIENCE,
                "never true: {expression}\n{}",
                self.text("document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Moves the pointer to a place in the first element that a selector finds, in shares of its width and height, until
    /// an expression in the page is true: a page that is still scrolling takes the first move for part of that.
    #[track_caller]
    pub fn point_at(&self, selector: &str, x: f64, y: f64, until: &str) {
        let start = Instant::now();
        for i in 0.. {
            let place = self.run(&format!(
                "var e=document.querySelector({selector:?});e.scrollIntoView({{block:'center'}});\
                 var b=e.getBoundingClientRect();return [b.left+{x}*b.width,b.top+{y}*b.height]"
            ));
            let at = |axis: usize| place[axis].as_f64().unwrap().round();
            let step = json!({
                "type": "pointerMove", "duration": 0, "x": at(0) + f64::from(i % 2), "y": at(1), "origin": "viewport",
            });
            let mouse = json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [step]});
            self.post("/actions", &json!({"actions": [mouse]}));
            std::thread::sleep(Duration::from_millis(100));
            if self.value(until) == true {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "never true while pointing at {selector}: {until}");
        }
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({"using": "css selector", "value": selector}));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Clicks on the first element that a selector finds.
    pub fn click(&self, selector: &str) {
        // In the middle of the screen nothing lies over it, such as the page's bar.
        self.run(&format!("document.querySelector({selector:?}).scrollIntoView({{block:'center'}})"));
        let element = self.element(selector);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into the first element that a selector finds.
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/value"), &json!({"text": text}));
    }

    /// What the viewer prefers: `light` or `dark`.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.chromium("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// The size of the screen, in CSS pixels; a narrow one is a phone's.
    pub fn screen(&self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.chromium("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// A picture of the page from top to bottom, where `SGS_SCREENSHOTS` names a folder for them.
    pub fn screenshot(&self, name: &str) {
        let Some(folder) = std::env::var_os("SGS_SCREENSHOTS") else { return };
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "fromSurface": true});
        let picture = self.chromium("Page.captureScreenshot", parameters);
        let bytes = BASE64.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).unwrap();
    }

    /// Addresses that were asked for since the last call.
    pub fn requests(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({"type": "performance"}));
        let urls = log.as_array().unwrap().iter().filter_map(|entry| {
            let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let event = &event["message"];
            let kind = event["method"].as_str()?;
            let url = match kind {
                "Network.requestWillBeSent" => &event["params"]["request"]["url"],
                "Network.webSocketCreated" => &event["params"]["url"],
                _ => return None,
            };
            url.as_str().map(str::to_owned)
        });
        urls.collect()
    }

    /// What the page complained of since the last call: errors of its scripts, and what its policy refused.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({"type": "browser"}));
        let severe = log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].to_string()).collect()
    }
}

/// The ground in dark colours, and how a page's is asked for.
pub const DARK_PAPER: &str = "rgb(22, 24, 28)";
pub const PAPER: &str = "getComputedStyle(document.body).backgroundColor";

impl Browser {
    /// Nothing of the page sticks out of the screen to the right.
    #[track_caller]
    pub fn fits(&self) {
        let widths = self.run(
            "var out=[];document.querySelectorAll('main *').forEach(function(e){\
             if(e.closest('.scroll,pre,svg,.list,summary'))return;var b=e.getBoundingClientRect();\
             if(b.width&&b.right>innerWidth+1)out.push(e.outerHTML.slice(0,120))});\
             return [document.documentElement.scrollWidth-innerWidth,out]",
        );
        assert!(widths[0].as_i64().unwrap() <= 0 && widths[1].as_array().unwrap().is_empty(), "{widths}");
    }

    /// No address but those that begin with `allowed` was asked for, and no script failed.
    #[track_caller]
    pub fn keeps_to_itself(&self, allowed: &str) {
        let requests = self.requests();
        assert!(requests.iter().any(|url| url.starts_with(allowed)), "requests are seen: {requests:?}");
        for url in &requests {
            let known = url.starts_with(allowed) || url.starts_with("data:");
            assert!(known, "{url} was asked for, of {requests:?}");
        }
        let mut complaints = self.complaints();
        // The address of a run that is over answers no longer, which the page says.
        let is_over = |c: &String| {
            (c.contains("events") || c.contains("fragment")) && c.contains("ERR_CONNECTION_REFUSED")
        };
        complaints.retain(|c| !is_over(c));
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ending the session ends the browser; the driver alone would leave it behind.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
