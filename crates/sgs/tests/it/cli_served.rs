//! Runs that sample Solver and Conjecturer on servers and train them locally. The servers are `sgs serve-model`
//! processes that receive new weights through the calls of SGLang or of vLLM.

use crate::model_server::Server;
use crate::program;
use crate::program::{ProgramOutput, command, path, project, sgs, small_model};
use crate::shared_run::shared_run;
use crate::small_run;
use crate::snapshot::snapshot;
use sgs_rundir::RunView;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 3;

/// Creates the weights folder of the servers, with a link to the base model for each role.
fn weights_folder(folder: &Path) -> PathBuf {
    let weights = folder.join("weights");
    let base = weights.join("base");
    std::fs::create_dir_all(&base).unwrap();
    for file in std::fs::read_dir(project("crates/run/tests/data/small-model")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), base.join(file.file_name())).unwrap();
    }
    for set in ["solver", "conjecturer"] {
        std::os::unix::fs::symlink("base", weights.join(set)).unwrap();
    }
    std::fs::write(key_file(&weights), "a-secret").unwrap();
    weights
}

/// Returns the file with the key of the servers, next to their weights folder.
fn key_file(weights: &Path) -> String {
    path(weights.parent().unwrap(), "key")
}

/// Starts a server on the link of a role, as vLLM and SGLang must be started.
fn server(weights: &Path, set: &str, listen: &str) -> Server {
    let model = weights.join(set);
    let (model, updates, key) = (model.to_str().unwrap(), weights.to_str().unwrap(), key_file(weights));
    // In f32, a server with old weights cannot hide behind rounding.
    let device = ["--device", "cpu-f32"];
    Server::start(
        &[&["--model", model, "--updates", updates, "--listen", listen, "--key-file", &key][..], &device]
            .concat(),
    )
}

/// Returns the arguments of a small SGS run whose Solver is served at `solvers` and its Conjecturer at `conjecturers`.
fn run(
    rounds: u32,
    out: &Path,
    weights: &Path,
    refresh: &str,
    solvers: &[&str],
    conjecturers: &[&str],
) -> Vec<String> {
    let mut roles = vec!["solver"];
    roles.extend((!conjecturers.is_empty()).then_some("conjecturer"));
    let mut args: Vec<String> = ["run", "sgs", "--out", out.to_str().unwrap()].map(str::to_owned).to_vec();
    for setting in [
        small_model(),
        format!("rounds={rounds}"),
        "minutes=0".to_owned(),
        // With this seed, each round trains both roles.
        "seed=5".to_owned(),
        // With this size, the Solver learns in every round of the longest run.
        format!("algorithm.batch.size={}", if rounds == ROUNDS { 24 } else { 12 }),
        "algorithm.guide.min_readable=0".to_owned(),
        "algorithm.rollouts_per_problem=4".to_owned(),
        "algorithm.optimizer.batch_size=8".to_owned(),
        "training.micro_batch_tokens=512".to_owned(),
        "sampling.batch=64".to_owned(),
        "sampling.memory_mib=64".to_owned(),
        "evaluation.problems=2".to_owned(),
        "evaluation.samples=2".to_owned(),
        "evaluation.every=2".to_owned(),
        format!("sampling.endpoint.roles={roles:?}"),
        format!("sampling.endpoint.solver_urls={solvers:?}"),
        format!("sampling.endpoint.conjecturer_urls={conjecturers:?}"),
        format!("sampling.endpoint.refresh={refresh}"),
        format!("sampling.endpoint.folder={}", weights.display()),
        format!("sampling.endpoint.key_file={}", key_file(weights)),
        "sampling.endpoint.patience_s=30".to_owned(),
    ] {
        args.extend(["--set".to_owned(), setting]);
    }
    args
}

fn rounds(out: &Path) -> u32 {
    RunView::open(out).and_then(|view| Ok(view.rounds()?.len())).unwrap_or(0) as u32
}

/// Returns an undisturbed run with one server per role, and its snapshot. Tests share the run.
fn undisturbed(refresh: &str) -> (PathBuf, BTreeMap<String, String>) {
    let out = shared_run(&("served", refresh), |out| {
        let folder = tempfile::tempdir().unwrap();
        let weights = weights_folder(folder.path());
        let [solver, conjecturer] = ["solver", "conjecturer"].map(|set| server(&weights, set, "127.0.0.1:0"));
        sgs(&run(ROUNDS, out, &weights, refresh, &[&solver.url], &[&conjecturer.url])).expect(0);
    });
    let snapshot = snapshot(&out);
    (out, snapshot)
}

