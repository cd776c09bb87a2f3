//! Tests requests that a web page of another site can make a browser send.

use crate::small_server::{KEY, complete, post, receive, send, start};
use hyper::Request;
use serde_json::json;
use sgs_http::check_request;

#[test]
fn web_pages_of_other_sites_neither_read_nor_change_anything() {
    let server = start(None);
    let at = server.address();
    let own = format!("host: {at}\r\n");
    let json = "content-type: application/json\r\n";
    let paths =
        ["/pause_generation", "/sleep?level=2", "/update_weights_from_disk", "/v1/completions", "/generate"];
    for path in paths {
        let call = format!("POST {path}");
        let ask = |headers: &str, body: &str| {
            let (status, reply) = receive(send(at, &call, headers, body));
            (status, reply["error"]["message"].as_str().unwrap_or_default().to_owned())
        };
        for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
            let (status, why) = ask(&format!("{own}{json}origin: {origin}\r\n"), "{}");
            assert!(status == 403 && why.contains("origin"), "{path}, {origin}: {status} {why}");
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let (status, why) = ask(&format!("{own}content-type: {kind}\r\n"), "{}");
            assert!(status == 415 && why.contains("application/json"), "{path}, {kind}: {status} {why}");
        }
        assert_eq!(ask(&own, "{}").0, 415, "{path}: a body without a type");
        // DNS rebinding: the browser believes that the server belongs to the page.
        let (status, why) =
            ask(&format!("host: evil.example\r\n{json}origin: http://evil.example\r\n"), "{}");
        assert!(status == 403 && why.contains("host"), "{path}: {status} {why}");
    }
    for path in ["/health", "/v1/models", "/get_model_info"] {
        let ask = |host: &str| receive(send(at, &format!("GET {path}"), &format!("host: {host}\r\n"), "")).0;
        assert_eq!((ask("evil.example"), ask("localhost:80")), (403, 200), "{path}");
    }
    // Of two values, different programs may believe different ones.
    for twice in [
        "host: evil.example\r\n".to_owned(),
        format!("origin: http://{at}\r\norigin: https://evil.example\r\n"),
    ] {
        assert_eq!(receive(send(at, "GET /v1/models", &format!("{own}{twice}"), "")).0, 400, "{twice}");
    }
    // The server is not paused. Its own pages may use it.
    complete(at, &json!({ "prompt": "w1", "max_tokens": 2 }));
    let page = format!("{own}{json}origin: http://{at}\r\n");
    let body = r#"{"prompt":"w1","max_tokens":2}"#;
    assert_eq!(receive(send(at, "POST /v1/completions", &page, body)).0, 200);
}

#[test]
fn calls_that_change_the_server_require_a_key() {
    let (open, keyed) = (start(None), start(Some(KEY)));
    for (path, body, with_key) in [
        ("/pause_generation", json!({}), 200),
        ("/continue_generation", json!({}), 200),
        ("/sleep?level=2", json!({}), 200),
        ("/wake_up?tags=weights", json!({}), 200),
        ("/wake_up", json!({}), 200),
        ("/flush_cache", json!({}), 200),
        ("/reset_prefix_cache", json!({}), 200),
        // The servers allow no updates.
        ("/update_weights_from_disk", json!({ "model_path": "small" }), 403),
        ("/collective_rpc", json!({ "method": "reload_weights" }), 403),
    ] {
        let (status, reply) = receive(post(open.address(), path, &body));
        let why = reply["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 403 && why.contains("--key-file"), "{path}: {status} {why}");
        let (status, reply) = receive(post(keyed.address(), path, &body));
        assert!(status == with_key && !reply.to_string().contains("--key-file"), "{path}: {status} {reply}");
    }
    for server in [open, keyed] {
        complete(server.address(), &json!({ "prompt": "w1", "max_tokens": 2 }));
    }
}

#[test]
fn clients_with_the_key_may_use_any_host_name() {
    let server = start(Some(KEY));
    let at = server.address();
    let ask = |headers: &str| {
        let headers = format!("host: model.example\r\ncontent-type: application/json\r\n{headers}");
        receive(send(at, "POST /v1/completions", &headers, r#"{"prompt":"w1","max_tokens":2}"#)).0
    };
    assert_eq!(ask(""), 401);
    assert_eq!(ask("authorization: Bearer a-secret\r\n"), 200);
    assert_eq!(ask("authorization: Bearer a-secret\r\norigin: http://evil.example\r\n"), 403);
    // The probe of a load balancer has its own host and no key.
    for path in ["/health", "/ping"] {
        let probe = |headers: &str| receive(send(at, &format!("GET {path}"), headers, ""));
        assert_eq!(probe("host: balancer.example\r\n"), (200, json!({ "status": "ok" })), "{path}");
        assert_eq!(probe("host: balancer.example\r\norigin: http://evil.example\r\n").0, 403, "{path}");
    }
    assert_eq!(receive(send(at, "GET /v1/models", "host: balancer.example\r\n", "")).0, 401);
}

fn status(method: &str, headers: &[(&str, &str)], body: &str, has_secret: bool) -> u16 {
    let mut request = Request::builder().method(method);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    check_request(&request.body(body.to_owned()).unwrap(), has_secret).map_or_else(|e| e.0.as_u16(), |()| 200)
}

#[test]
fn the_check_of_requests_knows_hosts_origins_and_content_types() {
    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
    for (host, open, with_secret) in [
        ("localhost", 200, 200),
        ("LOCALHOST:80", 200, 200),
        ("127.0.0.1:8000", 200, 200),
        ("[::1]:8000", 200, 200),
        ("model.example", 403, 200),
        ("localhost.evil.example:8000", 403, 200),
        ("127.0.0.1.evil.example", 403, 200),
        ("192.168.0.7:8000", 403, 200),
        ("", 403, 200),
    ] {
        assert_eq!(status("GET", &[("host", host)], "", false), open, "{host}");
        assert_eq!(status("POST", &[("host", host), JSON], "{}", true), with_secret, "{host}");
    }
    assert_eq!(status("GET", &[], "", false), 403);
    let host = ("host", "localhost:8000");
    for (origin, expected) in [
        ("http://localhost:8000", 200),
        ("http://localhost:8001", 403),
        ("http://localhost", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
    ] {
        for has_secret in [false, true] {
            let headers = [host, JSON, ("origin", origin)];
            assert_eq!(status("POST", &headers, "{}", has_secret), expected, "{origin}");
            assert_eq!(status("GET", &headers, "", has_secret), expected, "{origin}");
        }
    }
    for (kind, expected) in [
        ("application/json", 200),
        ("Application/JSON;charset=utf-8", 200),
        ("application/x-sgs-fleet-1", 200),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("text/plain; application/json", 415),
        ("", 415),
    ] {
        for body in ["", "{}"] {
            let headers = [host, ("content-type", kind)];
            assert_eq!(status("POST", &headers, body, false), expected, "{kind}");
        }
    }
    assert_eq!(status("POST", &[host], "{}", false), 415, "a body without a type");
    assert_eq!(status("POST", &[host], "", false), 200, "neither a body nor a type");
}
