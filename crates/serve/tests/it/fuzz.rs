//! Fuzz test of requests.

use crate::fuzzing::Fuzzer;
use crate::small_server::{KEY, complete, post, receive, start};
use serde_json::json;
use sgs_serve::ModelServer;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

/// Number of clients that send requests at the same time.
const CLIENTS: usize = 24;

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_requests_to_the_model() {
    let server = start(Some(KEY));
    let bodies = [
        (
            "/v1/completions",
            json!({ "model": "small", "prompt": "w1 w2", "max_tokens": 4, "n": 2, "stop": ["w3", "w3 w4"], "logprobs": 1 }),
        ),
        (
            "/v1/completions",
            json!({ "prompt": [[1, 2], [3]], "max_tokens": 3, "stream": true, "stream_options": { "include_usage": true },
            "return_token_ids": true, "stop_token_ids": [5], "top_k": 3, "top_p": 0.9, "temperature": 0.5, "seed": 1 }),
        ),
        ("/v1/completions", json!({ "prompt": [1, 2, 3], "max_tokens": 1, "prompt_logprobs": 0 })),
        (
            "/generate",
            json!({ "input_ids": [1, 2], "return_logprob": true, "logprob_start_len": 0,
            "sampling_params": { "max_new_tokens": 3, "temperature": 1.0, "sampling_seed": 5 } }),
        ),
        ("/update_weights_from_disk", json!({ "model_path": "small", "weight_version": "1" })),
        ("/continue_generation", json!({})),
    ];
    let request = |(path, body): &(&str, serde_json::Value)| {
        let body = body.to_string();
        let head = format!(
            "host: localhost\r\norigin: http://localhost\r\ncontent-type: application/json\r\nconnection: close\r\n\
             authorization: Bearer {KEY}"
        );
        format!("POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let fuzzer = Mutex::new(Fuzzer::new(bodies.iter().map(request).collect()));
    // Most requests are incomplete, so a client mostly waits for the server.
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| send_requests(&server, &fuzzer));
        }
    });
    fuzzer.into_inner().unwrap().report("requests to the model");
    assert_eq!(receive(post(server.address(), "/continue_generation", &json!({}))).0, 200);
    complete(server.address(), &json!({ "prompt": "w1", "max_tokens": 2 }));
}

fn send_requests(server: &ModelServer, fuzzer: &Mutex<Fuzzer>) {
    loop {
        // The lock must not be held while a request is sent.
        let Some(bytes) = fuzzer.lock().unwrap().input() else { return };
        // The system may run out of ports, because those of closed connections stay reserved for a while.
        let Ok(mut stream) = TcpStream::connect(server.address()) else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        let _ = stream.write_all(&bytes);
        let mut reply = Vec::new();
        if stream.read_to_end(&mut reply).is_err() {
            // The request is incomplete, or its completions take longer. The end of the connection cancels them.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let _ = stream.read_to_end(&mut reply);
        }
        assert!(!reply.starts_with(b"HTTP/1.1 500"), "{}", String::from_utf8_lossy(&reply));
        if reply.starts_with(b"HTTP/1.1 2") {
            fuzzer.lock().unwrap().keep(bytes);
        }
    }
}
