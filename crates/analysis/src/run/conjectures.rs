//! Statistics of the conjectures and their reviews, collected round by round.

use super::columns::{ConjectureScores, ProofText, ReviewScores};
use super::table_rows::TableRows;
use super::{RunningMean, StatementDisplay};
use crate::stats::rank_correlation;
use sgs_rundir::PublishedRound;
use sgs_rundir::rows::ConjectureRowStatus;
use sgs_selfplay::{ProblemId, Verdict};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A conjecture with a proof of at most this many steps is trivial.
pub const TRIVIAL_STEPS: u32 = 1;

/// Maximum number of statements that are looked up in the database, which takes some microseconds each.
const LOOKED_UP: usize = 50_000;

/// Maximum number of statements in memory. Further ones count as new.
const REMEMBERED: usize = 1_000_000;

/// Origin of a conjecture's statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatementOrigin {
    /// It is new in this run.
    New,
    /// It occurred in an earlier round.
    Seen,
    /// Another conjecture of the same round has it.
    Repeated,
    /// It is a theorem of the database, up to the names of variables.
    Theorem,
    /// It is a target, up to the names of variables.
    Target,
}

impl StatementOrigin {
    /// All origins in the order of legends.
    pub const ALL: [Self; 5] = [Self::New, Self::Seen, Self::Repeated, Self::Theorem, Self::Target];

    /// Returns the name in legends and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Seen => "seen in an earlier round",
            Self::Repeated => "repeated in the round",
            Self::Theorem => "a theorem of the database",
            Self::Target => "a target",
        }
    }
}

/// Value of a conjecture as a training problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConjectureClass {
    /// It has a proof of a single step.
    Trivial,
    /// It occurred before, or is a theorem of the database or a target.
    Known,
    /// It is neither trivial nor known.
    New,
}

impl ConjectureClass {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Trivial, Self::Known, Self::New];

    /// Returns the name in legends and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trivial => "trivial",
            Self::Known => "known",
            Self::New => "new",
        }
    }
}

/// Counts of a round's conjectures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConjectureRound {
    /// The round.
    pub round: u32,
    /// Requested completions.
    pub asked: u64,
    /// Completions without a statement.
    pub unread: u64,
    /// Statements by [`StatementOrigin`].
    pub origins: [u64; 5],
    /// Distinct statements among the accepted conjectures of all rounds so far.
    pub distinct: u64,
    /// Accepted conjectures in all rounds so far.
    pub accepted: u64,
    /// Sums of R_synth and R_solve of the accepted conjectures by [`ConjectureClass`].
    pub rewards: [(f64, f64); 3],
    /// Numbers of conjectures that the Guide reviewed, that it scored 0, and whose reviews were all malformed.
    pub reviewed: [u64; 3],
    /// Numbers of reviewed conjectures whose R_solve is positive, and of those that the Guide scored 0.
    pub rewarded: [u64; 2],
    /// Spearman's rank correlation of R_guide with the solve rate and with novelty.
    pub correlations: [Option<f64>; 2],
    /// Means of relevance, redundancy and complexity.
    pub scores: Option<[f64; 3]>,
}

/// A statement of the Conjecturer, with its statistics over all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct ConjecturedStatement {
    /// Its text for display.
    pub text: String,
    /// Number of conjectures with this statement.
    pub times: u64,
    /// Number of them that were accepted.
    pub accepted: u64,
    /// First and last round.
    pub rounds: (u32, u32),
    /// Origin at its first occurrence.
    pub origin: StatementOrigin,
    /// The equivalent theorem of the database.
    pub theorem: Option<String>,
    /// Mean solve rate of the accepted conjectures.
    pub solve_rate: RunningMean,
    /// Mean R_guide of the reviewed conjectures.
    pub r_guide: RunningMean,
    /// Relevance, redundancy and complexity.
    pub scores: [RunningMean; 3],
    /// Number of steps of the shortest known proof.
    pub steps: Option<u32>,
    /// Mean R_solve of the accepted conjectures.
    pub r_solve: RunningMean,
}

