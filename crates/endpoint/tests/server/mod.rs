//! llama.cpp's server as a process of its own, over the model that ships with the program or another small one.
#![allow(clippy::unwrap_used, clippy::print_stderr, dead_code)] // tests say so by panicking; each uses a part

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time until a server answers, on a busy machine.
const START: Duration = Duration::from_secs(150);

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder of the model; `None` for the one that ships.
    pub model: Option<PathBuf>,
    /// Tokens of a sequence.
    pub context: usize,
    /// Sequences at once.
    pub slots: usize,
    /// The model's name.
    pub name: &'static str,
    /// The key that it wants.
    pub key: Option<&'static str>,
    /// Where; 0 picks a free port.
    pub port: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { model: None, context: 512, slots: 4, name: "sgs-base", key: None, port: 0 }
    }
}

/// A running server; it is killed when this is dropped.
pub struct Server {
    child: Child,
    /// Its address.
    pub url: String,
}

impl Server {
    /// Starts one and waits until it has loaded the model; `None`, with a word about it, where the server is not
    /// installed.
    pub fn start(options: &Options) -> Option<Self> {
        let python = python()?;
        let mut command = Command::new(python);
        let (model, gguf) = match &options.model {
            None => (project("data/metamath/base"), Path::new(env!("CARGO_TARGET_TMPDIR")).join("base.gguf")),
            Some(model) => (model.clone(), model.join("model.gguf")),
        };
        command.arg(folder().join("serve.py")).arg("--model").arg(model).arg("--gguf").arg(gguf);
        command.args(["--port", &options.port.to_string(), "--name", options.name]);
        command.args(["--context", &options.context.to_string(), "--slots", &options.slots.to_string()]);
        if let Some(key) = options.key {
            command.args(["--key", key]);
        }
        // It ends with its standard input, so it does not outlive a test that is killed.
        let log = tempfile::NamedTempFile::new().unwrap();
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.reopen().unwrap()).spawn();
        let mut server = Self { child: child.unwrap(), url: String::new() };
        let mut lines = BufReader::new(server.child.stdout.take().unwrap()).lines();
        let said = lines.find_map(|line| line.ok().filter(|l| l.starts_with("http://")));
        server.url = said.unwrap_or_else(|| {
            panic!("llama.cpp's server did not start:\n{}", std::fs::read_to_string(log.path()).unwrap())
        });
        server.wait_until_ready();
        Some(server)
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            let health =
                ureq::get(format!("{}/health", self.url)).config().timeout_global(Some(START)).build().call();
            if health.is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("llama.cpp's server at {} is not ready after {START:?}", self.url);
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap()
    }

    /// Ends it as a crash would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Python that has the server's package, if there is one.
fn python() -> Option<PathBuf> {
    let own = project("target/endpoint-venv/bin/python");
    let candidates = std::env::var_os("SGS_LLAMA_CPP_PYTHON")
        .map(PathBuf::from)
        .into_iter()
        .chain([own, "python3".into()]);
    let has_it = |python: &PathBuf| {
        let probe =
            Command::new(python).args(["-c", "import xllamacpp, gguf"]).stderr(Stdio::null()).status();
        probe.is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().find(has_it);
    if found.is_none() {
        eprintln!(
            "skipped: llama.cpp's server is not installed; to have it: python3 -m venv target/endpoint-venv && \
             target/endpoint-venv/bin/pip install -r crates/endpoint/tests/server/requirements.txt"
        );
    }
    found
}

fn folder() -> PathBuf {
    project("crates/endpoint/tests/server")
}

/// A path of the project.
fn project(path: &str) -> PathBuf {
    // Used from the tests of two crates, which both lie in `crates`.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// nginx before a server, with or without a limit on requests and what it says to those over it.
pub struct Gateway {
    child: Child,
    _folder: tempfile::TempDir,
    /// Its address.
    pub url: String,
}

impl Gateway {
    /// Starts one on a port; `None`, with a word about it, where nginx is not installed.
    pub fn start(server: &Server, port: u16, per_minute: Option<u32>) -> Option<Self> {
        let installed = Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_ok();
        if !installed {
            eprintln!("skipped: nginx is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display().to_string();
        let (zone, limit) = match per_minute {
            Some(n) => (
                format!("limit_req_zone $server_port zone=all:1m rate={n}r/m;"),
                "limit_req zone=all; limit_req_status 429; add_header retry-after 1 always;",
            ),
            None => (String::new(), ""),
        };
        let mut file = std::fs::File::create(folder.path().join("nginx.conf")).unwrap();
        write!(
            file,
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
             events {{}}\n\
             http {{\n\
               access_log off; client_body_temp_path {at}/a; proxy_temp_path {at}/b; fastcgi_temp_path {at}/c;\n\
               uwsgi_temp_path {at}/d; scgi_temp_path {at}/e;\n\
               {zone}\n\
               server {{\n\
                 listen 127.0.0.1:{port};\n\
                 location / {{ proxy_pass {url}; }}\n\
                 location /v1/completions {{\n\
                   {limit}\n\
                   proxy_pass {url};\n\
                 }}\n\
               }}\n\
             }}\n",
            url = server.url
        )
        .unwrap();
        let child = Command::new("nginx")
            .arg("-c")
            .arg(folder.path().join("nginx.conf"))
            .stderr(Stdio::null())
            .spawn();
        let gateway =
            Self { child: child.unwrap(), _folder: folder, url: format!("http://127.0.0.1:{port}") };
        let deadline = Instant::now() + START;
        while ureq::get(format!("{}/health", gateway.url)).call().is_err() {
            assert!(Instant::now() < deadline, "nginx does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
