//! What a data set is like.

use super::read::Target;
use crate::features::features;
use crate::text::Repair;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use std::collections::BTreeMap;

/// Quantiles of a number over the data set (nearest rank).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Smallest.
    pub min: u32,
    /// 5 % quantile.
    pub p5: u32,
    /// Quartiles.
    pub p25: u32,
    /// Median.
    pub p50: u32,
    /// Third quartile.
    pub p75: u32,
    /// 95 % quantile.
    pub p95: u32,
    /// Largest.
    pub max: u32,
    /// Arithmetic mean.
    pub mean: f64,
}

/// A data set, described.
#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// Describes a data set.
pub fn stats(targets: &[Target]) -> Stats {
    let mut headers: FxHashMap<&str, usize> = FxHashMap::default();
    let mut statements: FxHashMap<&str, usize> = FxHashMap::default();
    let mut repairs = BTreeMap::new();
    for target in targets {
        *headers.entry(&target.problem.context).or_default() += 1;
        *statements.entry(&target.problem.statement).or_default() += 1;
        if let Some(repair) = target.repair {
            *repairs.entry(repair).or_default() += 1;
        }
    }
    let all: Vec<_> = targets.iter().map(|t| features(&t.problem.statement)).collect();
    let over = |value: &dyn Fn(usize) -> u32| distribution((0..targets.len()).map(value).collect());
    let text = |i: usize| targets.get(i).map_or("", |t| &*t.problem.statement);
    let feature = |i: usize| all.get(i).copied().unwrap_or_default();
    let repeated: FxHashSet<&str> = statements.iter().filter(|(_, n)| **n > 1).map(|(s, _)| *s).collect();
    Stats {
        problems: targets.len(),
        headers: headers.len(),
        most_frequent_header: headers.values().copied().max().unwrap_or(0),
        repeated_statements: targets.iter().filter(|t| repeated.contains(&*t.problem.statement)).count(),
        with_proof: targets.iter().filter(|t| t.proof.is_some()).count(),
        repairs,
        characters: over(&|i| count(text(i).chars().count())),
        lines: over(&|i| count(text(i).lines().count())),
        conclusion: over(&|i| feature(i).conclusion_length),
        hypotheses: over(&|i| feature(i).hypotheses),
        with_disjunction: all.iter().filter(|f| f.disjunctions > 0).count(),
        with_conjunction: all.iter().filter(|f| f.conjunctions > 0).count(),
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn distribution(mut values: Vec<u32>) -> Distribution {
    values.sort_unstable();
    let Some(last) = values.len().checked_sub(1) else { return Distribution::default() };
    let at = |percent: usize| values.get((last * percent + 50) / 100).copied().unwrap_or(0);
    let sum: u64 = values.iter().map(|v| u64::from(*v)).sum();
    Distribution {
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
