//! A llama.cpp server process with the shipped model or another small one, for tests.
#![allow(dead_code)] // each test binary uses a part

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time until a server answers, on a busy machine.
const START: Duration = Duration::from_secs(150);

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder of the model; `None` for the shipped one.
    pub model: Option<PathBuf>,
    /// Context length, in tokens.
    pub context: usize,
    /// Number of parallel sequences.
    pub slots: usize,
    /// Name of the model.
    pub name: &'static str,
    /// API key, if any.
    pub key: Option<&'static str>,
    /// Port; 0 picks a free one.
    pub port: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { model: None, context: 512, slots: 4, name: "sgs-base", key: None, port: 0 }
    }
}

/// A running server. Dropping it kills the server.
pub struct Server {
    child: Child,
    /// Base URL.
    pub url: String,
}

impl Server {
    /// Starts a server and waits until it has loaded the model. If the server is not installed, prints so and returns
    /// `None`.
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
        // The server ends when its standard input closes, so it does not outlive a killed test.
        let log = tempfile::NamedTempFile::new().unwrap();
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.reopen().unwrap()).spawn();
        let mut server = Self { child: child.unwrap(), url: String::new() };
        let mut lines = BufReader::new(server.child.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| line.ok().filter(|l| l.starts_with("http://")));
        server.url = url.unwrap_or_else(|| {
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

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap()
    }

    /// Kills the server.
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

/// Returns a Python interpreter that has the server's package, if any.
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
             target/endpoint-venv/bin/pip install -r crates/endpoint/tests/it/server/requirements.txt"
        );
    }
    found
}

fn folder() -> PathBuf {
    project("crates/endpoint/tests/it/server")
}

/// Returns a path in the repository.
fn project(path: &str) -> PathBuf {
    // This path is right for the tests of both crates that use this module, because both are in `crates`.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns a port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An nginx reverse proxy, with or without a rate limit.
pub struct Gateway {
    child: Child,
    _folder: tempfile::TempDir,
    /// Base URL.
    pub url: String,
}

impl Gateway {
    /// Starts nginx on a port. If nginx is not installed, prints so and returns `None`.
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
