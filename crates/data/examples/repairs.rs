//! Makes a corpus that teaches a Metamath model to repair proofs, from its own refused proofs of training theorems:
//!
//! ```text
//! sgs data build --out data --composed 20000
//! repairs problems data/solver.parquet 6000 > lessons.jsonl
//! sgs run sampling-only --set problems.set=lessons.jsonl --set evaluation.held_out=none --rounds 1 --out runs/lessons
//! repairs corpus runs/lessons > data/repairs.jsonl
//! ```

use sgs_formal::{FormalSystem, Prompt};
use sgs_metamath::system::Metamath;
use sgs_metamath::tokens::END;
use sgs_rundir::RunView;
use sgs_selfplay::{FailedProof, Judgement, Problem, ProblemId, Verdict};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of refused proofs per problem.
const PER_PROBLEM: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["problems", corpus, count] => problems(Path::new(corpus), count.parse()?),
        ["corpus", run] => corpus(Path::new(run)),
        _ => Err("usage: repairs problems SOLVER.PARQUET COUNT | repairs corpus RUN".into()),
    }
}

/// Prints `count` theorems of the Solver's corpus as problems, evenly spaced.
fn problems(corpus: &Path, count: usize) -> Result<(), Box<dyn Error>> {
    let rows = sgs_data::corpus::read(corpus)?.collect::<Result<Vec<_>, _>>()?;
    let mut out = std::io::stdout().lock();
    for (number, row) in rows.iter().step_by((rows.len() / count.max(1)).max(1)).enumerate() {
        // The words are `<solver>`, the place, the statement and `<proof>`.
        let words: Vec<&str> = row.prompt.split(' ').collect();
        let [_, _, statement @ .., _] = &words[..] else { continue };
        let line = serde_json::json!({
            "id": format!("lesson-{number}"), "statement": statement.join(" "), "context": row.source,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Prints an example for each refused proof of a problem that the run has also proved: the completion is a valid proof.
fn corpus(run: &Path) -> Result<(), Box<dyn Error>> {
    let system = Metamath::shipped()?;
    let mut out = std::io::stdout().lock();
    for round in RunView::open(run)?.rounds()? {
        let problems = round.problems()?.collect::<Result<Vec<_>, _>>()?;
        let mut valid: HashMap<ProblemId, BTreeSet<Arc<str>>> = HashMap::new();
        let mut refused: HashMap<ProblemId, BTreeMap<Arc<str>, Judgement>> = HashMap::new();
        for row in round.rollouts()? {
            let row = row?;
            let Some(proof) = row.proof else { continue };
            if row.verdict == Verdict::Proved {
                valid.entry(row.problem).or_default().insert(proof);
            } else if row.verdict == Verdict::Refused {
                let judgement =
                    Judgement { verdict: row.verdict, reason: row.reason, step: row.step, micros: 0 };
                refused.entry(row.problem).or_default().insert(proof, judgement);
            }
        }
        for row in problems {
            let (Some(valid), Some(refused)) = (valid.get(&row.id), refused.get(&row.id)) else { continue };
            let problem = Problem { id: row.id, statement: row.statement, context: row.context };
            for ((proof, judgement), right) in refused.iter().zip(valid.iter().cycle()).take(PER_PROBLEM) {
                let failed = FailedProof::new(Arc::clone(proof), judgement);
                let Prompt::Raw(prompt) = system.repair_prompt(&problem, &failed) else { continue };
                let line = serde_json::json!({
                    "role": "solver", "kind": "repair", "source": &*problem.context, "prompt": prompt,
                    "completion": format!("{} {END}", system.proof_completion(right)),
                });
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(())
}
