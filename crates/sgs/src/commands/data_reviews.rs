//! `sgs data reviews`: reviews of the conjectures of runs, to train a Guide on.

use crate::args::DataReviewsArgs;
use crate::commands::data_filter::bar;
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use sgs_data::sets::reviews::{ReviewOptions, collect_reviews};
use sgs_run::config::SystemName;

/// Collects reviews. For Lean, it continues where an earlier call stopped.
pub fn run(args: &DataReviewsArgs) -> Result<Outcome> {
    let options = ReviewOptions {
        runs: args.runs.clone(),
        out: args.out.clone(),
        count: args.count,
        held_out: args.held_out,
        seed: args.teacher.seed,
        teacher: args.teacher.options(),
    };
    let bar = bar("reviews");
    let found = collect_reviews(&options, |done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    })?;
    drop(bar);
    let system = match found.system {
        SystemName::Metamath => "",
        SystemName::Lean | SystemName::External => " --system lean",
    };
    let (author, out) = (&found.author, args.out.display());
    output::line(format!(
        "{} reviews by {author} to train on, {} held out: {out}\n\
         next: sgs sft {} --model BASE --out guide\n\
         then: sgs eval{system} --model guide/model --reviews {out}/guide-held-out.parquet --only-reviews",
        found.train,
        found.held_out,
        found.sft.display()
    ))?;
    Ok(if found.train >= args.count { Outcome::Done } else { Outcome::Failed })
}
