//! Random mutations of valid proofs, for testing the unifier and the kernel on proofs that are almost valid.
//!
//! Everything depends only on a seed. A mutant is a theorem of the database with its proof after one or more
//! mutations of the steps or the statement. A few mutants are still valid; most are not. The verdict `infra` would mean that
//! the unifier accepts a proof that the kernel rejects, and must never occur.

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use sgs_metamath::database::{Distinct, StatementId, StatementKind, Symbol, distinct};
use sgs_metamath::judge::Judge;
use sgs_metamath::proof::ProofOp;
use sgs_metamath::statement::Statement;
use sgs_metamath::theorem_proofs::TheoremProof;
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, ProofLimits, ProofStep};
use sgs_selfplay::Verdict;
use sgs_selfplay::seed::{SeededRng, shuffle_seed};
use std::collections::BTreeMap;
use std::fmt;

/// A kind of mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutation {
    /// Swaps two steps.
    Swap,
    /// Removes a step.
    Drop,
    /// Repeats a step.
    Repeat,
    /// Inserts a random rule of the database.
    Insert,
    /// Replaces a step by another with the same number of hypotheses.
    Replace,
    /// Changes the hypothesis that a step refers to.
    Hypothesis,
    /// Replaces the rest of the proof by a part of another proof.
    Splice,
    /// Removes a `$d` pair from the statement.
    DropDistinct,
    /// Identifies two variables of the statement.
    Identify,
    /// Swaps two hypotheses of the statement.
    ExchangeHypotheses,
}

/// All kinds of mutations.
pub const MUTATIONS: [Mutation; 10] = [
    Mutation::Swap,
    Mutation::Drop,
    Mutation::Repeat,
    Mutation::Insert,
    Mutation::Replace,
    Mutation::Hypothesis,
    Mutation::Splice,
    Mutation::DropDistinct,
    Mutation::Identify,
    Mutation::ExchangeHypotheses,
];

/// A mutated theorem with its proof.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The original theorem.
    pub rule: RuleId,
    /// The first mutation.
    pub mutation: Mutation,
    /// The mutated statement.
    pub statement: Statement,
    /// The mutated proof.
    pub steps: Vec<ProofStep>,
}

/// Generates mutants.
#[derive(Debug)]
pub struct Mutator<'a> {
    theory: &'a Theory,
    proofs: &'a [TheoremProof],
    /// Rules by their number of hypotheses.
    by_arity: FxHashMap<usize, Vec<RuleId>>,
}

impl<'a> Mutator<'a> {
    /// Creates a mutator of the given proofs.
    pub fn new(theory: &'a Theory, proofs: &'a [TheoremProof]) -> Self {
        let mut by_arity: FxHashMap<usize, Vec<RuleId>> = FxHashMap::default();
        for (i, rule) in theory.rules().iter().enumerate() {
            by_arity.entry(rule.hypotheses.len()).or_default().push(RuleId(i as u32));
        }
        Self { theory, proofs, by_arity }
    }

    /// Returns a random proof with random mutations; `None` if the list of proofs is empty.
    pub fn mutant(&self, rng: &mut SeededRng) -> Option<Mutant> {
        let proof = pick(rng, self.proofs)?;
        let (mut statement, mut steps) = (proof.statement.clone(), proof.steps.clone());
        let mut first = None;
        // Apply mostly a single mutation, because proofs with several are hardly ever valid.
        let count = [1, 1, 1, 2, 3][rng.below(5) as usize];
        while first.is_none() || rng.below(count) > 0 {
            let mutation = *pick(rng, &MUTATIONS)?;
            if self.apply(mutation, rng, &mut statement, &mut steps) {
                first.get_or_insert(mutation);
            }
        }
        Some(Mutant { rule: proof.rule, mutation: first?, statement, steps })
    }

    /// Applies a mutation. Returns `false` if it is not applicable.
    fn apply(
        &self,
        mutation: Mutation,
        rng: &mut SeededRng,
        statement: &mut Statement,
        steps: &mut Vec<ProofStep>,
    ) -> bool {
        let at = |rng: &mut SeededRng, n: usize| rng.below(n as u64) as usize;
        let n = steps.len();
        match mutation {
            Mutation::Swap if n >= 2 => {
                let (a, near) = (at(rng, n - 1), rng.below(2) == 0);
                let b = if near { a + 1 } else { at(rng, n) };
                steps.swap(a, b);
                true
            }
            Mutation::Drop if n >= 1 => {
                steps.remove(at(rng, n));
                true
            }
            Mutation::Repeat if n >= 1 => {
                let a = at(rng, n);
                steps.insert(a, steps[a]);
                true
            }
            Mutation::Insert => {
                let rule = RuleId(at(rng, self.theory.rules().len()) as u32);
                steps.insert(at(rng, n + 1), ProofStep::Rule(rule));
                true
            }
            Mutation::Replace if n >= 1 => {
                let a = at(rng, n);
                self.replace(rng, statement, &mut steps[a])
            }
            Mutation::Hypothesis => {
                let places: Vec<usize> =
                    (0..n).filter(|&i| matches!(steps[i], ProofStep::Hypothesis(_))).collect();
                let Some(&a) = pick(rng, &places) else { return false };
                // The range deliberately includes one hypothesis past the last.
                steps[a] = ProofStep::Hypothesis(at(rng, statement.hypotheses.len() + 1) as u32);
                true
            }
            Mutation::Splice => {
                let Some(other) = pick(rng, self.proofs) else { return false };
                steps.truncate(at(rng, n + 1));
                steps.extend_from_slice(&other.steps[at(rng, other.steps.len())..]);
                true
            }
            Mutation::DropDistinct if !statement.distinct.is_empty() => {
                let mut pairs = statement.distinct.to_vec();
                pairs.remove(at(rng, pairs.len()));
                statement.distinct = pairs.into();
                true
            }
            Mutation::Identify => self.identify(rng, statement),
            Mutation::ExchangeHypotheses if statement.hypotheses.len() >= 2 => {
                let n = statement.hypotheses.len();
                statement.hypotheses.swap(at(rng, n), at(rng, n));
                true
            }
            _ => false,
        }
    }

