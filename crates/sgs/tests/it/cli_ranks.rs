//! Training with several ranks: the same result as with one, and resumption after a rank is killed.

use crate::program::{ProgramOutput, command, file, finish, path, sgs};
use sgs_lm::weights::HostWeights;
use sgs_metamath::system::Metamath;
use sgs_metamath::tokens;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Writes a tokenizer, a corpus and a configuration. A pass has two steps, so `steps` must be even.
fn configure(dir: &Path, steps: u32, more: &str) -> String {
    let system = Metamath::shipped().unwrap();
    std::fs::write(dir.join("tokenizer.json"), tokens::tokenizer_json(system.theory()).to_string()).unwrap();
    std::fs::write(dir.join("tokenizer_config.json"), tokens::tokenizer_config_json().to_string()).unwrap();
    let mut rows = String::new();
    for (prompt, completion) in [
        ("|- ( ph -> ph )", "id"),
        ("|- ( ph -> ( ps -> ph ) )", "ax-1"),
        ("|- ( -. -. ph -> ph )", "notnotr"),
        ("|- ( ph -> -. -. ph )", "notnot"),
        ("|- ( ( ph -> ps ) -> ( ph -> ph ) )", "a1i id"),
        ("|- ( ph -> ( ph -> ph ) )", "ax-1"),
        ("|- ( ps -> ps )", "id"),
        ("|- ( ch -> ( ps -> ch ) )", "ax-1"),
    ] {
        let row = serde_json::json!({"role": "solver", "kind": "theorem", "source": completion, "prompt": prompt,
            "completion": format!("{completion} <end>")});
        rows.push_str(&format!("{row}\n"));
    }
    file(dir, "corpus.jsonl", &rows);
    let text = format!(
        "data = {:?}\nseed = 3\n[model]\nlayers = 2\nhidden_size = 32\nheads = 2\nkv_heads = 1\n\
         intermediate_size = 64\nmax_positions = 64\nrope_theta = 10000.0\n\
         [[corpus]]\nfile = \"corpus.jsonl\"\npasses = {}\n\
         [train]\nbatch_size = 4\nmicro_batch_tokens = 64\nlearning_rate = 3e-3\nwarmup_steps = 2\nfloor = 0.1\n\
         weight_decay = 0.1\nbeta2 = 0.98\ncheckpoint_every = 10\n{more}",
        dir.to_str().unwrap(),
        steps / 2
    );
    file(dir, &format!("train-{steps}.toml"), &text)
}

const TOKEN: &str = "a-token-of-these-tests";

fn losses(out: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(Path::new(out).join("loss.csv")).unwrap();
    text.lines().skip(1).map(|l| l.split(',').nth(1).unwrap().parse().unwrap()).collect()
}

/// Returns the 32-bit weights of the checkpoint.
fn weights(out: &str) -> Vec<f32> {
    HostWeights::load(&Path::new(out).join("checkpoint")).unwrap().data.to_vec()
}

fn pretrain(config: &str, out: &str, ranks: &str) -> ProgramOutput {
    sgs(&["pretrain", config, "--out", out, "--ranks", ranks])
}

#[track_caller]
fn assert_close(out: &str, reference: &str) {
    let (got, want) = (losses(out), losses(reference));
    assert_eq!(got.len(), want.len());
    for (step, (g, w)) in got.iter().zip(&want).enumerate() {
        assert!((g - w).abs() < 1e-4, "step {step}: {g}, expected {w}");
    }
    let far = weights(out).iter().zip(weights(reference)).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
    assert!(far < 2e-3, "weights differ by {far}");
}

#[test]
fn two_and_four_ranks_train_like_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = configure(dir.path(), 30, "");
    let alone = path(dir.path(), "1");
    pretrain(&config, &alone, "1").expect(0);
    let curve = losses(&alone);
    assert!(curve.len() == 30 && curve[29] < 0.7 * curve[0], "the loss does not fall: {curve:?}");
    for ranks in ["2", "4"] {
        let out = path(dir.path(), ranks);
        let done = pretrain(&config, &out, ranks).expect(0);
        assert!(
            done.err.contains(&format!("on {ranks} ranks")) && done.out.contains("trained 30 steps"),
            "{}",
            done.err
        );
        assert_close(&out, &alone);
        let other = std::fs::read_to_string(Path::new(&out).join("ranks/rank-1.log")).unwrap();
        assert!(other.contains(&format!("rank 1 of {ranks}")), "{other}");
    }
    // One rank can resume the checkpoint of four. It has nothing left to do.
    let four = path(dir.path(), "4");
    let (before, done) = (weights(&four), pretrain(&config, &four, "1").expect(0));
    assert!(done.err.contains("from step 30"), "{}", done.err);
    assert!(weights(&four) == before);
}

/// Returns the process id in the log of a rank.
fn process_of(out: &str, rank: usize) -> String {
    let log = std::fs::read_to_string(Path::new(out).join(format!("ranks/rank-{rank}.log"))).unwrap();
    log.lines().find_map(|l| l.split_once("process ")).unwrap().1.trim().to_owned()
}

