//! Random damage to true proofs, to try the checker: what unifier and kernel say of proofs that are almost right.
//!
//! Everything is a function of a seed. A mutant is a theorem of the database with its own proof after one to three
//! mutations of the steps or of the statement; some mutants still hold, most do not. The verdict `infra` would mean
//! that the unifier accepts what the kernel refuses, and must never occur.

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use sgs_metamath::database::{Distinct, StatementId, StatementKind, Symbol, distinct};
use sgs_metamath::judge::{Judge, TrueProof};
use sgs_metamath::proof::ProofOp;
use sgs_metamath::statement::Statement;
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, ProofLimits, RuleBook, Step};
use sgs_selfplay::Verdict;
use sgs_selfplay::seed::{Stream, shuffle_seed};
use std::collections::BTreeMap;
use std::fmt;

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutation {
    /// Two steps change places.
    Swap,
    /// A step is left out.
    Drop,
    /// A step stands twice in a row.
    Repeat,
    /// Any step of the database is put in between.
    Insert,
    /// A step is replaced by another with as many hypotheses.
    Replace,
    /// A hypothesis step refers to another hypothesis.
    Hypothesis,
    /// The proof goes on as that of another theorem, from some step on.
    Splice,
    /// The statement loses a `$d` pair.
    DropDistinct,
    /// Two variables of the statement become one.
    Identify,
    /// Two hypotheses of the statement change places.
    ExchangeHypotheses,
}

/// Every kind, for drawing one.
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

/// A damaged proof.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The theorem that it was.
    pub rule: RuleId,
    /// The first thing that was done to it.
    pub mutation: Mutation,
    /// What it claims.
    pub statement: Statement,
    /// How it claims to prove that.
    pub steps: Vec<Step>,
}

/// Draws mutants.
#[derive(Debug)]
pub struct Mutator<'a> {
    theory: &'a Theory,
    proofs: &'a [TrueProof],
    /// Rules by their number of hypotheses.
    by_arity: FxHashMap<usize, Vec<RuleId>>,
}

impl<'a> Mutator<'a> {
    /// A mutator of these proofs.
    pub fn new(theory: &'a Theory, proofs: &'a [TrueProof]) -> Self {
        let mut by_arity: FxHashMap<usize, Vec<RuleId>> = FxHashMap::default();
        for (i, rule) in theory.rules().iter().enumerate() {
            by_arity.entry(rule.hypotheses.len()).or_default().push(RuleId(i as u32));
        }
        Self { theory, proofs, by_arity }
    }

    /// A random proof with random damage; `None` if there are no proofs.
    pub fn mutant(&self, stream: &mut Stream) -> Option<Mutant> {
        let proof = pick(stream, self.proofs)?;
        let (mut statement, mut steps) = (proof.statement.clone(), proof.steps.clone());
        let mut first = None;
        // Mostly one mutation: more of them hardly ever leave a proof that holds.
        let count = [1, 1, 1, 2, 3][stream.below(5) as usize];
        while first.is_none() || stream.below(count) > 0 {
            let mutation = *pick(stream, &MUTATIONS)?;
            if self.apply(mutation, stream, &mut statement, &mut steps) {
                first.get_or_insert(mutation);
            }
        }
        Some(Mutant { rule: proof.rule, mutation: first?, statement, steps })
    }

    /// Does one kind of damage; `false` if there is nothing that it could be done to.
    fn apply(
        &self,
        mutation: Mutation,
        stream: &mut Stream,
        statement: &mut Statement,
        steps: &mut Vec<Step>,
    ) -> bool {
        let at = |stream: &mut Stream, n: usize| stream.below(n as u64) as usize;
        let n = steps.len();
        match mutation {
            Mutation::Swap if n >= 2 => {
                let (a, near) = (at(stream, n - 1), stream.below(2) == 0);
                let b = if near { a + 1 } else { at(stream, n) };
                steps.swap(a, b);
                true
            }
            Mutation::Drop if n >= 1 => {
                steps.remove(at(stream, n));
                true
            }
            Mutation::Repeat if n >= 1 => {
                let a = at(stream, n);
                steps.insert(a, steps[a]);
                true
            }
            Mutation::Insert => {
                let rule = RuleId(at(stream, self.theory.rules().len()) as u32);
                steps.insert(at(stream, n + 1), Step::Rule(rule));
                true
            }
            Mutation::Replace if n >= 1 => {
                let a = at(stream, n);
                self.replace(stream, statement, &mut steps[a])
            }
            Mutation::Hypothesis => {
                let places: Vec<usize> =
                    (0..n).filter(|&i| matches!(steps[i], Step::Hypothesis(_))).collect();
                let Some(&a) = pick(stream, &places) else { return false };
                // One past the last on purpose.
                steps[a] = Step::Hypothesis(at(stream, statement.hypotheses.len() + 1) as u32);
                true
            }
            Mutation::Splice => {
                let Some(other) = pick(stream, self.proofs) else { return false };
                steps.truncate(at(stream, n + 1));
                steps.extend_from_slice(&other.steps[at(stream, other.steps.len())..]);
                true
            }
            Mutation::DropDistinct if !statement.distinct.is_empty() => {
                let mut pairs = statement.distinct.to_vec();
                pairs.remove(at(stream, pairs.len()));
                statement.distinct = pairs.into();
                true
            }
            Mutation::Identify => self.identify(stream, statement),
            Mutation::ExchangeHypotheses if statement.hypotheses.len() >= 2 => {
                let n = statement.hypotheses.len();
                statement.hypotheses.swap(at(stream, n), at(stream, n));
                true
            }
            _ => false,
        }
    }