/// Statistics of a run's conjectures.
#[derive(Clone, Debug, Default)]
pub struct ConjectureStats {
    /// Counts by round.
    pub rounds: Vec<ConjectureRound>,
    /// The most frequent statements.
    pub frequent: Vec<ConjecturedStatement>,
    /// Statements that the Guide scored 0 although R_solve is positive, largest R_solve first.
    pub rejected: Vec<ConjecturedStatement>,
    /// Number of rounds whose proofs were read.
    pub proofs_read: usize,
}

/// Maximum number of frequent statements.
const MOST_FREQUENT: usize = 15;
/// Maximum number of statements that the Guide scored 0.
const MOST_REJECTED: usize = 1000;

/// Collects the statistics of a run's conjectures.
#[derive(Default)]
pub(super) struct ConjectureCollector {
    statements: HashMap<Arc<str>, ConjecturedStatement>,
    /// Normalised statements of the targets.
    targets: HashSet<String>,
    rounds: Vec<ConjectureRound>,
    accepted: u64,
    distinct: u64,
    looked_up: usize,
    searched: usize,
    proofs_read: usize,
}

/// Reviews and proofs of a round.
struct RoundFacts {
    scores: HashMap<ProblemId, [f64; 3]>,
    steps: HashMap<ProblemId, u32>,
}

impl ConjectureCollector {
    /// Adds a target, so that conjectures with the same statement are recognised.
    pub fn target(&mut self, statement: &str, context: &str, display: Option<&dyn StatementDisplay>) {
        let normal = display.map_or_else(|| statement.to_owned(), |d| d.identity(statement, context).normal);
        self.targets.insert(normal);
    }

    /// Adds a published round. `context` returns a target's context by its name.
    pub fn read(
        &mut self,
        round: &PublishedRound,
        display: Option<&dyn StatementDisplay>,
        rollouts: usize,
        context: impl Fn(&str) -> Arc<str>,
        tables: &mut TableRows,
    ) {
        let all: Vec<ConjectureScores> = tables.all(round, "conjectures.parquet");
        if all.is_empty() {
            return;
        }
        let round_facts = self.round_facts(round, &all, display, rollouts, tables);
        let mut out =
            ConjectureRound { round: round.round(), asked: all.len() as u64, ..ConjectureRound::default() };
        let (mut guide_rate, mut guide_new) = (Vec::new(), Vec::new());
        for row in &all {
            let Some(text) = row.statement.as_ref() else {
                out.unread += 1;
                continue;
            };
            let origin = self.enter(out.round, row, text, &round_facts, display, &context);
            out.origins[origin as usize] += 1;
            if row.status != ConjectureRowStatus::Accepted {
                continue;
            }
            self.accepted += 1;
            let kind = kind(origin, round_facts.steps.get(&row.id).copied());
            let sums = &mut out.rewards[kind as usize];
            *sums = (sums.0 + row.r_synth.unwrap_or(0.0), sums.1 + row.r_solve.unwrap_or(0.0));
            let Some(score) = row.r_guide else { continue };
            out.reviewed[0] += 1;
            out.reviewed[1] += u64::from(score == 0.0 && !row.review_failed);
            out.reviewed[2] += u64::from(row.review_failed);
            let is_rewarded = row.r_solve.is_some_and(|reward| reward > 0.0);
            out.rewarded[0] += u64::from(is_rewarded);
            out.rewarded[1] += u64::from(is_rewarded && score == 0.0 && !row.review_failed);
            guide_new.push((score, f64::from(u8::from(origin == StatementOrigin::New))));
            guide_rate.extend(row.solve_rate.map(|rate| (score, rate)));
        }
        out.distinct = self.distinct;
        out.accepted = self.accepted;
        out.correlations = [rank_correlation(&guide_rate), rank_correlation(&guide_new)];
        out.scores = mean_scores(round_facts.scores.values());
        self.rounds.push(out);
    }

