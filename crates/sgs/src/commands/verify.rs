//! `sgs verify`: verifies a file of proofs.

use super::verify_lean;
use crate::args::VerifyArgs;
use crate::exit::{Outcome, Usage, usage};
use crate::output::unwritten_verdicts;
use crate::output_file::check_is_no_input;
use anyhow::{Context, Result, bail};
use sgs_metamath::audit::DatabaseAudit;
use sgs_metamath::export::Exporter;
use sgs_metamath::slice;
use sgs_metamath::theory::Theory;
use sgs_metamath::verify::{LineMessage, VerifyError, VerifyOptions, verify};
use sgs_run::config::system::is_lean_keyword;
use sgs_run::config::{SystemName, folder};
use sgs_rundir::RunView;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Maximum number of warnings about lines. Standard output has the reasons why lines are invalid.
const MAX_TOLD: usize = 10;

/// Reads problems with proofs, writes a verdict for each to standard output and a summary to standard error.
pub fn run(args: &VerifyArgs) -> Result<Outcome> {
    match args.system {
        SystemName::Metamath => metamath(args),
        SystemName::Lean => verify_lean::run(args),
        SystemName::External => bail!("for an external system: `sgs external check RUN --proofs FILE`"),
    }
}

fn metamath(args: &VerifyArgs) -> Result<Outcome> {
    crate::lean::note_unused(&args.lean);
    if let Some(export) = &args.export {
        let inputs: Vec<&Path> =
            [Some(args.file.as_path()), args.database.as_deref()].into_iter().flatten().collect();
        check_is_no_input("--export", export, &inputs)?;
    }
    // Open the input before the database is read, so that a wrong name is reported immediately.
    let mut input = open(&args.file)?;
    let theory = theory(args.database.as_deref())?;
    if let Some(path) = &args.database {
        check_facts(&theory, path, args.strict)?;
    }
    let mut export =
        args.export.as_deref().map(|path| Exporter::create(&theory, path)).transpose().map_err(usage)?;
    // Standard output is flushed after each line, so that a process that is killed has written its verdicts.
    let mut output = io::stdout().lock();
    let options = VerifyOptions { threads: args.threads, ..VerifyOptions::default() };
    let (mut has_hint, mut complete, mut told) = (false, 0, 0);
    let mut report = |message: LineMessage<'_>| match message {
        LineMessage::Bad { reason, is_complete } => {
            complete += u64::from(is_complete);
            let symbol =
                reason.strip_suffix("` is not declared").and_then(|before| before.rsplit('`').next());
            if symbol.is_some_and(is_lean_keyword) && !std::mem::replace(&mut has_hint, true) {
                eprintln!("for Lean, add `--system lean`");
            }
        }
        LineMessage::Warning(text) => {
            told += 1;
            if told <= MAX_TOLD {
                eprintln!("{text}");
            }
        }
    };
    let summary =
        verify(&theory, &mut *input, &mut output, export.as_mut(), &mut report, options).map_err(plain)?;
    if summary.lines == 0 {
        return Err(Usage(format!("{} contains no proofs", args.file.display())).into());
    }
    if told > MAX_TOLD {
        eprintln!("and {} more", told - MAX_TOLD);
    }
    if complete == summary.lines && !has_hint {
        eprintln!("if these proofs are of an external system: `sgs external check RUN --proofs FILE`");
    }
    eprintln!("{summary}");
    if let (Some(export), Some(path)) = (export, &args.export) {
        eprintln!("{} theorems appended: {}", export.finish()?, path.display());
    }
    let is_clean = summary.is_clean() && (!args.fail_unproved || summary.proved == summary.lines);
    Ok(if is_clean { Outcome::Done } else { Outcome::Failed })
}

fn plain(error: VerifyError) -> anyhow::Error {
    match error {
        VerifyError::Write(error) => unwritten_verdicts(&error),
        other => other.into(),
    }
}

/// Opens the input: a file, or standard input for `-`.
fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    if path.is_dir() {
        let shown = path.display();
        let told = match is_external_run(path) {
            true => format!("is a run of an external system: `sgs external check {shown} --proofs FILE`"),
            false => "is a folder, not a file of proofs".to_owned(),
        };
        return Err(Usage(format!("{shown} {told}")).into());
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}

/// Returns whether a folder is that of a run with an external system.
fn is_external_run(path: &Path) -> bool {
    let config = RunView::open(path).ok().and_then(|view| folder::config_of(&view).ok());
    config.is_some_and(|config| config.problems.system == SystemName::External)
}

/// Warns about theorems of a database without a valid proof, because verdicts that depend on them are unreliable.
fn check_facts(theory: &Theory, path: &Path, strict: bool) -> Result<()> {
    let facts = DatabaseAudit::of(theory.database());
    if facts.unproved.is_empty() {
        return Ok(());
    }
    if strict {
        bail!("{}: {facts}; rejected because of --strict", path.display());
    }
    eprintln!(
        "warning: {}: {facts}; proofs that cite them are accepted (use `--strict` to reject such a database)",
        path.display()
    );
    Ok(())
}

/// Opens the user's database, or the shipped slice.
pub fn theory(database: Option<&Path>) -> Result<Theory> {
    Ok(match database {
        Some(path) => Theory::read(path).map_err(usage)?,
        None => Theory::new(slice::shipped()?)?,
    })
}
