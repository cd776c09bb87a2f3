//! `sgs lm check`: compares the engine with the recorded numbers of a model folder.

use crate::args::LmCheckArgs;
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use serde_json::json;
use sgs_lm::Device;
use sgs_lm_bench::check::{self, CheckReport, Tolerances};
use sgs_run::config::device::DeviceKind;
use sgs_run::with_device;
use std::sync::Arc;

/// Prints the largest error of every quantity and its tolerance.
pub fn run(args: &LmCheckArgs) -> Result<Outcome> {
    with_device!(args.device, 0, device => check_on(args, device))
}

fn check_on<D: Device>(args: &LmCheckArgs, device: Arc<D>) -> Result<Outcome> {
    let name = device.name();
    let tolerances = match args.device {
        DeviceKind::Cuda => Tolerances::bf16(),
        DeviceKind::Cpu | DeviceKind::CudaF32 => Tolerances::default(),
    };
    let report = check::run_with(&args.dir, device, tolerances)?;
    if args.json {
        output::json(&as_json(args, &name, &report))?;
    } else {
        output::line(report.to_string().trim_end())?;
        let verdict = if report.passes() { "every quantity is within its tolerance" } else { "FAILED" };
        output::line(format!("{} on {name}: {verdict}", args.dir.display()))?;
    }
    Ok(if report.passes() { Outcome::Done } else { Outcome::Failed })
}

fn as_json(args: &LmCheckArgs, device: &str, report: &CheckReport) -> serde_json::Value {
    // JSON has no infinity: such an error is null.
    let quantities: Vec<_> = report
        .quantities
        .iter()
        .map(|q| {
            json!({
                "name": q.name, "error": q.error.is_finite().then_some(q.error), "tolerance": q.tolerance,
                "ok": q.error <= q.tolerance, "place": q.place,
            })
        })
        .collect();
    json!({ "folder": args.dir, "device": device, "ok": report.passes(), "quantities": quantities })
}
