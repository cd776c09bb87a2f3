//! `sgs lean setup`: installs Lean.

use crate::args::LeanSetupArgs;
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use sgs_lean::setup;

/// Prints the steps, and executes those that are not done yet.
pub fn run(args: &LeanSetupArgs) -> Result<Outcome> {
    let root = args
        .root
        .clone()
        .unwrap_or_else(|| if args.wasm { sgs_lean::WASM_ROOT } else { sgs_lean::ROOT }.into());
    let plan = setup::plan(&root, &args.version, args.wasm);
    if args.dry_run {
        output::line(plan.describe().trim_end())?;
        return Ok(Outcome::Done);
    }
    plan.run(&mut |state, step| eprintln!("{state}: {}", step.title))?;
    output::line(format!("ready: {}", plan.result))?;
    Ok(Outcome::Done)
}
