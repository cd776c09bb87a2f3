//! Statistics of a data set of any kind: a corpus, Metamath targets, or Lean problems.

use super::import::{ImportSummary, each_target};
use super::stats::{Distribution, Stats, StatsBuilder};
use crate::corpus::CorpusStats;
use serde::Serialize;
use sgs_metamath::system::Metamath;
use sgs_run::config::system;
use sgs_run::error::{Context, Result};
use sgs_selfplay::Problem;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest part of a first line that is examined to recognise a file of Metamath targets, in bytes.
const LONGEST_FIRST: u64 = 1 << 20;

/// Statistics of a data set, by its kind.
#[derive(Clone, Debug)]
pub enum Description {
    /// A training corpus.
    Corpus(CorpusStats),
    /// Metamath targets.
    Metamath(MetamathStats),
    /// Lean problems.
    Lean(ImportSummary, Box<Stats>),
}

/// Statistics of Metamath targets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetamathStats {
    /// Number of problems.
    pub problems: usize,
    /// Problems with hypotheses.
    pub with_hypotheses: usize,
    /// Problems with `$d` conditions.
    pub with_distinct_variables: usize,
    /// Symbols of a statement.
    pub symbols: Distribution,
}

/// Describes a data set. `header` is a file with the context of Lean problems that have none.
///
/// # Errors
/// Returns an error if the file cannot be read or holds no problem.
pub fn describe(file: &Path, header: Option<&Path>) -> Result<Description> {
    if let Some(corpus) = CorpusStats::read(file)? {
        return Ok(Description::Corpus(corpus));
    }
    if let Some(problems) = metamath_problems(file)? {
        return Ok(Description::Metamath(MetamathStats::of(&problems)));
    }
    let mut stats = StatsBuilder::default();
    let found = each_target(file, header, |target| {
        stats.add(&target);
        Ok(())
    })?;
    Ok(Description::Lean(found, Box::new(stats.finish())))
}

/// The problems of a file of Metamath targets, as `sgs data build` writes one; `None` for any other file.
fn metamath_problems(file: &Path) -> Result<Option<Vec<Problem>>> {
    if file.extension().is_none_or(|e| e != "jsonl") {
        return Ok(None);
    }
    let mut first = String::new();
    let open = fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    if BufReader::new(open.take(LONGEST_FIRST)).read_line(&mut first).is_err() {
        return Ok(None);
    }
    let line: serde_json::Value = serde_json::from_str(&first).unwrap_or_default();
    let is_metamath =
        line["statement"].as_str().is_some_and(|text| text.contains("$p ") || text.contains("|- "));
    is_metamath.then(|| system::read_problems(&Metamath::shipped()?, file)).transpose()
}

impl MetamathStats {
    fn of(problems: &[Problem]) -> Self {
        let count = |sign: &str| problems.iter().filter(|p| p.statement.contains(sign)).count();
        let symbols = problems.iter().map(|p| p.statement.split_whitespace().count());
        Self {
            problems: problems.len(),
            with_hypotheses: count("$e "),
            with_distinct_variables: count("$d "),
            symbols: Distribution::of(symbols),
        }
    }
}
