//! `sgs data import`: data sets of problems.

use crate::args::DataImportArgs;
use crate::exit::{Outcome, Usage};
use crate::output;
use crate::output_file::check_is_no_input;
use anyhow::{Context, Result};
use sgs_data::sets::import::{self, ImportSummary};
use sgs_rundir::files::AtomicFile;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

/// Reads a data set of any known layout and writes it as JSON Lines.
pub fn import(args: &DataImportArgs) -> Result<Outcome> {
    check_is_no_input("--out", &args.out, &[&args.file])?;
    refuse_other_file(&args.out)?;
    let found = if args.out == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        let found = convert(args, &mut out)?;
        out.flush().context("cannot write to standard output")?;
        found
    } else {
        let mut file = AtomicFile::create(&args.out)?;
        let found = convert(args, &mut file)?;
        // A file without problems is of no use.
        if found.taken > 0 {
            file.commit()?;
        }
        found
    };
    name_skipped(&args.file, &found);
    name_assuming(&found);
    let [taken, skipped] =
        [(found.taken, "problem"), (found.skipped_total, "record")].map(|(n, noun)| output::counted(n, noun));
    eprintln!("{taken} written, {skipped} rejected");
    Ok(if found.skipped_total == 0 { Outcome::Done } else { Outcome::Failed })
}

/// Checks that an existing output file is a data set, which this command may replace.
fn refuse_other_file(out: &Path) -> Result<()> {
    // A new file, or a device such as standard output.
    if !out.is_file() {
        return Ok(());
    }
    let mut first = String::new();
    let read = File::open(out).and_then(|file| BufReader::new(file.take(1 << 20)).read_line(&mut first));
    let is_data_set = read.is_ok() && (first.trim().is_empty() || first.trim_start().starts_with('{'));
    if is_data_set {
        return Ok(());
    }
    let out = out.display();
    Err(Usage(format!("{out} exists and is not a data set in JSON Lines: remove it, or choose another name"))
        .into())
}

fn convert(args: &DataImportArgs, out: &mut impl Write) -> Result<ImportSummary> {
    Ok(import::import(&args.file, args.header.as_deref(), args.toolchain.as_deref(), out, &args.out)?)
}

/// Lists the first skipped records on standard error.
fn name_skipped(file: &Path, found: &ImportSummary) {
    for s in &found.skipped {
        let place =
            if s.line > 0 { format!("{}:{}", file.display(), s.line) } else { file.display().to_string() };
        let id = if s.id.is_empty() { String::new() } else { format!(" {}:", s.id) };
        eprintln!("{place}:{id} {}", s.reason);
    }
    let more = found.skipped_total - found.skipped.len();
    if more > 0 {
        eprintln!("and {more} more");
    }
}

/// Warns about problems whose statements do not show everything that they assume.
fn name_assuming(found: &ImportSummary) {
    if found.assuming_total == 0 {
        return;
    }
    let listed: Vec<String> = found.assuming.iter().map(|(id, first)| format!("{id}: `{first}`")).collect();
    let more = match found.assuming_total - found.assuming.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let [headers, add] = if found.assuming_total == 1 { ["header", "adds"] } else { ["headers", "add"] };
    eprintln!(
        "warning: the {headers} of {} {add} hypotheses, instances or notations that no statement shows ({}{more})",
        output::counted(found.assuming_total, "problem"),
        listed.join("; ")
    );
}
