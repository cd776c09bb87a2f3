//! Help, usage errors and exit codes of all commands.

use crate::program::{command, sgs};
use std::io::Write;
use std::process::Stdio;

/// Returns the subcommands that the help of a command lists.
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
        assert!(first.len() > 15, "{path:?} has no description: {first}");
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{path:?}: {line}");
        }
        // Wrapped descriptions, which may begin with an option's name, are indented further.
        let is_option = |l: &&str| l.trim_start().starts_with("--") && !l.starts_with("          ");
        for option in help.lines().filter(is_option) {
            let described = option.trim().split("  ").skip(1).any(|d| d.trim().len() > 3);
            let below =
                help.lines().skip_while(|l| l != &option).nth(1).is_some_and(|l| l.starts_with("          "));
            assert!(described || below, "{path:?}: no description of `{}`", option.trim());
        }
        todo.extend(subcommands(&names).into_iter().map(|c| [&path[..], &[c]].concat()));
    }
}

#[test]
fn usage_errors_exit_with_code_2_and_say_what_to_do() {
    let cases: &[(&[&str], &str)] = &[
        (&["no-such-command"], "unrecognized subcommand"),
        (&["verify"], "<FILE>"),
        (&["verify", "x", "--system", "coq"], "possible values: metamath, lean"),
        (&["conjecture"], "give the target: a statement, or --problem"),
        (&["review", "|- ph"], "give the target: a statement, or --problem"),
        (&["compare", "x"], "at least two runs"),
        (&["export", "x", "--mm", "a", "--jsonl", "b"], "cannot be used with"),
        (&["eval", "-k", "0"], "0 is not in 1.."),
        (&["prove", "--model", "m", "--problem", "id", "|- ph"], "cannot be used with"),
        (&["prove", "--model", "m", "--samples", "0", "|- ph"], "--samples is 0: give at least 1"),
        (&["prove", "--model", "m", "--temperature", "-1", "|- ph"], "--temperature"),
        (&["prove", "--model", "m", "|- ( ph"], "separate symbols by spaces"),
        (&["prove", "( ph -> A. x ph )  ( x ph)"], "in single quotes"),
        (&["prove", "--model", "m", "|- ph", "--context", "nix"], "nix"),
        (&["prove", "--model", "m", "--problem", "sylx"], "near it: syl"),
        (&["fit", "x", "--level", "2"], "--level is 2"),
        (&["fit", "x", "--max-rate", "0"], "--max-rate is 0"),
        (&["fit", "x", "--cut=-1"], "--cut is -1"),
        (&["bench", "sample", "--batch", "0"], "--batch is 0: give at least 1"),
        (&["bench", "dispatch", "--workers", "0"], "--workers is 0: give at least 1"),
        (&["bench", "train", "--model", "nonsense"], "expected `small` or a folder with a config.json"),
        (&["bench", "verify", "--repeats", "0"], "--repeats is 0: give at least 1"),
        (&["status", "x", "--token", "abcdefgh"], "--serve"),
        (&["bench", "train", "--length", "5000"], "context window of 2048"),
    ];
    for (args, message) in cases {
        let done = sgs(args).expect(2);
        assert!(done.err.contains(message), "{args:?}: {}", done.err);
        assert_eq!(done.out, "", "{args:?}: standard output must be empty");
    }
}

#[test]
fn missing_files_exit_with_code_1_and_are_named() {
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
        let causes: Vec<&str> = done.err.lines().filter(|l| l.contains("os error 2")).collect();
        assert!(causes.len() <= 1, "{args:?} repeats the cause: {}", done.err);
    }
}

#[test]
fn shell_completions_are_generated() {
    for shell in ["bash", "zsh", "fish"] {
        let done = sgs(&["completions", shell]).expect(0);
        assert!(done.out.contains("verify") && done.out.contains("sgs"), "{shell}");
    }
}

#[test]
fn a_closed_standard_error_does_not_panic() {
    let mut child = command(&["run", "--set", "no.such.key=1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    // The message is lost, but the exit code is that of a usage error, not that of a panic.
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn a_closed_standard_output_is_not_a_failure() {
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
        // Fails when the program stops reading.
        let _ = stdin.write_all(line.repeat(20_000).as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(!err.contains("panicked"), "{err}");
}
