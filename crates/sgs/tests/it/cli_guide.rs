//! Fine-tuning a Guide: conjectures of a run, reviews by a served teacher, `sgs sft`, and a run with the new Guide.
#![cfg(target_os = "linux")]

use crate::lean_fixtures;
use crate::program;
use crate::program::{file, path, sgs};
use crate::server::{Options, Server};
use sgs_data::corpus::{self, CorpusRow};
use sgs_data::sets::reviews::PADDED;
use sgs_metamath::system::Metamath;
use sgs_metamath::tokens::{CONJECTURE, END, REVIEW};
use std::collections::HashSet;
use std::path::Path;

fn review(relevance: u32) -> String {
    let score = |name: &str, n: u32| format!("<begin_{name}_score>{n}<end_{name}_score>\n");
    [score("relevance", relevance), score("redundancy", 0), score("conclusion_complexity", 1)].concat()
}

/// Returns the completions of the teacher. Half of them are well-formed reviews.
fn reviews() -> Vec<String> {
    vec![review(4), review(1), "Relevance: 4 of 5.".to_owned(), review(9)]
}

/// Returns the completions of the base model: proofs, conjectures and reviews, for any prompt.
fn base_completions() -> Vec<String> {
    let code = |text: String| format!("```lean4\n{text}\n```");
    let proofs = ["  omega", "  simp"].map(|proof| code(proof.to_owned()));
    let conjectures =
        (0..30).map(|n| code(format!("theorem c (a : Nat) : a + {n} ≤ {n} + a + a := by sorry")));
    proofs.into_iter().chain(conjectures).chain(reviews()).collect()
}

fn run(dir: &Path, out: &str, code: i32, more: &[String]) -> program::ProgramOutput {
    let model = format!("model.base={}", path(dir, "model"));
    let lean = format!("lean.root={}", path(dir, "lean"));
    let small = [
        &model,
        &lean,
        "rounds=1",
        "problems.set=core",
        "lean.form=non-cot",
        "sampling.solver_tokens=256",
        "sampling.conjecturer_tokens=256",
        "sampling.guide_tokens=256",
        "algorithm.batch.size=28",
        "algorithm.rollouts_per_problem=2",
        "evaluation.held_out=none",
        "sampling.batch=32",
        "sampling.memory_mib=64",
    ];
    let out = path(dir, out);
    let mut args = ["run", "--size", "lean-core", "--out", &out].map(str::to_owned).to_vec();
    for setting in small.into_iter().map(str::to_owned).chain(more.iter().cloned()) {
        args.extend(["--set".to_owned(), setting]);
    }
    sgs(&args).expect(code)
}

/// Returns the fraction of a model's reviews that are well-formed.
fn well_formed_share(dir: &Path, model: &str) -> f64 {
    let held_out = path(dir, "reviews/guide-held-out.parquet");
    let eval =
        ["eval", "--system", "lean", "--model", model, "--reviews", &held_out, "--only-reviews", "--json"];
    let guide = sgs(&eval).expect(0).json()["guide"].clone();
    assert_eq!(guide["sampled"], 6, "{guide}");
    guide["well_formed"].as_f64().unwrap() / 6.0
}

/// Writes the configuration of the fine-tuning with other settings, and returns its path.
fn changed_sft(dir: &Path, changes: &[(&str, &str)]) -> String {
    let mut sft = std::fs::read_to_string(dir.join("reviews/sft.toml")).unwrap();
    for (key, value) in changes {
        assert!(sft.contains(key), "{sft}");
        sft = sft.replace(key, value);
    }
    file(dir, "sft.toml", &sft)
}

#[test]
fn a_fine_tuned_guide_writes_well_formed_reviews() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    lean_fixtures::write_model_with_completions(&dir.join("model"), &base_completions());
    lean_fixtures::write_scripted_lean(&dir.join("lean"), "4.28.0-pre");
    lean_fixtures::write_model_with_completions(&dir.join("teacher"), &reviews());
    let teacher =
        Options { model: Some(dir.join("teacher")), context: 8192, name: "teacher", ..Options::default() };
    let Some(server) = Server::start(&teacher) else { return };

    // Without fine-tuning, the run reports the share of malformed reviews, and the forecast warns of it.
    let stopped = run(dir, "stopped", 1, &[]);
    let told = "reviews can be read";
    assert!(stopped.err.contains(told) && stopped.err.contains("min_readable=0"), "{}", stopped.err);
    assert!(!dir.join("stopped").exists(), "no round was started");
    let untaught = run(dir, "untaught", 0, &["algorithm.guide.min_readable=0".to_owned()]);
    assert!(
        untaught.err.contains("of the Guide's") && untaught.err.contains("were malformed"),
        "{}",
        untaught.err
    );
    let dry =
        ["run", "--size", "lean-core", "--dry-run", "--set", &format!("model.base={}", path(dir, "model"))];
    assert!(sgs(&dry).expect(0).out.contains("# model.guide is the base model"));

    let (from, out) = (path(dir, "untaught"), path(dir, "reviews"));
    let collect = ["data", "reviews", &from, "--out", &out, "--endpoint", &server.url, "--held-out", "6"];
    let unserved = sgs(&["data", "reviews", &from, "--out", &out]).expect(2).err;
    assert!(unserved.contains("give --endpoint"), "{unserved}");
    let short = ["--endpoint-requests", "4", "--max-new-tokens", "256"];
    let few = sgs(&[&collect[..], &short].concat()).expect(1);
    assert!(few.err.contains("but 2054 reviews are requested"), "{}", few.err);
    let done = sgs(&[&collect[..], &short, &["-n", "8"]].concat()).expect(0);
    assert!(done.out.contains("8 reviews by teacher to train on, 6 held out"), "{}", done.out);
    // Some answers were malformed and requested a second time. A repeated command requests nothing.
    let ledger = std::fs::read_to_string(dir.join("reviews/reviews.jsonl")).unwrap();
    assert!(ledger.contains("\"asked\":2") && ledger.lines().count() == 15, "{ledger}");
    sgs(&[&collect[..], &short, &["-n", "8"]].concat()).expect(0);
    assert_eq!(std::fs::read_to_string(dir.join("reviews/reviews.jsonl")).unwrap(), ledger);

    // The model is tiny and needs a large learning rate.
    let sft = changed_sft(
        dir,
        &[
            ("learning_rate = 1e-5", "learning_rate = 5e-2"),
            ("batch_size = 32", "batch_size = 1"),
            ("steps = 10", "steps = 1"),
        ],
    );
    let (base, guide) = (path(dir, "model"), path(dir, "guide"));
    sgs(&["sft", &sft, "--model", &base, "--out", &guide]).expect(0);
    let guide = path(dir, "guide/model");
    let rates = (well_formed_share(dir, &base), well_formed_share(dir, &guide));
    eprintln!(
        "{:.1}% of the reviews are well-formed before fine-tuning, {:.1}% after it",
        100.0 * rates.0,
        100.0 * rates.1
    );
    assert!(rates.0 < 0.4 && rates.1 > 0.99, "{rates:?}");

    let taught = run(dir, "taught", 0, &[format!("model.guide={guide}")]);
    assert!(!taught.err.contains("were malformed"), "{}", taught.err);
}

