//! `sgs data build`: the slice, the targets, the corpora and the tokenizer of Metamath.

use crate::args::DataBuildArgs;
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use sgs_data::metamath::{BuildOptions, build};

/// Builds everything into a folder.
pub fn run(args: &DataBuildArgs) -> Result<Outcome> {
    let options = BuildOptions {
        source: args.source.clone(),
        out: args.out.clone(),
        seed: args.seed,
        composed: args.composed,
        reviews: args.reviews,
        max_steps: args.max_steps,
    };
    output::line(build(&options)?)?;
    Ok(Outcome::Done)
}
