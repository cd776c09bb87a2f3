//! Runs whose work is done by other processes: on this machine, by hand, over a coordinator that dies.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // tests say so by panicking

mod content;
mod fleet_run;
mod program;
mod shared_run;

use content::content;
use fleet_run::{embedded, embedded_as, records, settings, unevaluated, wait_for};
use program::{command, file, sgs};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends with the test, however that ends.
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

/// Waits for a run's end.
fn finish(mut process: Process, log: &Path) {
    wait_for("the run to end", || process.0.try_wait().unwrap().is_some());
    let status = process.0.wait().unwrap();
    assert!(status.success(), "{status}: {}", text(log));
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The coordinator's URL, once it listens.
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
fn processes_of_this_machine_come_to_the_tables_of_a_run_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let expected = content(&embedded());
    let run = folder.path().join("workers");
    let arguments =
        ["--workers", "local:generate=2,verify=1,threads=1,slots=2", "--out", run.to_str().unwrap()];
    let coordinator = start(
        command(&[&settings()[..], &arguments.map(str::to_owned)].concat()),
        &folder.path().join("log"),
    );
    // While it works, its workers can be looked at.
    wait_for("workers in the status", || {
        let status = sgs(&["status", "--json", run.to_str().unwrap()]);
        let over = text(&folder.path().join("log")).contains("report:");
        over || status.code == 0
            && status.json()["fleet"]["workers"].as_array().is_some_and(|w| !w.is_empty())
    });
    finish(coordinator, &folder.path().join("log"));
    assert_eq!(content(&run), expected);
    let logs: Vec<String> = std::fs::read_dir(run.join("workers"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .map(|path| text(&path))
        .collect();
    assert_eq!(logs.len(), 3, "two that sample and one that checks, and none was replaced: {logs:?}");
    assert!(logs.iter().all(|log| log.contains("sent home")), "{logs:?}");
    let text = sgs(&["status", run.to_str().unwrap()]).expect(0).out;
    assert!(text.contains("finished"), "{text}");
}

#[test]
fn workers_outlive_their_coordinator_and_nothing_finished_is_done_again() {
    let folder = tempfile::tempdir().unwrap();
    // The tasks of evaluations stand in no table, and tasks are counted below.
    let mut serve = unevaluated();
    let expected = content(&embedded_as(&serve));
    let run = folder.path().join("served");
    let out = ["--out".to_owned(), run.display().to_string()];
    serve[0] = "serve".to_owned();
    let listen = ["--listen", "127.0.0.1:0"].map(str::to_owned);
    let mut coordinator = start(command(&[&serve[..], &out, &listen].concat()), &folder.path().join("first"));
    let url = url(&run);
    let token = run.join("fleet.token").display().to_string();
    let worker = |kind: &str, name: &str| {
        let words = ["worker", kind, "--connect", &url, "--token-file", &token, "--name", name];
        start(command(&words), &folder.path().join(name))
    };
    let mut workers =
        [worker("generate", "generate-a"), worker("generate", "generate-b"), worker("verify", "verify-a")];
    wait_for("results in the journal", || records(&run) >= 15);
    coordinator.0.kill().unwrap();
    coordinator.0.wait().unwrap();
    let before = records(&run);
    println!("killed with {before} results in the journal");

    // The same address, the same workers, without a word on the command line.
    let resume = start(command(&["resume", run.to_str().unwrap()]), &folder.path().join("second"));
    finish(resume, &folder.path().join("second"));
    assert_eq!(content(&run), expected);
    let mut done = 0;
    for (worker, name) in workers.iter_mut().zip(["generate-a", "generate-b", "verify-a"]) {
        let log = folder.path().join(name);
        wait_for("a worker to go home", || worker.0.try_wait().unwrap().is_some());
        let words = text(&log);
        assert!(worker.0.wait().unwrap().success(), "{name}: {words}");
        let count = words.split("leases: ").nth(1).and_then(|w| w.split(" done").next()?.parse::<u64>().ok());
        let count = count.unwrap_or_else(|| panic!("{name} does not say what it did: {words}"));
        // How proofs are put together into tasks depends on when they come in.
        done += if name.starts_with("generate") { count } else { 0 };
    }
    // Every task's outcome was accepted from one worker once, before the death or after it; a receipt that the death cut
    // off is counted by nobody.
    let tasks: u64 = fleet_run::sampling_tasks(&run);
    assert!(done <= tasks, "{done} outcomes were accepted for {tasks} tasks");
    assert!(done + 64 >= tasks, "{done} outcomes were accepted for {tasks} tasks");
}

/// As on a cluster without a shared file system: the workers do not see the run's folder, so they fetch the weights of
/// every round from the coordinator, and nobody on the way can read them.
#[test]
fn workers_that_see_nothing_of_the_run_fetch_its_weights_encrypted() {
    if !unshares() {
        println!("skipped: this user cannot hide a folder from a process (unshare --mount)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let expected = content(&embedded());
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let authority = file(elsewhere.path(), "authority.pem", &certified.cert.pem());
    let key = file(folder.path(), "key.pem", &certified.signing_key.serialize_pem());
    let crews = format!(
        "listen = \"127.0.0.1:0\"\nhost = \"localhost\"\ncertificate = {authority:?}\nkey = {key:?}\n\
         [generate]\nby = \"none\"\n[verify]\nby = \"none\"\n"
    );
    let crews = file(folder.path(), "crews.toml", &crews);
    let run = folder.path().join("served");
    let rest = ["--out", run.to_str().unwrap(), "--workers", &crews].map(str::to_owned);
    let log = folder.path().join("log");
    let coordinator = start(command(&[&settings()[..], &rest].concat()), &log);
    let url = url(&run);
    assert!(url.starts_with("https://localhost:"), "{url}");
    let token = file(elsewhere.path(), "token", &text(&run.join("fleet.token")));
    let hidden = folder.path().to_str().unwrap();
    // To somebody who asks for completions it is just a server with a certificate that nobody has signed.
    let classify = ["data", "classify", "core", "--endpoint", &url, "--out"];
    let classes = elsewhere.path().join("classes").display().to_string();
    let ask = |more: &[&str]| sgs(&[&classify[..], &[&classes], more].concat()).expect(1).err;
    let begun = std::time::Instant::now();
    let told = ask(&[]);
    assert!(told.contains("no TLS with it") && told.contains("--endpoint-authority"), "{told}");
    assert!(begun.elapsed().as_secs() < 60, "asking again does not help");
    let told = ask(&["--endpoint-authority", &authority]);
    assert!(told.contains("answers HTTP 401"), "{told}");
    assert!(ask(&["--endpoint-authority", &token]).contains("there is no certificate in PEM form in it"));
    let workers = ["generate", "verify"].map(|kind| {
        let words = ["worker", kind, "--connect", &url, "--token-file", &token, "--authority", &authority];
        let mut worker = Command::new("unshare");
        worker.args(["--mount", "sh", "-c", "mount -t tmpfs none \"$0\" && exec \"$@\"", hidden]);
        worker.arg(command::<&str>(&[]).get_program()).args(words);
        (start(worker, &elsewhere.path().join(kind)), elsewhere.path().join(kind))
    });
    finish(coordinator, &log);
    for (worker, log) in workers {
        finish(worker, &log);
    }
    assert_eq!(content(&run), expected);
    // Whoever does not know the certificate does not talk.
    let done =
        sgs(&["worker", "verify", "--connect", &url, "--token-file", &token, "--patience", "1"]).expect(1);
    assert!(done.err.contains("localhost"), "{}", done.err);
}

/// Whether a process can be given a view of the file system of its own.
fn unshares() -> bool {
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", "mount -t tmpfs none /mnt"]).output();
    tried.is_ok_and(|out| out.status.success())
}

#[test]
fn a_worker_that_is_asked_to_leave_gives_back_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    // Nobody checks here, and the round would wait for an evaluation.
    let mut serve = unevaluated();
    serve[0] = "serve".to_owned();
    let rest = ["--out", run.to_str().unwrap(), "--listen", "127.0.0.1:0"].map(str::to_owned);
    let _coordinator = start(command(&[&serve[..], &rest].concat()), &folder.path().join("log"));
    let url = url(&run);
    let token = run.join("fleet.token").display().to_string();
    // It holds more than it samples at once, and has no time to finish that.
    let words =
        ["worker", "generate", "--connect", &url, "--token-file", &token, "--grace", "0", "--batch", "1"];
    let log = folder.path().join("worker");
    let mut worker = start(command(&words), &log);
    let board = || {
        let status = sgs(&["status", "--json", run.to_str().unwrap()]).expect(0).json();
        let kinds = status["fleet"]["kinds"].as_array().cloned().unwrap_or_default();
        kinds.into_iter().find(|kind| kind["kind"] == "generate").unwrap_or_default()
    };
    wait_for("a result", || records(&run) > 0);
    kill_process(Pid::from_child(&worker.0), Signal::TERM).unwrap();
    wait_for("the worker to leave", || worker.0.try_wait().unwrap().is_some());
    assert!(worker.0.wait().unwrap().success(), "{}", text(&log));
    assert!(text(&log).contains("sent home"), "{}", text(&log));
    wait_for("its leases to be given back", || board()["leased"] == 0);
}

#[test]
fn a_worker_says_what_keeps_it_from_working() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = file(folder.path(), "token", "a-token-of-another-run\n");
    let nobody = ["worker", "verify", "--connect", "http://127.0.0.1:9", "--patience", "1"];
    let done = sgs(&nobody).expect(1);
    assert!(
        done.err.contains("waited 1 s for the run's sheet") && done.err.contains("127.0.0.1:9"),
        "{}",
        done.err
    );
    let done = sgs(&["worker", "generate", "--connect", "localhost:80"]).expect(1);
    assert!(done.err.contains("begins with http://"), "{}", done.err);
    let run = folder.path().join("run");
    let mut serve = settings();
    serve[0] = "serve".to_owned();
    let rest = ["--out", run.to_str().unwrap(), "--listen", "127.0.0.1:0"].map(str::to_owned);
    let _coordinator = start(command(&[&serve[..], &rest].concat()), &folder.path().join("log"));
    let url = url(&run);
    let done = sgs(&["worker", "verify", "--connect", &url, "--token-file", &wrong]).expect(1);
    assert!(done.err.contains("token"), "{}", done.err);
    let token = run.join("fleet.token").display().to_string();
    let mut blind =
        command(&["worker", "generate", "--connect", &url, "--token-file", &token, "--device", "cuda"]);
    blind.env("CUDA_VISIBLE_DEVICES", "");
    let done = program::finish(blind).expect(1);
    assert!(done.err.contains("cuda:0"), "{}", done.err);
    let status = sgs(&["status", run.to_str().unwrap()]).expect(0).out;
    assert!(status.contains("coordinator") && status.contains(&url), "{status}");
    let page = sgs(&["run", "--workers", "slum:2"]).expect(2);
    assert!(page.err.contains("expected embedded, none, local:N"), "{}", page.err);
}

/// A coordinator that takes connections and never answers.
#[test]
fn a_worker_whose_coordinator_hangs_says_so_and_leaves_when_it_is_asked_to() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let workers = ["generate", "verify"].map(|kind| {
        let log = folder.path().join(kind);
        (start(command(&["worker", kind, "--connect", &url, "--grace", "1"]), &log), log)
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    for (worker, _) in &workers {
        kill_process(Pid::from_child(&worker.0), Signal::TERM).unwrap();
    }
    let asked = std::time::Instant::now();
    for (mut worker, log) in workers {
        wait_for("the worker to leave", || worker.0.try_wait().unwrap().is_some());
        let took = asked.elapsed();
        // Its grace, two seconds and a busy machine's.
        assert!(took < std::time::Duration::from_secs(10), "{took:?}: {}", text(&log));
        assert!(text(&log).contains("asked to leave"), "{}", text(&log));
    }
}
