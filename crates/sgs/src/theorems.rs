//! Collects the theorems that a run has proved, each with its shortest proof.

use anyhow::{Context, Result};
use sgs_analysis::run::ProofText;
use sgs_rundir::RunView;
use sgs_rundir::directories::check_file;
use sgs_rundir::rows::{ProblemKind, ProblemRow};
use sgs_rundir::table::RowReader;
use sgs_selfplay::{Problem, ProblemId, Verdict};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const ROLLOUTS: &str = "rollouts.parquet";

/// A target or conjecture that a run has proved.
#[derive(Clone, Debug)]
pub struct ProvedTheorem {
    pub problem: Problem,
    /// Whether it is a target or a conjecture.
    pub kind: ProblemKind,
    /// The target of the conjecture.
    pub target: Option<ProblemId>,
    /// The round in which the proof was found.
    pub round: u32,
    /// The proof in canonical form.
    pub proof: Arc<str>,
    pub steps: u32,
}

/// Returns the proved problems of the `wanted` kinds in the order of their first proof, each with its shortest proof. `steps`
/// returns the number of inference steps of a proof.
///
/// # Errors
/// Returns an error if a table that is read is missing or damaged. Rollouts are read in rounds with such problems only.
pub fn proved(
    view: &RunView,
    wanted: impl Fn(ProblemKind) -> bool,
    steps: &dyn Fn(&str) -> u32,
) -> Result<Vec<ProvedTheorem>> {
    let mut theorems: Vec<ProvedTheorem> = Vec::new();
    let mut place: HashMap<(ProblemKind, Arc<str>), usize> = HashMap::new();
    for round in view.rounds()? {
        let number = round.round();
        let context = || format!("round {number}");
        let mut problems = HashMap::new();
        for row in round.problems().with_context(context)? {
            let row = row.with_context(context)?;
            if row.proved > 0 && wanted(row.kind) {
                problems.insert(row.id.clone(), row);
            }
        }
        if problems.is_empty() {
            continue;
        }
        check_file(round.directory(), ROLLOUTS).with_context(context)?;
        let path = round.directory().join(ROLLOUTS);
        for row in RowReader::<ProofText>::open(&path).with_context(context)? {
            let row = row.with_context(context)?;
            let (Verdict::Proved, Some(proof), Some(problem)) =
                (row.verdict, row.proof, problems.get(&row.problem))
            else {
                continue;
            };
            let theorem = theorem(problem, number, steps(&proof), proof);
            let known = *place.entry(key(problem)).or_insert(theorems.len());
            match theorems.get_mut(known) {
                None => theorems.push(theorem),
                Some(other) if theorem.steps < other.steps => *other = theorem,
                Some(_) => {}
            }
        }
    }
    Ok(theorems)
}

/// A target that a run has attempted and not proved.
#[derive(Clone, Debug)]
pub struct UnsolvedTarget {
    pub problem: Problem,
    /// Number of verified attempts over all rounds.
    pub judged: u64,
}

/// Returns the targets that were attempted and that no published round has proved, sorted by id.
///
/// # Errors
/// Returns an error if a table is missing or damaged.
pub fn unsolved(view: &RunView) -> Result<Vec<UnsolvedTarget>> {
    let mut tried: BTreeMap<ProblemId, (UnsolvedTarget, bool)> = BTreeMap::new();
    for round in view.rounds()? {
        let context = || format!("round {}", round.round());
        for row in round.problems().with_context(context)? {
            let row = row.with_context(context)?;
            if row.kind != ProblemKind::Target {
                continue;
            }
            let new = || (UnsolvedTarget { problem: problem(&row), judged: 0 }, false);
            let (open, is_solved) = tried.entry(row.id.clone()).or_insert_with(new);
            open.judged += u64::from(row.judged);
            *is_solved |= row.proved > 0 || row.solved_before;
        }
    }
    Ok(tried
        .into_values()
        .filter(|(open, is_solved)| !is_solved && open.judged > 0)
        .map(|(open, _)| open)
        .collect())
}

/// Identifies targets by id and conjectures by statement.
fn key(problem: &ProblemRow) -> (ProblemKind, Arc<str>) {
    let name = match problem.kind {
        ProblemKind::Target => &problem.id.0,
        ProblemKind::Conjecture => &problem.statement,
    };
    (problem.kind, Arc::clone(name))
}

fn problem(row: &ProblemRow) -> Problem {
    Problem { id: row.id.clone(), statement: Arc::clone(&row.statement), context: Arc::clone(&row.context) }
}

fn theorem(row: &ProblemRow, round: u32, steps: u32, proof: Arc<str>) -> ProvedTheorem {
    ProvedTheorem { problem: problem(row), kind: row.kind, target: row.target.clone(), round, proof, steps }
}
