//! `sgs run` whose Solver and Conjecturer are sampled by servers and trained here: real weights go from the run to
//! `sgs serve-model`, by SGLang's calls and by vLLM's.
#![allow(clippy::unwrap_used)] // tests say so by panicking

mod content;
mod model_server;
mod program;
mod shared_run;

use content::content;
use model_server::Server;
use program::{Done, command, project, sgs};
use sgs_rundir::RunView;
use shared_run::shared_run;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 3;

/// A folder for servers, with links to the base model for those that are started on them.
fn weights(folder: &Path) -> PathBuf {
    let weights = folder.join("weights");
    let base = weights.join("base");
    std::fs::create_dir_all(&base).unwrap();
    for file in std::fs::read_dir(project("data/metamath/base")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), base.join(file.file_name())).unwrap();
    }
    for set in ["solver", "conjecturer"] {
        std::os::unix::fs::symlink("base", weights.join(set)).unwrap();
    }
    weights
}

/// A server of a set of weights, as vLLM and SGLang are to be started: on the link.
fn server(weights: &Path, set: &str, listen: &str) -> Server {
    let model = weights.join(set);
    let args =
        ["--model", model.to_str().unwrap(), "--updates", weights.to_str().unwrap(), "--listen", listen];
    Server::start(&args)
}

/// Arguments of a small run of SGS whose Solver is played by `solvers`, and its Conjecturer by `conjecturers`.
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
        format!("rounds={rounds}"),
        "minutes=0".to_owned(),
        // In the longest of these runs the Solver learns in every round.
        format!("algorithm.batch.size={}", if rounds == ROUNDS { 24 } else { 12 }),
        "algorithm.rollouts_per_problem=4".to_owned(),
        "algorithm.optimizer.batch_size=8".to_owned(),
        "sampling.batch=64".to_owned(),
        "sampling.memory_mib=64".to_owned(),
        "evaluation.problems=4".to_owned(),
        "evaluation.samples=2".to_owned(),
        "evaluation.every=2".to_owned(),
        format!("sampling.endpoint.roles={roles:?}"),
        format!("sampling.endpoint.solver_urls={solvers:?}"),
        format!("sampling.endpoint.conjecturer_urls={conjecturers:?}"),
        format!("sampling.endpoint.refresh={refresh}"),
        format!("sampling.endpoint.folder={}", weights.display()),
        "sampling.endpoint.patience_s=30".to_owned(),
    ] {
        args.extend(["--set".to_owned(), setting]);
    }
    args
}

fn rounds(out: &Path) -> u32 {
    RunView::open(out).and_then(|view| Ok(view.rounds()?.len())).unwrap_or(0) as u32
}

/// An undisturbed run with one server for each of the roles, and its tables; tests share it.
fn undisturbed(refresh: &str) -> (PathBuf, BTreeMap<String, String>) {
    let out = shared_run(&("served", refresh), |out| {
        let folder = tempfile::tempdir().unwrap();
        let weights = weights(folder.path());
        let [solver, conjecturer] = ["solver", "conjecturer"].map(|set| server(&weights, set, "127.0.0.1:0"));
        sgs(&run(ROUNDS, out, &weights, refresh, &[&solver.url], &[&conjecturer.url])).expect(0);
    });
    let content = content(&out);
    (out, content)
}

/// What a server samples and this program trains comes, number for number, to the same whoever the servers are and by
/// whichever calls they learn of new weights.
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
            // A small round may have no conjecture that is trained on.
            let Some(gap) = metrics.get(&format!("{role}_log_prob_gap")) else { continue };
            assert!(*gap < 1e-4, "{role}: {gap}");
            assert!(metrics[&format!("{role}_trained_tokens")] > 0.0, "{role} in round {}", round.round());
            *trained += 1;
        }
        assert!(metrics["target_solve_rate"] > 0.0, "{metrics:?}");
        for row in round.rollouts().unwrap() {
            let row = row.unwrap();
            assert_eq!((row.tokens.len(), row.policy_version), (row.log_probs.len(), Some(round.round())));
        }
    }
    assert!(
        trained[0] == ROUNDS && trained[1] > 0,
        "rounds in which Solver and Conjecturer learned: {trained:?}"
    );
    assert!(!view.evaluations().unwrap().is_empty());
    // Three updates on, the weights say something else.
    let last = view.checkpoints().newest_valid(u32::MAX).unwrap().unwrap().directory;
    let read = |path: PathBuf| std::fs::read(path.join("model.safetensors")).unwrap();
    assert_ne!(read(last.join("solver")), read(project("data/metamath/base")));
    // Two servers share the Solver's tasks, and SGLang's calls bring the weights.
    let (again, weights) = (folder.path().join("again"), weights(&folder.path().join("two")));
    let served = ["solver", "solver", "conjecturer"].map(|set| server(&weights, set, "127.0.0.1:0"));
    let [first, second, conjecturer] = served.each_ref().map(|server| server.url.as_str());
    let mut with_two = command(&run(ROUNDS, &again, &weights, "sglang", &[first, second], &[conjecturer]));
    let done = program::finish({
        with_two.env("RUST_LOG", "sgs_run::served=info");
        with_two
    })
    .expect(0);
    assert_eq!(content(&again), expected);
    for url in [first, second, conjecturer] {
        for round in 0..ROUNDS {
            let holds = |line: &&str| {
                line.contains(&format!("{url} holds ")) && line.contains(&format!("-{round:04}-"))
            };
            assert_eq!(done.err.lines().filter(holds).count(), 1, "{url}, round {round}: {}", done.err);
        }
    }
}

