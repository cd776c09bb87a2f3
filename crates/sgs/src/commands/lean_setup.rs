//! `sgs lean setup`: gets Lean onto this machine.

use crate::args::LeanSetupArgs;
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use sgs_lean::setup::{self, Event, SetupOptions};

/// Says what is to be done, and does what is not done yet.
pub fn run(args: &LeanSetupArgs) -> Result<Outcome> {
    let root = args
        .root
        .clone()
        .unwrap_or_else(|| if args.wasm { sgs_lean::WASM_ROOT } else { sgs_lean::ROOT }.into());
    let options = SetupOptions { root, version: args.version.clone(), wasm: args.wasm };
    let plan = setup::plan(&options);
    if args.dry_run {
        output::line(plan.describe().trim_end())?;
        return Ok(Outcome::Done);
    }
    setup::run(&plan, &mut |event| match event {
        Event::Skipped(step) => eprintln!("done before: {}", step.title),
        Event::Begun(step) => eprintln!("now: {}", step.title),
        Event::Finished(step) => eprintln!("done: {}", step.title),
    })?;
    output::line(format!("ready: {}", plan.result))?;
    Ok(Outcome::Done)
}
