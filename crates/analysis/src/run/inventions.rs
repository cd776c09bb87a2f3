//! What a run's Conjecturer invents and what its Guide makes of it, gathered round by round.

use super::columns::{Invented, ProofText, ReviewScores};
use super::reader::each_row;
use super::{Display, Tally};
use crate::stats::rank_correlation;
use sgs_rundir::PublishedRound;
use sgs_rundir::rows::ConjectureStatus;
use sgs_selfplay::{ProblemId, Verdict};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A conjecture that so few inferences prove is trivial.
pub const TRIVIAL_STEPS: u32 = 1;

/// Statements that are looked up in the database at most: that takes some microseconds each.
const LOOKED_UP: usize = 50_000;

/// Statements that are remembered at most; later ones count as new.
const REMEMBERED: usize = 1_000_000;

/// Where a conjecture's statement comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody has stated it before in this run.
    New,
    /// An earlier round invented it.
    Seen,
    /// Another conjecture of the same round.
    Repeated,
    /// A theorem of the database, under whatever names.
    Theorem,
    /// A target, under whatever names.
    Target,
}

impl Origin {
    /// All, in the order of legends.
    pub const ALL: [Self; 5] = [Self::New, Self::Seen, Self::Repeated, Self::Theorem, Self::Target];

    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Seen => "seen in an earlier round",
            Self::Repeated => "twice in the round",
            Self::Theorem => "a theorem of the database",
            Self::Target => "a target",
        }
    }
}

/// What a conjecture is worth as practice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A single inference proves it.
    Trivial,
    /// It is no invention: seen before, a theorem of the database, a target.
    Known,
    /// The rest.
    New,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 3] = [Self::Trivial, Self::Known, Self::New];

    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trivial => "trivial (one inference)",
            Self::Known => "known",
            Self::New => "new",
        }
    }
}

/// The conjectures of a round, counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InventedRound {
    pub round: u32,
    /// Completions that were asked for.
    pub asked: u64,
    /// Completions without a statement.
    pub unread: u64,
    /// Statements, by [`Origin`].
    pub origins: [u64; 5],
    /// Different statements among the accepted conjectures of all rounds so far.
    pub distinct: u64,
    /// Accepted conjectures in all rounds so far.
    pub accepted: u64,
    /// R_synth and R_solve of the accepted conjectures, added up by [`Kind`].
    pub rewards: [(f64, f64); 3],
    /// Conjectures that the Guide reviewed, those that it scored 0, and those whose reviews were all malformed.
    pub reviewed: [u64; 3],
    /// Spearman's correlation of R_guide with the solve rate, and with being new.
    pub correlations: [Option<f64>; 2],
    /// Means of relevance, redundancy and complexity.
    pub scores: Option<[f64; 3]>,
}

/// A statement, whenever it was invented.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Its text, for people.
    pub text: String,
    /// How often it was invented.
    pub times: u64,
    /// How often it was accepted.
    pub accepted: u64,
    /// Its first and its last round.
    pub rounds: (u32, u32),
    /// Where it comes from, as of its first time.
    pub origin: Origin,
    /// The theorem of the database that says the same.
    pub theorem: Option<String>,
    pub solve_rate: Tally,
    pub r_guide: Tally,
    /// Relevance, redundancy and complexity.
    pub scores: [Tally; 3],
    /// Inferences of the shortest proof that was found.
    pub steps: Option<u32>,
    pub r_solve: Tally,
}

/// What a run has invented.
#[derive(Clone, Debug, Default)]
pub struct Inventions {
    pub rounds: Vec<InventedRound>,
    /// The statements that were invented most often.
    pub frequent: Vec<Statement>,
    /// Statements that the Guide scored 0 although they would have been rewarded, the most rewarded first.
    pub rejected: Vec<Statement>,
    /// Rounds whose proofs were read.
    pub proofs_read: usize,
}

/// Statements shown of each list.
const SHOWN: usize = 15;

/// Reads the inventions of a run, round after round.
#[derive(Default)]
pub(super) struct Inventor {
    statements: HashMap<Arc<str>, Statement>,
    /// Targets in the names of conjectures.
    targets: HashSet<String>,
    rounds: Vec<InventedRound>,
    accepted: u64,
    distinct: u64,
    looked_up: usize,
    searched: usize,
    proofs_read: usize,
}

/// What is known of the round's reviews and proofs.
struct Beside {
    scores: HashMap<ProblemId, [f64; 3]>,
    steps: HashMap<ProblemId, u32>,
}

