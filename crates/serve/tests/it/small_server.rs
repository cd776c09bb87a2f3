//! A server of a small random model, and a client that sees every byte.

use serde_json::{Value, json};
use sgs_lm::Device;
use sgs_lm::config::ModelConfig;
use sgs_lm::testing::small_shape;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use sgs_lm_cpu::Cpu;
use sgs_lm_sampler::{SamplerError, SamplerOptions};
use sgs_serve::{ApiKey, ModelEngine, ModelServer, ModelServerConfig};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Context length of the model, in tokens.
pub const WINDOW: usize = 256;
/// Vocabulary size of the model, in tokens: `w0`, `w1`, …
pub const VOCABULARY: usize = 64;
/// Maximum number of completions that are sampled at the same time.
pub const BATCH: usize = 8;

/// The key of the servers that have one.
pub const KEY: &str = "a-secret";

/// Starts a server on a free port.
pub fn start(key: Option<&str>) -> ModelServer {
    start_sized(key, 32, None)
}

/// Starts a server whose model has this hidden size, and whose sampler has memory for this many pages of 16 tokens.
pub fn start_sized(key: Option<&str>, hidden_size: usize, pages: Option<u64>) -> ModelServer {
    let config = ModelConfig {
        vocab_size: VOCABULARY,
        hidden_size,
        intermediate_size: 2 * hidden_size,
        layers: 2,
        heads: 2,
        kv_heads: 2,
        head_dim: 16,
        max_positions: WINDOW,
        ..small_shape()
    };
    let folder = tempfile::tempdir().unwrap();
    let words: serde_json::Map<String, Value> =
        (0..VOCABULARY).map(|id| (format!("w{id}"), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "decoder": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "added_tokens": [],
        "model": {"type": "WordLevel", "unk_token": "w0", "vocab": words},
    });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    let mut options = SamplerOptions { max_batch: BATCH, ..SamplerOptions::default() };
    let device = Arc::new(Cpu::new(1).unwrap());
    if let Some(pages) = pages {
        let nothing = SamplerOptions { memory_budget_bytes: 0, ..options };
        let error = nothing.plan(device.footprint(), &config, WINDOW).unwrap_err();
        let SamplerError::Budget { work, page, .. } = error else { panic!("{error}") };
        options.memory_budget_bytes = work + page * pages;
    }
    let weights = HostWeights::random(&config, 0);
    let (engine, _) = ModelEngine::start(device, weights, WINDOW, &options, "small", "random").unwrap();
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let key = key.map(|key| ApiKey::new(key, "test").unwrap());
    let config = ModelServerConfig { listen, key, name: "small".into(), updates: None };
    ModelServer::start(engine, tokenizer, config).unwrap()
}

/// Sends a request without waiting for the reply.
pub fn send(address: SocketAddr, call: &str, headers: &str, body: &str) -> TcpStream {
    send_over(TcpStream::connect(address).unwrap(), call, headers, body)
}

/// Sends a request on a new connection without waiting for the reply.
fn send_over(mut stream: TcpStream, call: &str, headers: &str, body: &str) -> TcpStream {
    stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let head =
        format!("{call} HTTP/1.1\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // A server that rejects a large body may close the connection before it is sent.
    let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat());
    stream
}

/// Returns the status and the body of a reply.
pub fn receive(mut stream: TcpStream) -> (u16, Value) {
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    let reply = String::from_utf8_lossy(&reply);
    let status = reply.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or_else(|_| json!(body)))
}

/// Returns the headers of a JSON request to the server's own address, with the key.
pub fn own(address: SocketAddr) -> String {
    format!("host: {address}\r\ncontent-type: application/json\r\nauthorization: Bearer {KEY}\r\n")
}

/// Posts a JSON body without waiting for the reply.
pub fn post(address: SocketAddr, path: &str, body: &Value) -> TcpStream {
    send(address, &format!("POST {path}"), &own(address), &body.to_string())
}

/// Requests completions and waits for them.
pub fn complete(address: SocketAddr, body: &Value) -> Value {
    completions(post(address, "/v1/completions", body))
}

/// Requests completions from another address than the other clients, and waits for them.
pub fn complete_elsewhere(address: SocketAddr, body: &Value) -> Value {
    let connect = async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
        socket.connect(address).await.unwrap().into_std().unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(connect);
    stream.set_nonblocking(false).unwrap();
    completions(send_over(stream, "POST /v1/completions", &own(address), &body.to_string()))
}

fn completions(stream: TcpStream) -> Value {
    let (status, reply) = receive(stream);
    assert_eq!(status, 200, "{reply}");
    reply
}
