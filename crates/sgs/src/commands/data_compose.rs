//! `sgs data compose`: theorems of core Lean, each checked by Lean, as corpora of the three roles, targets and tokenizer.

use crate::args::DataComposeArgs;
use crate::exit::Outcome;
use crate::{lean, output};
use anyhow::Result;
use sgs_data::lean::{ComposeOptions, Composition, THEOREMS_PER_FILE};
use sgs_lean::Lean;

/// Builds everything into a folder; continues where an earlier call stopped.
pub fn run(args: &DataComposeArgs) -> Result<Outcome> {
    let options = ComposeOptions {
        out: args.out.clone(),
        seed: args.seed,
        composed: args.composed,
        targets: args.targets,
        held_out: args.held_out,
    };
    sgs_run::config::lean::check(&lean::settings(&args.lean)?)?;
    eprintln!("composing theorems");
    let mut composition = Composition::open(&options)?;
    let unchecked = composition.unchecked();
    eprintln!("{} theorems; {unchecked} are still to be checked", composition.theorems());
    if unchecked > 0 {
        composition.check(&start(args)?)?;
    }
    output::line(composition.write()?)?;
    Ok(Outcome::Done)
}

fn start(args: &DataComposeArgs) -> Result<Lean> {
    let mut settings = lean::settings(&args.lean)?;
    if settings.theorems_per_file == 0 {
        settings.theorems_per_file = THEOREMS_PER_FILE;
    }
    let checker = lean::start(&settings)?;
    if !args.lean.skip_canaries {
        checker.canaries("")?;
    }
    Ok(checker)
}
