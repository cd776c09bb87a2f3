//! `sgs verify`.

use crate::program::{command, file, path, sgs, sgs_with_input};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PROOFS: &str = r#"{"id":"mp","hypotheses":["|- ph","|- ( ph -> ps )"],"conclusion":"|- ps","proof":["h1","h2","ax-mp"]}
{"id":"id","conclusion":"|- ( ph -> ph )","proof":["id"]}
{"id":"itself","context":"id","conclusion":"|- ( ph -> ph )","proof":["id"]}

{"id":"short","conclusion":"|- ph","proof":["ax-mp"]}
{"id":"unknown","conclusion":"|- ph","proof":["nix"]}
"#;

#[test]
fn verdicts_are_printed_one_per_line_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let done = sgs(&["verify", "--system", "metamath", &file(dir.path(), "p.jsonl", PROOFS)]).expect(0);
    let found: Vec<(String, String)> = done
        .lines()
        .iter()
        .map(|l| (l["id"].as_str().unwrap().to_owned(), l["verdict"].as_str().unwrap().to_owned()))
        .collect();
    let expected = [
        ("mp", "proved"),
        ("id", "proved"),
        ("itself", "refused"),
        ("short", "refused"),
        ("unknown", "malformed"),
    ];
    assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    for line in done.lines() {
        let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["id", "micros", "reason", "step", "verdict"]);
        assert_eq!(line["verdict"] == "proved", line["reason"] == "", "{line}");
    }
    assert_eq!(done.lines()[2]["step"], 1);
    assert!(done.err.contains("5 lines: 2 proved, 2 refused, 1 malformed"), "{}", done.err);
}

#[test]
fn unproved_lines_fail_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let all = file(dir.path(), "all.jsonl", PROOFS);
    let proved: String = PROOFS.lines().take(2).map(|line| format!("{line}\n")).collect();
    let proved = file(dir.path(), "proved.jsonl", &proved);
    sgs(&["verify", &all]).expect(0);
    let done = sgs(&["verify", "--fail-unproved", &all]).expect(1);
    assert_eq!(done.lines().len(), 5, "every line still gets a verdict");
    sgs(&["verify", "--fail-unproved", &proved]).expect(0);
    let bad = file(dir.path(), "bad.jsonl", "nonsense\n");
    sgs(&["verify", "--fail-unproved", &bad]).expect(1);
}

#[test]
fn an_export_never_replaces_the_input() {
    let dir = tempfile::tempdir().unwrap();
    let (proofs, link) = (file(dir.path(), "p.jsonl", PROOFS), path(dir.path(), "link"));
    std::os::unix::fs::symlink(&proofs, &link).unwrap();
    for out in [&proofs, &link] {
        let done = sgs(&["verify", &proofs, "--export", out]).expect(2);
        assert!(done.err.contains("--export names the input"), "{}", done.err);
    }
    assert_eq!(std::fs::read_to_string(&proofs).unwrap(), PROOFS);
    let done = sgs(&["verify", &file(dir.path(), "empty.jsonl", "\n")]).expect(2);
    assert!(done.err.contains("empty.jsonl contains no proofs"), "{}", done.err);
    let done = sgs(&["verify", &proofs, "--lean-slots", "2"]).expect(0);
    assert!(done.err.contains("the options of Lean have no effect"), "{}", done.err);
}

