//! Collects the theorems that a run has proved, each with its shortest proof.

use anyhow::{Context, Result};
use rayon::prelude::*;
use sgs_analysis::run::ProofText;
use sgs_rundir::directories::check_file;
use sgs_rundir::rows::{ProblemKind, ProblemRow};
use sgs_rundir::table::RowReader;
use sgs_rundir::{PublishedRound, RunView};
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
/// returns the number of steps of a proof.
/// Returns an error if a table that is read is missing or damaged. Rollouts are read only in rounds with such problems.
pub fn proved(
    view: &RunView,
    wanted: impl Fn(ProblemKind) -> bool + Sync,
    steps: &(dyn Fn(&str) -> u32 + Sync),
) -> Result<Vec<ProvedTheorem>> {
    let in_round = |round: &PublishedRound| {
        proved_in(round, &wanted, steps).with_context(|| format!("round {}", round.round()))
    };
    let rounds: Vec<Result<ShortestProofs>> = view.rounds()?.par_iter().map(in_round).collect();
    let mut all = ShortestProofs::default();
    for round in rounds {
        round?.theorems.into_iter().for_each(|theorem| all.add(theorem));
    }
    Ok(all.theorems)
}

fn proved_in(
    round: &PublishedRound,
    wanted: &impl Fn(ProblemKind) -> bool,
    steps: &dyn Fn(&str) -> u32,
) -> Result<ShortestProofs> {
    let (mut problems, mut shortest) = (HashMap::new(), ShortestProofs::default());
    for row in round.problems()? {
        let row = row?;
        if row.proved > 0 && wanted(row.kind) {
            problems.insert(row.id.clone(), row);
        }
    }
    if problems.is_empty() {
        return Ok(shortest);
    }
    check_file(round.directory(), ROLLOUTS)?;
    for row in RowReader::<ProofText>::open(&round.directory().join(ROLLOUTS))? {
        let row = row?;
        if let (Verdict::Proved, Some(proof), Some(problem)) =
            (row.verdict, row.proof, problems.get(&row.problem))
        {
            shortest.add(theorem(problem, round.round(), steps(&proof), proof));
        }
    }
    Ok(shortest)
}

/// Theorems in the order of their first proof, each with the first of its shortest proofs.
#[derive(Default)]
struct ShortestProofs {
    theorems: Vec<ProvedTheorem>,
    place: HashMap<(ProblemKind, Arc<str>), usize>,
}

impl ShortestProofs {
    /// Adds a proof. Targets are identified by id and conjectures by statement.
    fn add(&mut self, theorem: ProvedTheorem) {
        let name = match theorem.kind {
            ProblemKind::Target => &theorem.problem.id.0,
            ProblemKind::Conjecture => &theorem.problem.statement,
        };
        let known = *self.place.entry((theorem.kind, Arc::clone(name))).or_insert(self.theorems.len());
        match self.theorems.get_mut(known) {
            None => self.theorems.push(theorem),
            Some(other) if theorem.steps < other.steps => *other = theorem,
            Some(_) => {}
        }
    }
}

/// A target with rollouts that a run has not proved.
#[derive(Clone, Debug)]
pub struct UnsolvedTarget {
    pub problem: Problem,
    /// Number of judged rollouts over all rounds.
    pub judged: u64,
}

/// Returns the targets that have rollouts and that no published round has proved, sorted by id.
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

fn problem(row: &ProblemRow) -> Problem {
    Problem { id: row.id.clone(), statement: Arc::clone(&row.statement), context: Arc::clone(&row.context) }
}

fn theorem(row: &ProblemRow, round: u32, steps: u32, proof: Arc<str>) -> ProvedTheorem {
    ProvedTheorem { problem: problem(row), kind: row.kind, target: row.target.clone(), round, proof, steps }
}
