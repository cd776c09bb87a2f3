//! `sgs run` with roles that another server plays: llama.cpp's, over the model that ships with the program.
#![allow(clippy::unwrap_used)] // tests say so by panicking

mod program;
#[path = "../../endpoint/tests/server/mod.rs"]
mod server;

use program::{path, project, sgs};
use server::{Gateway, Options, Server, free_port};
use sgs_lm::Cpu;
use sgs_lm::model::{Mode, Model};
use sgs_lm::trainer::Trainer;
use sgs_lm::weights::HostWeights;
use sgs_rundir::RunView;
use std::path::Path;
use std::sync::Arc;

/// Arguments of a small run.
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

/// Prompt, completion and the sampler's log-probs.
type Sampled = (Vec<u32>, Vec<u32>, Vec<f32>);

/// Mean gap between log-probs as they were told and as the built-in engine computes them, nats.
fn gap(samples: &[Sampled]) -> f64 {
    let weights = HostWeights::load(&project("data/metamath/base")).unwrap();
    let device = Arc::new(Cpu::new(1).unwrap());
    let config = weights.config.clone();
    let model = Model::new(Arc::clone(&device), weights, usize::MAX).unwrap();
    let mut trainer = Trainer::new(device, &config, config.max_positions, Mode::Train).unwrap();
    let whole: Vec<(Vec<u32>, usize)> =
        samples.iter().map(|(prompt, tokens, _)| ([&prompt[..], tokens].concat(), prompt.len())).collect();
    let ours = trainer.log_probs(&model, whole.iter().map(|(t, p)| (t.as_slice(), *p))).unwrap();
    let told = samples.iter().flat_map(|s| &s.2);
    let gaps: Vec<f64> =
        ours.iter().flat_map(|s| &s.log_probs).zip(told).map(|(a, b)| f64::from((a - b).abs())).collect();
    gaps.iter().sum::<f64>() / gaps.len() as f64
}

#[test]
fn a_served_solver_is_the_solver() {
    let Some(server) = Server::start(&Options::default()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    sgs(&run("sampling-only", &out, &server.url, &["sampling.endpoint.roles=[\"solver\"]"])).expect(0);
    let round = RunView::open(&out).unwrap().round(0).unwrap();
    let rows: Vec<_> = round.rollouts().unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 48);
    let mut samples = Vec::new();
    for row in rows {
        assert_eq!(row.tokens.len(), row.log_probs.len(), "{}", row.problem);
        assert!(!row.tokens.is_empty() && row.entropy.is_none());
        samples.push((row.prompt_tokens.to_vec(), row.tokens, row.log_probs));
    }
    // The server's cache holds 16-bit floats.
    let gap = gap(&samples);
    assert!(gap < 0.01, "the server samples the model that it is thought to: {gap} nats");
    let metrics = round.metrics().unwrap().scalars;
    assert!(metrics["solver_log_prob"] < 0.0 && metrics["target_solve_rate"] >= 0.0, "{metrics:?}");
    // Whose Solver is served, it is asked of the server again.
    let run = out.to_str().unwrap();
    let done = sgs(&["eval", "--run", run, "--limit", "2", "-k", "2", "--max-new-tokens", "16"]).expect(0);
    assert!(done.out.contains(&server.url) && done.out.contains("pass@2"), "{}", done.out);
    let refused = sgs(&["prove", "--run", run, "( ph -> ph )"]).expect(1);
    assert!(refused.err.contains("is played by the server at"), "{}", refused.err);
}

#[test]
fn a_served_model_is_evaluated_as_a_model_here_is() {
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
    for told in [&served, &here] {
        let outcomes: u64 = told["outcomes"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(
            (outcomes, &told["problems"], &told["outcomes"]["infra"]),
            (160, &40.into(), &serde_json::Value::Null)
        );
        assert!(told["intervals"]["pass@4"][0].as_f64() <= told["pass@4"].as_f64(), "{told}");
    }
    assert_eq!(served["model"].as_str().unwrap(), server.url);
    // The same weights: with other random numbers they prove about as much.
    let [there, here] = [&served, &here].map(|told| told["pass@1"].as_f64().unwrap());
    assert!(here > 0.0 && (there - here).abs() < 0.1, "{there} there, {here} here");
    // A key that is missing, a model that is not served, a server that is not there.
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
fn a_served_guide_reviews_for_a_solver_that_trains_here() {
    let Some(server) = Server::start(&Options { key: Some("a-secret"), ..Options::default() }) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let key = program::file(dir.path(), "key", "a-secret\n");
    let key = format!("sampling.endpoint.key_file={key}");
    let settings = ["sampling.endpoint.roles=[\"guide\"]", &key, "sampling.endpoint.model=sgs-base"];
    let out = dir.path().join("run");
    sgs(&run("sgs", &out, &server.url, &settings)).expect(0);
    let round = RunView::open(&out).unwrap().round(0).unwrap();
    let reviews: Vec<_> = round.reviews().unwrap().map(Result::unwrap).collect();
    assert!(!reviews.is_empty(), "no conjecture was reviewed");
    assert!(reviews.iter().all(|r| r.log_probs.len() == r.tokens.len()));
    assert!(reviews.iter().any(|r| r.r_guide.is_some()), "not one review could be read");
    assert!(std::fs::read_to_string(out.join("config.toml")).unwrap().contains("key_file"));
}

#[test]
fn what_cannot_work_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let solver = "sampling.endpoint.roles=[\"solver\"]";
    let done = sgs(&run("sgs", &out, "http://127.0.0.1:1", &[solver])).expect(2);
    assert!(done.err.contains("names the solver, which this method trains"), "{}", done.err);
    assert!(!out.exists(), "no run was made");
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

/// Whoever samples for the run breaks: the run stops and says who and why, and nothing of it was stored. When that is
/// mended the run goes on.
#[test]
fn a_run_whose_worker_breaks_stops_and_can_go_on() {
    let Some(server) = Server::start(&Options::default()) else { return };
    let port = free_port();
    // Two requests a minute: whoever tries once loses nearly everything.
    let Some(gateway) = Gateway::start(&server, port, Some(2)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let settings =
        ["sampling.endpoint.roles=[\"solver\"]", "sampling.endpoint.tries=1", "evaluation.held_out=none"];
    // The probe of the start is tried once too, so it takes the one place that is free.
    let done = sgs(&run("sampling-only", &out, &gateway.url, &settings)).expect(1);
    assert!(done.err.contains("failed by faults of the infrastructure"), "{}", done.err);
    assert!(done.err.contains("HTTP 429"), "the reason: {}", done.err);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(
        done.err.contains(&format!("endpoint-{}-", host.trim())),
        "the worker and its host: {}",
        done.err
    );
    assert!(RunView::open(&out).unwrap().rounds().unwrap().is_empty(), "no round was published");
    drop(gateway);
    let _mended = Gateway::start(&server, port, None).unwrap();
    sgs(&["resume", out.to_str().unwrap()]).expect(0);
    let round = RunView::open(&out).unwrap().round(0).unwrap();
    let verdicts: Vec<_> = round.rollouts().unwrap().map(|r| r.unwrap().verdict).collect();
    assert_eq!(verdicts.len(), 48);
    assert!(verdicts.iter().all(|v| *v != sgs_selfplay::Verdict::Infra), "{verdicts:?}");
}
