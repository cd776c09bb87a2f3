//! A catalogue of correct proofs in many styles: all must be proved by the real Lean.
//!
//! The real Lean is that in `lean/wasm` (`npm install && npm run setup` there), or in the folder `SGS_LEAN_WASM`.

use sgs_lean::check::Limits;
use sgs_lean::read::Proof;
use sgs_lean::text::Bounds;
use sgs_lean::{Backing, Lean, LeanSettings};
use sgs_selfplay::{Problem, ProblemId, Verdict};
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

#[derive(serde::Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    header: String,
    statement: String,
    helpers: String,
    proof: String,
}

impl Entry {
    fn proof(&self) -> Proof {
        Proof { helpers: self.helpers.clone(), body: self.proof.clone() }
    }
}

fn read(name: &str) -> Vec<Entry> {
    let text = std::fs::read_to_string(repository().join("data/lean").join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_limits_admit_every_correct_proof() {
    let corpus = read("corpus.jsonl");
    assert!(corpus.len() >= 500, "{}", corpus.len());
    for entry in &corpus {
        for text in [&entry.statement, &entry.helpers, &entry.proof] {
            Bounds::default().check(text).unwrap_or_else(|error| panic!("{}: {error}", entry.id));
        }
    }
}

#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean-all` runs it"]
fn every_correct_proof_is_proved_by_the_real_lean() {
    let root =
        std::env::var_os("SGS_LEAN_WASM").map_or_else(|| repository().join("lean/wasm"), PathBuf::from);
    let settings = LeanSettings {
        backing: Backing::Wasm,
        root,
        slots: 1,
        theorems_per_file: 1_000,
        // A start takes more than a minute on an idle machine. The machines of CI are busy.
        limits: Limits { start_ms: 900_000, proof_ms: 600_000, ..Limits::default() },
        cache: 0,
        ..LeanSettings::default()
    };
    let launcher = [env!("CARGO_BIN_EXE_sgs-lean-sandbox").into()];
    let lean: Lean = settings.prepare(&launcher).unwrap().start().unwrap();
    let corpus = read("corpus.jsonl");
    let judge = |entry: &Entry| {
        let id = ProblemId::new(entry.id.as_str());
        let (statement, context) = (entry.statement.as_str().into(), entry.header.as_str().into());
        let problem = Problem { id, statement, context };
        lean.outcome(&problem, &entry.proof().to_text())
    };
    // Check the proofs concurrently, so that one start of Lean serves all of them.
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let calls: Vec<_> = corpus.iter().map(|entry| scope.spawn(|| judge(entry))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let proved = outcomes.iter().filter(|o| o.verdict == Verdict::Proved).count();
    println!("{proved} of {} proved", corpus.len());
    let wrong: Vec<String> = corpus
        .iter()
        .zip(&outcomes)
        .filter(|(_, o)| o.verdict != Verdict::Proved)
        .map(|(entry, o)| format!("{}: {o:?}", entry.id))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
