//! Statistics of a data set of Lean problems.

use rustc_hash::FxHashMap;
use serde::Serialize;
use sgs_lean::data::Target;
use sgs_lean::features;
use sgs_lean::text::Repair;
use sgs_selfplay::Problem;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Quantiles of a number over the data set (nearest rank).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Smallest.
    pub min: u32,
    /// 5% quantile.
    pub p5: u32,
    /// Quartiles.
    pub p25: u32,
    /// Median.
    pub p50: u32,
    /// Third quartile.
    pub p75: u32,
    /// 95% quantile.
    pub p95: u32,
    /// Largest.
    pub max: u32,
    /// Arithmetic mean.
    pub mean: f64,
}

/// The statistics of a data set.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Number of problems.
    pub problems: usize,
    /// Number of different headers, and how many problems the most frequent one has.
    pub headers: usize,
    /// Problems with the most frequent header.
    pub most_frequent_header: usize,
    /// Problems whose statement occurs more than once.
    pub repeated_statements: usize,
    /// Problems with a proof.
    pub with_proof: usize,
    /// Statements that had to be repaired, by kind.
    pub repairs: BTreeMap<Repair, usize>,
    /// Unicode characters of a statement.
    pub characters: Distribution,
    /// Lines of a statement.
    pub lines: Distribution,
    /// Tokens of a conclusion.
    pub conclusion: Distribution,
    /// Hypotheses of a statement.
    pub hypotheses: Distribution,
    /// Statements whose conclusion holds a disjunction.
    pub with_disjunction: usize,
    /// Statements whose conclusion holds a conjunction.
    pub with_conjunction: usize,
}

/// Collects statistics problem by problem. It keeps numbers of each problem, not its text.
#[derive(Debug, Default)]
pub struct StatsBuilder {
    hasher: RandomState,
    /// How often each header and each statement came.
    headers: FxHashMap<u64, usize>,
    statements: FxHashMap<u64, usize>,
    found: Stats,
    characters: Vec<usize>,
    lines: Vec<usize>,
    conclusion: Vec<usize>,
    hypotheses: Vec<usize>,
}

impl StatsBuilder {
    /// Adds a problem.
    pub fn add(&mut self, target: &Target) {
        let Problem { statement, context, .. } = &target.problem;
        *self.headers.entry(self.hasher.hash_one(context)).or_default() += 1;
        *self.statements.entry(self.hasher.hash_one(statement)).or_default() += 1;
        let features = features(statement);
        self.found.problems += 1;
        self.found.with_proof += usize::from(target.proof.is_some());
        if let Some(repair) = target.repair {
            *self.found.repairs.entry(repair).or_default() += 1;
        }
        self.found.with_disjunction += usize::from(features.disjunctions > 0);
        self.found.with_conjunction += usize::from(features.conjunctions > 0);
        self.characters.push(statement.chars().count());
        self.lines.push(statement.lines().count());
        self.conclusion.push(features.conclusion_length as usize);
        self.hypotheses.push(features.hypotheses as usize);
    }

    /// Returns the statistics of the added problems.
    pub fn finish(self) -> Stats {
        Stats {
            headers: self.headers.len(),
            most_frequent_header: self.headers.values().copied().max().unwrap_or(0),
            repeated_statements: self.statements.values().filter(|n| **n > 1).sum(),
            characters: Distribution::of(self.characters),
            lines: Distribution::of(self.lines),
            conclusion: Distribution::of(self.conclusion),
            hypotheses: Distribution::of(self.hypotheses),
            ..self.found
        }
    }
}

impl Distribution {
    /// Returns the quantiles of some numbers; zeros if there are none.
    pub fn of(numbers: impl IntoIterator<Item = usize>) -> Self {
        let mut values: Vec<u32> =
            numbers.into_iter().map(|n| u32::try_from(n).unwrap_or(u32::MAX)).collect();
        values.sort_unstable();
        let Some(last) = values.len().checked_sub(1) else { return Self::default() };
        let at = |percent: usize| values.get((last * percent + 50) / 100).copied().unwrap_or(0);
        let sum: u64 = values.iter().map(|v| u64::from(*v)).sum();
        Self {
            min: at(0),
            p5: at(5),
            p25: at(25),
            p50: at(50),
            p75: at(75),
            p95: at(95),
            max: at(100),
            mean: sum as f64 / values.len() as f64,
        }
    }
}
