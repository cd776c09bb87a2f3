//! `sgs lean setup`: installs Lean.

use crate::args::LeanSetupArgs;
use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::Result;
use sgs_lean::setup;

/// Prints the steps, and executes those that are not done yet.
pub fn run(args: &LeanSetupArgs) -> Result<Outcome> {
    if !is_version(&args.version) {
        let told = format!("--version {}: expected a version of Lean, such as v4.15.0", args.version);
        return Err(Usage(told).into());
    }
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

/// Returns whether a text is a version of Lean: `v4.15.0` or `v4.15.0-rc1`.
fn is_version(text: &str) -> bool {
    let (numbers, candidate) = match text.split_once("-rc") {
        Some((numbers, candidate)) => (numbers, Some(candidate)),
        None => (text, None),
    };
    let parts: Vec<&str> = numbers.strip_prefix('v').unwrap_or_default().split('.').collect();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() == 3 && parts.into_iter().chain(candidate).all(is_number)
}
