//! `sgs data filter` and `sgs data classify`: from a set of Lean problems to the hard and true ones.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // tests say so by panicking

mod program;
#[path = "../../endpoint/tests/server/mod.rs"]
mod server;
mod tactics;

use program::{command, file, path, project, sgs};
use serde_json::Value;
use server::{Options, Server};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A folder with the model, `model`, and the scripted Lean, `lean`.
fn surroundings() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    tactics::write_model(&dir.path().join("model"));
    tactics::write_scripted_lean(&dir.path().join("lean"), "4.28.0-pre");
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

/// Problems of each fate.
fn fates(out: &Path) -> BTreeMap<String, usize> {
    let mut fates = BTreeMap::new();
    for line in lines(&out.join("fates.jsonl")) {
        *fates.entry(line["fate"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    fates
}

/// Attempts at all of core, 16 problems at once, and a part of what is left.
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
fn a_filtering_that_was_killed_goes_on_and_comes_to_the_same() {
    let dir = surroundings();
    let lean = path(dir.path(), "lean");
    let config = two_stages(dir.path(), 0.1);
    let whole = sgs(&arguments(dir.path(), &config, "whole", &lean)).expect(0).json();
    let stages = whole["stages"].as_array().unwrap();
    assert_eq!((&whole["problems"], &stages[0]["came"]), (&115.into(), &115.into()));
    assert!(stages[0]["fell"]["easy"].as_u64().unwrap() >= 20, "{whole}");
    assert_eq!(stages[1]["kept"], 20, "{whole}");

    let ledger = dir.path().join("killed/easy.jsonl");
    for found in [1, 40] {
        let args = arguments(dir.path(), &config, "killed", &lean);
        let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while std::fs::read_to_string(&ledger).unwrap_or_default().lines().count() <= found {
            assert!(begun.elapsed() < Duration::from_secs(240), "nothing was found");
            assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let before = std::fs::read_to_string(&ledger).unwrap();
    assert!(before.lines().count() < 116, "it was killed on its way");
    // As if the last line had not come to the disk whole.
    std::fs::write(&ledger, &before[..before.len() - 9]).unwrap();
    sgs(&arguments(dir.path(), &config, "killed", &lean)).expect(0);
    for name in ["easy.jsonl", "kept.jsonl", "fates.jsonl", "report.md"] {
        let of = |out: &str| std::fs::read_to_string(dir.path().join(out).join(name)).unwrap();
        assert_eq!(of("whole"), of("killed"), "{name}");
    }
    assert_eq!(
        sgs(&["data", "stats", &path(dir.path(), "whole/kept.jsonl"), "--json"]).expect(0).json()["stats"]["problems"],
        20
    );

    // Another threshold finds nothing anew; other attempts are refused.
    let laxer = two_stages(dir.path(), 0.5);
    let begun = std::fs::metadata(&ledger).unwrap().modified().unwrap();
    let laxer = sgs(&arguments(dir.path(), &laxer, "killed", &lean)).expect(0).json();
    assert!(laxer["stages"][0]["kept"].as_u64() > stages[0]["kept"].as_u64(), "{laxer}");
    assert_eq!(std::fs::metadata(&ledger).unwrap().modified().unwrap(), begun);
    let text = std::fs::read_to_string(&config).unwrap().replace("k = 24", "k = 16");
    let other = file(dir.path(), "other.toml", &text);
    let refused = sgs(&arguments(dir.path(), &other, "killed", &lean)).expect(1);
    assert!(refused.err.contains("easy.jsonl") && refused.err.contains("other settings"), "{}", refused.err);
}

#[test]
fn what_cannot_work_is_said_before_anything_is_sampled() {
    let dir = surroundings();
    let lean = path(dir.path(), "lean");
    let config = two_stages(dir.path(), 0.5).replace("filter.toml", "none.toml");
    let done = sgs(&arguments(dir.path(), &config, "out", &lean)).expect(1);
    assert!(done.err.contains("none.toml"), "{}", done.err);
    let wrong = file(
        dir.path(),
        "wrong.toml",
        "problems = \"core\"\nseed = 1\n[[stage]]\nkind = \"rollouts\"\nname = \"a\"\nk = 0\n",
    );
    let done = sgs(&arguments(dir.path(), &wrong, "out", &lean)).expect(2);
    assert!(done.err.contains("wrong.toml") && done.err.contains("`a.k` is 0"), "{}", done.err);
    let line = "{\"id\":\"p\",\"statement\":\"theorem p : 1 = 1 := by\"}\n";
    let twice = file(dir.path(), "twice.jsonl", &line.repeat(2));
    let twice = file(dir.path(), "twice.toml", &format!("problems = \"{twice}\"\nseed = 1\nstage = []\n"));
    let done = sgs(&arguments(dir.path(), &twice, "out", &lean)).expect(1);
    assert!(done.err.contains("line 2: p: the id occurs a second time"), "{}", done.err);
    // A later stage's model, before the first stage has taken its time.
    let later = std::fs::read_to_string(two_stages(dir.path(), 0.5)).unwrap()
        + "[[stage]]\nkind = \"rollouts\"\nname = \"b\"\nmodel = \"absent\"\n";
    let done = sgs(&arguments(dir.path(), &file(dir.path(), "later.toml", &later), "later", &lean)).expect(1);
    assert!(done.err.contains("in the stage b") && done.err.contains("absent"), "{}", done.err);
    assert!(!dir.path().join("later/easy.jsonl").exists());
    // A proxy that is none: who has not answered is named.
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
    let mut told = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(proxied.stderr.take().unwrap()), &mut told)
        .unwrap();
    assert!(told.contains("through the proxy 127.0.0.1:9"), "{told}");
    proxied.kill().unwrap();
    proxied.wait().unwrap();
    let away = ["data", "classify", "core", "--endpoint", "127.0.0.1:1", "--out", &path(dir.path(), "c")];
    let done = sgs(&away).expect(1);
    assert!(done.err.contains("begins with http:// or https://"), "{}", done.err);
}

/// llama.cpp's server over a model that says these texts, all equally often.
fn teacher(dir: &Path, says: &[&str]) -> Option<Server> {
    let model = dir.join("teacher");
    tactics::write_model_that_says(&model, &says.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
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
fn a_served_model_labels_what_is_left_and_classifies_it() {
    let dir = surroundings();
    let Some(server) = teacher(dir.path(), &LABELS) else { return };
    let lean = path(dir.path(), "lean");
    let mut text = std::fs::read_to_string(two_stages(dir.path(), 0.1)).unwrap().replace("k = 24", "k = 8");
    text.push_str(&label(&server.url));
    let config = file(dir.path(), "labelled.toml", &text);
    let done = sgs(&arguments(dir.path(), &config, "out", &lean)).expect(0).json();
    let out = dir.path().join("out");
    let stage = &done["stages"][2];
    assert_eq!((&stage["came"], &stage["undecided"]), (&20.into(), &0.into()), "{done}");
    let said = lines(&out.join("label.jsonl"));
    let unsolvable = said.iter().filter(|line| line["said"] == "unsolvable").count();
    assert!((1..20).contains(&unsolvable), "{said:?}");
    assert!(
        said[1..].iter().any(|line| line["asked"].as_u64() > Some(1)),
        "one in four answers is none: {said:?}"
    );
    let fates = fates(&out);
    assert_eq!((fates["unsolvable"], fates["kept"]), (unsolvable, 20 - unsolvable), "{fates:?}");
    assert_eq!(lines(&out.join("kept.jsonl")).len(), 20 - unsolvable);
    // What is known is asked of nobody.
    drop(server);
    assert_eq!(sgs(&arguments(dir.path(), &config, "out", &lean)).expect(0).json(), done);

    let says =
        ["high_school algebra", "Competition, number_theory.", "undergraduate", "Let me think about it."];
    let Some(server) = teacher(&dir.path().join("second"), &says) else { return };
    let classes = path(dir.path(), "classes");
    let url = server.url.clone();
    let classify = ["data", "classify", "core", "--endpoint", &url, "--out", &classes];
    let short = ["--endpoint-requests", "4", "--max-new-tokens", "32", "--tries", "1"];
    let some = sgs(&[&classify[..], &short, &["--json"]].concat()).expect(1).json();
    let some = some["classified"].as_u64().unwrap();
    assert!((15..60).contains(&some), "two in four answers are none: {some}");
    let all = sgs(&[&classify[..], &short[..4]].concat()).expect(0);
    assert!(all.out.contains("of 70 problems classified by teacher"), "{}", all.out);
    assert!(lines(&dir.path().join("classes/classes.jsonl")).len() > 70);
    // What is known is asked of nobody.
    drop(server);
    let again = sgs(&[&classify[..], &short[..4]].concat()).expect(0);
    assert_eq!(again.out.replace("a served model", "teacher"), all.out);
    let figure = std::fs::read_to_string(dir.path().join("classes/classes.svg")).unwrap();
    assert!(figure.contains("number theory") && figure.contains("competition"), "{figure}");
}

/// A chat server that answers so many questions, and then with what is no answer.
fn tires(answers: usize) -> String {
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
fn a_server_that_gives_no_answers_ends_it_and_what_it_said_stays() {
    let dir = tempfile::tempdir().unwrap();
    let problem = |n: usize, says: usize| {
        format!(
            "{{\"id\":\"p{n}\",\"statement\":\"theorem p{n} (x : Nat) : x + {says} = {says} + x := by\"}}\n"
        )
    };
    let problems = |says: &dyn Fn(usize) -> usize| {
        file(dir.path(), "some.jsonl", &(0..30).map(|n| problem(n, says(n))).collect::<String>())
    };
    let set = problems(&|n| n);
    let classes = path(dir.path(), "classes");
    let classify = |url: &str| {
        sgs(&["data", "classify", &set, "--endpoint", url, "--out", &classes, "--endpoint-requests", "3"])
    };
    let ledger = || lines(&dir.path().join("classes/classes.jsonl")).len() - 1;
    // One is the probe.
    let tired = classify(&tires(21)).expect(1);
    assert!(tired.err.contains("gave no answer to 5 of 30 questions"), "{}", tired.err);
    assert_eq!(ledger(), 20, "every answer that came");
    // The rest alone is asked; and again what is another statement under the same name.
    assert!(classify(&tires(11)).expect(0).out.contains("30 of 30 problems"));
    assert_eq!(ledger(), 30);
    problems(&|n| if n == 7 { 99 } else { n });
    assert!(classify(&tires(2)).expect(0).out.contains("30 of 30 problems"));
    assert_eq!(ledger(), 31);
}

/// The paper's stages with the real Lean: what tactics prove falls as easy, and what they prove false as false.
#[test]
#[ignore = "runs Lean as WebAssembly (lean/wasm, or SGS_LEAN_WASM): minutes of CPU time; .ci/run runs it"]
fn the_real_lean_tells_easy_and_false_problems_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let proofs =
        ["omega", "simp", "simp_all", "decide", "intro h; simpa using h 0 0", "intro h; have := h 1; omega"];
    let says = proofs.map(|proof| format!("```lean4\n  {proof}\n```"));
    tactics::write_model_that_says(&dir.path().join("model"), &says);
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
        // A problem that is known to be true is never shown to be false, nor one that is false easy.
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