    fn replace(&self, rng: &mut SeededRng, statement: &Statement, step: &mut ProofStep) -> bool {
        let arity = match step {
            ProofStep::Hypothesis(_) => 0,
            ProofStep::Rule(id) => self.theory.rule(*id).hypotheses.len(),
        };
        let hypotheses = if arity == 0 { statement.hypotheses.len() } else { 0 };
        let rules = self.by_arity.get(&arity).map_or(&[][..], Vec::as_slice);
        let n = rng.below((hypotheses + rules.len()) as u64) as usize;
        *step = match rules.get(n) {
            Some(&rule) => ProofStep::Rule(rule),
            None if n - rules.len() < hypotheses => ProofStep::Hypothesis((n - rules.len()) as u32),
            None => return false,
        };
        true
    }

    fn identify(&self, rng: &mut SeededRng, statement: &mut Statement) -> bool {
        let types = &self.theory.rules();
        let variables = statement.variables();
        let (Some(&from), Some(&to)) = (pick(rng, &variables), pick(rng, &variables)) else {
            return false;
        };
        let type_of = |v: Symbol| {
            self.theory.type_of_variable(v).or_else(|| {
                let of = |r: &sgs_metamath::theory::Rule| r.variables.iter().find(|x| x.0 == v).map(|x| x.1);
                types.iter().find_map(of)
            })
        };
        if from == to || type_of(from) != type_of(to) {
            return false;
        }
        let renaming = variables.iter().map(|&v| (v, if v == from { to } else { v })).collect();
        let Some(mut renamed) = statement.rename(&renaming) else { return false };
        let pairs: Vec<Distinct> = renamed.distinct.iter().copied().filter(|(a, b)| a != b).collect();
        renamed.distinct = pairs.into();
        *statement = renamed;
        true
    }
}

fn pick<'t, T>(rng: &mut SeededRng, items: &'t [T]) -> Option<&'t T> {
    items.get(rng.below(items.len() as u64) as usize)
}

/// Number of mutants by kind and verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<(Mutation, &'static str), u64>,
}

impl Tally {
    /// Returns the number of mutants with a verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.counts.iter().filter(|(k, _)| k.1 == verdict.as_str()).map(|(_, n)| n).sum()
    }

    /// Returns the number of mutants of a kind with a verdict.
    pub fn of_kind(&self, mutation: Mutation, verdict: Verdict) -> u64 {
        self.counts.get(&(mutation, verdict.as_str())).copied().unwrap_or(0)
    }

    /// Returns the number of all mutants.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    fn add(&mut self, mutation: Mutation, verdict: Verdict) {
        *self.counts.entry((mutation, verdict.as_str())).or_default() += 1;
    }

    fn merge(mut self, other: Self) -> Self {
        for (k, n) in other.counts {
            *self.counts.entry(k).or_default() += n;
        }
        self
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdicts = [Verdict::Proved, Verdict::Refused, Verdict::Resource, Verdict::Infra];
        writeln!(f, "{:<20}{:>12}{:>12}{:>12}{:>12}", "mutation", "proved", "refused", "resource", "infra")?;
        for m in MUTATIONS {
            write!(f, "{:<20}", format!("{m:?}"))?;
            for v in verdicts {
                write!(f, "{:>12}", self.of_kind(m, v))?;
            }
            writeln!(f)?;
        }
        write!(f, "{:<20}", "all")?;
        for v in verdicts {
            write!(f, "{:>12}", self.of(v))?;
        }
        write!(f, "   of {}", self.total())
    }
}

/// A mutant accepted by unifier and kernel, with its full proof.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The proved goal.
    pub goal: Goal,
    /// The full proof.
    pub ops: Vec<ProofOp>,
}

/// The result of judging many mutants.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Counts by kind and verdict.
    pub tally: Tally,
    /// The first accepted mutants, up to the requested number.
    pub accepted: Vec<Accepted>,
    /// Reasons of the judge where unifier and kernel disagree.
    pub disagreements: Vec<String>,
}

