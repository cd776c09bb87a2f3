//! `sgs run` with roles on an inference server: llama.cpp's server with the shipped model.

use crate::program;
use crate::program::{path, project, sgs};
use crate::server::{Gateway, Options, Server, free_port};
use rustix::process::{Pid, Signal, kill_process};
use sgs_lm::model::{Mode, Model};
use sgs_lm::trainer::Trainer;
use sgs_lm::weights::HostWeights;
use sgs_lm_cpu::Cpu;
use sgs_rundir::RunView;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

/// Returns the arguments of a small run.
fn run(method: &str, out: &Path, url: &str, settings: &[&str]) -> Vec<String> {
    let url = format!("sampling.endpoint.url={url}");
    let small = [
        "rounds=1",
        "algorithm.batch.size=12",
        "algorithm.rollouts_per_problem=4",
        "sampling.batch=32",
        "evaluation.problems=4",
        "evaluation.samples=2",
    ];
    let mut args: Vec<String> = ["run", method, "--out", out.to_str().unwrap()].map(str::to_owned).to_vec();
    for setting in small.iter().chain(settings).chain(&[url.as_str()]) {
        args.extend(["--set".to_owned(), (*setting).to_owned()]);
    }
    args
}

/// The prompt, the completion and the server's log-probs.
type Sampled = (Vec<u32>, Vec<u32>, Vec<f32>);

/// Returns the mean absolute difference between the server's log-probs and those of the built-in engine, in nats.
fn gap(samples: &[Sampled]) -> f64 {
    let weights = HostWeights::load(&project("data/metamath/base")).unwrap();
    let device = Arc::new(Cpu::new(1).unwrap());
    let config = weights.config.clone();
    let model = Model::new(Arc::clone(&device), weights, usize::MAX).unwrap();
    let mut trainer = Trainer::new(device, &config, config.max_positions, Mode::Train).unwrap();
    let whole: Vec<(Vec<u32>, usize)> =
        samples.iter().map(|(prompt, tokens, _)| ([&prompt[..], tokens].concat(), prompt.len())).collect();
    let ours = trainer.log_probs(&model, whole.iter().map(|(t, p)| (t.as_slice(), *p))).unwrap();
    let theirs = samples.iter().flat_map(|s| &s.2);
    let gaps: Vec<f64> =
        ours.iter().flat_map(|s| &s.log_probs).zip(theirs).map(|(a, b)| f64::from((a - b).abs())).collect();
    gaps.iter().sum::<f64>() / gaps.len() as f64
}

#[test]
fn a_served_solver_samples_from_the_same_model() {
    let Some(server) = Server::start(&Options::default()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    sgs(&run("sampling-only", &out, &server.url, &["sampling.endpoint.roles=[\"solver\"]"])).expect(0);
    let round = RunView::open(&out).unwrap().round(0).unwrap();
    let rows: Vec<_> = round.rollouts().unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 48);
    let mut samples = Vec::new();
    for row in rows {
        assert_eq!(row.sample.tokens.len(), row.sample.log_probs.len(), "{}", row.problem);
        assert!(!row.sample.tokens.is_empty() && row.sample.entropy.is_none());
        samples.push((row.sample.prompt_tokens.to_vec(), row.sample.tokens, row.sample.log_probs));
    }
    // The server's cache holds 16-bit floats.
    let gap = gap(&samples);
    assert!(gap < 0.01, "the server does not sample from the shipped model: {gap} nats");
    let metrics = round.metrics().unwrap().scalars;
    assert!(metrics["solver_log_prob"] < 0.0 && metrics["target_solve_rate"] >= 0.0, "{metrics:?}");
    // The evaluation of a run with a served Solver uses the same server.
    let run = out.to_str().unwrap();
    let done = sgs(&["eval", "--run", run, "--limit", "2", "-k", "2", "--max-new-tokens", "16"]).expect(0);
    assert!(done.out.contains(&server.url) && done.out.contains("pass@2"), "{}", done.out);
    let refused = sgs(&["prove", "--run", run, "( ph -> ph )"]).expect(1);
    assert!(refused.err.contains("is served at"), "{}", refused.err);
}

