//! `sgs serve-model`: the completions protocol of OpenAI, and weight updates.

use crate::model_server::Server;
use crate::program;
use crate::program::{path, project, sgs};
use serde_json::{Value, json};
use sgs_lm::device::Precision;
use sgs_lm::model::{Mode, Model};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_lm::weights::HostWeights;
use sgs_lm_cpu::Cpu;
use sgs_lm_sampler::{Request, RequestId, SampledCompletion, Sampler, SamplerOptions, SamplingParams};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PROMPT: &str = "|- ( ph -> ph )";

fn base() -> std::path::PathBuf {
    project("data/metamath/base")
}

/// Samples a completion with the library, from the same weights.
fn library_sample(prompt: &str, seed: u64, max_new_tokens: usize) -> (SampledCompletion, Tokenizer) {
    let tokenizer = Tokenizer::load(&base()).unwrap();
    // As `--device cpu`.
    let device = Arc::new(Cpu::with_precision(1, Precision::Bf16).unwrap());
    let model = Model::new(device, HostWeights::load(&base()).unwrap(), usize::MAX).unwrap();
    let mut sampler = Sampler::new(&model, &SamplerOptions::default()).unwrap();
    let request = Request {
        id: RequestId(0),
        prompt: tokenizer.encode(prompt).unwrap().into(),
        seed,
        max_new_tokens,
        params: SamplingParams::default(),
        stop: tokenizer.eos().into(),
    };
    let mut found = None;
    sampler.run(&model, [request], |_, completion| found = Some(completion)).unwrap();
    (found.unwrap(), tokenizer)
}

#[test]
fn completions_equal_the_samples_of_the_library() {
    let server = Server::start(&[]);
    let models: Value = serde_json::from_str(
        &ureq::get(format!("{}/models", server.url)).call().unwrap().body_mut().read_to_string().unwrap(),
    )
    .unwrap();
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["max_model_len"]), (&json!("sgs"), &json!(512)));
    let (mut stopped, mut cut) = (0, 0);
    for seed in 0..6_u64 {
        let (expected, tokenizer) = library_sample(PROMPT, seed, 12);
        let ask = json!({ "model": "sgs", "prompt": PROMPT, "seed": seed, "max_tokens": 12, "logprobs": 1,
            "return_token_ids": true, "temperature": 1.0 });
        let answer = server.complete(ask.clone());
        let choice = &answer["choices"][0];
        assert_eq!(choice["token_ids"], json!(expected.tokens));
        assert_eq!(choice["text"], json!(tokenizer.decode(&expected.tokens).unwrap()));
        let log_probs: Vec<f32> =
            serde_json::from_value(choice["logprobs"]["token_logprobs"].clone()).unwrap();
        assert!(
            log_probs.iter().zip(&expected.log_probs).all(|(a, b)| (a - b).abs() < 1e-6),
            "{log_probs:?}"
        );
        let is_cut = expected.tokens.len() == 12 && !tokenizer.eos().contains(&expected.tokens[11]);
        assert_eq!(choice["finish_reason"], if is_cut { "length" } else { "stop" });
        *if is_cut { &mut cut } else { &mut stopped } += 1;
        assert_eq!(answer["usage"]["completion_tokens"], json!(expected.tokens.len()));
        // A prompt of token ids, sampled together with other completions, gives the same result.
        let mut as_tokens = ask.clone();
        as_tokens["prompt"] = json!(tokenizer.encode(PROMPT).unwrap());
        as_tokens["n"] = json!(3);
        assert_eq!(server.complete(as_tokens)["choices"][0]["token_ids"], json!(expected.tokens));
        // The parts of a stream, joined, are equal to the whole completion.
        let mut ask = ask;
        ask["stream_options"] = json!({ "include_usage": true });
        let events = server.stream(ask);
        let parts = |field: &str| -> Vec<Value> {
            let of = |event: &Value| event["choices"][0][field].clone();
            events.iter().map(of).filter(|part| !part.is_null()).collect()
        };
        let text: String = parts("text").iter().map(|part| part.as_str().unwrap()).collect();
        assert_eq!(json!(text), choice["text"]);
        let ids: Vec<Value> =
            parts("token_ids").iter().flat_map(|ids| ids.as_array().unwrap().clone()).collect();
        assert_eq!(json!(ids), choice["token_ids"]);
        assert_eq!(parts("finish_reason"), [choice["finish_reason"].clone()]);
        assert_eq!(events.last().unwrap()["usage"], answer["usage"]);
        assert!(events.len() > 2, "the stream has only {} events", events.len());
    }
    assert!(stopped > 0 && cut > 0, "both kinds of end must occur: {stopped} stopped, {cut} cut");
}