impl Inventor {
    /// A target, so that conjectures that restate it are recognised.
    pub fn target(&mut self, statement: &str, context: &str, display: Option<&dyn Display>) {
        let normal = display.map_or_else(|| statement.to_owned(), |d| d.identity(statement, context).normal);
        self.targets.insert(normal);
    }

    /// Takes a published round. `context` gives a target's context by its name.
    pub fn read(
        &mut self,
        round: &PublishedRound,
        display: Option<&dyn Display>,
        rollouts: usize,
        context: impl Fn(&str) -> Arc<str>,
        damage: &mut Vec<String>,
    ) {
        let mut all: Vec<Invented> = Vec::new();
        each_row(round, "conjectures.parquet", damage, |row| {
            all.push(row);
            true
        });
        if all.is_empty() {
            return;
        }
        let beside = self.beside(round, &all, display, rollouts, damage);
        let mut out =
            InventedRound { round: round.round(), asked: all.len() as u64, ..InventedRound::default() };
        let (mut guide_rate, mut guide_new) = (Vec::new(), Vec::new());
        for row in &all {
            let Some(text) = row.statement.as_ref() else {
                out.unread += 1;
                continue;
            };
            let origin = self.enter(out.round, row, text, &beside, display, &context);
            out.origins[origin as usize] += 1;
            if row.status != ConjectureStatus::Accepted {
                continue;
            }
            self.accepted += 1;
            let kind = kind(origin, beside.steps.get(&row.id).copied());
            let sums = &mut out.rewards[kind as usize];
            *sums = (sums.0 + row.r_synth.unwrap_or(0.0), sums.1 + row.r_solve.unwrap_or(0.0));
            let Some(score) = row.r_guide else { continue };
            out.reviewed[0] += 1;
            out.reviewed[1] += u64::from(score == 0.0 && !row.review_failed);
            out.reviewed[2] += u64::from(row.review_failed);
            guide_new.push((score, f64::from(u8::from(origin == Origin::New))));
            guide_rate.extend(row.solve_rate.map(|rate| (score, rate)));
        }
        out.distinct = self.distinct;
        out.accepted = self.accepted;
        out.correlations = [rank_correlation(&guide_rate), rank_correlation(&guide_new)];
        out.scores = mean_scores(beside.scores.values());
        self.rounds.push(out);
    }

    /// Scores of the round's reviews, and the lengths of the proofs of its conjectures while not too many were read.
    fn beside(
        &mut self,
        round: &PublishedRound,
        all: &[Invented],
        display: Option<&dyn Display>,
        rollouts: usize,
        damage: &mut Vec<String>,
    ) -> Beside {
        let mut beside = Beside { scores: HashMap::new(), steps: HashMap::new() };
        each_row(round, "reviews.parquet", damage, |row: ReviewScores| {
            if let (Some(a), Some(b), Some(c)) = (row.relevance, row.redundancy, row.complexity) {
                beside.scores.insert(row.conjecture, [a, b, c]);
            }
            true
        });
        let proved = |c: &&Invented| c.solve_rate.is_some_and(|rate| rate > 0.0);
        let proved: HashSet<&ProblemId> = all.iter().filter(proved).map(|c| &c.id).collect();
        if self.searched >= rollouts || proved.is_empty() {
            return beside;
        }
        self.proofs_read += 1;
        each_row(round, "rollouts.parquet", damage, |row: ProofText| {
            self.searched += 1;
            if row.verdict == Verdict::Proved
                && proved.contains(&row.problem)
                && let Some(proof) = &row.proof
            {
                let steps = display.map_or_else(|| words(proof), |d| d.steps(proof));
                let best = beside.steps.entry(row.problem).or_insert(steps);
                *best = steps.min(*best);
            }
            true
        });
        beside
    }

    /// Enters a statement; says where it comes from.
    fn enter(
        &mut self,
        round: u32,
        row: &Invented,
        text: &Arc<str>,
        beside: &Beside,
        display: Option<&dyn Display>,
        context: &impl Fn(&str) -> Arc<str>,
    ) -> Origin {
        if !self.statements.contains_key(text) {
            if self.statements.len() >= REMEMBERED {
                return Origin::New;
            }
            let statement = self.first(round, row, text, display, context);
            self.statements.insert(Arc::clone(text), statement);
        }
        let Some(statement) = self.statements.get_mut(text) else { return Origin::New };
        let is_first = statement.times == 0;
        let before = statement.rounds.1;
        statement.note(round, row, beside);
        let accepted = row.status == ConjectureStatus::Accepted;
        self.distinct += u64::from(accepted && statement.accepted == 1);
        match statement.origin {
            known @ (Origin::Theorem | Origin::Target) => known,
            origin if is_first => origin,
            _ if before == round => Origin::Repeated,
            _ => Origin::Seen,
        }
    }

