//! What a command that is ended by a signal leaves behind.

use crate::program::{command, file, path, sgs};
use crate::small_run::settings;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Every signal that users, terminals and job schedulers send.
const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits until a process has created an entry in a folder that had `before` entries.
fn wait_for_entry(child: &mut Child, folder: &Path, before: usize) {
    let begun = Instant::now();
    while names(folder).len() <= before {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() && begun.elapsed() < Duration::from_secs(120), "{ended:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_unfinished_output_is_removed_and_the_old_one_remains() {
    let dir = tempfile::tempdir().unwrap();
    let problems = file(dir.path(), "problems.json", "[]");
    // The commands wait for a writer while their outputs are unfinished.
    let pipe = path(dir.path(), "pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let outputs = dir.path().join("outputs");
    std::fs::create_dir(&outputs).unwrap();
    let out = file(&outputs, "out", "{}\n");
    let commands: [&[&str]; 2] = [
        &["verify", "-", "--export", &out],
        &["data", "import", &problems, "--header", &pipe, "--out", &out],
    ];
    for (arguments, signal) in commands.iter().flat_map(|arguments| SIGNALS.map(|signal| (arguments, signal)))
    {
        let mut child = command(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        wait_for_entry(&mut child, &outputs, 1);
        kill_process(Pid::from_child(&child), signal).unwrap();
        // The other commands end by the signal too.
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()), "{arguments:?}");
        assert_eq!(names(&outputs), ["out"], "{arguments:?}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "{}\n", "{arguments:?}");
    }
}

/// Starts a run in `out`, sends it a signal as soon as `is_time`, and returns whether the signal arrived before the run
/// began. Otherwise, the run has stopped and can be resumed.
fn ends_before_it_begins(out: &Path, signal: Signal, is_time: impl Fn(&Path) -> bool) -> bool {
    let arguments = [&settings()[..], &["--out".to_owned(), out.to_str().unwrap().to_owned()]].concat();
    let mut child = command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !is_time(out) {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() && begun.elapsed() < Duration::from_secs(120), "{ended:?}");
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    if ended.status.signal() == Some(signal.as_raw()) {
        assert!(!err.contains("Ctrl-C stops it"), "the run has begun: {err}");
        return true;
    }
    assert_eq!(ended.status.code(), Some(130), "{err}");
    let status = sgs(&["status", out.to_str().unwrap()]).expect(0).out;
    assert!(status.contains("sgs resume "), "{status}");
    false
}

#[test]
fn a_run_that_a_signal_ends_before_it_begins_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let moments: [fn(&Path) -> bool; 4] = [
        Path::exists,
        |out| out.join("lock").exists(),
        |out| out.join("journal.sqlite").exists(),
        |out| out.join("config.toml").exists(),
    ];
    for (number, is_time) in moments.into_iter().enumerate() {
        // A run that the machine executes faster than this test has begun. Then the test tries again.
        let ends_early = |attempt: usize| {
            let folder = dir.path().join(format!("{number}-{attempt}"));
            let is_early = ends_before_it_begins(&folder.join("runs/run"), SIGNALS[number % 3], is_time);
            assert_eq!(folder.exists(), !is_early, "at moment {number}");
            is_early
        };
        assert!((0..10).any(ends_early), "no run was ended before it began, at moment {number}");
    }
    // A folder of the user's remains.
    let own = dir.path().join("own");
    let ends_early = |_| {
        let _ = std::fs::remove_dir_all(&own);
        std::fs::create_dir(&own).unwrap();
        ends_before_it_begins(&own, Signal::TERM, |out| out.join("config.toml").exists())
    };
    assert!((0..10).any(ends_early), "no run was ended before it began");
    assert_eq!(names(&own), [""; 0]);
}

#[test]
fn a_run_that_a_signal_ends_after_it_began_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let run = path(dir.path(), "run");
    let arguments = [&settings()[..], &["--out".to_owned(), run.clone()]].concat();
    let mut child = command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Ctrl-C stops it")));
    // The run may end before the signal arrives.
    let _ = kill_process(Pid::from_child(&child), Signal::INT);
    lines.for_each(drop);
    let code = child.wait().unwrap().code();
    assert!(code == Some(130) || code == Some(0), "{code:?}");
    sgs(&["resume", &run]).expect(0);
}
