//! The live page of a run: `sgs run --serve` and `sgs status --serve`.
#![cfg(unix)]

use crate::program;
use crate::program::{command, path, small_model};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of waits. It is much longer than needed, so that tests also pass on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A child process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the address in the first line that contains one.
fn address(lines: impl Read + Send + 'static) -> String {
    let mut lines = BufReader::new(lines).lines().map(Result::unwrap);
    let found = lines
        .by_ref()
        .find_map(|l| l.split_once("http://").map(|(_, at)| at.trim_end_matches('/').to_owned()));
    // Drain the remaining output, so that the program never blocks on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    found.expect("a line with an address")
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Polls the status until `is_so` accepts it.
fn status(address: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let status: Value = serde_json::from_str(&get(address, "/status")).unwrap();
        if is_so(&status) {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: {status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn stage<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["stages"].as_array()?.iter().find(|s| s["name"] == name)
}

fn has_recent(status: &Value, kind: &str, is_so: impl Fn(&Value) -> bool) -> bool {
    status["recent"].as_array().is_some_and(|all| all.iter().any(|r| r["kind"] == kind && is_so(r)))
}

#[test]
fn a_live_run_is_served_by_itself_and_by_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, model) = (path(dir.path(), "run"), small_model());
    let mut arguments = vec!["run", "--out", folder.as_str(), "--serve", "0"];
    for setting in [
        model.as_str(),
        "rounds=1000",
        "minutes=0",
        "algorithm.batch.size=24",
        "algorithm.rollouts_per_problem=4",
        "sampling.batch=64",
        "algorithm.optimizer.batch_size=8",
        "evaluation.problems=5",
        "evaluation.samples=2",
    ] {
        arguments.extend(["--set", setting]);
    }
    let mut run = command(&arguments);
    let mut run = Running(run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let page = address(run.0.stderr.take().unwrap());
    assert!(page.starts_with("127.0.0.1:"), "{page}");

    // The page of the run itself shows progress with totals, workers, the queue, checked proofs and reviewed
    // conjectures. The evaluation before the first round has fewer rollouts than a round.
    let is_of_round = |r: &Value| r["done"].as_u64() > Some(0) && r["total"].as_u64() >= Some(24 * 4);
    let now = status(&page, "rollouts of a round", |s| stage(s, "Rollouts").is_some_and(is_of_round));
    let workers: Vec<&str> =
        now["workers"].as_array().unwrap().iter().filter_map(|w| w["kind"].as_str()).collect();
    assert!(workers.contains(&"generate") && workers.contains(&"verify"), "{now}");
    assert!(now["queue"].as_array().unwrap().iter().any(|q| q[0] == "pending"), "{now}");
    let reviewed = |r: &Value| r["scores"].as_str().unwrap().starts_with("relevance ");
    status(&page, "a review", |s| has_recent(s, "conjecture", reviewed));
    let proof = |r: &Value| {
        r["text"].as_str().unwrap().contains("|-") && r["statement"].as_str().unwrap().contains("|-")
    };
    status(&page, "a proof", |s| has_recent(s, "proof", proof));

    // Another process reads the same round from the run's folder.
    let mut watcher = command(&["status", folder.as_str(), "--serve"]);
    let mut watcher = Running(watcher.stdout(Stdio::piped()).spawn().unwrap());
    let other = address(watcher.0.stdout.take().unwrap());
    let now = status(&other, "the journal's round", |s| {
        s["round"].is_u64() && stage(s, "Rollouts").is_some_and(|r| r["done"].as_u64() > Some(0))
    });
    assert!(
        now["workers"][0]["name"].as_str().unwrap().contains(&format!("process {}", run.0.id())),
        "{now}"
    );

    // Both pages get figures when rounds are published.
    let start = Instant::now();
    for address in [&page, &other] {
        while !get(address, "/").contains("cumulative-solve-rate") {
            assert!(start.elapsed() < PATIENCE, "no figures on {address}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    // The run ends in the same way as without a page, and the other process shows its end.
    let interrupt =
        |child: &Running| Command::new("kill").args(["-INT", &child.0.id().to_string()]).status().unwrap();
    assert!(interrupt(&run).success());
    assert_eq!(run.0.wait().unwrap().code(), Some(130));
    status(&other, "stopped", |s| s["message"].as_str().unwrap().contains("stopped"));
    assert!(interrupt(&watcher).success());
    assert_eq!(watcher.0.wait().unwrap().code(), Some(0));
}

#[test]
fn an_invalid_address_is_refused_before_the_run_starts() {
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "run");
    let done = program::sgs(&["run", "--out", folder.as_str(), "--serve", "sgs"]).expect(2);
    assert!(done.err.contains("is not an address") && done.err.contains("--serve"), "{}", done.err);
    assert!(!dir.path().join("run").exists());
}