    fn first(
        &mut self,
        round: u32,
        row: &Invented,
        text: &Arc<str>,
        display: Option<&dyn Display>,
        context: &impl Fn(&str) -> Arc<str>,
    ) -> Statement {
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
            (true, ..) => Origin::Target,
            (_, true, _) => Origin::Theorem,
            // Of a round that could not be read.
            (.., "seen") => Origin::Seen,
            _ => Origin::New,
        };
        Statement {
            text: display.map_or_else(|| text.to_string(), |d| d.statement(text)),
            times: 0,
            accepted: 0,
            rounds: (round, round),
            origin,
            theorem,
            solve_rate: Tally::default(),
            r_guide: Tally::default(),
            scores: Default::default(),
            steps: None,
            r_solve: Tally::default(),
        }
    }

    /// What was gathered so far.
    pub fn inventions(&self) -> Inventions {
        let mut frequent: Vec<&Statement> = self.statements.values().filter(|s| s.times > 1).collect();
        frequent.sort_by(|a, b| (b.times, &a.text).cmp(&(a.times, &b.text)));
        let lost =
            |s: &&Statement| s.r_guide.mean() == Some(0.0) && s.r_solve.mean().is_some_and(|r| r > 0.0);
        let mut rejected: Vec<&Statement> = self.statements.values().filter(lost).collect();
        rejected.sort_by(|a, b| b.r_solve.sum.total_cmp(&a.r_solve.sum).then_with(|| a.text.cmp(&b.text)));
        let shown = |all: Vec<&Statement>| all.into_iter().take(SHOWN).cloned().collect();
        Inventions {
            rounds: self.rounds.clone(),
            frequent: shown(frequent),
            rejected: shown(rejected),
            proofs_read: self.proofs_read,
        }
    }
}

impl Statement {
    fn note(&mut self, round: u32, row: &Invented, beside: &Beside) {
        self.times += 1;
        self.rounds.1 = round;
        if row.status != ConjectureStatus::Accepted {
            return;
        }
        self.accepted += 1;
        self.solve_rate.add(row.solve_rate);
        self.r_guide.add(row.r_guide.filter(|_| !row.review_failed));
        self.r_solve.add(row.r_solve);
        if let Some(scores) = beside.scores.get(&row.id) {
            self.scores.iter_mut().zip(scores).for_each(|(tally, score)| tally.add(Some(*score)));
        }
        let found = beside.steps.get(&row.id).copied();
        self.steps = self.steps.into_iter().chain(found).min();
    }
}

impl Inventions {
    /// Shares of the whole reward that went to each kind with the Guide, and would have gone without it: R_synth, and
    /// R_solve alone. `None` if nothing was rewarded, or no Guide made a difference.
    pub fn rewards_by_kind(&self) -> Option<BTreeMap<Kind, (f64, f64)>> {
        let sums = self.rounds.iter().fold([(0.0, 0.0); 3], |mut sums, round| {
            sums.iter_mut().zip(round.rewards).for_each(|(sum, r)| *sum = (sum.0 + r.0, sum.1 + r.1));
            sums
        });
        let all = sums.iter().fold((0.0, 0.0), |all, s| (all.0 + s.0, all.1 + s.1));
        let differs = sums.iter().any(|s| (s.0 - s.1).abs() > 1e-9);
        let share = |kind: Kind| {
            let (with, without) = sums[kind as usize];
            (kind, (with / all.0, without / all.1))
        };
        (all.0 > 0.0 && all.1 > 0.0 && differs).then(|| Kind::ALL.into_iter().map(share).collect())
    }
}

fn kind(origin: Origin, steps: Option<u32>) -> Kind {
    match origin {
        _ if steps.is_some_and(|steps| steps <= TRIVIAL_STEPS) => Kind::Trivial,
        Origin::New => Kind::New,
        _ => Kind::Known,
    }
}

fn words(proof: &str) -> u32 {
    u32::try_from(proof.split_whitespace().count()).unwrap_or(u32::MAX)
}

fn mean_scores<'a>(all: impl Iterator<Item = &'a [f64; 3]>) -> Option<[f64; 3]> {
    let mut sums = [Tally::default(); 3];
    all.for_each(|scores| sums.iter_mut().zip(scores).for_each(|(sum, score)| sum.add(Some(*score))));
    let [a, b, c] = sums.map(|sum| sum.mean());
    Some([a?, b?, c?])
}