#[test]
fn stop_strings_end_completions_and_are_excluded() {
    let server = Server::start(&[]);
    let ask = |stop: Value| {
        json!({ "prompt": [PROMPT, "|- ( ph -> ( ps -> ph ) )"], "seed": 1, "max_tokens": 24, "n": 2, "stop": stop,
            "return_token_ids": true })
    };
    let whole = server.complete(ask(Value::Null));
    let choices = whole["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    let texts: Vec<&str> = choices.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_ne!(texts[0], texts[1], "the completions of a prompt must differ");
    // Take a part in the middle of the longest completion.
    let long = texts.iter().max_by_key(|text| text.len()).unwrap();
    let stop: String = long.chars().skip(long.chars().count() / 2).take(3).collect();
    for streamed in [false, true] {
        let found: Vec<String> = match streamed {
            false => {
                let answer = server.complete(ask(json!([stop])));
                let choices = answer["choices"].as_array().unwrap();
                choices.iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect()
            }
            true => {
                let mut found = vec![String::new(); 4];
                for event in server.stream(ask(json!(stop))) {
                    let choice = &event["choices"][0];
                    found[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
                }
                found
            }
        };
        let expected: Vec<&str> = texts.iter().map(|text| text.split(&stop).next().unwrap()).collect();
        assert_eq!(found, expected, "streamed: {streamed}");
    }
}

#[test]
fn invalid_requests_are_rejected_with_a_message() {
    let server = Server::start(&["--context", "64"]);
    for (change, expected) in [
        (json!({ "max_tokens": 100 }), "`max_tokens` is 100; expected 1 to 64"),
        (json!({ "max_tokens": 64 }), "exceed the context of 64 tokens"),
        (json!({ "max_tokens": 0 }), "`max_tokens`"),
        (json!({ "prompt": "" }), "`prompt` is empty"),
        (json!({ "prompt": [] }), "empty"),
        (json!({ "prompt": [99_999_999] }), "token 99999999"),
        (json!({ "prompt": { "a": 1 } }), "a text, a list of texts"),
        (json!({ "temperature": -1.0 }), "`temperature`"),
        (json!({ "top_p": 0.0 }), "`top_p`"),
        (json!({ "model": "gpt" }), "`gpt`: no such model"),
        (json!({ "n": 100_000 }), "1 to 1024"),
        (json!({ "n": 0 }), "`n`"),
        (json!({ "logprobs": 5 }), "`logprobs`"),
        (json!({ "echo": true }), "`echo`"),
        (json!({ "best_of": 3 }), "`best_of`"),
        (json!({ "presence_penalty": 0.5 }), "`presence_penalty`"),
        (json!({ "stop": [""] }), "`stop`"),
        (json!({ "seed": "x" }), "expected i64"),
    ] {
        let mut body = json!({ "prompt": PROMPT, "max_tokens": 2 });
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let (status, answer) = server.post("/v1/completions", &body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(expected), "{change}: {status} {answer}");
    }
    assert_eq!(server.post("/v1/chat/completions", &json!({})).0, 404);
    assert_eq!(server.post("/update_weights_from_disk", &json!({ "model_path": "/tmp" })).0, 403);
    // Invalid bytes on one connection do not affect others.
    let address = server.root().strip_prefix("http://").unwrap();
    let mut line = TcpStream::connect(address).unwrap();
    line.write_all(b"\x00\xff garbage\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = line.read_to_end(&mut answer);
    let answer = server.complete(json!({ "prompt": PROMPT, "max_tokens": 2 }));
    assert_eq!(answer["choices"].as_array().unwrap().len(), 1);
}

#[test]
fn requests_need_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let open = sgs(&["serve-model", "--listen", "0.0.0.0:0"]);
    assert_ne!(open.code, 0);
    assert!(open.err.contains("without a key"), "{}", open.err);
    let file = program::file(folder.path(), "key", "a-secret\n");
    let server = Server::start(&["--key-file", &file]);
    let body = json!({ "prompt": PROMPT, "max_tokens": 2 });
    assert_eq!(server.post_with("/v1/completions", &body, None).0, 401);
    assert_eq!(server.post_with("/v1/completions", &body, Some("a-secre")).0, 401);
    assert_eq!(server.post_with("/v1/completions", &body, Some("a-secret")).0, 200);
    let open = sgs(&["serve-model", "--updates", folder.path().to_str().unwrap()]);
    assert_ne!(open.code, 0);
    assert!(open.err.contains("weight updates") && open.err.contains("without a key"), "{}", open.err);
}

/// Checks that completions of a closed connection take no more compute time.
#[test]
fn a_disconnected_client_cancels_its_completions() {
    let server = Server::start(&["--batch", "4"]);
    let long = |n: usize| json!({ "prompt": PROMPT, "max_tokens": 480, "n": n, "ignore_eos": true });
    let start = Instant::now();
    server.complete(long(4));
    let at_once = start.elapsed();
    // Request sixteen times as many completions and disconnect after the first bytes.
    let mut body = long(64);
    body["stream"] = json!(true);
    let body = body.to_string();
    let address = server.root().strip_prefix("http://").unwrap();
    let mut line = TcpStream::connect(address).unwrap();
    let head = format!("host: {address}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    write!(line, "POST /v1/completions HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    let mut some = [0; 512];
    assert!(line.read(&mut some).unwrap() > 0);
    drop(line);
    let start = Instant::now();
    server.complete(json!({ "prompt": PROMPT, "max_tokens": 2 }));
    // If the completions were not cancelled, this request would wait about sixteen times as long.
    assert!(
        start.elapsed() < 8 * at_once,
        "took {:?}; a sixteenth of the cancelled work takes {at_once:?}",
        start.elapsed()
    );
}

/// Limits of the median and of the slowest health check, for a busy machine.
const HEALTHY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(3)];

/// Measures a health check.
fn health(server: &Server) -> Duration {
    let start = Instant::now();
    ureq::get(format!("{}/health", server.root())).call().unwrap();
    start.elapsed()
}

/// Opens clients that send many requests at once and never read the replies, on all regular connections.
#[test]
#[ignore = "a minute of load; `just chaos` runs it"]
fn deaf_clients_do_not_keep_all_places() {
    let server = Server::start(&[]);
    let address = server.root().strip_prefix("http://").unwrap();
    let requests = format!("GET /v1/models HTTP/1.1\r\nhost: {address}\r\n\r\n").repeat(1000);
    let connect = |_| (TcpStream::connect(address).unwrap(), 0);
    let mut deaf: Vec<(TcpStream, usize)> = (0..512).map(connect).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                for (stream, sent) in &mut deaf {
                    stream.set_nonblocking(true).unwrap();
                    *sent += stream.write(&requests.as_bytes()[*sent..]).unwrap_or(0);
                    *sent %= requests.len();
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let start = Instant::now();
        let mut checks = Vec::new();
        let mut completions = 0;
        while checks.len() < 20 || (completions < 10 && start.elapsed() < Duration::from_secs(60)) {
            std::thread::sleep(Duration::from_millis(50));
            checks.push(health(&server));
            let call = json!({ "prompt": PROMPT, "max_tokens": 2 });
            completions += usize::from(server.post("/v1/completions", &call).0 == 200);
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        let took = start.elapsed();
        assert_healthy(checks);
        println!("{completions} completions after {took:?}");
        assert!(
            completions >= 10 && took < Duration::from_secs(30),
            "{completions} completions after {took:?}"
        );
    });
}

fn assert_healthy(mut checks: Vec<Duration>) {
    checks.sort();
    let [median, slowest] = [checks[checks.len() / 2], checks[checks.len() - 1]];
    println!("{} health checks: median {median:?}, slowest {slowest:?}", checks.len());
    assert!(median < HEALTHY[0] && slowest < HEALTHY[1], "median {median:?}, slowest {slowest:?}");
}

/// Opens as many silent connections as there are places, and then more than the server accepts.
#[test]
fn silent_clients_do_not_stop_others() {
    let server = Server::start(&[]);
    let address = server.root().strip_prefix("http://").unwrap();
    let mut silent: Vec<TcpStream> = Vec::new();
    for connections in [512, 700] {
        silent.resize_with(connections, || TcpStream::connect(address).unwrap());
        assert_healthy((0..20).map(|_| health(&server)).collect());
        for _ in 0..20 {
            server.complete(json!({ "prompt": PROMPT, "max_tokens": 2 }));
        }
    }
}

/// SGLang's calls: weights are replaced between two completions, and responses name the version.
#[test]
fn weights_are_replaced_between_completions() {
    let folder = tempfile::tempdir().unwrap();
    let (updates, other) = (folder.path().join("updates"), folder.path().join("other"));
    for place in [&updates.join("same"), &updates.join("greedy"), &other] {
        std::fs::create_dir_all(place).unwrap();
        for file in std::fs::read_dir(base()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), place.join(file.file_name())).unwrap();
        }
    }
    // Use weights of the same shape with another distribution: doubling the final norm makes it sharper.
    sharpen(&updates.join("greedy").join("model.safetensors"));
    let key = program::file(folder.path(), "key", "a-secret");
    let server = Server::start(&["--updates", updates.to_str().unwrap(), "--key-file", &key]);
    let ask = json!({ "prompt": PROMPT, "seed": 3, "max_tokens": 8, "logprobs": 1 });
    let before = server.complete(ask.clone());
    assert_eq!(before["system_fingerprint"], "base");
    let update = |path: &str, version: &str| {
        server.post("/update_weights_from_disk", &json!({ "model_path": path, "weight_version": version }))
    };
    let place = |name: &str| path(&updates, name);
    let (status, answer) = update(&place("same"), "1");
    assert_eq!((status, &answer["success"]), (200, &json!(true)), "{answer}");
    let same = server.complete(ask.clone());
    assert_eq!((&same["choices"], &same["system_fingerprint"]), (&before["choices"], &json!("1")));
    assert_eq!(update(&place("greedy"), "2").0, 200);
    let sharp = server.complete(ask.clone());
    assert_ne!(sharp["choices"][0]["logprobs"], before["choices"][0]["logprobs"]);
    // Folders outside `--updates` and unreadable files are refused and change nothing.
    for path in [other.to_str().unwrap(), &place("../other"), &place("nothing"), "/"] {
        let (status, answer) = update(path, "3");
        assert_eq!(status, 400, "{path}: {answer}");
    }
    std::fs::write(updates.join("same/model.safetensors"), b"torn").unwrap();
    assert_eq!(update(&place("same"), "3").0, 400);
    let still = server.complete(ask.clone());
    assert_eq!((&still["choices"], &still["system_fingerprint"]), (&sharp["choices"], &json!("2")));
    // Completions wait while generation is paused.
    assert_eq!(server.post("/pause_generation", &json!({})).0, 200);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.complete(ask.clone()));
        std::thread::sleep(Duration::from_millis(500));
        assert!(!waits.is_finished());
        assert_eq!(server.post("/continue_generation", &json!({})).0, 200);
        assert_eq!(waits.join().unwrap()["choices"], sharp["choices"]);
    });
}