/// Killed at any moment, even while a server sleeps, and resumed: the same tables.
#[test]
#[ignore = "a minute: kills runs two dozen times; .ci/run runs it"]
fn crash_and_the_servers_are_brought_to_the_right_weights_first() {
    let folder = tempfile::tempdir().unwrap();
    for refresh in ["vllm", "sglang"] {
        let place = folder.path().join(refresh);
        let (_, expected) = undisturbed(refresh);
        let (out, weights) = (place.join("killed"), weights(&place.join("two")));
        let [solver, conjecturer] = ["solver", "conjecturer"].map(|set| server(&weights, set, "127.0.0.1:0"));
        let begin = run(ROUNDS, &out, &weights, refresh, &[&solver.url], &[&conjecturer.url]);
        let resume = ["resume".to_owned(), out.display().to_string()];
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut kills = 0;
        while rounds(&out) < ROUNDS && kills < 12 {
            let began = out.join("config.toml").exists();
            let mut child = command(if began { &resume[..] } else { &begin[..] })
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_millis(300 + (random >> 33) % 1_500));
            kills += u32::from(child.try_wait().unwrap().is_none());
            let _ = child.kill();
            child.wait().unwrap();
            // As it is left in the midst of a refresh.
            let asleep = if refresh == "vllm" { "/sleep?level=2" } else { "/pause_generation" };
            solver.post(asleep, &serde_json::json!({}));
        }
        assert!(kills > 2, "{kills}");
        sgs(&resume).expect(0);
        assert_eq!(content(&out), expected, "{refresh}, after {kills} kills");
    }
}

