//! A process of `sgs serve-model`.
#![allow(dead_code)] // each test file uses a part

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A server process that is killed on drop.
pub struct Server {
    child: Child,
    pub url: String,
    key: Option<String>,
}

impl Server {
    pub fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sgs"))
            .args(["serve-model"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("http://"), "{line}");
        let key_file = args.iter().skip_while(|arg| **arg != "--key-file").nth(1);
        let key = key_file.map(|file| std::fs::read_to_string(file).unwrap().trim().to_owned());
        Self { child, url: line.trim().to_owned(), key }
    }

    pub fn root(&self) -> &str {
        self.url.strip_suffix("/v1").unwrap()
    }

    /// Posts a JSON body with the server's key, if it has one. Returns the status and the response.
    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.post_with(path, body, self.key.as_deref())
    }

    pub fn post_with(&self, path: &str, body: &Value, key: Option<&str>) -> (u16, Value) {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut request =
            agent.post(format!("{}{path}", self.root())).header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut answer = request.send(body.to_string()).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub fn complete(&self, body: Value) -> Value {
        let (status, answer) = self.post("/v1/completions", &body);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Requests a streamed completion and returns its events.
    pub fn stream(&self, mut body: Value) -> Vec<Value> {
        body["stream"] = json!(true);
        let request = ureq::post(format!("{}/v1/completions", self.root()));
        let mut answer = request.header("content-type", "application/json").send(body.to_string()).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        let events: Vec<&str> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
        assert_eq!(events.last(), Some(&"data: [DONE]"), "{text}");
        let event = |event: &&str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
        events[..events.len() - 1].iter().map(event).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