#[test]
fn a_killed_rank_is_named_and_training_resumes_to_the_same_weights() {
    let dir = tempfile::tempdir().unwrap();
    let config = configure(dir.path(), 60, "");
    let whole = path(dir.path(), "whole");
    pretrain(&config, &whole, "4").expect(0);
    // If the machine pauses this test, training may end before it is killed. Then the test tries again.
    let mut attempts = (0..10).map(|i| {
        let out = path(dir.path(), &format!("killed-{i}"));
        let mut run = command(&["pretrain", &config, "--out", &out, "--ranks", "4"]);
        let mut child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while !Path::new(&out).join("checkpoint/trainer.json").exists() {
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let process = process_of(&out, 2);
        let killed = Command::new("kill").args(["-9", &process]).stderr(Stdio::null()).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (killed.success() && !output.status.success()).then_some((out, process, output.status.code(), err))
    });
    let (out, process, code, err) = attempts.find_map(|a| a).unwrap();
    assert_eq!(code, Some(1), "{err}");
    for part in
        ["rank 2 of 4 was killed by signal 9", &format!("process {process}"), "rank-2.log", "continues from"]
    {
        assert!(err.contains(part), "{part} in {err}");
    }
    let steps = losses(&out).len();
    assert!(steps < 60);
    let resumed = pretrain(&config, &out, "4").expect(0);
    assert!(!resumed.err.contains("from step 0"), "{}", resumed.err);
    assert!(weights(&out) == weights(&whole), "the weights must be bit-identical");
    assert_eq!(losses(&out), losses(&whole));
}

#[test]
fn externally_started_ranks_meet_at_the_rendezvous_address() {
    let dir = tempfile::tempdir().unwrap();
    let config = configure(dir.path(), 12, "recompute = true\n");
    let alone = path(dir.path(), "alone");
    pretrain(&config, &alone, "1").expect(0);
    for attempt in 0.. {
        // Another process may take the port before rank 0 does.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let out = path(dir.path(), &format!("two-{attempt}"));
        let rank = |arguments: &[&str]| {
            let mut all =
                vec!["pretrain", &config, "--out", &out, "--rendezvous", &address, "--rank-patience", "60"];
            all.extend(arguments);
            let mut rank = command(&all);
            rank.env("SGS_TOKEN", TOKEN);
            rank
        };
        let mut slurm = rank(&[]);
        slurm.env("SLURM_PROCID", "1").env("SLURM_STEP_NUM_TASKS", "2").env("SLURM_LOCALID", "1");
        let second = slurm.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let first = finish(rank(&["--rank", "0", "--ranks", "2"]));
        let second = second.wait_with_output().unwrap();
        if first.err.contains("cannot listen") && attempt < 10 {
            continue;
        }
        first.expect(0);
        assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
        assert_close(&out, &alone);
        break;
    }
}

#[test]
fn a_failing_rank_shows_its_error() {
    let dir = tempfile::tempdir().unwrap();
    let config = configure(dir.path(), 10, "");
    file(dir.path(), "corpus.jsonl", "{\"role\": \"solver\"}\n");
    let done = pretrain(&config, &path(dir.path(), "out"), "2").expect(1);
    assert!(done.err.contains("corpus.jsonl"), "{}", done.err);
}

#[test]
fn usage_errors_of_ranks_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = configure(dir.path(), 10, "");
    let out = path(dir.path(), "out");
    for (arguments, part) in [
        (&["--ranks", "0"][..], "expected an integer from 1 to"),
        (&["--rank", "1"], "--rank without --ranks"),
        (&["--rank", "2", "--ranks", "2", "--rendezvous", "127.0.0.1:1"], "ranks count from 0"),
        (&["--rank", "0", "--ranks", "2"], "--rendezvous"),
        (&["--ranks", "2", "--rendezvous", "127.0.0.1:1"], "which of the 2 ranks"),
    ] {
        let mut all = vec!["pretrain", &config, "--out", &out];
        all.extend(arguments);
        let done = sgs(&all).expect(2);
        assert!(done.err.contains(part), "{arguments:?}: {}", done.err);
    }
    let mut lonely = command(&["pretrain", &config, "--out", &out, "--rank", "1", "--ranks", "2"]);
    lonely.args(["--rendezvous", "127.0.0.1:9", "--rank-patience", "1"]).env("SGS_TOKEN", TOKEN);
    let done = finish(lonely).expect(1);
    assert!(done.err.contains("rank 1 waited 1 s for rank 0 at 127.0.0.1:9"), "{}", done.err);
    let mut open = command(&["pretrain", &config, "--out", &out, "--rank", "0", "--ranks", "2"]);
    open.args(["--rendezvous", "127.0.0.1:0"]).env_remove("SGS_TOKEN").env_remove("SGS_TOKEN_FILE");
    let done = finish(open).expect(1);
    assert!(done.err.contains("SGS_TOKEN"), "{}", done.err);
}