/// vLLM's calls: a sleeping server holds requests back, and reloading follows the link of the model folder.
#[test]
fn weights_are_reloaded_from_the_model_folder() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        let place = folder.path().join(name);
        std::fs::create_dir_all(&place).unwrap();
        for file in std::fs::read_dir(base()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), place.join(file.file_name())).unwrap();
        }
    }
    sharpen(&folder.path().join("two/model.safetensors"));
    let link = folder.path().join("served");
    std::os::unix::fs::symlink("one", &link).unwrap();
    let key = program::file(folder.path(), "key", "a-secret");
    let updates = folder.path().to_str().unwrap();
    let server =
        Server::start(&["--model", link.to_str().unwrap(), "--updates", updates, "--key-file", &key]);
    let tokens = Tokenizer::load(&base()).unwrap().encode(PROMPT).unwrap();
    let ask = json!({ "prompt": tokens, "max_tokens": 1, "prompt_logprobs": 0 });
    let before = server.complete(ask.clone())["choices"][0]["prompt_logprobs"].clone();
    // Compute the trainer's log-probs of the prompt tokens.
    let model =
        Model::new(Arc::new(Cpu::new(1).unwrap()), HostWeights::load(&base()).unwrap(), usize::MAX).unwrap();
    let device = Arc::new(Cpu::new(1).unwrap());
    let mut trainer = Trainer::new(device, &model.config, tokens.len(), Mode::Infer).unwrap();
    let expected = trainer.log_probs(&model, [(&tokens[..], 1)]).unwrap().remove(0).log_probs;
    assert_eq!(before[0], Value::Null);
    for (i, log_prob) in expected.iter().enumerate() {
        let served = before[i + 1][tokens[i + 1].to_string()]["logprob"].as_f64().unwrap();
        assert!((served - f64::from(*log_prob)).abs() < 1e-5, "{served} and {log_prob}");
    }
    // SGLang's `/generate` returns the same log-probs, and the weight version.
    let generate = json!({ "input_ids": tokens, "return_logprob": true, "logprob_start_len": 0,
        "sampling_params": { "max_new_tokens": 3, "temperature": 1.0, "sampling_seed": 5 } });
    let (status, answer) = server.post("/generate", &generate);
    assert_eq!(status, 200, "{answer}");
    let info = &answer["meta_info"];
    assert_eq!(info["input_token_logprobs"][1][0], before[1][tokens[1].to_string()]["logprob"]);
    assert_eq!(
        (info["output_token_logprobs"].as_array().unwrap().len(), &info["weight_version"]),
        (3, &json!("base"))
    );
    let whole = json!({ "prompt": tokens, "max_tokens": 3, "seed": 5, "return_token_ids": true });
    let ids: Vec<Value> =
        info["output_token_logprobs"].as_array().unwrap().iter().map(|t| t[1].clone()).collect();
    assert_eq!(server.complete(whole)["choices"][0]["token_ids"], json!(ids));
    let unknown = json!({ "input_ids": [1], "sampling_params": { "min_new_tokens": 3 } });
    assert_eq!(server.post("/generate", &unknown).0, 400);
    // Changing the link has no effect until the weights are reloaded.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("two", &link).unwrap();
    assert_eq!(server.complete(ask.clone())["choices"][0]["prompt_logprobs"], before);
    assert_eq!(server.post("/sleep?level=2", &json!({})).0, 200);
    assert_eq!(server.post("/wake_up?tags=weights", &json!({})).0, 200);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.complete(ask.clone()));
        assert_eq!(server.post("/collective_rpc", &json!({ "method": "abort" })).0, 400);
        assert_eq!(server.post("/collective_rpc", &json!({ "method": "reload_weights" })).0, 200);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waits.is_finished(), "the request must wait until the KV cache is awake");
        assert_eq!(server.post("/wake_up?tags=kv_cache", &json!({})).0, 200);
        let after = waits.join().unwrap();
        assert_ne!(after["choices"][0]["prompt_logprobs"], before);
        assert_ne!(after["system_fingerprint"], "base", "the held-back completion must use the new weights");
    });
}