/// The results of a run do not depend on the number of servers or on the calls that update their weights.
#[test]
fn served_roles_are_trained() {
    let folder = tempfile::tempdir().unwrap();
    let (out, expected) = undisturbed("vllm");
    let view = RunView::open(&out).unwrap();
    assert_eq!(rounds(&out), ROUNDS);
    let mut trained = [0; 2];
    for round in view.rounds().unwrap() {
        let metrics = round.metrics().unwrap().scalars;
        for (role, trained) in ["solver", "conjecturer"].into_iter().zip(&mut trained) {
            // A small round may have no conjecture to train on.
            let Some(gap) = metrics.get(&format!("{role}_log_prob_gap")) else { continue };
            assert!(*gap < 1e-4, "{role}: {gap}");
            assert!(metrics[&format!("{role}_trained_tokens")] > 0.0, "{role} in round {}", round.round());
            *trained += 1;
        }
        assert!(metrics["target_solve_rate"] > 0.0, "{metrics:?}");
        for row in round.rollouts().unwrap() {
            let row = row.unwrap();
            assert_eq!(
                (row.sample.tokens.len(), row.sample.policy_version),
                (row.sample.log_probs.len(), Some(round.round()))
            );
        }
    }
    assert!(
        trained[0] == ROUNDS && trained[1] > 0,
        "number of rounds that trained Solver and Conjecturer: {trained:?}"
    );
    assert!(!view.evaluations().unwrap().is_empty());
    // After three updates, the weights differ from the base model.
    let last = view.checkpoints().newest_valid(u32::MAX).unwrap().unwrap().directory;
    let read = |path: PathBuf| std::fs::read(path.join("model.safetensors")).unwrap();
    assert_ne!(read(last.join("solver")), read(project("crates/run/tests/data/small-model")));
    // Now two servers share the Solver's tasks, and SGLang's calls update the weights.
    let (again, weights) = (folder.path().join("again"), weights_folder(&folder.path().join("two")));
    let served = ["solver", "solver", "conjecturer"].map(|set| server(&weights, set, "127.0.0.1:0"));
    let [first, second, conjecturer] = served.each_ref().map(|server| server.url.as_str());
    let mut with_two = command(&run(ROUNDS, &again, &weights, "sglang", &[first, second], &[conjecturer]));
    let done = program::finish({
        with_two.env("RUST_LOG", "sgs_run::served=info");
        with_two
    })
    .expect(0);
    assert_eq!(snapshot(&again), expected);
    for url in [first, second, conjecturer] {
        for round in 0..ROUNDS {
            let holds = |line: &&str| {
                line.contains(&format!("{url} serves ")) && line.contains(&format!("-{round:04}-"))
            };
            assert_eq!(done.err.lines().filter(holds).count(), 1, "{url}, round {round}: {}", done.err);
        }
    }
}

/// A run that is killed at any moment, even while a server sleeps, resumes to the same tables.
#[test]
#[ignore = "a minute: kills runs two dozen times; .ci/run runs it"]
fn crash_and_resume_restores_the_weights_of_the_servers() {
    let folder = tempfile::tempdir().unwrap();
    for refresh in ["vllm", "sglang"] {
        let place = folder.path().join(refresh);
        let (_, expected) = undisturbed(refresh);
        let (out, weights) = (place.join("killed"), weights_folder(&place.join("two")));
        let [solver, conjecturer] = ["solver", "conjecturer"].map(|set| server(&weights, set, "127.0.0.1:0"));
        let new = run(ROUNDS, &out, &weights, refresh, &[&solver.url], &[&conjecturer.url]);
        let resume = ["resume".to_owned(), out.display().to_string()];
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut kills = 0;
        while kills < 12 {
            let exists = out.join("config.toml").exists();
            let mut child = command(if exists { &resume[..] } else { &new[..] })
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_millis(300 + (random >> 33) % 1_500));
            kills += u32::from(child.try_wait().unwrap().is_none());
            let _ = child.kill();
            if child.wait().unwrap().success() {
                // The run ended before all kills were done, so continue with a new run.
                assert_eq!(snapshot(&out), expected, "{refresh}, after {kills} kills");
                std::fs::remove_dir_all(&out).unwrap();
            }
            // Leave the server as if the run had been killed during a weight update.
            let asleep = if refresh == "vllm" { "/sleep?level=2" } else { "/pause_generation" };
            solver.post(asleep, &serde_json::json!({}));
        }
        let exists = out.join("config.toml").exists();
        sgs(if exists { &resume[..] } else { &new[..] }).expect(0);
        assert_eq!(snapshot(&out), expected, "{refresh}, after {kills} kills");
    }
}