/// The rubric reviews the conjectures of a Metamath run. A Guide that is fine-tuned on the reviews writes them.
#[test]
fn the_rubric_teaches_a_guide_for_metamath() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (run, out, none) = (path(dir, "run"), path(dir, "reviews"), path(dir, "none"));
    let model = program::small_model();
    let small = [&model, "rounds=2", "algorithm.batch.size=30", "evaluation.held_out=none"];
    let small = small.map(|setting| ["--set", setting]).concat();
    // A program composes the conjectures of this method, so they do not depend on the small model.
    sgs(&[&["run", "composer", "--out", &run][..], &small].concat()).expect(0);

    let served = sgs(&["data", "reviews", &run, "--out", &out, "--endpoint", "http://127.0.0.1:1"]);
    assert!(served.expect(2).err.contains("leave out --endpoint"));
    assert!(sgs(&["data", "reviews", &none, "--out", &out]).expect(2).err.contains("none"));
    let few = sgs(&["data", "reviews", &run, "--out", &out, "-n", "1000"]).expect(1).err;
    assert!(few.contains("but 1256 reviews are requested"), "{few}");

    let collect = ["data", "reviews", &run, &run, "--out", &out, "-n", "24", "--held-out", "8"];
    let told = sgs(&collect).expect(0).out;
    assert!(told.contains("24 reviews by the rubric to train on, 8 held out"), "{told}");
    let rows = |name: &str| -> Vec<CorpusRow> {
        corpus::read(&dir.join("reviews").join(name)).unwrap().map(Result::unwrap).collect()
    };
    let (train, held_out) = (rows("guide.parquet"), rows("guide-held-out.parquet"));
    assert_eq!((train.len(), held_out.len()), (24, 8));
    assert!(train.iter().all(|row| row.role == "guide") && held_out.iter().all(|row| row.role == "held-out"));
    // Each review is that of the two statements in its prompt. The names of variables do not matter.
    let system = Metamath::shipped().unwrap();
    for row in train.iter().chain(&held_out) {
        let (_, rest) = row.prompt.split_once(" $").unwrap();
        let (target, rest) = rest.split_once(CONJECTURE).unwrap();
        let (conjecture, _) = rest.split_once(REVIEW).unwrap();
        let found = system.rubric_review(&format!("${target}"), conjecture).unwrap();
        assert_eq!(row.completion, format!("{} {END}", Metamath::review_completion(&found.review)));
        assert_eq!(row.kind == PADDED, found.is_padded, "{}", row.prompt);
    }
    let scores: HashSet<&str> = train.iter().map(|row| row.completion.as_str()).collect();
    assert!(scores.len() > 1, "the reviews differ: {scores:?}");
    let prompts: HashSet<&str> = train.iter().chain(&held_out).map(|row| row.prompt.as_str()).collect();
    assert_eq!(prompts.len(), 32, "a run that is given twice adds no reviews, and none is in both files");

    // The few steps need a large learning rate.
    let sft = changed_sft(
        dir,
        &[
            ("passes = 4.0", "passes = 40.0"),
            ("batch_size = 64", "batch_size = 8"),
            ("learning_rate = 5e-4", "learning_rate = 3e-3"),
        ],
    );
    let (base, guide) = (model.strip_prefix("model.base=").unwrap(), path(dir, "guide"));
    sgs(&["sft", &sft, "--model", base, "--out", &guide]).expect(0);
    let held_out = path(dir, "reviews/guide-held-out.parquet");
    // Almost all scores of the rubric are at most 5, and their reviews have the same complexity.
    let [before, after] = [base, &path(dir, "guide/model")].map(|model| {
        let eval = ["eval", "--model", model, "--reviews", &held_out, "--only-reviews", "--json"];
        sgs(&eval).expect(0).json()["guide"]["complexity_agrees"].as_u64().unwrap()
    });
    assert!(before < after && after >= 7, "{before} of 8 before fine-tuning, {after} after it");

    std::fs::write(dir.join("reviews/reviews.jsonl"), "").unwrap();
    assert!(sgs(&collect).expect(2).err.contains("has a served model's reviews"));
}