#[test]
fn bad_lines_are_reported_and_the_rest_is_checked() {
    let input = format!("nonsense\n{PROOFS}{{\"id\":\"x\",\"conclusion\":\"ph ->\",\"proof\":[]}}\n");
    let done = sgs_with_input(&["verify", "-"], &input).expect(1);
    let lines = done.lines();
    assert_eq!(lines.len(), 7);
    assert_eq!((&lines[0]["id"], &lines[0]["verdict"]), (&serde_json::Value::Null, &"malformed".into()));
    assert_eq!(lines[1]["verdict"], "proved");
    assert_eq!(lines[6]["id"], "x");
    for (line, place) in [(0, "line 1: "), (6, "line 8: ")] {
        // Standard error does not repeat the reasons of standard output.
        assert!(lines[line]["reason"].as_str().unwrap().starts_with(place), "{}", lines[line]);
        assert!(!done.err.contains(place), "{}", done.err);
    }
    assert!(done.err.contains("7 lines: 2 proved, 2 refused, 3 malformed (2 invalid lines)"), "{}", done.err);
    for (input, reason) in [
        ("[", "line 1: expected a JSON object {…}"),
        ("[{\"id\":\"x\"}]", "line 1: expected a JSON object {…}"),
        ("3", "line 1: expected a JSON object {…}"),
        ("{3", "line 1: column 2: "),
    ] {
        let done = sgs_with_input(&["verify", "-"], input).expect(1);
        assert!(done.lines()[0]["reason"].as_str().unwrap().starts_with(reason), "{}", done.out);
    }
    let done = sgs_with_input(&["verify", "-"], &"nonsense\n".repeat(14)).expect(1);
    assert_eq!((done.lines().len(), done.err.lines().count()), (14, 1), "{}", done.err);
    let unknown: String = (0..14).map(|n| format!("\"field{n}\":0,")).collect();
    let unknown =
        format!("{{{unknown}\"id\":\"a\",\"conclusion\":\"|- ( ph -> ph )\",\"proof\":[\"id\"]}}\n");
    let done = sgs_with_input(&["verify", "-"], &unknown).expect(0);
    assert_eq!(done.err.matches("unknown field").count(), 10, "{}", done.err);
    assert!(done.err.contains("and 4 more\n"), "{}", done.err);
    let hint = "`sgs external check RUN --proofs FILE`";
    // The first line is one that `sgs export` writes for a run of an external system.
    let external =
        r#"{"id":"a","context":"","statement":"return the sum of a list","proof":"add","found":{}}"#;
    for (input, has_hint) in [
        (external.to_owned(), true),
        (format!("{external}\n{external}\n"), true),
        (format!("{external}\n{PROOFS}"), false),
        ("{\"id\":\"a\",\"conclusion\":\"|- ph\"}".to_owned(), false),
        ("nonsense".to_owned(), false),
    ] {
        let done = sgs_with_input(&["verify", "-"], &input).expect(1);
        assert_eq!(done.err.contains(hint), has_hint, "{input}: {}", done.err);
    }
    let lean = "{\"id\":\"a\",\"statement\":\"theorem a : 1 = 1 := by\",\"proof\":\"rfl\"}\n";
    let done = sgs_with_input(&["verify", "-"], &lean.repeat(2)).expect(1);
    assert_eq!(done.err.matches("for Lean, add `--system lean`").count(), 1, "{}", done.err);
    let dir = tempfile::tempdir().unwrap();
    let done = sgs(&["eval", "--problems", &file(dir.path(), "lean.jsonl", lean)]);
    assert!(done.err.contains("`theorem` is not declared; for Lean: `--system lean`"), "{}", done.err);
}

#[test]
fn exported_theorems_can_be_used_in_proofs() {
    let dir = tempfile::tempdir().unwrap();
    let (proofs, out) = (file(dir.path(), "p.jsonl", PROOFS), path(dir.path(), "out.mm"));
    let done = sgs(&["verify", &proofs, "--export", &out]).expect(0);
    assert!(done.err.contains("2 theorems appended"), "{}", done.err);
    let use_it = r#"{"id":"u","hypotheses":["|- ch","|- ( ch -> th )"],"conclusion":"|- th","proof":["h1","h2","sgs-mp"]}"#;
    let with = sgs_with_input(&["verify", "--database", &out, "-"], use_it).expect(0);
    assert_eq!(with.lines()[0]["verdict"], "proved", "{}", with.out);
    let without = sgs_with_input(&["verify", "-"], use_it).expect(0);
    assert_eq!(without.lines()[0]["verdict"], "malformed");
}

#[test]
fn a_failed_export_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let proofs = file(dir.path(), "p.jsonl", PROOFS);
    let out = path(dir.path(), "none/out.mm");
    let done = sgs(&["verify", &proofs, "--export", &out]).expect(2);
    assert!(done.err.contains(&out), "{}", done.err);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    // The command replaces regular files only.
    let device = path(dir.path(), "device");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    let done = sgs(&["verify", &proofs, "--export", &device]).expect(2);
    assert!(done.err.contains(&device) && std::fs::read_link(&device).is_ok(), "{}", done.err);
}

