//! `sgs data import` and `sgs data stats`: data sets of problems.

use crate::args::{DataImportArgs, DataStatsArgs};
use crate::exit::Outcome;
use crate::output;
use anyhow::{Context, Result};
use serde_json::json;
use sgs_data::corpus::CorpusStats;
use sgs_data::sets::describe::{Description, MetamathStats, describe};
use sgs_data::sets::import::{self, ImportSummary};
use sgs_data::sets::stats::{Distribution, Stats};
use sgs_rundir::files::AtomicFile;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Maximum number of skipped records to list on standard error.
const MAX_LISTED: usize = 20;

/// Reads a data set of any known layout and writes it as JSON Lines.
pub fn import(args: &DataImportArgs) -> Result<Outcome> {
    let found = if args.out == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        let found = convert(args, &mut out)?;
        out.flush().context("cannot write to standard output")?;
        found
    } else {
        let mut file = AtomicFile::create(&args.out)?;
        let found = convert(args, &mut file)?;
        file.commit()?;
        found
    };
    name_skipped(&args.file, &found);
    eprintln!("{} problems written, {} records not taken", found.taken, found.skipped_total);
    Ok(outcome(&found))
}

fn convert(args: &DataImportArgs, out: &mut impl Write) -> Result<ImportSummary> {
    Ok(import::import(&args.file, args.header.as_deref(), args.toolchain.as_deref(), out, &args.out)?)
}

fn outcome(found: &ImportSummary) -> Outcome {
    if found.skipped_total == 0 { Outcome::Done } else { Outcome::Failed }
}

/// Lists the first skipped records on standard error.
fn name_skipped(file: &Path, found: &ImportSummary) {
    for s in found.skipped.iter().take(MAX_LISTED) {
        let place =
            if s.line > 0 { format!("{}:{}", file.display(), s.line) } else { file.display().to_string() };
        let id = if s.id.is_empty() { String::new() } else { format!(" {}:", s.id) };
        eprintln!("{place}:{id} {}", s.reason);
    }
    if let Some(more) = found.skipped_total.checked_sub(MAX_LISTED + 1) {
        eprintln!("and {} more", more + 1);
    }
}

/// Describes a data set.
pub fn stats(args: &DataStatsArgs) -> Result<Outcome> {
    let file = &args.file;
    let description = describe(file, args.header.as_deref())?;
    match (args.json, &description) {
        (true, Description::Corpus(stats)) => {
            output::json(&json!({ "file": file, "format": "corpus", "stats": stats }))?;
        }
        (true, Description::Metamath(stats)) => {
            output::json(&json!({ "file": file, "format": "metamath", "stats": stats }))?;
        }
        (true, Description::Lean(found, stats)) => output::json(&json!({
            "file": file,
            "format": found.format,
            "stats": stats,
            "skipped": found.skipped,
            "skipped_total": found.skipped_total,
        }))?,
        (false, Description::Corpus(stats)) => output::line(corpus_text(file, stats))?,
        (false, Description::Metamath(stats)) => output::line(metamath_text(file, stats))?,
        (false, Description::Lean(found, stats)) => {
            name_skipped(file, found);
            output::line(lean_text(file, found, stats))?;
        }
    }
    Ok(match &description {
        Description::Lean(found, _) => outcome(found),
        Description::Corpus(_) | Description::Metamath(_) => Outcome::Done,
    })
}

fn corpus_text(file: &Path, stats: &CorpusStats) -> String {
    let rows: Vec<Vec<String>> = stats
        .kinds
        .iter()
        .map(|(kind, [examples, prompts, completions])| {
            let mean = |words: &u64| format!("{:.1}", *words as f64 / *examples as f64);
            vec![kind.clone(), examples.to_string(), mean(prompts), mean(completions)]
        })
        .collect();
    let header = ["role and kind", "examples", "words of a prompt", "of a completion"];
    format!("{} (corpus)\n  {} examples\n\n{}", file.display(), stats.examples, output::table(&header, &rows))
}

fn metamath_text(file: &Path, stats: &MetamathStats) -> String {
    let symbols = &stats.symbols;
    format!(
        "{} (metamath)\n  problems                     {}\n  with hypotheses              {}\n  \
         with distinct variables      {}\n  symbols of a statement       {} to {}, median {}, 95 % below {}",
        file.display(),
        stats.problems,
        stats.with_hypotheses,
        stats.with_distinct_variables,
        symbols.min,
        symbols.max,
        symbols.p50,
        symbols.p95
    )
}

fn lean_text(file: &Path, found: &ImportSummary, stats: &Stats) -> String {
    let share = |n: usize| format!("{n} ({:.1}%)", 100.0 * n as f64 / stats.problems.max(1) as f64);
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
        &["of a statement", "min", "5%", "25%", "50%", "75%", "95%", "max", "mean"],
        &rows,
    ));
    out
}
