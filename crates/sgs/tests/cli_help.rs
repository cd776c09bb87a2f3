//! Help, usage errors and exit codes that all commands share.
#![allow(clippy::unwrap_used)] // tests say so by panicking

mod program;

use program::{command, sgs};
use std::io::Write;
use std::process::Stdio;

/// Names of the subcommands below a command, as its help lists them.
fn subcommands(path: &[&str]) -> Vec<String> {
    let help = sgs(&[path, &["--help"]].concat()).expect(0).out;
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|l| !l.is_empty());
    let names = lines.filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn every_command_has_help_that_fits_a_terminal() {
    let mut todo: Vec<Vec<String>> = subcommands(&[]).into_iter().map(|c| vec![c]).collect();
    assert!(todo.len() >= 10, "{todo:?}");
    while let Some(path) = todo.pop() {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        let help = sgs(&[&names[..], &["--help"]].concat()).expect(0).out;
        assert!(help.contains("Usage: sgs"), "{help}");
        let first = help.lines().next().unwrap_or_default();
        assert!(first.len() > 15, "{path:?} does not say what it does: {first}");
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{path:?}: {line}");
        }
        for option in help.lines().filter(|l| l.trim_start().starts_with("--")) {
            let described = option.trim().split("  ").skip(1).any(|d| d.trim().len() > 3);
            let below =
                help.lines().skip_while(|l| l != &option).nth(1).is_some_and(|l| l.starts_with("          "));
            assert!(described || below, "{path:?}: no description of `{}`", option.trim());
        }
        todo.extend(subcommands(&names).into_iter().map(|c| [&path[..], &[c]].concat()));
    }
}

#[test]
fn mistakes_in_the_call_end_with_code_2_and_say_what_to_do() {
    let cases: &[(&[&str], &str)] = &[
        (&["no-such-command"], "unrecognized subcommand"),
        (&["verify"], "<FILE>"),
        (&["verify", "x", "--system", "coq"], "possible values: metamath, lean"),
        (&["conjecture"], "give the target: a statement, or --problem"),
        (&["review", "|- ph"], "give the target: a statement, or --problem"),
        (&["compare", "x"], "two runs or more"),
        (&["export", "x", "--mm", "a", "--jsonl", "b"], "cannot be used with"),
        (&["eval", "-k", "0"], "0 is not in 1.."),
        (&["prove", "--model", "m", "--problem", "id", "|- ph"], "cannot be used with"),
        (&["prove", "--model", "m", "--samples", "0", "|- ph"], "--samples is 0: give at least 1"),
        (&["prove", "--model", "m", "--temperature", "-1", "|- ph"], "--temperature"),
        (&["prove", "--model", "m", "|- ( ph"], "symbols are separated by spaces"),
        (&["prove", "( ph -> A. x ph )  ( x ph)"], "stands between single quotes"),
        (&["prove", "--model", "m", "|- ph", "--context", "nix"], "nix"),
        (&["prove", "--model", "m", "--problem", "sylx"], "near it: syl"),
        (&["fit", "x", "--level", "2"], "--level is 2"),
        (&["fit", "x", "--max-rate", "0"], "--max-rate is 0"),
        (&["fit", "x", "--cut=-1"], "--cut is -1"),
        (&["bench", "sample", "--batch", "0"], "--batch is 0: give at least 1"),
        (&["bench", "dispatch", "--workers", "0"], "--workers is 0: give at least 1"),
        (&["bench", "train", "--model", "nonsense"], "give `small`, or a folder with a config.json"),
        (&["bench", "verify", "--repeats", "0"], "--repeats is 0: give at least 1"),
        (&["status", "x", "--token", "abcdefgh"], "--serve"),
        (&["bench", "train", "--length", "5000"], "context holds 2048"),
    ];
    for (args, message) in cases {
        let done = sgs(args).expect(2);
        assert!(done.err.contains(message), "{args:?}: {}", done.err);
        assert_eq!(done.out, "", "{args:?}: nothing goes to standard output");
    }
}

#[test]
fn what_is_not_there_ends_with_code_1_and_is_named() {
    let cases: &[&[&str]] = &[
        &["verify", "/no/such/file"],
        &["verify", "/dev/null", "--database", "/no/such/file"],
        &["prove", "--model", "/no/such/file", "|- ( ph -> ph )"],
        &["status", "/no/such/file"],
        &["fit", "/no/such/file"],
        &["lm", "check", "/no/such/file"],
        &["data", "stats", "/no/such/file"],
    ];
    for args in cases {
        let done = sgs(args).expect(1);
        assert!(done.err.contains("error: ") && done.err.contains("/no/such/file"), "{args:?}: {}", done.err);
        let told: Vec<&str> = done.err.lines().filter(|l| l.contains("os error 2")).collect();
        assert!(told.len() <= 1, "{args:?} says it twice: {}", done.err);
    }
}

#[test]
fn completions_are_written() {
    for shell in ["bash", "zsh", "fish"] {
        let done = sgs(&["completions", shell]).expect(0);
        assert!(done.out.contains("verify") && done.out.contains("sgs"), "{shell}");
    }
}

#[test]
fn messages_that_nobody_reads_any_more_stop_nothing() {
    let mut child = command(&["run", "--set", "no.such.key=1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    // The message is lost; the exit code is that of a wrong call, not that of a panic.
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = command(&["verify", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let line = "{\"id\":\"a\",\"conclusion\":\"|- ( ph -> ph )\",\"proof\":[\"id\"]}\n";
    let writer = std::thread::spawn(move || {
        // Ends early, because the program does not read on.
        let _ = stdin.write_all(line.repeat(20_000).as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(!err.contains("panicked"), "{err}");
}
