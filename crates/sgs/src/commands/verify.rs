//! `sgs verify`: verdicts on a file of proofs.

use super::verify_lean;
use crate::args::VerifyArgs;
use crate::exit::Outcome;
use anyhow::{Context, Result, bail};
use sgs_metamath::export::Exporter;
use sgs_metamath::facts::Facts;
use sgs_metamath::slice;
use sgs_metamath::theory::Theory;
use sgs_metamath::unify::RuleBook;
use sgs_metamath::verify::{VerifyError, VerifyOptions, VerifySummary, verify};
use sgs_run::config::SystemName;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter};
use std::path::Path;

/// Reads problems with proofs, writes a verdict for each to standard output and a summary to standard error.
pub fn run(args: &VerifyArgs) -> Result<Outcome> {
    match args.system {
        SystemName::Metamath => metamath(args),
        SystemName::Lean => verify_lean::run(args),
    }
}

fn metamath(args: &VerifyArgs) -> Result<Outcome> {
    // Before the database is read, so that a wrong name is told at once.
    let mut input = open(&args.file)?;
    let theory = theory(args.database.as_deref())?;
    if let Some(path) = &args.database {
        check_facts(&theory, path, args.strict)?;
    }
    let book = RuleBook::new(&theory);
    let mut export = args.export.as_deref().map(|path| Exporter::create(&theory, path)).transpose()?;
    let mut output = BufWriter::new(io::stdout().lock());
    let options = VerifyOptions { threads: args.threads, ..VerifyOptions::default() };
    let mut report = |message: &str| eprintln!("{message}");
    let summary = verify(&theory, &book, &mut *input, &mut output, export.as_mut(), &mut report, options)
        .map_err(plain)?;
    drop(output);
    eprintln!("{summary}");
    if let (Some(export), Some(path)) = (export, &args.export) {
        eprintln!("{} theorems appended: {}", export.finish()?, path.display());
    }
    Ok(outcome(&summary))
}

/// The system's own error where the output's reader has gone away, so that it is seen for what it is.
fn plain(error: VerifyError) -> anyhow::Error {
    match error {
        VerifyError::Write(error) => anyhow::Error::new(error).context("cannot write the verdicts"),
        other => other.into(),
    }
}

fn outcome(summary: &VerifySummary) -> Outcome {
    if summary.is_clean() { Outcome::Done } else { Outcome::Failed }
}

/// The input: a file, or standard input for `-`.
fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}

/// Says which theorems of a database are no facts: what is proved from them is as doubtful as they are.
fn check_facts(theory: &Theory, path: &Path, strict: bool) -> Result<()> {
    let facts = Facts::of(theory.database());
    if facts.unproved.is_empty() {
        return Ok(());
    }
    if strict {
        bail!("{}: {facts}; nothing is verified with it", path.display());
    }
    eprintln!(
        "warning: {}: {facts}; what cites them is taken for proved all the same (`--strict` refuses such a database)",
        path.display()
    );
    Ok(())
}

/// A database of the user, or the slice that ships.
pub fn theory(database: Option<&Path>) -> Result<Theory> {
    Ok(match database {
        Some(path) => Theory::read(path)?,
        None => Theory::new(slice::shipped()?)?,
    })
}
