//! Commands that use a finished run: `prove`, `eval`, `conjecture`, `review`, `export` and `compare`.

use crate::program::{file, path, sgs, sgs_with_input};
use crate::small_run::{embedded, settings};
use sgs_rundir::RunView;
use std::path::Path;
use std::process::{Command, Stdio};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn trained_models_work_in_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let run = embedded();
    let run = text(&run);

    let done = sgs(&["prove", "--run", run, "-n", "1", "--json", "|- ( ph -> ph )"]);
    assert!(done.err.contains("Solver after round 1"), "{}", done.err);
    assert_eq!(done.json()["samples"], 1);

    // The input has a byte order mark, and one statement in Metamath's canonical form.
    let problems = file(
        folder.path(),
        "problems.jsonl",
        "\u{feff}{\"id\":\"a\",\"statement\":\"ph  &  ( ph -> ps )  =>  ps\"}\n\
         {\"id\":\"b\",\"statement\":\"$p |- ( ph -> ph )\",\"context\":\"syl\"}\n",
    );
    let eval = ["eval", "--problems", &problems, "-k", "4", "--run", run];
    let table = sgs(&eval).expect(0).out;
    for part in [
        &format!("2 problems of `{problems}`, 4 samples each"),
        "solved ",
        "pass@1",
        "pass@4",
        "95% from",
        "verdict",
    ] {
        assert!(table.contains(part), "{part}\n{table}");
    }
    let own = sgs(&["eval", "--limit", "1", "-k", "1", "--run", run]).expect(0).out;
    assert!(own.starts_with("1 problem of `quick` (the run's targets), 1 sample each, "), "{own}");
    // The command for the base model works.
    let command = own.lines().last().unwrap().strip_prefix("The base model on these problems: sgs ").unwrap();
    let base = sgs(&command.split(' ').collect::<Vec<_>>()).expect(0).out;
    assert!(base.starts_with("1 problem of `quick`, 1 sample each, "), "{base}");
    let json = sgs(&[&eval[..], &["--json"]].concat()).expect(0).json();
    let (rate, ends) = (json["pass@4"].as_f64().unwrap(), &json["intervals"]["pass@4"]);
    assert!(ends[0].as_f64().unwrap() <= rate && rate <= ends[1].as_f64().unwrap(), "{json}");
    assert_eq!(sgs(&["eval", "-k", "0"]).code, 2);
    let other = sgs(&["eval", "--run", run, "--system", "lean"]).expect(2);
    assert!(other.err.contains("with the formal system Metamath"), "{}", other.err);
    let wrong = file(folder.path(), "wrong.jsonl", "{\"id\":\"a\",\"statement\":\"ph -> ph\"}\n");
    let done = sgs(&["eval", "--problems", &wrong]).expect(2);
    assert!(done.err.contains("line 1") && done.err.contains("did you mean"), "{}", done.err);
    // A prompt that does not fit is reported as such, and not as a completion without an end.
    let long = format!("{}ph{}", "( ph -> ".repeat(200), " )".repeat(200));
    let lines = ["( ph -> ph )", &long]
        .map(|statement| format!("{{\"id\":\"{}\",\"statement\":\"$p |- {statement}\"}}\n", statement.len()));
    let problems = file(folder.path(), "long.jsonl", &lines.concat());
    let done = sgs(&["eval", "--problems", &problems, "-k", "2", "--run", run, "--json"]).expect(0);
    assert_eq!(done.json()["outcomes"]["malformed: prompt-too-long"], 2, "{}", done.out);
    let warned = "warning: 2 of 4 samples count as failures without being sampled: a prompt of ";
    assert!(done.err.contains(warned), "{}", done.err);

    let target = "( ( ph -> ps ) -> ( -. ps -> -. ph ) )";
    let conjectured = sgs(&["conjecture", "--run", run, "-n", "12", target]).expect(0).out;
    assert!(
        conjectured.starts_with(&format!("for |- {target}")) && conjectured.contains(" of 12 samples"),
        "{conjectured}"
    );
    let json = sgs(&["conjecture", "--run", run, "-n", "12", "--json", target]).expect(0).json();
    let conjecture = json["conjectures"][0]["statement"].as_str().unwrap();
    let reviewed = sgs(&["review", "--run", run, "--target", target, conjecture]).expect(0).out;
    assert!(reviewed.contains("R_guide (0-8)") && reviewed.contains("mean"), "{reviewed}");
    let json = sgs(&["review", "--run", run, "--target", target, "-n", "1", "--json", conjecture]).json();
    assert!(json["reviews"][0]["r_guide"].as_f64().unwrap() <= 8.0, "{json}");
    assert_eq!(sgs(&["review", conjecture]).code, 2);
    let renamed = sgs(&["review", "--run", run, "--target", target, "-n", "1", "( ch -> ch )"]).out;
    assert!(renamed.contains("conjecture  |- ( ph -> ph )"), "{renamed}");
    assert!(sgs(&["review", "--help"]).expect(0).out.contains("its variables are renamed"));
}