/// A server that restarts with the base model is detected and gets the current weights.
#[test]
fn a_restarted_server_gets_the_current_weights() {
    let folder = tempfile::tempdir().unwrap();
    // The shared run with vLLM's calls has the same tables as one with SGLang's.
    let (_, expected) = undisturbed("vllm");
    let (out, weights) = (folder.path().join("run"), weights_folder(&folder.path().join("two")));
    let solver = server(&weights, "base", "127.0.0.1:0");
    let url = solver.url.clone();
    let conjecturer = server(&weights, "conjecturer", "127.0.0.1:0");
    let mut child = command(&run(ROUNDS, &out, &weights, "sglang", &[&url], &[&conjecturer.url]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Restart the server while the second round samples, so that the new server gets tasks of the same round.
    let results =
        || RunView::open(&out).ok()?.journal().ok()?.counts(1).ok().map(|n| n.values().sum::<u64>());
    small_run::wait_for("results of the second round", || {
        results().is_some_and(|n| n > 0) || child.try_wait().unwrap().is_some()
    });
    drop(solver);
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
    let _restarted = server(&weights, "base", address);
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    assert_eq!(snapshot(&out), expected, "{err}");
}

/// A proxy in front of a server that answers some calls itself.
struct FaultyProxy {
    url: String,
    is_repaired: Arc<AtomicBool>,
}

impl FaultyProxy {
    /// Starts a proxy that acknowledges calls to `ignored` without forwarding them, and hides the field `hidden`.
    fn start(server: &Server, ignored: &'static str, hidden: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let root = server.root().to_owned();
        let is_repaired = Arc::new(AtomicBool::new(false));
        let repaired = Arc::clone(&is_repaired);
        std::thread::spawn(move || {
            for line in listener.incoming().flatten() {
                let (root, repaired) = (root.clone(), Arc::clone(&repaired));
                let ignores =
                    move |path: &str| !repaired.load(Ordering::Acquire) && path.starts_with(ignored);
                std::thread::spawn(move || forward(line, &root, ignores, hidden));
            }
        });
        Self { url, is_repaired }
    }
}

/// Forwards the requests of a connection and returns the responses.
fn forward(line: TcpStream, root: &str, ignores: impl Fn(&str) -> bool, hidden: &str) -> Option<()> {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut reader = BufReader::new(line.try_clone().ok()?);
    loop {
        let (mut head, mut length, mut key) = (String::new(), 0, String::new());
        while !head.ends_with("\r\n\r\n") {
            let start = head.len();
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
            if let Some(value) = head[start..].strip_prefix("authorization: ") {
                key = value.trim().to_owned();
            }
            let header = head[start..].to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (method, path) = head.split_once(' ')?;
        let path = path.split(' ').next()?;
        let (status, text) = if ignores(path) {
            (200, r#"{"success":true}"#.to_owned())
        } else {
            let url = format!("{root}{path}");
            let asked = match method {
                "GET" => agent.get(url).header("authorization", &key).call(),
                _ => agent
                    .post(url)
                    .header("content-type", "application/json")
                    .header("authorization", &key)
                    .send(&body[..]),
            };
            let mut answer = asked.ok()?;
            let text = answer.body_mut().read_to_string().ok()?;
            (answer.status().as_u16(), text.replace(&format!("{hidden:?}:"), "\"other\":"))
        };
        // Use one write. With several, the second one would wait for the TCP acknowledgement of the first.
        let answer = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        (&line).write_all(answer.as_bytes()).ok()?;
    }
}

/// If a server claims a weight update that it has not made, the run trains on none of its samples.
#[test]
fn a_server_that_ignores_an_update_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    for (refresh, call, version, message) in [
        // vLLM does not report a weight version, so the log-probs reveal the old weights.
        ("vllm", "/collective_rpc", 1, "are those of older weights"),
        ("sglang", "/update_weights_from_disk", 0, "it reports that its weights are"),
    ] {
        let place = folder.path().join(refresh);
        let weights = weights_folder(&place);
        let solver = server(&weights, "solver", "127.0.0.1:0");
        let proxy = FaultyProxy::start(&solver, call, "nothing");
        let out = place.join("run");
        let done: ProgramOutput =
            sgs(&run(version + 1, &out, &weights, refresh, &[&proxy.url], &[])).expect(1);
        assert!(done.err.contains(message), "{}", done.err);
        let named = format!("the server {} for the solver in round {version}", proxy.url);
        assert!(done.err.contains(&named), "{}", done.err);
        assert_eq!(rounds(&out), version, "a later round was published");
        if refresh == "vllm" {
            continues_with_the_repaired_or_another_server(&place, &weights, &solver, &proxy, call);
        } else {
            continues_with_a_server_at_another_address(&out, &solver);
        }
    }
}

/// Resumes a run once its server is repaired, and checks that a run with a second server continues without the faulty
/// one.
fn continues_with_the_repaired_or_another_server(
    place: &Path,
    weights: &Path,
    healthy: &Server,
    proxy: &FaultyProxy,
    call: &'static str,
) {
    let out = place.join("run");
    proxy.is_repaired.store(true, Ordering::Release);
    sgs(&["resume", out.to_str().unwrap()]).expect(0);
    assert_eq!(rounds(&out), 2);
    let fresh = server(weights, "base", "127.0.0.1:0");
    let proxy = FaultyProxy::start(&fresh, call, "nothing");
    let second = place.join("second");
    let start = Instant::now();
    let done = sgs(&run(2, &second, weights, "vllm", &[&proxy.url, &healthy.url], &[])).expect(0);
    // The healthy server may do all the work before the faulty one is excluded.
    assert!(done.err.contains("It has not loaded the new weights"), "{}", done.err);
    // A lease lasts a minute. No task may wait for the excluded server's lease to expire.
    assert!(start.elapsed() < Duration::from_secs(55), "{:?}: {}", start.elapsed(), done.err);
    assert_eq!(snapshot(&second), snapshot(&out));
}

/// Resumes a run with a server at another address, but with no other setting changed.
fn continues_with_a_server_at_another_address(out: &Path, server: &Server) {
    let set = |setting: &str| sgs(&["resume", out.to_str().unwrap(), "--set", setting]);
    let refused = set("algorithm.batch.size=3").expect(2);
    assert!(refused.err.contains("this key cannot change after the run was created"), "{}", refused.err);
    let refused = set("sampling.endpoint.solver_urls=[]").expect(2);
    assert!(refused.err.contains("no server is given"), "{}", refused.err);
    set(&format!("sampling.endpoint.solver_urls={:?}", [&server.url])).expect(0);
    let recorded = std::fs::read_to_string(out.join("config.toml")).unwrap();
    assert!(recorded.contains("key = \"sampling.endpoint.solver_urls\""), "{recorded}");
    assert_eq!(rounds(out), 1);
}

/// Servers whose responses cannot be trained on are refused before sampling starts.
#[test]
fn a_server_with_incomplete_responses_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let weights = weights_folder(folder.path());
    let solver = server(&weights, "solver", "127.0.0.1:0");
    let out = folder.path().join("run");
    // The run's weights folder is not below the server's `--updates` folder.
    let elsewhere = folder.path().join("elsewhere");
    let done = sgs(&run(1, &out, &elsewhere, "sglang", &[&solver.url], &[])).expect(1);
    assert!(
        done.err.contains("/update_weights_from_disk: HTTP 400") && done.err.contains("is not below"),
        "{}",
        done.err
    );
    for (hidden, lacks) in [("token_ids", "token IDs"), ("token_logprobs", "log-probs")] {
        let proxy = FaultyProxy::start(&solver, "/nothing", hidden);
        let done = sgs(&run(1, &folder.path().join(hidden), &weights, "vllm", &[&proxy.url], &[])).expect(1);
        let message = "cannot be used for a role that is trained: it does not return";
        assert!(done.err.contains(message) && done.err.contains(lacks), "{}", done.err);
    }
    let fixed = Server::start(&["--key-file", &key_file(&weights)]);
    let out = folder.path().join("fixed");
    let done = sgs(&run(1, &out, &elsewhere, "vllm", &[&fixed.url], &[])).expect(1);
    assert!(
        done.err.contains("/collective_rpc") && done.err.contains("VLLM_SERVER_DEV_MODE=1"),
        "{}",
        done.err
    );
    assert_eq!(rounds(&out), 0);
}
