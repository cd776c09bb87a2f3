//! Bounds of the fields of requests.

use crate::small_server::{WINDOW, complete, post, receive, start};
use serde_json::{Value, json};

#[test]
fn each_field_has_a_bound_that_errors_name() {
    let server = start(None);
    let at = server.address();
    let list = |n: usize| Value::from(vec![json!(1); n]);
    for (change, field, bound) in [
        (json!({ "stop": vec!["x"; 17] }), "stop", "up to 16"),
        (json!({ "stop": vec!["x".repeat(900_000); 4] }), "stop", "up to 4096"),
        (json!({ "stop": "x".repeat(4097) }), "stop", "up to 4096"),
        (json!({ "stop": [""] }), "stop", "none of them empty"),
        (json!({ "stop_token_ids": list(257) }), "stop_token_ids", "up to 256"),
        (json!({ "prompt": "x".repeat(3_000_000) }), "prompt", "at most 16384"),
        (json!({ "prompt": "x".repeat(16_385) }), "prompt", "at most 16384"),
        (json!({ "prompt": list(WINDOW - 1) }), "prompt", "the context of 256 tokens"),
        (json!({ "prompt": "w1 ".repeat(WINDOW) }), "prompt", "the context of 256 tokens"),
        (json!({ "prompt": vec!["w1"; 1025] }), "prompt", "at most 1024"),
        (json!({ "prompt": vec!["w1"; 513], "n": 2 }), "prompt", "at most 1024"),
        (json!({ "prompt": [64] }), "prompt", "vocabulary size is 64"),
        (json!({ "prompt": [] }), "prompt", "empty"),
        (json!({ "n": 1025 }), "n", "1 to 1024"),
        (json!({ "n": 0 }), "n", "1 to 1024"),
        (json!({ "max_tokens": WINDOW + 1 }), "max_tokens", "1 to 256"),
        (json!({ "logprobs": 2 }), "logprobs", "0 or 1"),
        (json!({ "prompt_logprobs": 1 }), "prompt_logprobs", "expected 0"),
        (json!({ "prompt_logprobs": 0, "n": 2 }), "prompt_logprobs", "`n` 1"),
        (json!({ "model": "m".repeat(3_000_000) }), "model", "no such model"),
    ] {
        let mut body = json!({ "prompt": "w1", "max_tokens": 2 });
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let (status, reply) = receive(post(at, "/v1/completions", &body));
        let error = &reply["error"];
        let message = error["message"].as_str().unwrap_or_default();
        assert_eq!((status, &error["param"]), (400, &json!(field)), "{field}: {message}");
        assert!(message.contains(bound) && message.len() < 600, "{field}: {message}");
    }
    let (status, reply) = receive(post(at, "/v1/completions", &json!({ "seed": "s".repeat(1_000_000) })));
    assert!(status == 400 && reply.to_string().len() < 700, "the message quotes little of the request");
    let (status, _) = receive(post(at, "/v1/completions", &json!({ "prompt": "x".repeat(5 << 20) })));
    assert!([413, 0].contains(&status), "a body of 5 MiB is rejected before it has arrived: {status}");
    // The largest values are accepted.
    let stops: Vec<String> = (0..16).map(|i| format!("{i:0256}")).collect();
    complete(at, &json!({ "prompt": "w1 ".repeat(WINDOW - 2), "max_tokens": 2, "stop": stops }));
    let many = complete(at, &json!({ "prompt": vec!["w1"; 1024], "max_tokens": 1 }));
    assert_eq!(many["choices"].as_array().unwrap().len(), 1024);
}