#[test]
fn a_served_model_evaluates_like_a_local_one() {
    let Some(server) = Server::start(&Options { key: Some("a-secret"), ..Options::default() }) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let key = program::file(dir.path(), "key", "a-secret\n");
    let problems =
        ["eval", "--problems", "quick", "--limit", "40", "-k", "4", "--max-new-tokens", "32", "--json"];
    let at_server = ["--endpoint", &server.url, "--endpoint-key-file", &key];
    let served = sgs(&[&problems[..], &at_server].concat()).expect(0).json();
    let here = sgs(&problems).expect(0).json();
    for result in [&served, &here] {
        let outcomes: u64 =
            result["outcomes"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(
            (outcomes, &result["problems"], &result["outcomes"]["infra"]),
            (160, &40.into(), &serde_json::Value::Null)
        );
        assert!(result["intervals"]["pass@4"][0].as_f64() <= result["pass@4"].as_f64(), "{result}");
    }
    assert_eq!(served["model"].as_str().unwrap(), server.url);
    // The same weights with other random numbers have a similar solve rate.
    let [there, here] = [&served, &here].map(|result| result["pass@1"].as_f64().unwrap());
    assert!(here > 0.0 && (there - here).abs() < 0.1, "{there} served, {here} local");
    // Try a missing key, a model that is not served, and options that exclude each other.
    let short = ["eval", "--problems", "quick", "--limit", "1", "-k", "1", "--endpoint", &server.url];
    let refused = sgs(&short).expect(1);
    assert!(refused.err.contains("401") || refused.err.contains("key"), "{}", refused.err);
    let refused =
        sgs(&[&short[..], &["--endpoint-key-file", &key, "--endpoint-model", "goedel"]].concat()).expect(1);
    assert!(
        refused.err.contains("does not serve the model \"goedel\"; it serves \"sgs-base\""),
        "{}",
        refused.err
    );
    let refused = sgs(&[&short[..], &["--run", "runs/a"]].concat()).expect(2);
    assert!(refused.err.contains("cannot be used with"), "{}", refused.err);
}

#[test]
fn a_served_guide_reviews_for_a_local_solver() {
    let Some(server) = Server::start(&Options { key: Some("a-secret"), ..Options::default() }) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let key = program::file(dir.path(), "key", "a-secret\n");
    let key = format!("sampling.endpoint.key_file={key}");
    let settings = [
        "sampling.endpoint.roles=[\"guide\"]",
        &key,
        "sampling.endpoint.model=sgs-base",
        "algorithm.guide.min_readable=0",
    ];
    let out = dir.path().join("run");
    sgs(&run("sgs", &out, &server.url, &settings)).expect(0);
    let round = RunView::open(&out).unwrap().round(0).unwrap();
    let reviews: Vec<_> = round.reviews().unwrap().map(Result::unwrap).collect();
    assert!(!reviews.is_empty(), "no conjecture was reviewed");
    assert!(reviews.iter().all(|r| r.sample.log_probs.len() == r.sample.tokens.len()));
    assert!(reviews.iter().any(|r| r.r_guide.is_some()), "no review is well-formed");
    assert!(std::fs::read_to_string(out.join("config.toml")).unwrap().contains("key_file"));
}

#[test]
fn impossible_configurations_are_refused_before_the_run_starts() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let solver = "sampling.endpoint.roles=[\"solver\"]";
    let done = sgs(&run("sgs", &out, "http://127.0.0.1:1", &[solver])).expect(2);
    assert!(done.err.contains("names the solver, which this method trains"), "{}", done.err);
    assert!(!out.exists(), "a run folder was created");
    let done = sgs(&run("sampling-only", &out, "http://127.0.0.1:1", &[solver, "sampling.endpoint.modle=x"]))
        .expect(2);
    assert!(done.err.contains("did you mean `sampling.endpoint.model`"), "{}", done.err);
    let Some(server) = Server::start(&Options { context: 256, ..Options::default() }) else { return };
    let done = sgs(&run("sampling-only", &out, &server.url, &[solver, "sampling.endpoint.model=\"goedel\""]))
        .expect(1);
    assert!(done.err.contains("does not serve the model \"goedel\"; it serves \"sgs-base\""), "{}", done.err);
    let out = path(dir.path(), "second");
    let done = sgs(&run("sampling-only", Path::new(&out), &server.url, &[solver])).expect(1);
    assert!(done.err.contains("a context of 256 tokens, and the run needs 512"), "{}", done.err);
}

#[test]
fn an_address_without_a_server_is_reported_soon() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let start = std::time::Instant::now();
    let done = sgs(&["eval", "--problems", "quick", "--limit", "1", "-k", "1", "--endpoint", &url]).expect(2);
    assert!(done.err.contains(&format!("nothing listens at {url}/v1")), "{}", done.err);
    let out = tempfile::tempdir().unwrap().path().join("run");
    let done = sgs(&run("sgs", &out, &url, &["sampling.endpoint.roles=[\"guide\"]"])).expect(2);
    assert!(done.err.contains(&format!("nothing listens at {url}/v1")), "{}", done.err);
    assert!(!out.exists() && start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// A server that accepts connections and never replies does not keep a run from stopping.
#[test]
fn a_run_that_waits_for_a_server_can_be_interrupted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let args = run("sgs", &folder.path().join("run"), &url, &["sampling.endpoint.roles=[\"guide\"]"]);
    let child = program::command(&args).stderr(Stdio::piped()).spawn().unwrap();
    let _request = listener.accept().unwrap();
    let start = std::time::Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(130), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stderr).contains("stopped; to continue: `sgs resume "));
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

/// If the server fails, the run stops with the worker and the reason, and publishes no round. It can be resumed once
/// the server is repaired.
#[test]
fn a_run_with_a_failing_server_stops_and_can_be_resumed() {
    let Some(server) = Server::start(&Options::default()) else { return };
    let port = free_port();
    // The gateway allows two requests a minute, so that with one try nearly every request fails.
    let Some(gateway) = Gateway::start(&server, port, Some(2)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let settings =
        ["sampling.endpoint.roles=[\"solver\"]", "sampling.endpoint.tries=1", "evaluation.held_out=none"];
    // The probe at the start uses up the first of them.
    let done = sgs(&run("sampling-only", &out, &gateway.url, &settings)).expect(1);
    assert!(done.err.contains("were lost to infrastructure failures"), "{}", done.err);
    assert!(done.err.contains("HTTP 429"), "the message lacks the reason: {}", done.err);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(
        done.err.contains(&format!("endpoint-{}-", host.trim())),
        "the message lacks the worker and its host: {}",
        done.err
    );
    assert!(RunView::open(&out).unwrap().rounds().unwrap().is_empty(), "a round was published");
    drop(gateway);
    let _repaired = Gateway::start(&server, port, None).unwrap();
    sgs(&["resume", out.to_str().unwrap()]).expect(0);
    let round = RunView::open(&out).unwrap().round(0).unwrap();
    let verdicts: Vec<_> = round.rollouts().unwrap().map(|r| r.unwrap().verdict).collect();
    assert_eq!(verdicts.len(), 48);
    assert!(verdicts.iter().all(|v| *v != sgs_selfplay::Verdict::Infra), "{verdicts:?}");
}