/// Doubles the final norm's weights in a safetensors file.
fn sharpen(file: &std::path::Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let head = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let index: Value = serde_json::from_slice(&bytes[8..8 + head]).unwrap();
    let norm = &index["model.norm.weight"];
    let at = |i: usize| 8 + head + norm["data_offsets"][i].as_u64().unwrap() as usize;
    match norm["dtype"].as_str().unwrap() {
        "F32" => (at(0)..at(1)).step_by(4).for_each(|i| {
            let x = 2.0 * f32::from_le_bytes(bytes[i..i + 4].try_into().unwrap());
            bytes[i..i + 4].copy_from_slice(&x.to_le_bytes());
        }),
        // Incrementing the exponent doubles the value.
        "BF16" | "F16" => (at(0)..at(1)).step_by(2).for_each(|i| {
            let step = if norm["dtype"] == "BF16" { 1 << 7 } else { 1 << 10 };
            let x = u16::from_le_bytes(bytes[i..i + 2].try_into().unwrap()) + step;
            bytes[i..i + 2].copy_from_slice(&x.to_le_bytes());
        }),
        other => panic!("{other}"),
    }
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn a_run_samples_from_the_server() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "run");
    let url = format!("sampling.endpoint.url={}", server.url);
    let set = [
        "rounds=1",
        "evaluation.held_out=none",
        "algorithm.batch.size=12",
        "algorithm.rollouts_per_problem=4",
        "sampling.endpoint.roles=[\"solver\"]",
        &url,
    ];
    let mut args = vec!["run", "sampling-only", "--out", &out];
    set.iter().for_each(|set| args.extend(["--set", *set]));
    sgs(&args).expect(0);
    let round = sgs_rundir::RunView::open(std::path::Path::new(&out)).unwrap().round(0).unwrap();
    let rows: Vec<_> = round.rollouts().unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 48);
    let samples = || rows.iter().map(|row| &row.sample);
    assert!(samples().all(|s| !s.tokens.is_empty() && s.tokens.len() == s.log_probs.len()));
    assert!(
        rows.iter().any(|row| row.verdict == sgs_selfplay::Verdict::Proved),
        "the shipped Solver must solve some targets"
    );
}

