//! `sgs lean setup`: installs Lean.

use crate::args::LeanSetupArgs;
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use sgs_lean::setup::{self, SetupEvent, SetupOptions};

/// Prints the steps, and executes those that are not done yet.
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
        SetupEvent::Skipped(step) => eprintln!("already done: {}", step.title),
        SetupEvent::Begun(step) => eprintln!("now: {}", step.title),
        SetupEvent::Finished(step) => eprintln!("done: {}", step.title),
    })?;
    output::line(format!("ready: {}", plan.result))?;
    Ok(Outcome::Done)
}
