//! `sgs data import` and `sgs data stats`: data sets of Lean problems, one record after the other.

use crate::args::{DataImportArgs, DataStatsArgs};
use crate::corpus::CorpusStats;
use crate::exit::Outcome;
use crate::output;
use anyhow::{Context, Result, bail};
use serde_json::json;
use sgs_lean::data::{Distribution, Format, ReadError, Skipped, Stats, StatsBuilder, Target, write_line};
use sgs_metamath::system::Metamath;
use sgs_run::system;
use sgs_rundir::files::AtomicFile;
use sgs_selfplay::Problem;
use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

/// Records not taken that are named one by one.
const NAMED: usize = 20;
/// Records not taken that JSON lists one by one.
const LISTED: usize = 1000;

/// So much of a first line tells what a file is, in bytes.
const LONGEST_FIRST: u64 = 1 << 20;

/// What a file gave.
struct Found {
    format: Format,
    taken: usize,
    /// The first that were not taken.
    skipped: Vec<Skipped>,
    skipped_total: usize,
}

impl Found {
    fn outcome(&self) -> Outcome {
        if self.skipped_total == 0 { Outcome::Done } else { Outcome::Failed }
    }

    /// Says on standard error what was not taken.
    fn name_skipped(&self, file: &Path) {
        for s in self.skipped.iter().take(NAMED) {
            let place = if s.line > 0 {
                format!("{}:{}", file.display(), s.line)
            } else {
                file.display().to_string()
            };
            let id = if s.id.is_empty() { String::new() } else { format!(" {}:", s.id) };
            eprintln!("{place}:{id} {}", s.reason);
        }
        if let Some(more) = self.skipped_total.checked_sub(NAMED + 1) {
            eprintln!("and {} more", more + 1);
        }
    }
}

/// Reads a data set of any known layout and writes it as JSON Lines.
pub fn import(args: &DataImportArgs) -> Result<Outcome> {
    let found = if args.out == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        let found = copy(args, &mut out)?;
        out.flush().context("cannot write to standard output")?;
        found
    } else {
        let mut file = AtomicFile::create(&args.out)?;
        let found = copy(args, &mut file)?;
        file.commit()?;
        found
    };
    found.name_skipped(&args.file);
    eprintln!("{} problems written, {} records not taken", found.taken, found.skipped_total);
    Ok(found.outcome())
}

/// Writes each problem as it comes.
fn copy(args: &DataImportArgs, out: &mut impl Write) -> Result<Found> {
    let mut failed = None;
    let found = read(&args.file, args.header.as_deref(), |mut target| {
        target.toolchain = target.toolchain.take().or_else(|| args.toolchain.clone());
        out.write_all(write_line(&target).as_bytes()).map_err(|error| {
            let kind = error.kind();
            failed = Some(error);
            ReadError::Io { path: args.out.clone(), error: kind.into() }
        })
    });
    match failed {
        // The system's own error, so that a reader that went away is seen for what it is.
        Some(error) => Err(error).with_context(|| format!("cannot write {}", args.out.display())),
        None => found,
    }
}

/// Describes a data set.
pub fn describe(args: &DataStatsArgs) -> Result<Outcome> {
    if let Some(corpus) = CorpusStats::read(&args.file)? {
        match args.json {
            true => output::json(&json!({ "file": args.file, "format": "corpus", "stats": corpus }))?,
            false => output::line(corpus.text(&args.file))?,
        }
        return Ok(Outcome::Done);
    }
    if let Some(problems) = metamath_problems(&args.file)? {
        return describe_metamath(args, &problems);
    }
    let mut stats = StatsBuilder::default();
    let found = read(&args.file, args.header.as_deref(), |target| {
        stats.add(&target);
        Ok(())
    })?;
    let stats = stats.finish();
    if args.json {
        output::json(&json!({
            "file": args.file,
            "format": found.format,
            "stats": stats,
            "skipped": found.skipped,
            "skipped_total": found.skipped_total,
        }))?;
    } else {
        found.name_skipped(&args.file);
        output::line(text(&args.file, &found, &stats))?;
    }
    Ok(found.outcome())
}

/// The problems of a file of Metamath targets, as `sgs data build` writes one; `None` of any other.
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

