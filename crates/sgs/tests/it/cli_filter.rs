//! `sgs data filter` and `sgs data classify`: reduce a set of Lean problems to those that are hard and true.
#![cfg(target_os = "linux")]

use crate::lean_fixtures;
use crate::program::{command, file, path, project, sgs};
use crate::server::{Options, Server};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Creates a folder with a model (`model`) and a scripted Lean (`lean`).
fn fixture_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    lean_fixtures::write_model(&dir.path().join("model"));
    lean_fixtures::write_scripted_lean(&dir.path().join("lean"), "4.28.0-pre");
    dir
}

fn arguments(dir: &Path, config: &str, out: &str, lean: &str) -> Vec<String> {
    let out = path(dir, out);
    let args =
        ["data", "filter", config, "--out", &out, "--json", "--lean-checker", "wasm", "--lean-slots", "1"];
    args.into_iter().chain(["--lean-root", lean]).map(str::to_owned).collect()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Counts the problems by fate.
fn fates(out: &Path) -> BTreeMap<String, usize> {
    let mut fates = BTreeMap::new();
    for line in lines(&out.join("fates.jsonl")) {
        *fates.entry(line["fate"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    fates
}

/// Writes a configuration with two stages: rollouts on the set `core`, then a random sample of the remaining problems.
fn two_stages(dir: &Path, drop_above: f64) -> String {
    let model = path(dir, "model");
    let problems = project("data/lean/core.jsonl");
    let text = format!(
        "problems = {problems:?}\nseed = 5\n\
         [[stage]]\nkind = \"rollouts\"\nname = \"easy\"\nmodel = \"{model}\"\nk = 24\ndrop_above = {drop_above}\n\
         context = 1024\nbatch = 16\nmemory_mib = 64\n\
         [[stage]]\nkind = \"sample\"\nname = \"part\"\ncount = 20\n"
    );
    file(dir, "filter.toml", &text)
}

#[test]
fn a_killed_filter_resumes_to_the_same_result() {
    let dir = fixture_folder();
    let lean = path(dir.path(), "lean");
    let config = two_stages(dir.path(), 0.1);
    let whole = sgs(&arguments(dir.path(), &config, "whole", &lean)).expect(0).json();
    let stages = whole["stages"].as_array().unwrap();
    assert_eq!((&whole["problems"], &stages[0]["came"]), (&115.into(), &115.into()));
    assert!(stages[0]["fell"]["easy"].as_u64().unwrap() >= 20, "{whole}");
    assert_eq!(stages[1]["kept"], 20, "{whole}");

    let ledger = dir.path().join("killed/easy.jsonl");
    let results = || std::fs::read_to_string(&ledger).unwrap_or_default().lines().count();
    let is_killed_after = |found: usize| {
        let args = arguments(dir.path(), &config, "killed", &lean);
        let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while results() <= found && child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(240), "no result within 240 s");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        !child.wait().unwrap().success()
    };
    // If the machine pauses this test, the command may end before it is killed. Then the test tries again.
    let mut attempts = (0..10).map(|_| {
        let _ = std::fs::remove_dir_all(dir.path().join("killed"));
        [1, 40].into_iter().all(is_killed_after) && (41..116).contains(&results())
    });
    assert!(attempts.any(|is_killed| is_killed), "the command was not killed in time in ten attempts");
    let before = std::fs::read_to_string(&ledger).unwrap();
    // Truncate the last line, as if it had been written only partly.
    std::fs::write(&ledger, &before[..before.len() - 9]).unwrap();
    sgs(&arguments(dir.path(), &config, "killed", &lean)).expect(0);
    for name in ["easy.jsonl", "kept.jsonl", "fates.jsonl", "report.md"] {
        let of = |out: &str| std::fs::read_to_string(dir.path().join(out).join(name)).unwrap();
        assert_eq!(of("whole"), of("killed"), "{name}");
    }
    assert_eq!(lines(&dir.path().join("whole/kept.jsonl")).len(), 20);

    // Another threshold reuses the results; another number of attempts is refused.
    let laxer = two_stages(dir.path(), 0.5);
    let modified = std::fs::metadata(&ledger).unwrap().modified().unwrap();
    let laxer = sgs(&arguments(dir.path(), &laxer, "killed", &lean)).expect(0).json();
    assert!(laxer["stages"][0]["kept"].as_u64() > stages[0]["kept"].as_u64(), "{laxer}");
    assert_eq!(std::fs::metadata(&ledger).unwrap().modified().unwrap(), modified);
    let text = std::fs::read_to_string(&config).unwrap().replace("k = 24", "k = 16");
    let other = file(dir.path(), "other.toml", &text);
    let refused = sgs(&arguments(dir.path(), &other, "killed", &lean)).expect(1);
    assert!(refused.err.contains("easy.jsonl") && refused.err.contains("other settings"), "{}", refused.err);
}

#[test]
fn mistakes_are_reported_before_sampling_starts() {
    let dir = fixture_folder();
    let lean = path(dir.path(), "lean");
    let config = two_stages(dir.path(), 0.5).replace("filter.toml", "none.toml");
    let done = sgs(&arguments(dir.path(), &config, "out", &lean)).expect(2);
    assert!(done.err.contains("none.toml"), "{}", done.err);
    let wrong = file(
        dir.path(),
        "wrong.toml",
        "problems = \"core\"\nseed = 1\n[[stage]]\nkind = \"rollouts\"\nname = \"a\"\nk = 0\n",
    );
    let done = sgs(&arguments(dir.path(), &wrong, "out", &lean)).expect(2);
    assert!(
        done.err.contains("wrong.toml:6: `stage[rollouts].k` is 0; expected an integer from 1 to 1024"),
        "{}",
        done.err
    );
    let keys = sgs(&["data", "filter", "--explain"]).expect(0).out;
    assert!(keys.contains("\nstage[label].endpoint.url\n") && !keys.contains("endpoint.roles"), "{keys}");
    let line = "{\"id\":\"p\",\"statement\":\"theorem p : 1 = 1 := by\"}\n";
    let twice = file(dir.path(), "twice.jsonl", &line.repeat(2));
    let twice = file(dir.path(), "twice.toml", &format!("problems = \"{twice}\"\nseed = 1\nstage = []\n"));
    let done = sgs(&arguments(dir.path(), &twice, "out", &lean)).expect(2);
    assert!(done.err.contains("line 2: p: the id occurs a second time"), "{}", done.err);
    // The models of later stages are checked before the first stage starts.
    let later = std::fs::read_to_string(two_stages(dir.path(), 0.5)).unwrap()
        + "[[stage]]\nkind = \"rollouts\"\nname = \"b\"\nmodel = \"absent\"\n";
    let done = sgs(&arguments(dir.path(), &file(dir.path(), "later.toml", &later), "later", &lean)).expect(1);
    assert!(done.err.contains("in the stage b") && done.err.contains("absent"), "{}", done.err);
    assert!(!dir.path().join("later/easy.jsonl").exists());
    // The message names a proxy that does not answer.
    let mut proxied = command(&[
        "data",
        "classify",
        "core",
        "--endpoint",
        "http://h.invalid",
        "--out",
        &path(dir.path(), "c"),
    ]);
    proxied.env("HTTP_PROXY", "http://127.0.0.1:9").env_remove("NO_PROXY").stderr(Stdio::piped());
    let mut proxied = proxied.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(proxied.stderr.take().unwrap()), &mut line)
        .unwrap();
    assert!(line.contains("through the proxy 127.0.0.1:9"), "{line}");
    proxied.kill().unwrap();
    proxied.wait().unwrap();
    let away = ["data", "classify", "core", "--endpoint", "127.0.0.1:1", "--out", &path(dir.path(), "c")];
    let done = sgs(&away).expect(2);
    assert!(done.err.contains("begins with http:// or https://"), "{}", done.err);
}

/// Starts llama.cpp's server with a model that generates one of these completions, each equally likely.
fn teacher(dir: &Path, completions: &[&str]) -> Option<Server> {
    let model = dir.join("teacher");
    lean_fixtures::write_model_with_completions(
        &model,
        &completions.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(),
    );
    Server::start(&Options { model: Some(model), context: 4096, name: "teacher", ..Options::default() })
}

const LABELS: [&str; 4] = [
    "It follows by omega. <SOLVABLE>",
    "Hm. <UNKNOWN>",
    "No: take n = 0.\n<UNSOLVABLE>",
    "I would have to think.",
];

fn label(url: &str) -> String {
    format!(
        "[[stage]]\nkind = \"label\"\nname = \"label\"\nmax_tokens = 64\ntries = 30\n\
         endpoint = {{ url = \"{url}\", concurrency = 4 }}\n"
    )
}

#[test]
fn a_served_model_labels_and_classifies_problems() {
    let dir = fixture_folder();
    let Some(server) = teacher(dir.path(), &LABELS) else { return };
    let lean = path(dir.path(), "lean");
    let mut text = std::fs::read_to_string(two_stages(dir.path(), 0.1)).unwrap().replace("k = 24", "k = 8");
    text.push_str(&label(&server.url));
    let config = file(dir.path(), "labelled.toml", &text);
    let done = sgs(&arguments(dir.path(), &config, "out", &lean)).expect(0).json();
    let out = dir.path().join("out");
    let stage = &done["stages"][2];
    assert_eq!((&stage["came"], &stage["undecided"]), (&20.into(), &0.into()), "{done}");
    let labels = lines(&out.join("label.jsonl"));
    let unsolvable = labels.iter().filter(|line| line["said"] == "unsolvable").count();
    assert!((1..20).contains(&unsolvable), "{labels:?}");
    assert!(
        labels[1..].iter().any(|line| line["asked"].as_u64() > Some(1)),
        "a quarter of the answers is invalid and must be retried: {labels:?}"
    );
    let fates = fates(&out);
    assert_eq!((fates["unsolvable"], fates["kept"]), (unsolvable, 20 - unsolvable), "{fates:?}");
    assert_eq!(lines(&out.join("kept.jsonl")).len(), 20 - unsolvable);
    // Known results need no server.
    drop(server);
    assert_eq!(sgs(&arguments(dir.path(), &config, "out", &lean)).expect(0).json(), done);

    let answers =
        ["high_school algebra", "Competition, number_theory.", "undergraduate", "Let me think about it."];
    let Some(server) = teacher(&dir.path().join("second"), &answers) else { return };
    let classes = path(dir.path(), "classes");
    let url = server.url.clone();
    let classify = ["data", "classify", "core", "--endpoint", &url, "--out", &classes];
    let short = ["--endpoint-requests", "4", "--max-new-tokens", "32", "--tries", "1"];
    let some = sgs(&[&classify[..], &short, &["--json"]].concat()).expect(1).json();
    let some = some["classified"].as_u64().unwrap();
    assert!((15..60).contains(&some), "half of the answers are invalid: {some}");
    let all = sgs(&[&classify[..], &short[..4]].concat()).expect(0);
    assert!(all.out.contains("of 70 problems classified by teacher"), "{}", all.out);
    assert!(lines(&dir.path().join("classes/classes.jsonl")).len() > 70);
    // Known results need no server.
    drop(server);
    let again = sgs(&[&classify[..], &short[..4]].concat()).expect(0);
    assert_eq!(again.out.replace("a served model", "teacher"), all.out);
    let figure = std::fs::read_to_string(dir.path().join("classes/classes.svg")).unwrap();
    assert!(figure.contains("number theory") && figure.contains("competition"), "{figure}");
}

/// Starts a chat server that gives `answers` answers and then only errors. Returns its URL.
fn exhaustible_server(answers: usize) -> String {
    use std::io::{BufRead, BufReader, Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let left = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(answers));
    std::thread::spawn(move || {
        for line in listener.incoming().flatten() {
            let left = left.clone();
            std::thread::spawn(move || -> Option<()> {
                let mut reader = BufReader::new(line.try_clone().ok()?);
                loop {
                    let (mut head, mut length) = (String::new(), 0);
                    while !head.ends_with("\r\n\r\n") {
                        let start = head.len();
                        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
                        let header = head[start..].to_ascii_lowercase();
                        if let Some(value) = header.strip_prefix("content-length:") {
                            length = value.trim().parse().ok()?;
                        }
                    }
                    reader.read_exact(&mut vec![0; length]).ok()?;
                    let order = std::sync::atomic::Ordering::SeqCst;
                    let body = if head.starts_with("GET") {
                        r#"{"data":[{"id":"m"}]}"#
                    } else if left.fetch_update(order, order, |n| n.checked_sub(1)).is_ok() {
                        r#"{"choices":[{"message":{"content":"competition logic"},"finish_reason":"stop"}]}"#
                    } else {
                        r#"{"error":{"message":"\u001b[31mquota"}}"#
                    };
                    write!(&line, "HTTP/1.1 200 -\r\ncontent-length: {}\r\n\r\n{body}", body.len()).ok()?;
                }
            });
        }
    });
    url
}

#[test]
fn a_server_that_stops_answering_ends_the_command_and_its_answers_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let problem = |n: usize, summand: usize| {
        format!(
            "{{\"id\":\"p{n}\",\"statement\":\"theorem p{n} (x : Nat) : x + {summand} = {summand} + x := by\"}}\n"
        )
    };
    let problems = |summand: &dyn Fn(usize) -> usize| {
        file(dir.path(), "some.jsonl", &(0..30).map(|n| problem(n, summand(n))).collect::<String>())
    };
    let set = problems(&|n| n);
    let classes = path(dir.path(), "classes");
    let classify = |url: &str| {
        sgs(&["data", "classify", &set, "--endpoint", url, "--out", &classes, "--endpoint-requests", "3"])
    };
    let ledger = || lines(&dir.path().join("classes/classes.jsonl")).len() - 1;
    // One of the 21 answers goes to the probe.
    let failed = classify(&exhaustible_server(21)).expect(1);
    assert!(failed.err.contains("gave no answer to 5 of 30 questions"), "{}", failed.err);
    assert_eq!(ledger(), 20, "every answer is kept");
    // Only the missing answers are requested, and that of a problem whose statement has changed.
    assert!(classify(&exhaustible_server(11)).expect(0).out.contains("30 of 30 problems"));
    assert_eq!(ledger(), 30);
    problems(&|n| if n == 7 { 99 } else { n });
    assert!(classify(&exhaustible_server(2)).expect(0).out.contains("30 of 30 problems"));
    assert_eq!(ledger(), 31);
}

/// The paper's stages with real Lean: problems that tactics prove are dropped as easy, and those that they disprove are
/// dropped as false.
#[test]
#[ignore = "runs Lean as WebAssembly (lean/wasm, or SGS_LEAN_WASM): minutes of CPU time; `just lean-all` runs it"]
fn real_lean_separates_easy_and_false_problems() {
    let dir = tempfile::tempdir().unwrap();
    let proofs =
        ["omega", "simp", "simp_all", "decide", "intro h; simpa using h 0 0", "intro h; have := h 1; omega"];
    let completions = proofs.map(|proof| format!("```lean4\n  {proof}\n```"));
    lean_fixtures::write_model_with_completions(&dir.path().join("model"), &completions);
    let lean =
        std::env::var("SGS_LEAN_WASM").unwrap_or_else(|_| project("lean/wasm").to_str().unwrap().to_owned());
    let model = path(dir.path(), "model");
    let rollouts = |name: &str, drop_above: f64, negation: bool| {
        format!(
            "[[stage]]\nkind = \"rollouts\"\nname = \"{name}\"\nmodel = \"{model}\"\ndrop_above = {drop_above}\n\
             negation = {negation}\ncontext = 1024\nmemory_mib = 64\n"
        )
    };
    let core = std::fs::read_to_string(project("data/lean/core.jsonl")).unwrap();
    let of = |prefix: &str| {
        core.lines()
            .filter(|line| line.contains(prefix))
            .take(14)
            .map(|l| format!("{l}\n"))
            .collect::<String>()
    };
    let problems = file(dir.path(), "some.jsonl", &[of("\"id\": \"nat_"), of("\"id\": \"false_")].concat());
    let server = teacher(dir.path(), &LABELS);
    let mut text = format!(
        "problems = {problems:?}\nseed = 1\n{}{}",
        rollouts("first", 0.5, false),
        rollouts("second", 0.25, true)
    );
    text.push_str("[[stage]]\nkind = \"sample\"\nname = \"part\"\ncount = 12\n");
    text.push_str(&server.as_ref().map(|server| label(&server.url)).unwrap_or_default());
    let config = file(dir.path(), "filter.toml", &text);
    let done = sgs(&arguments(dir.path(), &config, "out", &lean)).expect(0);
    let report = std::fs::read_to_string(dir.path().join("out/report.md")).unwrap();
    let shown = format!("{}\n{report}", done.out);
    std::io::Write::write_all(&mut std::io::stdout(), shown.as_bytes()).unwrap();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let fates = lines(&dir.path().join("out/fates.jsonl"));
    for line in &fates {
        let (id, fate) = (line["id"].as_str().unwrap(), line["fate"].as_str().unwrap());
        *counts.entry(fate).or_default() += 1;
        // No true problem is marked false, and no false problem is marked easy.
        assert!(!(fate == "false" && id.starts_with("nat_")), "{line}");
        assert!(!(fate == "easy" && id.starts_with("false_")), "{line}");
        assert_ne!(fate, "contradictory", "{line}");
    }
    assert!(counts["easy"] >= 3 && counts["false"] >= 3, "{counts:?}");
    assert!(
        done.json()["stages"].as_array().unwrap().iter().all(|stage| stage["undecided"] == 0),
        "{}",
        done.out
    );
}