#[test]
fn other_databases_are_read_and_broken_ones_are_refused_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = "$c ( ) -> wff |- $. $v ph ps $. wph $f wff ph $. wps $f wff ps $.
        wi $a wff ( ph -> ps ) $. ax-1 $a |- ( ph -> ( ps -> ph ) ) $.\n";
    let database = file(dir.path(), "tiny.mm", tiny);
    let line = r#"{"id":"a","conclusion":"|- ( ps -> ( ph -> ps ) )","proof":["ax-1"]}"#;
    let done = sgs_with_input(&["verify", "--database", &database, "-"], line).expect(0);
    assert_eq!(done.lines()[0]["verdict"], "proved");
    let broken = file(dir.path(), "broken.mm", "$c ( ) $.\n$v ph $. wph $f wff ph $.\n");
    let done = sgs_with_input(&["verify", "--database", &broken, "-"], line).expect(2);
    assert!(done.err.contains("broken.mm:2:"), "{}", done.err);
}

#[test]
fn every_command_gives_the_reason_why_a_database_is_not_supported() {
    let dir = tempfile::tempdir().unwrap();
    let twice = "$c ( ) -> wff |- $. $v ph $. wph $f wff ph $.
        wi $a wff ( ph -> ph ) $. ax-1 $a |- ( ph -> ph ) $.\n";
    let database = file(dir.path(), "twice.mm", twice);
    let problems = file(dir.path(), "p.jsonl", r#"{"id": "a", "statement": "|- ( ph -> ph )"}"#);
    let (named, set) = (format!("problems.database={database}"), format!("problems.set={problems}"));
    let (out, none) = (path(dir.path(), "out"), "evaluation.held_out=none");
    for command in [
        &["verify", "--database", &database, "-"] as &[&str],
        &["data", "build", "--source", &database, "--out", &out],
        &["run", "--set", &named, "--set", &set, "--set", none, "--out", &out],
    ] {
        let done = sgs_with_input(command, "").expect(2);
        assert!(done.err.contains("a syntax axiom that repeats a variable"), "{command:?}: {}", done.err);
        assert!(!std::path::Path::new(&out).exists(), "{command:?}");
    }
}

#[test]
fn theorems_without_valid_proofs_cause_a_warning_or_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let base = "$c ( ) -> wff |- $. $v ph ps $. wph $f wff ph $. wps $f wff ps $.
        wi $a wff ( ph -> ps ) $. ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
        good $p |- ( ps -> ( ph -> ps ) ) $= wps wph ax-1 $.\n";
    let line = r#"{"id":"a","conclusion":"|- ph","proof":["cheat"]}"#;
    for proof in ["?", "wph wps ax-1"] {
        let database = file(dir.path(), "f.mm", &format!("{base} cheat $p |- ph $= {proof} $.\n"));
        let done = sgs_with_input(&["verify", "--database", &database, "-"], line).expect(0);
        assert!(
            done.err.contains("1 of 2 theorems have no valid proof") && done.err.contains("`cheat`"),
            "{}",
            done.err
        );
        let strict = sgs_with_input(&["verify", "--database", &database, "--strict", "-"], line).expect(1);
        assert!(strict.err.contains("`cheat`") && strict.out.is_empty(), "{}", strict.err);
    }
    let sound = file(dir.path(), "g.mm", base);
    let done = sgs_with_input(&["verify", "--database", &sound, "--strict", "-"], line).expect(0);
    assert!(!done.err.contains("warning"), "{}", done.err);
}