#[test]
fn files_of_a_run_are_not_replaced_by_an_export() {
    let run = embedded();
    let config = path(&run, "config.toml");
    for option in ["--mm", "--jsonl"] {
        let done = sgs(&["export", text(&run), option, &config]).expect(2);
        assert!(done.err.contains("a file of the run"), "{}", done.err);
    }
    RunView::open(&run).expect("the run is as it was");
}

#[test]
fn a_run_without_its_checkpoints_is_not_taken_for_the_base_model() {
    let folder = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(embedded()).arg(folder.path()).status().unwrap();
    assert!(copied.success());
    let run = path(folder.path(), "run");
    std::fs::remove_dir_all(folder.path().join("run/checkpoints")).unwrap();
    for command in [&["prove", "--run", &run, "( ph -> ph )"][..], &["eval", "--run", &run, "--limit", "1"]] {
        let done = sgs(command).expect(1);
        assert!(done.err.contains("checkpoints/0001 is damaged: it is missing"), "{}", done.err);
    }
}

#[test]
fn an_export_names_a_missing_round() {
    let folder = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(embedded()).arg(folder.path()).status().unwrap();
    assert!(copied.success());
    let run = path(folder.path(), "run");
    std::fs::remove_dir_all(folder.path().join("run/rounds/0000")).unwrap();
    for more in [&[][..], &["--only", "unsolved"], &["--mm", &path(folder.path(), "run.mm")]] {
        let done = sgs(&[&["export", &run], more].concat()).expect(1);
        let missing = "rounds/0000 is damaged: it is missing, although the journal marks it as published";
        assert!(done.err.contains("warning: ") && done.err.contains(missing), "{}", done.err);
        assert!(more.contains(&"--mm") || !done.out.is_empty(), "the other rounds are exported");
    }
}

#[test]
fn exported_proofs_are_accepted_by_verify() {
    let folder = tempfile::tempdir().unwrap();
    let run = embedded();
    let (mm, jsonl) = (path(folder.path(), "run.mm"), path(folder.path(), "run.jsonl"));
    let done = sgs(&["export", text(&run), "--mm", &mm]).expect(0);
    let theorems: usize = done.err.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(theorems > 0, "{}", done.err);
    sgs(&["export", text(&run), "--jsonl", &jsonl]).expect(0);
    let lines = std::fs::read_to_string(&jsonl).unwrap();
    assert_eq!(lines.lines().count(), theorems);
    let verified = sgs(&["verify", &jsonl]).expect(0);
    assert!(verified.lines().iter().all(|line| line["verdict"] == "proved"), "{}", verified.out);
    assert!(!verified.err.contains("no field"), "{}", verified.err);
    // Statements are also accepted in printed form.
    let printed: String = lines
        .lines()
        .map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["statement"] = line["found"]["printed"].clone();
            format!("{line}\n")
        })
        .collect();
    let verified = sgs_with_input(&["verify", "-"], &printed).expect(0);
    assert!(verified.lines().iter().all(|line| line["verdict"] == "proved"), "{}", verified.out);
    let kinds: usize = ["targets", "conjectures"]
        .iter()
        .map(|kind| sgs(&["export", text(&run), "--only", kind]).expect(0).lines().len())
        .sum();
    assert_eq!(kinds, theorems);
    // The unsolved targets are a problem set: exactly the targets without a proof.
    let left = path(folder.path(), "left.jsonl");
    sgs(&["export", text(&run), "--only", "unsolved", "--jsonl", &left]).expect(0);
    let ids = |lines: &[serde_json::Value]| -> std::collections::BTreeSet<String> {
        lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    };
    let solved = ids(&sgs(&["export", text(&run), "--only", "targets"]).expect(0).lines());
    let left_lines: Vec<serde_json::Value> =
        std::fs::read_to_string(&left).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let open = ids(&left_lines);
    assert!(!open.is_empty() && open.is_disjoint(&solved));
    assert!(left_lines.iter().all(|line| line["tried"]["judged"].as_u64() > Some(0)));
    let out = path(folder.path(), "run-on-unsolved");
    let set = format!("problems.set={left}");
    let small = [
        "--set",
        "rounds=1",
        "--set",
        "evaluation.held_out=none",
        "--set",
        "algorithm.rollouts_per_problem=1",
    ];
    sgs(&[&["run", "sampling-only", "--out", &out, "--set", &set][..], &small].concat()).expect(0);
    assert_eq!(sgs(&["export", text(&run), "--only", "unsolved", "--mm", &mm]).code, 2);

    let command = [format!("read '{mm}'"), "verify proof *".to_owned(), "exit".to_owned()];
    match Command::new("metamath").args(command).stdin(Stdio::null()).output() {
        Ok(output) => {
            let out = String::from_utf8_lossy(&output.stdout).into_owned();
            let verified = out.contains("All proofs in the database were verified");
            assert!(verified && !out.contains("?Error") && !out.contains("?Warning"), "{out}");
        }
        Err(_) => println!("skipped: the program `metamath` is not installed (Debian package `metamath`)"),
    }
}