fn wait_for(out: &Path, number: u32, child: &mut Child) {
    let patience = Instant::now() + Duration::from_secs(120);
    while rounds(out) < number {
        assert!(
            Instant::now() < patience && child.try_wait().unwrap().is_none(),
            "round {number} never came"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server that dies and comes back with the weights of the beginning is noticed and given the right ones.
#[test]
fn a_server_that_is_started_anew_is_looked_at_again() {
    let folder = tempfile::tempdir().unwrap();
    // By vLLM's calls, which another test uses too: the tables are those of SGLang's.
    let (_, expected) = undisturbed("vllm");
    let (out, weights) = (folder.path().join("run"), weights(&folder.path().join("two")));
    let solver = server(&weights, "base", "127.0.0.1:0");
    let url = solver.url.clone();
    let conjecturer = server(&weights, "conjecturer", "127.0.0.1:0");
    let mut child = command(&run(ROUNDS, &out, &weights, "sglang", &[&url], &[&conjecturer.url]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&out, 1, &mut child);
    std::thread::sleep(Duration::from_millis(150));
    drop(solver);
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
    let _anew = server(&weights, "base", address);
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(content(&out), expected, "{told}");
}

/// Stands before a server and answers some calls in its place.
struct Pretender {
    url: String,
    is_honest: Arc<AtomicBool>,
}

impl Pretender {
    /// One that only says that it does what the call `ignored` asks for, and never tells the field `hidden`.
    fn start(server: &Server, ignored: &'static str, hidden: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let root = server.root().to_owned();
        let is_honest = Arc::new(AtomicBool::new(false));
        let honest = Arc::clone(&is_honest);
        std::thread::spawn(move || {
            for line in listener.incoming().flatten() {
                let (root, honest) = (root.clone(), Arc::clone(&honest));
                let ignores = move |path: &str| !honest.load(Ordering::Acquire) && path.starts_with(ignored);
                std::thread::spawn(move || answer(line, &root, ignores, hidden));
            }
        });
        Self { url, is_honest }
    }
}

/// Passes a connection's requests on, and the answers back.
fn answer(line: TcpStream, root: &str, ignores: impl Fn(&str) -> bool, hidden: &str) -> Option<()> {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut reader = BufReader::new(line.try_clone().ok()?);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let start = head.len();
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
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
                "GET" => agent.get(url).call(),
                _ => agent.post(url).header("content-type", "application/json").send(&body[..]),
            };
            let mut answer = asked.ok()?;
            let text = answer.body_mut().read_to_string().ok()?;
            (answer.status().as_u16(), text.replace(&format!("{hidden:?}:"), "\"other\":"))
        };
        // In one piece: what is written in several waits for the other side's acknowledgement of the first.
        let answer = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        (&line).write_all(answer.as_bytes()).ok()?;
    }
}

/// A server that says that it has taken the weights and has not: nothing of it is trained on.
#[test]
fn a_server_that_ignores_an_update_is_caught() {
    let folder = tempfile::tempdir().unwrap();
    for (refresh, call, version, told) in [
        // It does not tell what its weights are called; its log-probs do.
        ("vllm", "/collective_rpc", 1, "are those of older weights"),
        ("sglang", "/update_weights_from_disk", 0, "it says that its weights are"),
    ] {
        let place = folder.path().join(refresh);
        let weights = weights(&place);
        let solver = server(&weights, "solver", "127.0.0.1:0");
        let pretender = Pretender::start(&solver, call, "nothing");
        let out = place.join("run");
        let done: Done = sgs(&run(2, &out, &weights, refresh, &[&pretender.url], &[])).expect(1);
        assert!(done.err.contains(told), "{}", done.err);
        let named = format!("the server {}, which is to play the solver in round {version}", pretender.url);
        assert!(done.err.contains(&named), "{}", done.err);
        assert_eq!(rounds(&out), version, "no round after it");
        if refresh == "vllm" {
            an_update_that_is_ignored_is_survived(&place, &weights, &solver, &pretender, call);
        } else {
            another_server_takes_its_place(&out, &solver);
        }
    }
}

/// The run goes on once its server is mended; one that has another server goes on without the one that is not.
fn an_update_that_is_ignored_is_survived(
    place: &Path,
    weights: &Path,
    honest: &Server,
    pretender: &Pretender,
    call: &'static str,
) {
    let out = place.join("run");
    pretender.is_honest.store(true, Ordering::Release);
    sgs(&["resume", out.to_str().unwrap()]).expect(0);
    assert_eq!(rounds(&out), 2);
    let fresh = server(weights, "base", "127.0.0.1:0");
    let pretender = Pretender::start(&fresh, call, "nothing");
    let beside = place.join("beside");
    let begun = Instant::now();
    let done = sgs(&run(2, &beside, weights, "vllm", &[&pretender.url, &honest.url], &[])).expect(0);
    // The other does all the work, maybe before this one is left out.
    assert!(done.err.contains("It has not taken the new ones"), "{}", done.err);
    // The lease of a task would last a minute: none waits for a server that takes no part.
    assert!(begun.elapsed() < Duration::from_secs(55), "{:?}: {}", begun.elapsed(), done.err);
    assert_eq!(content(&beside), content(&out));
}

/// The run goes on with a server at another address, and with nothing else than it was begun with.
fn another_server_takes_its_place(out: &Path, server: &Server) {
    let set = |setting: &str| sgs(&["resume", out.to_str().unwrap(), "--set", setting]);
    let refused = set("algorithm.batch.size=3").expect(2);
    assert!(refused.err.contains("a run goes on as it was begun"), "{}", refused.err);
    let refused = set("sampling.endpoint.solver_urls=[]").expect(2);
    assert!(refused.err.contains("no server is given"), "{}", refused.err);
    set(&format!("sampling.endpoint.solver_urls={:?}", [&server.url])).expect(0);
    let recorded = std::fs::read_to_string(out.join("config.toml")).unwrap();
    assert!(recorded.contains("key = \"sampling.endpoint.solver_urls\""), "{recorded}");
    assert_eq!(rounds(out), 2);
}

/// What cannot be trained on is refused before anything is sampled.
#[test]
fn a_server_that_tells_too_little_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let weights = weights(folder.path());
    let solver = server(&weights, "solver", "127.0.0.1:0");
    let out = folder.path().join("run");
    // Its folder is not below the one that updates may come from.
    let elsewhere = folder.path().join("elsewhere");
    let done = sgs(&run(1, &out, &elsewhere, "sglang", &[&solver.url], &[])).expect(1);
    assert!(
        done.err.contains("/update_weights_from_disk: HTTP 400") && done.err.contains("is not below"),
        "{}",
        done.err
    );
    for (hidden, lacks) in [("token_ids", "token ids"), ("token_logprobs", "log-probs")] {
        let pretender = Pretender::start(&solver, "/nothing", hidden);
        let done =
            sgs(&run(1, &folder.path().join(hidden), &weights, "vllm", &[&pretender.url], &[])).expect(1);
        let told = "cannot play a role that is trained: it does not tell";
        assert!(done.err.contains(told) && done.err.contains(lacks), "{}", done.err);
    }
    let fixed = Server::start(&[]);
    let out = folder.path().join("fixed");
    let done = sgs(&run(1, &out, &elsewhere, "vllm", &[&fixed.url], &[])).expect(1);
    assert!(
        done.err.contains("/collective_rpc") && done.err.contains("VLLM_SERVER_DEV_MODE=1"),
        "{}",
        done.err
    );
    assert_eq!(rounds(&out), 0);
}
