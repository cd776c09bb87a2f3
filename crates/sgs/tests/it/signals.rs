//! What a command that is ended by a signal leaves behind.

use crate::program::{command, file, path};
use rustix::process::{Pid, Signal, kill_process};
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