    /// Reads the scores of the round's reviews and, up to a limit over the run, the lengths of its conjectures' proofs.
    fn round_facts(
        &mut self,
        round: &PublishedRound,
        all: &[ConjectureScores],
        display: Option<&dyn StatementDisplay>,
        rollouts: usize,
        tables: &mut TableRows,
    ) -> RoundFacts {
        let mut round_facts = RoundFacts { scores: HashMap::new(), steps: HashMap::new() };
        tables.each(round, "reviews.parquet", |row: ReviewScores| {
            if let (Some(a), Some(b), Some(c)) = (row.relevance, row.redundancy, row.complexity) {
                round_facts.scores.insert(row.conjecture, [a, b, c]);
            }
            true
        });
        let proved = |c: &&ConjectureScores| c.solve_rate.is_some_and(|rate| rate > 0.0);
        let proved: HashSet<&ProblemId> = all.iter().filter(proved).map(|c| &c.id).collect();
        if self.searched >= rollouts || proved.is_empty() {
            return round_facts;
        }
        self.proofs_read += 1;
        tables.each(round, "rollouts.parquet", |row: ProofText| {
            self.searched += 1;
            if row.verdict == Verdict::Proved
                && proved.contains(&row.problem)
                && let Some(proof) = &row.proof
            {
                let steps = display.map_or_else(|| words(proof), |d| d.steps(proof));
                let best = round_facts.steps.entry(row.problem).or_insert(steps);
                *best = steps.min(*best);
            }
            true
        });
        round_facts
    }

    /// Adds a statement and returns its origin.
    #[allow(clippy::expect_used, reason = "the statement is added before it is looked up")]
    fn enter(
        &mut self,
        round: u32,
        row: &ConjectureScores,
        text: &Arc<str>,
        round_facts: &RoundFacts,
        display: Option<&dyn StatementDisplay>,
        context: &impl Fn(&str) -> Arc<str>,
    ) -> StatementOrigin {
        if !self.statements.contains_key(text) {
            if self.statements.len() >= REMEMBERED {
                return StatementOrigin::New;
            }
            let statement = self.first(round, row, text, display, context);
            self.statements.insert(Arc::clone(text), statement);
        }
        let statement = self.statements.get_mut(text).expect("invariant: the statement was added above");
        let is_first = statement.times == 0;
        let before = statement.rounds.1;
        statement.note(round, row, round_facts);
        let accepted = row.status == ConjectureRowStatus::Accepted;
        self.distinct += u64::from(accepted && statement.accepted == 1);
        match statement.origin {
            known @ (StatementOrigin::Theorem | StatementOrigin::Target) => known,
            origin if is_first => origin,
            _ if before == round => StatementOrigin::Repeated,
            _ => StatementOrigin::Seen,
        }
    }

    fn first(
        &mut self,
        round: u32,
        row: &ConjectureScores,
        text: &Arc<str>,
        display: Option<&dyn StatementDisplay>,
        context: &impl Fn(&str) -> Arc<str>,
    ) -> ConjecturedStatement {
        let mut theorem = None;
        let mut is_target = self.targets.contains(&**text);
        if let Some(display) = display.filter(|_| self.looked_up < LOOKED_UP) {
            self.looked_up += 1;
            let identity = display.identity(text, &context(row.target.as_str()));
            is_target |= self.targets.contains(&identity.normal);
            theorem = identity.theorem;
        }
        let is_known = theorem.is_some() || row.reason == "known";
        let origin = match (is_target, is_known, row.reason.as_str()) {
            (true, ..) => StatementOrigin::Target,
            (_, true, _) => StatementOrigin::Theorem,
            // It occurred in a round that could not be read.
            (.., "seen") => StatementOrigin::Seen,
            _ => StatementOrigin::New,
        };
        ConjecturedStatement {
            text: display.map_or_else(|| text.to_string(), |d| d.statement(text)),
            times: 0,
            accepted: 0,
            rounds: (round, round),
            origin,
            theorem,
            solve_rate: RunningMean::default(),
            r_guide: RunningMean::default(),
            scores: Default::default(),
            steps: None,
            r_solve: RunningMean::default(),
        }
    }