    fn replace(&self, stream: &mut Stream, statement: &Statement, step: &mut Step) -> bool {
        let arity = match step {
            Step::Hypothesis(_) => 0,
            Step::Rule(id) => self.theory.rule(*id).hypotheses.len(),
        };
        let hypotheses = if arity == 0 { statement.hypotheses.len() } else { 0 };
        let rules = self.by_arity.get(&arity).map_or(&[][..], Vec::as_slice);
        let n = stream.below((hypotheses + rules.len()) as u64) as usize;
        *step = match rules.get(n) {
            Some(&rule) => Step::Rule(rule),
            None if n - rules.len() < hypotheses => Step::Hypothesis((n - rules.len()) as u32),
            None => return false,
        };
        true
    }

    fn identify(&self, stream: &mut Stream, statement: &mut Statement) -> bool {
        let types = &self.theory.rules();
        let variables = statement.variables();
        let (Some(&from), Some(&to)) = (pick(stream, &variables), pick(stream, &variables)) else {
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

fn pick<'t, T>(stream: &mut Stream, items: &'t [T]) -> Option<&'t T> {
    items.get(stream.below(items.len() as u64) as usize)
}

/// How many mutants of each kind got each verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<(Mutation, &'static str), u64>,
}

impl Tally {
    /// Mutants with this verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.counts.iter().filter(|(k, _)| k.1 == verdict.as_str()).map(|(_, n)| n).sum()
    }

    /// Mutants of this kind with this verdict.
    pub fn of_kind(&self, mutation: Mutation, verdict: Verdict) -> u64 {
        self.counts.get(&(mutation, verdict.as_str())).copied().unwrap_or(0)
    }

    /// All mutants.
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

/// A mutant that unifier and kernel accept, with its full proof.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// What is proved.
    pub goal: Goal,
    /// The full proof.
    pub ops: Vec<ProofOp>,
}

/// What came of many mutants.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The counts.
    pub tally: Tally,
    /// The first accepted ones, up to the number asked for.
    pub accepted: Vec<Accepted>,
    /// What the judge said where unifier and kernel disagree.
    pub disagreements: Vec<String>,
}

/// Draws `count` mutants and judges them on all cores. The same seed gives the same outcome on any number of cores.
/// Keeps at most `keep` accepted ones.
pub fn try_mutants(
    theory: &Theory,
    book: &RuleBook,
    mutator: &Mutator<'_>,
    seed: u64,
    count: u64,
    keep: usize,
) -> Outcome {
    const CHUNK: u64 = 500;
    let chunks = count.div_ceil(CHUNK);
    let keep_each = keep.div_ceil(usize::try_from(chunks).unwrap_or(usize::MAX).max(1));
    let outcomes: Vec<Outcome> = (0..chunks)
        .into_par_iter()
        .map_init(Judge::new, |judge, chunk| {
            let mut stream = Stream::new(shuffle_seed(seed, "mutants", chunk));
            let mut outcome = Outcome::default();
            for _ in 0..CHUNK.min(count - chunk * CHUNK) {
                if let Some(mutant) = mutator.mutant(&mut stream) {
                    judge_mutant(theory, book, judge, &mutant, keep_each, &mut outcome);
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

fn judge_mutant(
    theory: &Theory,
    book: &RuleBook,
    judge: &mut Judge,
    mutant: &Mutant,
    keep: usize,
    outcome: &mut Outcome,
) {
    let verdict = match Goal::in_place_of(theory, mutant.rule, &mutant.statement) {
        Err(_) => Verdict::Resource,
        Ok(goal) => match judge.prove(theory, book, &goal, &mutant.steps, ProofLimits::default()) {
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

/// Damages a full proof: operations change places, are left out, refer to other statements or other remembered
/// steps. What is used still stands before the goal, so that the result can be stated at the end of the database.
pub fn mutate_operations(theory: &Theory, goal: &Goal, ops: &[ProofOp], stream: &mut Stream) -> Vec<ProofOp> {
    let mut out = ops.to_vec();
    for _ in 0..=stream.below(2) {
        let places: Vec<usize> = (0..out.len()).filter(|&i| out[i] != ProofOp::Save).collect();
        let (Some(&a), Some(&b)) = (pick(stream, &places), pick(stream, &places)) else { return out };
        match stream.below(5) {
            0 => out.swap(a, b),
            1 => {
                let saved = out.get(a + 1) == Some(&ProofOp::Save);
                out.drain(a..a + 1 + usize::from(saved));
            }
            2 => out[a] = out[b],
            3 => {
                let n = out.iter().filter(|o| **o == ProofOp::Save).count() as u64;
                out[a] = ProofOp::Recall(stream.below(n + 1) as u32);
            }
            _ => out[a] = ProofOp::Use(similar(theory, goal, out[a], stream)),
        }
    }
    out
}

/// A statement that may be used in the place of an operation: near in the database and with as many hypotheses, if
/// one is found soon.
fn similar(theory: &Theory, goal: &Goal, op: ProofOp, stream: &mut Stream) -> StatementId {
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
        let id = StatementId(stream.below(u64::from(goal.before().0)) as u32);
        match arity(id) {
            Some(n) if n == wanted => return id,
            Some(_) => found = Some(id),
            None => {}
        }
    }
    let any = || database.assertions().next().map_or(StatementId(0), |a| a.0);
    found.unwrap_or_else(any)
}

/// The goal without one of its `$d` pairs; `None` if it has none.
pub fn without_one_distinct(theory: &Theory, rule: RuleId, stream: &mut Stream) -> Option<Goal> {
    let mut statement = Statement::of_rule(theory.rule(rule));
    let &(a, b) = pick(stream, &statement.distinct)?;
    statement.distinct = statement.distinct.iter().copied().filter(|&p| p != distinct(a, b)).collect();
    Goal::in_place_of(theory, rule, &statement).ok()
}