#[test]
fn runs_are_compared_over_their_common_range() {
    let folder = tempfile::tempdir().unwrap();
    let first = embedded();
    let other = path(folder.path(), "other");
    let set = ["--set", "seed=2", "--out", &other].map(str::to_owned);
    sgs(&[&settings()[..], &set].concat()).expect(0);
    let out = sgs(&["compare", text(&first), &other]).expect(0).out;
    for part in [
        "The runs differ only in their seed.",
        "seed",
        "rounds",
        "Targets solved by generations, until the end of the shortest run",
        "ever solved",
        "this round pass@1",
        "conjectures solved",
        "Guide's score",
        "Last evaluation on held-out problems:",
        "pass@2, base model",
        "Methods:",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    let methods = out.split("on held-out problems.").nth(1).unwrap();
    assert!(methods.contains("sgs") && !methods.contains('±'), "an interval over two seeds\n{out}");
    let json = sgs(&["compare", text(&first), &other, "--json"]).expect(0).json();
    let ends = json["runs"].as_array().unwrap().iter().map(|run| run["generations"].as_f64().unwrap());
    let shortest = ends.fold(f64::INFINITY, f64::min);
    assert_eq!(json["common"].as_f64().unwrap(), shortest, "{json}");
    let held_out = &json["runs"][1]["held_out"];
    assert_eq!(
        (&held_out["base"]["generations"], &held_out["trained"]["k"]),
        (&0.0.into(), &2.into()),
        "{json}"
    );
    // The time of a round is the mean over the rounds compared.
    let rounds = RunView::open(Path::new(&other)).unwrap().rounds().unwrap();
    let rounds = rounds.iter().map(|round| round.metrics().unwrap().scalars);
    let seconds: Vec<f64> =
        rounds.filter(|m| m["generations"] <= shortest).map(|m| m["time_round_s"]).collect();
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    let found = json["runs"][1]["numbers"]["time_round_s"].as_f64().unwrap();
    assert!((found - mean).abs() < 1e-9, "{json}");
    // The mean over the two seeds is that of the measured rates.
    let table = &json["methods"];
    assert_eq!(table["measures"][0]["solved_at_generations"].as_f64().unwrap(), shortest, "{table}");
    let rates = json["runs"].as_array().unwrap().iter();
    let rates: Vec<f64> =
        rates.map(|run| run["solved"].as_array().unwrap().last().unwrap()[1].as_f64().unwrap()).collect();
    let trained = table["methods"].as_array().unwrap().last().unwrap();
    let found = trained["means"][0]["mean"].as_f64().unwrap();
    assert!((found - (rates[0] + rates[1]) / 2.0).abs() < 1e-9 && trained["seeds"] == 2, "{table} {rates:?}");
    let same = sgs(&["compare", text(&first), text(&first)]).expect(0).out;
    assert!(same.contains("copies of one run"), "{same}");
    assert_eq!(sgs(&["compare", text(&first)]).code, 2);
}
