//! A child that violates the protocol in every way. No request hangs or is judged, and nothing is lost once it recovers.

use crate::{problem, settings, start};
use sgs_external::{External, ExternalSettings};
use sgs_formal::FormalSystem;
use sgs_selfplay::Verdict;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/hostile.py");

/// The ways to misbehave, with a part of each message.
const WAYS: [(&str, &str); 10] = [
    ("silent", "no answer within"),
    ("slow", "no answer within"),
    ("wrong id", "expected the reply to request"),
    ("huge line", "more than 65536 bytes of output"),
    ("dies", "exit status: 3); standard error: no more"),
    ("not JSON", "found `Traceback`"),
    ("few verdicts", "is invalid"),
    ("wrong fields", "is invalid"),
    ("deaf", "no answer within"),
    ("error", "the system reported an error: out of order"),
];

fn hostile(how: &str, healed: &Path, failures: u32) -> External {
    let settings = settings(&["python3", HOSTILE, how, healed.to_str().unwrap()]);
    // The process has to start within the limit, on a busy machine.
    let (timeout_s, reply_bytes) = (5.0, 65536);
    start(ExternalSettings { timeout_s, reply_bytes, failures, ..settings }).unwrap()
}

fn check(how: &str, says: &str) {
    let folder = tempfile::tempdir().unwrap();
    let healed = folder.path().join("healed");
    let system = hostile(how, &healed, 5);
    let (p, start) = (problem("s"), Instant::now());
    let judged = system.verify_all(&p, &["a", "b"]);
    assert_eq!(judged.iter().map(|j| j.verdict).collect::<Vec<_>>(), [Verdict::Infra; 2]);
    assert!(judged[0].reason.contains(says), "{how}: {}", judged[0].reason);
    let unread = system.read_proof(&p, "x").unwrap_err();
    assert!(unread.is_infra() && unread.detail.contains(says), "{how}: {unread}");
    std::fs::write(&healed, "").unwrap();
    assert_eq!(system.read_proof(&p, "x").unwrap(), "x", "{how}: a new process answers");
    assert_eq!(system.verify(&p, "x").verdict, Verdict::Proved);
    assert!(start.elapsed() < Duration::from_secs(60), "{how}: {:?}", start.elapsed());
}

#[test]
fn no_misbehaviour_is_judged_or_lasts() {
    std::thread::scope(|scope| {
        for (how, says) in WAYS {
            scope.spawn(move || check(how, says));
        }
    });
}

#[test]
fn a_verdict_about_infrastructure_is_invalid_and_a_score_out_of_range_malformed() {
    let system = start(settings(&["python3", HOSTILE, "strange", "/nonexistent"])).unwrap();
    let reason = system.verify(&problem("s"), "x").reason;
    assert!(reason.contains("expected one of `proved`, `refused`, `malformed`, `resource`"), "{reason}");
    let review = system.read_review("x").unwrap_err();
    assert!(review.kind == "out-of-range" && review.detail.contains("relevance: 100"), "{review:?}");
}

#[test]
fn a_system_that_keeps_failing_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let healed = folder.path().join("healed");
    let system = hostile("dies", &healed, 100);
    let (p, start) = (problem("s"), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert!(system.read_proof(&p, "x").unwrap_err().is_infra()));
        }
    });
    std::fs::write(&healed, "").unwrap();
    let reason = system.verify(&p, "x").reason;
    for part in
        ["given up after 1", " failed requests in succession", "the last request: `read_proof`", "no more"]
    {
        assert!(system.broken().is_some() && reason.contains(part), "{part}: {reason}");
    }
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_system_that_does_not_start_is_an_error() {
    for (command, says) in [
        (&[] as &[&str], "external.command is empty"),
        (&["/nonexistent/program"], "cannot start /nonexistent/program"),
        (&["true"], "the process ended"),
        (&["sh", "-c", "echo hello; cat"], "found `hello`"),
        (&["sh", "-c", r#"echo '{"id": 1, "result": {"name": "x"}}'; cat"#], "missing field `version`"),
    ] {
        let fault = start(settings(command)).err().unwrap();
        let (error, cause) = (fault.to_string(), fault.source().map(ToString::to_string));
        assert!(error.contains(says), "{error}");
        assert_ne!(cause.as_ref(), Some(&error), "printed twice");
        assert_eq!(error.contains("docs/external.md"), says.contains("hello"), "{error}");
    }
}

/// Starts itself with secrets in its environment, then a system that prints its own environment.
#[test]
fn secrets_in_the_environment_do_not_reach_the_processes() {
    if std::env::var_os("SGS_TOKEN").is_none() {
        let name = "hostile::secrets_in_the_environment_do_not_reach_the_processes";
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        let secrets = [("SGS_TOKEN", "hidden-1"), ("SGS_ENDPOINT_KEY", "hidden-2"), ("MY_KEY", "hidden-3")];
        let done = own.args(["--exact", name, "--nocapture"]).envs(secrets).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        return;
    }
    for (sandbox, seen) in [(false, "hidden-3"), (true, "")] {
        let command = settings(&["sh", "-c", "echo path=$PATH $(env | grep -o 'hidden-.') >&2; exit 3"]);
        let error = start(ExternalSettings { sandbox, ..command }).err().unwrap().to_string();
        assert!(error.contains("path=/"), "{error}");
        let hidden: Vec<&str> = error.split_whitespace().filter(|word| word.starts_with("hidden-")).collect();
        assert_eq!(hidden.join(" "), seen, "{error}");
    }
}

/// A system whose processes die with the thread that started them, as in the sandbox. A proof is a time in seconds.
const DEPENDENT: &str = r#"
import ctypes, json, sys, time
ctypes.CDLL(None).prctl(1, 9)
for line in sys.stdin:
    r = json.loads(line)
    if r["op"] == "describe":
        result = {"name": "n", "version": "1", "prompts": {"solver": "", "conjecturer": ""}}
    else:
        for proof in r["proofs"]:
            time.sleep(float(proof))
        result = {"verdicts": [{"verdict": "refused"} for _ in r["proofs"]]}
    print(json.dumps({"id": r["id"], "result": result}), flush=True)
"#;

#[test]
fn a_process_outlives_the_thread_that_needed_it() {
    let system = start(ExternalSettings { processes: 2, ..settings(&["python3", "-c", DEPENDENT]) }).unwrap();
    let target = problem("s");
    // The first thread takes the process that exists, so the second one needs another. Then both threads end.
    let both = || {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| system.verify(&target, "1.0"));
            std::thread::sleep(Duration::from_millis(300));
            let second = scope.spawn(|| system.verify(&target, "0.7"));
            [first.join().unwrap().verdict, second.join().unwrap().verdict]
        })
    };
    assert_eq!([both(), both()], [[Verdict::Refused; 2]; 2]);
}