    /// Returns the statistics collected so far.
    pub fn stats(&self) -> ConjectureStats {
        let mut frequent: Vec<&ConjecturedStatement> =
            self.statements.values().filter(|s| s.times > 1).collect();
        frequent.sort_by(|a, b| (b.times, &a.text).cmp(&(a.times, &b.text)));
        let lost = |s: &&ConjecturedStatement| {
            s.r_guide.mean() == Some(0.0) && s.r_solve.mean().is_some_and(|r| r > 0.0)
        };
        let mut rejected: Vec<&ConjecturedStatement> = self.statements.values().filter(lost).collect();
        rejected.sort_by(|a, b| b.r_solve.sum.total_cmp(&a.r_solve.sum).then_with(|| a.text.cmp(&b.text)));
        let shown = |all: Vec<&ConjecturedStatement>, most| all.into_iter().take(most).cloned().collect();
        ConjectureStats {
            rounds: self.rounds.clone(),
            frequent: shown(frequent, MOST_FREQUENT),
            rejected: shown(rejected, MOST_REJECTED),
            proofs_read: self.proofs_read,
        }
    }
}

impl ConjecturedStatement {
    fn note(&mut self, round: u32, row: &ConjectureScores, round_facts: &RoundFacts) {
        self.times += 1;
        self.rounds.1 = round;
        if row.status != ConjectureRowStatus::Accepted {
            return;
        }
        self.accepted += 1;
        self.solve_rate.add(row.solve_rate);
        self.r_guide.add(row.r_guide.filter(|_| !row.review_failed));
        self.r_solve.add(row.r_solve);
        if let Some(scores) = round_facts.scores.get(&row.id) {
            self.scores.iter_mut().zip(scores).for_each(|(tally, score)| tally.add(Some(*score)));
        }
        let found = round_facts.steps.get(&row.id).copied();
        self.steps = self.steps.into_iter().chain(found).min();
    }
}

impl ConjectureStats {
    /// Returns the fraction of the total reward for each class, with the Guide (R_synth) and without it (R_solve alone). Returns
    /// `None` if nothing was rewarded, or if the Guide does not change the fractions.
    pub fn rewards_by_kind(&self) -> Option<BTreeMap<ConjectureClass, (f64, f64)>> {
        let sums = self.rounds.iter().fold([(0.0, 0.0); 3], |mut sums, round| {
            sums.iter_mut().zip(round.rewards).for_each(|(sum, r)| *sum = (sum.0 + r.0, sum.1 + r.1));
            sums
        });
        let all = sums.iter().fold((0.0, 0.0), |all, s| (all.0 + s.0, all.1 + s.1));
        let share = |kind: ConjectureClass| {
            let (with, without) = sums[kind as usize];
            (kind, (with / all.0, without / all.1))
        };
        let shares: BTreeMap<_, (f64, f64)> = ConjectureClass::ALL.into_iter().map(share).collect();
        let differs = shares.values().any(|s| (s.0 - s.1).abs() > 1e-9);
        (all.0 > 0.0 && all.1 > 0.0 && differs).then_some(shares)
    }
}

fn kind(origin: StatementOrigin, steps: Option<u32>) -> ConjectureClass {
    match origin {
        _ if steps.is_some_and(|steps| steps <= TRIVIAL_STEPS) => ConjectureClass::Trivial,
        StatementOrigin::New => ConjectureClass::New,
        _ => ConjectureClass::Known,
    }
}

fn words(proof: &str) -> u32 {
    u32::try_from(proof.split_whitespace().count()).unwrap_or(u32::MAX)
}

fn mean_scores<'a>(all: impl Iterator<Item = &'a [f64; 3]>) -> Option<[f64; 3]> {
    let mut sums = [RunningMean::default(); 3];
    all.for_each(|scores| sums.iter_mut().zip(scores).for_each(|(sum, score)| sum.add(Some(*score))));
    let [a, b, c] = sums.map(|sum| sum.mean());
    Some([a?, b?, c?])
}