fn describe_metamath(args: &DataStatsArgs, problems: &[Problem]) -> Result<Outcome> {
    let count = |sign: &str| problems.iter().filter(|p| p.statement.contains(sign)).count();
    let mut symbols: Vec<usize> = problems.iter().map(|p| p.statement.split_whitespace().count()).collect();
    symbols.sort_unstable();
    let at = |share: f64| {
        symbols.get((share * symbols.len().saturating_sub(1) as f64) as usize).copied().unwrap_or(0)
    };
    let found = json!({
        "problems": problems.len(), "with_hypotheses": count("$e "), "with_distinct_variables": count("$d "),
        "symbols": { "min": at(0.0), "median": at(0.5), "p95": at(0.95), "max": at(1.0) },
    });
    if args.json {
        output::json(&json!({ "file": args.file, "format": "metamath", "stats": found }))?;
    } else {
        output::line(format!(
            "{} (metamath)\n  problems                     {}\n  with hypotheses              {}\n  \
             with distinct variables      {}\n  symbols of a statement       {} to {}, median {}, 95 % below {}",
            args.file.display(),
            problems.len(),
            count("$e "),
            count("$d "),
            at(0.0),
            at(1.0),
            at(0.5),
            at(0.95)
        ))?;
    }
    Ok(Outcome::Done)
}

/// Hands over every problem of a file.
fn read(
    file: &Path,
    header: Option<&Path>,
    mut take: impl FnMut(Target) -> Result<(), ReadError>,
) -> Result<Found> {
    let header = match header {
        Some(path) => {
            fs::read_to_string(path).with_context(|| format!("cannot read the header {}", path.display()))?
        }
        None => String::new(),
    };
    let (mut taken, mut skipped, mut skipped_total) = (0, Vec::new(), 0);
    let format = sgs_run::lean_set::each(file, &header, &mut |line, target| match target {
        Ok(target) => {
            taken += 1;
            take(target)
        }
        Err(error) => {
            skipped_total += 1;
            if skipped.len() < LISTED {
                skipped.push(Skipped { line, id: error.id, reason: error.reason });
            }
            Ok(())
        }
    })?;
    if taken + skipped_total == 0 {
        bail!("{} holds no problem", file.display());
    }
    Ok(Found { format, taken, skipped, skipped_total })
}

fn text(file: &Path, found: &Found, stats: &Stats) -> String {
    let share = |n: usize| format!("{n} ({:.1} %)", 100.0 * n as f64 / stats.problems.max(1) as f64);
    let format = serde_json::to_value(found.format).ok();
    let format = format.as_ref().and_then(|f| f.as_str()).unwrap_or_default().to_owned();
    let mut out = format!("{} ({format})\n", file.display());
    let mut row = |name: &str, value: String| out.push_str(&format!("  {name:<28} {value}\n"));
    row("problems", stats.problems.to_string());
    row("records not taken", found.skipped_total.to_string());
    row(
        "different headers",
        format!("{} (the most frequent: {})", stats.headers, share(stats.most_frequent_header)),
    );
    row("repeated statements", share(stats.repeated_statements));
    row("with a proof", share(stats.with_proof));
    for (repair, n) in &stats.repairs {
        let name = serde_json::to_value(repair).ok();
        let name = name.as_ref().and_then(|v| v.as_str()).unwrap_or("repaired").to_owned();
        row(&format!("repaired: {name}"), share(*n));
    }
    row("disjunctive conclusions", share(stats.with_disjunction));
    row("conjunctive conclusions", share(stats.with_conjunction));
    let quantiles = |name: &str, d: &Distribution| {
        let mut cells = vec![name.to_owned()];
        cells.extend([d.min, d.p5, d.p25, d.p50, d.p75, d.p95, d.max].map(|n| n.to_string()));
        cells.push(format!("{:.1}", d.mean));
        cells
    };
    let rows = [
        quantiles("characters", &stats.characters),
        quantiles("lines", &stats.lines),
        quantiles("tokens of the conclusion", &stats.conclusion),
        quantiles("hypotheses", &stats.hypotheses),
    ];
    out.push('\n');
    out.push_str(&output::table(
        &["of a statement", "min", "5 %", "25 %", "50 %", "75 %", "95 %", "max", "mean"],
        &rows,
    ));
    out
}
