//! A minimal WebDriver client for headless Chromium.
#![allow(dead_code)] // tests use parts of the client

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout of waits for the browser. It is generous, so that tests do not fail on a busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

/// A browser with one page. Dropping it ends the browser.
pub struct Browser {
    driver: Child,
    agent: ureq::Agent,
    session: String,
    // The profile directory, which is removed after the browser has ended.
    _profile: tempfile::TempDir,
}

/// Returns the path of a program: from the environment variable, or the first of these names in `PATH`.
fn program(variable: &str, names: &[&str]) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    let in_path = |name: &&str| std::env::split_paths(&path).map(|d| d.join(name)).find(|p| p.is_file());
    names.iter().find_map(in_path)
}

impl Browser {
    /// Starts a browser. Returns `None` if there is none, and panics if `SGS_REQUIRE` contains `chromium`.
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
        // Discard further output, so that the driver does not block.
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
        // Discard requests from before the first page.
        browser.open("about:blank");
        browser.requests();
        browser
    }

    /// Runs a WebDriver command and returns its value.
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

    /// Runs a command of the Chrome DevTools protocol.
    fn chromium(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Opens a page and waits until it has loaded.
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// Runs the body of a function in the page and returns its result.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Evaluates an expression in the page.
    #[track_caller]
    pub fn value(&self, expression: &str) -> Value {
        self.run(&format!("return {expression}"))
    }

    /// Evaluates an expression in the page to a string.
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

    /// Moves the pointer over the first element that matches a selector, at a position relative to its size, until an
    /// expression in the page is true. The move is repeated, because a page that is scrolling may ignore the first one.
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

    /// Clicks on the first element that matches a selector.
    pub fn click(&self, selector: &str) {
        // Scroll it to the centre, where the navigation bar does not cover it.
        self.run(&format!("document.querySelector({selector:?}).scrollIntoView({{block:'center'}})"));
        let element = self.element(selector);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into the first element that matches a selector.
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/value"), &json!({"text": text}));
    }

    /// Sets the viewer's preferred theme: `light` or `dark`.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.chromium("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Sets the size of the screen in CSS pixels. A narrow screen is a phone.
    pub fn screen(&self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.chromium("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Takes a screenshot of the whole page if `SGS_SCREENSHOTS` is set.
    pub fn screenshot(&self, name: &str) {
        let Some(folder) = std::env::var_os("SGS_SCREENSHOTS") else { return };
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "fromSurface": true});
        let picture = self.chromium("Page.captureScreenshot", parameters);
        let bytes = BASE64.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).unwrap();
    }

    /// Returns the URLs requested since the last call.
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

    /// Returns the errors since the last call: script errors and violations of the content security policy.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({"type": "browser"}));
        let severe = log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].to_string()).collect()
    }
}

/// The dark background colour, and the expression that returns a page's background colour.
pub const DARK_PAPER: &str = "rgb(22, 24, 28)";
pub const PAPER: &str = "getComputedStyle(document.body).backgroundColor";

impl Browser {
    /// Checks that the page does not overflow the screen horizontally.
    #[track_caller]
    pub fn fits(&self) {
        let widths = self.run(
            "var out=[];document.querySelectorAll('main *').forEach(function(e){\
             if(e.closest('.scroll,pre,svg,.list,summary')||!e.checkVisibility())return;var b=e.getBoundingClientRect();\
             if(b.width&&b.right>innerWidth+1)out.push(e.outerHTML.slice(0,120))});\
             return [document.documentElement.scrollWidth-innerWidth,out]",
        );
        assert!(widths[0].as_i64().unwrap() <= 0 && widths[1].as_array().unwrap().is_empty(), "{widths}");
    }

    /// Checks that a screen reader has a name for every figure, table, section, list of links and control.
    #[track_caller]
    pub fn is_labelled(&self) {
        let bare = self.run(
            "return Array.from(document.querySelectorAll('svg[role=img],table,nav,aside,main section,input,select,button'))\
             .filter(e=>!(e.getAttribute('aria-label')||(e.tagName==='BUTTON'&&e.textContent)||e.querySelector(':scope>h3')))\
             .map(e=>e.outerHTML.slice(0,120))",
        );
        assert_eq!(bare, json!([]), "elements without a name");
    }

    /// Checks that only URLs with the prefix `allowed` were requested, and that no script failed.
    #[track_caller]
    pub fn keeps_to_itself(&self, allowed: &str) {
        let requests = self.requests();
        assert!(requests.iter().any(|url| url.starts_with(allowed)), "requests are seen: {requests:?}");
        for url in &requests {
            let known = url.starts_with(allowed) || url.starts_with("data:");
            assert!(known, "{url} was asked for, of {requests:?}");
        }
        let mut complaints = self.complaints();
        // Requests to a live page that has stopped fail, which the page shows.
        let is_over = |c: &String| {
            let is_unanswered =
                ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_SOCKET_NOT_CONNECTED"];
            (c.contains("events") || c.contains("fragment"))
                && is_unanswered.iter().any(|kind| c.contains(kind))
        };
        complaints.retain(|c| !is_over(c));
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ending the session ends the browser. Killing the driver alone would not.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