/// OpenAI's Python client works with the server.
#[test]
fn the_official_client_works() {
    let python = std::env::var("SGS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_it = Command::new(&python).args(["-c", "import openai"]).output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        let required = std::env::var("SGS_REQUIRE").unwrap_or_default();
        assert!(!required.contains("openai"), "SGS_REQUIRE names openai, which {python} does not have");
        println!("skipped: {python} has no openai (`pip install openai`; SGS_PYTHON names another Python)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = program::file(folder.path(), "key", "a-secret");
    let server = Server::start(&["--key-file", &file]);
    let program = r#"
import openai, os
client = openai.OpenAI(base_url=os.environ["URL"], api_key="a-secret", max_retries=0)
model = client.models.list().data[0].id
ask = dict(model=model, prompt="|- ( ph -> ph )", max_tokens=12, seed=4, logprobs=1, n=2)
whole = client.completions.create(**ask)
assert len(whole.choices) == 2 and whole.usage.total_tokens > 0, whole
assert len(whole.choices[0].logprobs.token_logprobs) > 0, whole
parts = ["", ""]
for event in client.completions.create(stream=True, **ask):
    for choice in event.choices:
        parts[choice.index] += choice.text
assert parts == [choice.text for choice in whole.choices], (parts, whole)
for bad, error in [(dict(max_tokens=100000), openai.BadRequestError), (dict(model="x"), openai.BadRequestError)]:
    try:
        client.completions.create(**{**ask, **bad})
        raise SystemExit(f"no error for {bad}")
    except error as e:
        assert e.body["message"], e
try:
    openai.OpenAI(base_url=os.environ["URL"], api_key="wrong", max_retries=0).models.list()
    raise SystemExit("a wrong key was accepted")
except openai.AuthenticationError:
    pass
"#;
    let output = Command::new(&python).args(["-c", program]).env("URL", &server.url).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