#[test]
fn the_checker_is_benchmarked() {
    let dir = tempfile::tempdir().unwrap();
    let database = file(
        dir.path(),
        "tiny.mm",
        "$c ( ) -> wff |- $. $v ph ps $. wph $f wff ph $. wps $f wff ps $.
        wi $a wff ( ph -> ps ) $. ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
        ${ mp.1 $e |- ph $. mp.2 $e |- ( ph -> ps ) $. ax-mp $a |- ps $. $}
        ${ a.1 $e |- ph $. a1i $p |- ( ps -> ph ) $= wph wps wph wi a.1 wph wps ax-1 ax-mp $. $}\n",
    );
    let args = ["bench", "verify", "--database", &database, "--repeats", "2", "--threads", "2"];
    let text = sgs(&args).expect(0).out;
    assert!(text.contains("unifier and kernel") && text.contains("2 threads"), "{text}");
    let json = sgs(&[&args[..], &["--json"]].concat()).expect(0).json();
    assert_eq!((&json["proofs"], &json["steps"]), (&1.into(), &3.into()));
    for checker in ["unifier", "judge"] {
        assert!(json[checker]["one_thread"].as_f64().unwrap() > 0.0, "{json}");
    }
    if cfg!(target_os = "linux") {
        assert!(json["peak_memory"].as_u64().unwrap() > 1_000_000, "{json}");
    }
    let none = file(
        dir.path(),
        "none.mm",
        "$c ( ) -> wff |- $. $v ph $. wph $f wff ph $.
        wn $a wff ( -> ph ) $. ax $a |- ( -> ph ) $.\n",
    );
    let done = sgs(&["bench", "verify", "--database", &none]).expect(1);
    assert!(done.err.contains("no proof of at most 60 steps"), "{}", done.err);
}

#[test]
fn printed_statements_are_accepted_and_unknown_fields_are_named() {
    let input = "\u{feff}{\"id\":\"a\",\"statement\":\"ph  &  ( ph -> ps )  =>  ps\",\"proof\":\"h1 h2 ax-mp\"}\n\
        {\"id\":\"b\",\"conclusion\":\"( ph -> A. x ph )  ($d x ph)\",\"proof\":[\"ax-5\"],\"hypothesis\":[]}\n\
        {\"id\":\"c\",\"statement\":\"$d x ph $p |- ( ph -> A. x ph )\",\"proof\":[\"ax-5\"],\"hypothesis\":[]}\n\
        {\"id\":\"d\",\"conclusion\":\"ph -> ph\",\"proof\":[\"id\"]}\n\
        {\"id\":\"e\",\"statment\":\"( ph -> ph )\",\"proof\":[\"id\"]}\n\
        {\"id\":\"f\",\"conclusion\":\"( ph -> ph )\",\"proof\":7}\n";
    let done = sgs_with_input(&["verify", "-"], input).expect(1);
    let verdicts: Vec<String> =
        done.lines().iter().map(|l| l["verdict"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        verdicts,
        ["proved", "proved", "proved", "malformed", "malformed", "malformed"],
        "{}",
        done.out
    );
    // The warning appears once, for the first line.
    assert_eq!(done.err.matches("unknown field `hypothesis`").count(), 1, "{}", done.err);
    assert!(done.err.contains("line 2: unknown field `hypothesis`"), "{}", done.err);
    for message in [
        "did you mean `|- ( ph -> ph )`?",
        "line 5: neither `statement` nor `conclusion` is given, but `statment`; known fields",
        "the proof must be a list of steps or a string of steps",
    ] {
        assert!(done.out.contains(message), "{message}\n{}", done.out);
    }
}

#[test]
fn a_killed_process_has_written_its_verdicts() {
    let dir = tempfile::tempdir().unwrap();
    let written = dir.path().join("verdicts.jsonl");
    let mut child = command(&["verify", "-"])
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(&written).unwrap())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // The input is endless, so that the process cannot finish before it is killed.
    let writer = std::thread::spawn(move || {
        (0..).find(|number| {
            let line =
                format!("{{\"id\":\"{number}\",\"conclusion\":\"|- ( ph -> ph )\",\"proof\":[\"id\"]}}\n");
            input.write_all(line.as_bytes()).is_err()
        })
    });
    let begun = Instant::now();
    while std::fs::metadata(&written).unwrap().len() < 1000 {
        assert!(begun.elapsed() < Duration::from_secs(120), "no verdicts");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    writer.join().unwrap();
    let text = std::fs::read_to_string(&written).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    for (number, line) in text.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["id"], &line["verdict"]), (&number.to_string().into(), &"proved".into()));
    }
}