/// Generates `count` mutants and judges them on all cores. The result does not depend on the number of cores.
/// Keeps at most `keep` accepted mutants.
pub fn try_mutants(theory: &Theory, mutator: &Mutator<'_>, seed: u64, count: u64, keep: usize) -> Outcome {
    const CHUNK: u64 = 500;
    let chunks = count.div_ceil(CHUNK);
    let keep_each = keep.div_ceil(usize::try_from(chunks).unwrap_or(usize::MAX).max(1));
    let outcomes: Vec<Outcome> = (0..chunks)
        .into_par_iter()
        .map_init(Judge::new, |judge, chunk| {
            let mut rng = SeededRng::new(shuffle_seed(seed, "mutants", chunk));
            let mut outcome = Outcome::default();
            for _ in 0..CHUNK.min(count - chunk * CHUNK) {
                if let Some(mutant) = mutator.mutant(&mut rng) {
                    judge_mutant(theory, judge, &mutant, keep_each, &mut outcome);
                }
            }
            outcome
        })
        .collect();
    outcomes.into_iter().fold(Outcome::default(), |mut all, one| {
        all.tally = all.tally.merge(one.tally);
        all.accepted.extend(one.accepted);
        all.accepted.truncate(keep);
        all.disagreements.extend(one.disagreements);
        all
    })
}

fn judge_mutant(theory: &Theory, judge: &mut Judge, mutant: &Mutant, keep: usize, outcome: &mut Outcome) {
    let verdict = match Goal::in_place_of(theory, mutant.rule, &mutant.statement) {
        Err(_) => Verdict::Resource,
        Ok(goal) => match judge.prove(theory, &goal, &mutant.steps, ProofLimits::default()) {
            Ok(ops) => {
                if outcome.accepted.len() < keep {
                    outcome.accepted.push(Accepted { goal, ops });
                }
                Verdict::Proved
            }
            Err(decision) => {
                if decision.verdict == Verdict::Infra {
                    outcome.disagreements.push(format!("{}: {}", theory.label(mutant.rule), decision.reason));
                }
                decision.verdict
            }
        },
    };
    outcome.tally.add(mutant.mutation, verdict);
}

/// Mutates a full proof: swaps, removes or replaces operations, or changes the entries that they recall. The statements that
/// it uses still precede the goal, so that the result can be stated at the end of the database.
pub fn mutate_operations(theory: &Theory, goal: &Goal, ops: &[ProofOp], rng: &mut SeededRng) -> Vec<ProofOp> {
    let mut out = ops.to_vec();
    for _ in 0..=rng.below(2) {
        let places: Vec<usize> = (0..out.len()).filter(|&i| out[i] != ProofOp::Save).collect();
        let (Some(&a), Some(&b)) = (pick(rng, &places), pick(rng, &places)) else { return out };
        match rng.below(5) {
            0 => out.swap(a, b),
            1 => {
                let saved = out.get(a + 1) == Some(&ProofOp::Save);
                out.drain(a..a + 1 + usize::from(saved));
            }
            2 => out[a] = out[b],
            3 => {
                let n = out.iter().filter(|o| **o == ProofOp::Save).count() as u64;
                out[a] = ProofOp::Recall(rng.below(n + 1) as u32);
            }
            _ => out[a] = ProofOp::Use(similar(theory, goal, out[a], rng)),
        }
    }
    out
}

/// Returns a random statement before the goal to replace an operation, preferably one with the same number of hypotheses.
fn similar(theory: &Theory, goal: &Goal, op: ProofOp, rng: &mut SeededRng) -> StatementId {
    let database = theory.database();
    let arity = |id: StatementId| match database.statements().get(id.0 as usize).map(|s| &s.kind) {
        Some(StatementKind::Assertion(a)) => Some(a.hypotheses.len()),
        Some(StatementKind::Floating { .. }) if database.global_floats().binary_search(&id).is_ok() => {
            Some(0)
        }
        _ => None,
    };
    let wanted = match op {
        ProofOp::Use(id) => arity(id).unwrap_or(0),
        _ => 0,
    };
    let mut found = None;
    for _ in 0..50 {
        let id = StatementId(rng.below(u64::from(goal.before().0)) as u32);
        match arity(id) {
            Some(n) if n == wanted => return id,
            Some(_) => found = Some(id),
            None => {}
        }
    }
    let any = || database.assertions().next().map_or(StatementId(0), |a| a.0);
    found.unwrap_or_else(any)
}

/// Returns a theorem's goal without one of its `$d` pairs; `None` if it has none.
pub fn without_one_distinct(theory: &Theory, rule: RuleId, rng: &mut SeededRng) -> Option<Goal> {
    let mut statement = Statement::of_rule(theory.rule(rule));
    let &(a, b) = pick(rng, &statement.distinct)?;
    statement.distinct = statement.distinct.iter().copied().filter(|&p| p != distinct(a, b)).collect();
    Goal::in_place_of(theory, rule, &statement).ok()
}
