//! Runs with separate worker processes: local, started manually, and with a coordinator that is killed.

use crate::program;
use crate::program::{command, file, sgs};
use crate::small_run;
use crate::small_run::{
    embedded, embedded_with, journal_records, settings, settings_without_evaluation, wait_for,
};
use crate::snapshot::snapshot;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A child process that is killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(mut command: Command, log: &Path) -> Process {
    let log = std::fs::File::create(log).unwrap();
    Process(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// Waits for a process to end successfully.
fn finish(mut process: Process, log: &Path) {
    wait_for("the process to end", || process.0.try_wait().unwrap().is_some());
    let status = process.0.wait().unwrap();
    assert!(status.success(), "{status}: {}", text(log));
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Waits until the coordinator listens and returns its URL.
fn url(run: &Path) -> String {
    let mut url = String::new();
    wait_for("the coordinator to listen", || {
        let Ok(table) = text(&run.join("fleet.toml")).parse::<toml::Table>() else { return false };
        let Some(found) = table.get("url").and_then(toml::Value::as_str) else { return false };
        url = found.to_owned();
        true
    });
    url
}

#[test]
fn local_workers_produce_the_tables_of_an_embedded_run() {
    let folder = tempfile::tempdir().unwrap();
    let expected = snapshot(&embedded());
    let run = folder.path().join("workers");
    let mut arguments =
        vec!["--workers", "local:generate=2,verify=1,threads=1,slots=2", "--out", run.to_str().unwrap()];
    // The workers also check the Guide, which changes no table.
    arguments.extend(["--set", "algorithm.guide.min_readable=0.8"]);
    let coordinator = start(
        command(&[&settings()[..], &arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()].concat()),
        &folder.path().join("log"),
    );
    // The status shows the workers while the run is active.
    wait_for("workers in the status", || {
        let status = sgs(&["status", "--json", run.to_str().unwrap()]);
        let finished = text(&folder.path().join("log")).contains("report:");
        finished
            || status.code == 0 && status.json()["fleet"]["workers"].as_array().is_some_and(|w| !w.is_empty())
    });
    finish(coordinator, &folder.path().join("log"));
    assert_eq!(snapshot(&run), expected);
    let logs: Vec<String> = std::fs::read_dir(run.join("workers"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .map(|path| text(&path))
        .collect();
    assert_eq!(
        logs.len(),
        3,
        "expected logs of two generate workers and one verify worker, with none replaced: {logs:?}"
    );
    assert!(logs.iter().all(|log| log.contains("finished after")), "{logs:?}");
    let text = sgs(&["status", run.to_str().unwrap()]).expect(0).out;
    assert!(text.contains("finished"), "{text}");
    assert!(!run.join("weights").exists(), "the copies for workers are still there");
    // A further round needs new copies.
    let rounds = sgs_rundir::RunView::open(&run).unwrap().rounds().unwrap().len() + 1;
    sgs(&["resume", run.to_str().unwrap(), "--rounds", &rounds.to_string()]).expect(0);
    assert_eq!(sgs_rundir::RunView::open(&run).unwrap().rounds().unwrap().len(), rounds);
    assert!(!run.join("weights").exists(), "the copies for workers are still there");
}

#[test]
fn workers_outlive_their_coordinator_and_repeat_no_finished_task() {
    let folder = tempfile::tempdir().unwrap();
    // Tasks of evaluations are in no table, and the tasks are counted below.
    let mut serve = settings_without_evaluation();
    let expected = snapshot(&embedded_with(&serve));
    let run = folder.path().join("served");
    let out = ["--out".to_owned(), run.display().to_string()];
    serve[0] = "serve".to_owned();
    let listen = ["--listen", "127.0.0.1:0"].map(str::to_owned);
    let mut coordinator = start(command(&[&serve[..], &out, &listen].concat()), &folder.path().join("first"));
    let url = url(&run);
    let token = run.join("fleet.token").display().to_string();
    let worker = |kind: &str, name: &str| {
        let arguments = ["worker", kind, "--connect", &url, "--token-file", &token, "--name", name];
        start(command(&arguments), &folder.path().join(name))
    };
    let mut workers =
        [worker("generate", "generate-a"), worker("generate", "generate-b"), worker("verify", "verify-a")];
    wait_for("results in the journal", || journal_records(&run) >= 15);
    // The files of a run from before TLS: `status` names the problem, and `resume` completes them.
    let (address, credentials) = (text(&run.join("fleet.toml")), text(Path::new(&token)));
    std::fs::write(run.join("fleet.toml"), address.replace("https://", "http://")).unwrap();
    std::fs::write(&token, credentials.lines().next().unwrap()).unwrap();
    let status = sgs(&["status", run.to_str().unwrap()]).expect(0);
    // Long lines are broken.
    let said = status.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("the coordinator's URL begins with https://"), "{said}");
    coordinator.0.kill().unwrap();
    coordinator.0.wait().unwrap();
    let before = journal_records(&run);
    println!("killed with {before} results in the journal");

    // `resume` uses the same address, key and workers without further arguments.
    let resume = start(command(&["resume", run.to_str().unwrap()]), &folder.path().join("second"));
    finish(resume, &folder.path().join("second"));
    assert_eq!(text(Path::new(&token)), credentials);
    assert_eq!(snapshot(&run), expected);
    let mut done = 0;
    for (worker, name) in workers.iter_mut().zip(["generate-a", "generate-b", "verify-a"]) {
        let log = folder.path().join(name);
        wait_for("a worker to exit", || worker.0.try_wait().unwrap().is_some());
        let log = text(&log);
        assert!(worker.0.wait().unwrap().success(), "{name}: {log}");
        let count = log.split("leases: ").nth(1).and_then(|w| w.split(" done").next()?.parse::<u64>().ok());
        let count = count.unwrap_or_else(|| panic!("{name} reports no lease count: {log}"));
        // Only generate tasks: the batching of proofs into verify tasks depends on timing.
        done += if name.starts_with("generate") { count } else { 0 };
    }
    // Each task's result was accepted from one worker, before or after the coordinator was killed. Acknowledgements
    // that were lost in the kill are not counted.
    let tasks: u64 = small_run::sampling_tasks(&run);
    assert!(done <= tasks, "{done} results were accepted for {tasks} tasks");
    assert!(done + 64 >= tasks, "{done} results were accepted for {tasks} tasks");
}

/// The coordinator is killed before it listens. Resuming must not take the run for one without remote workers.
#[test]
fn a_coordinator_that_is_killed_before_it_listens_is_resumed_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut serve = settings_without_evaluation();
    serve[0] = "serve".to_owned();
    // If the machine pauses this test, the coordinator may listen before it is killed. Then the test tries again.
    let mut attempts = (0..10).map(|attempt| folder.path().join(format!("run-{attempt}")));
    let killed_early = |run: &PathBuf| {
        let rest = ["--out", run.to_str().unwrap(), "--listen", "127.0.0.1:0"].map(str::to_owned);
        let mut first = start(command(&[&serve[..], &rest].concat()), &folder.path().join("first"));
        wait_for("the run", || run.join("config.toml").exists());
        first.0.kill().unwrap();
        first.0.wait().unwrap();
        !text(&run.join("fleet.toml")).contains("url")
    };
    let run = attempts.find(killed_early).expect("one of ten coordinators is killed before it listens");
    // Without the file, the run must not continue with other workers than before.
    let [file, away] = ["fleet.toml", "away"].map(|name| run.join(name));
    std::fs::rename(&file, &away).unwrap();
    let error = sgs(&["resume", run.to_str().unwrap()]).expect(1).err;
    assert!(
        error.contains("fleet.toml is damaged: it is missing") && error.contains("--workers embedded"),
        "{error}"
    );
    let found = sgs(&["doctor", run.to_str().unwrap()]).expect(1).out;
    assert!(found.contains("fleet.toml is damaged: it is missing"), "{found}");
    std::fs::rename(&away, &file).unwrap();
    let _second = start(command(&["resume", run.to_str().unwrap()]), &folder.path().join("second"));
    assert!(url(&run).contains("127.0.0.1:"));
}

/// Simulates a cluster without a shared file system: workers do not see the run's folder, so they fetch the weights of
/// each round from the coordinator over TLS.
#[test]
fn workers_without_a_shared_file_system_fetch_weights_over_tls() {
    if !can_unshare() {
        println!("skipped: this user cannot hide a folder from a process (unshare --mount)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let expected = snapshot(&embedded());
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let authority = file(elsewhere.path(), "authority.pem", &certified.cert.pem());
    let key = file(folder.path(), "key.pem", &certified.signing_key.serialize_pem());
    let config = format!(
        "listen = \"127.0.0.1:0\"\nhost = \"localhost\"\ncertificate = {authority:?}\nkey = {key:?}\n\
         [generate]\nby = \"none\"\n[verify]\nby = \"none\"\n"
    );
    let config = file(folder.path(), "fleet-config.toml", &config);
    let run = folder.path().join("served");
    let rest = ["--out", run.to_str().unwrap(), "--workers", &config].map(str::to_owned);
    let log = folder.path().join("log");
    let coordinator = start(command(&[&settings()[..], &rest].concat()), &log);
    let url = url(&run);
    assert!(url.starts_with("https://localhost:"), "{url}");
    let token = file(elsewhere.path(), "token", &text(&run.join("fleet.token")));
    let hidden = folder.path().to_str().unwrap();
    // For a client of the completions protocol, the coordinator is a server with a self-signed certificate.
    let classify = ["data", "classify", "core", "--endpoint", &url, "--out"];
    let classes = elsewhere.path().join("classes").display().to_string();
    let ask = |more: &[&str]| sgs(&[&classify[..], &[&classes], more].concat()).expect(1).err;
    let started = std::time::Instant::now();
    let err = ask(&[]);
    assert!(err.contains("no TLS with it") && err.contains("--endpoint-authority"), "{err}");
    assert!(started.elapsed().as_secs() < 60, "TLS errors must not be retried");
    let err = ask(&["--endpoint-authority", &authority]);
    assert!(err.contains("answers HTTP 401"), "{err}");
    assert!(ask(&["--endpoint-authority", &token]).contains("it contains no certificate in PEM format"));
    let workers = ["generate", "verify"].map(|kind| {
        let arguments =
            ["worker", kind, "--connect", &url, "--token-file", &token, "--authority", &authority];
        let mut worker = Command::new("unshare");
        worker.args(["--mount", "sh", "-c", "mount -t tmpfs none \"$0\" && exec \"$@\"", hidden]);
        worker.arg(command::<&str>(&[]).get_program()).args(arguments);
        (start(worker, &elsewhere.path().join(kind)), elsewhere.path().join(kind))
    });
    finish(coordinator, &log);
    for (worker, log) in workers {
        finish(worker, &log);
    }
    assert_eq!(snapshot(&run), expected);
    // A worker without the certificate refuses to connect.
    let done =
        sgs(&["worker", "verify", "--connect", &url, "--token-file", &token, "--patience", "1"]).expect(1);
    assert!(done.err.contains("localhost"), "{}", done.err);
}

/// Returns true if this user can start a process with a separate mount namespace.
fn can_unshare() -> bool {
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", "mount -t tmpfs none /mnt"]).output();
    tried.is_ok_and(|out| out.status.success())
}

#[test]
fn a_terminated_worker_returns_its_leases() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    // Without a verify worker, an evaluation would block the round.
    let mut serve = settings_without_evaluation();
    serve[0] = "serve".to_owned();
    let rest = ["--out", run.to_str().unwrap(), "--listen", "127.0.0.1:0"].map(str::to_owned);
    let _coordinator = start(command(&[&serve[..], &rest].concat()), &folder.path().join("log"));
    let url = url(&run);
    let token = run.join("fleet.token").display().to_string();
    // The worker holds more leases than its batch size, and has no grace period to finish them.
    let arguments =
        ["worker", "generate", "--connect", &url, "--token-file", &token, "--grace", "0", "--batch", "1"];
    let log = folder.path().join("worker");
    let mut worker = start(command(&arguments), &log);
    let board = || {
        let status = sgs(&["status", "--json", run.to_str().unwrap()]).expect(0).json();
        let kinds = status["fleet"]["kinds"].as_array().cloned().unwrap_or_default();
        kinds.into_iter().find(|kind| kind["kind"] == "generate").unwrap_or_default()
    };
    wait_for("a result", || journal_records(&run) > 0);
    kill_process(Pid::from_child(&worker.0), Signal::TERM).unwrap();
    wait_for("the worker to leave", || worker.0.try_wait().unwrap().is_some());
    assert!(worker.0.wait().unwrap().success(), "{}", text(&log));
    assert!(text(&log).contains("finished after"), "{}", text(&log));
    wait_for("its leases to be returned", || board()["leased"] == 0);
}

#[test]
fn a_worker_names_the_reason_it_cannot_work() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = file(folder.path(), "token", "a-token-of-another-run\n");
    let unreachable = ["worker", "verify", "--connect", "https://127.0.0.1:9", "--patience", "1"];
    let done = sgs(&unreachable).expect(1);
    assert!(
        done.err.contains("waited 1 s for the coordinator") && done.err.contains("127.0.0.1:9"),
        "{}",
        done.err
    );
    let done = sgs(&["worker", "generate", "--connect", "localhost:80"]).expect(2);
    assert!(done.err.starts_with("error: --connect localhost:80: the coordinator's URL"), "{}", done.err);
    let run = folder.path().join("run");
    let mut serve = settings();
    serve[0] = "serve".to_owned();
    let rest = ["--out", run.to_str().unwrap(), "--listen", "127.0.0.1:0"].map(str::to_owned);
    let _coordinator = start(command(&[&serve[..], &rest].concat()), &folder.path().join("log"));
    let url = url(&run);
    let done = sgs(&["worker", "verify", "--connect", &url, "--token-file", &wrong]).expect(1);
    assert!(done.err.contains("token"), "{}", done.err);
    let token = run.join("fleet.token").display().to_string();
    let mut without_gpu =
        command(&["worker", "generate", "--connect", &url, "--token-file", &token, "--device", "cuda"]);
    without_gpu.env("CUDA_VISIBLE_DEVICES", "");
    let done = program::finish(without_gpu).expect(2);
    assert!(done.err.contains("cuda:0"), "{}", done.err);
    let status = sgs(&["status", run.to_str().unwrap()]).expect(0).out;
    assert!(status.contains("coordinator") && status.contains(&url), "{status}");
    let page = sgs(&["run", "--workers", "slum:2"]).expect(2);
    assert!(page.err.contains("expected embedded, none, local:N"), "{}", page.err);
}

/// The coordinator accepts connections but never responds.
#[test]
fn a_worker_with_a_hanging_coordinator_stops_when_terminated() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let key = sgs_tls::Identity::from_secret("a key of this test").fingerprint();
    let workers = ["generate", "verify"].map(|kind| {
        let log = folder.path().join(kind);
        let mut worker = command(&["worker", kind, "--connect", &url, "--grace", "1"]);
        worker.env("SGS_TOKEN", format!("a-token-of-this-test {key}"));
        (start(worker, &log), log)
    });
    // A worker handles signals before it connects.
    let _connections = [(); 2].map(|()| listener.accept().unwrap());
    for (worker, _) in &workers {
        kill_process(Pid::from_child(&worker.0), Signal::TERM).unwrap();
    }
    let asked = std::time::Instant::now();
    for (mut worker, log) in workers {
        wait_for("the worker to leave", || worker.0.try_wait().unwrap().is_some());
        let took = asked.elapsed();
        // The grace period of one second, two more seconds, and a margin for a busy machine.
        assert!(took < std::time::Duration::from_secs(10), "{took:?}: {}", text(&log));
        assert!(text(&log).contains("after the request to stop"), "{}", text(&log));
    }
}
