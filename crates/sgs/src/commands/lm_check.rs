//! `sgs lm check`: a model folder with recorded numbers, run through this engine.

use crate::args::{DeviceKind, LmCheckArgs};
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use serde_json::json;
use sgs_lm::check::{self, CheckReport};
use sgs_lm::{Cpu, Cuda, Device, Precision};
use std::sync::Arc;

/// Prints the largest error of every quantity beside its tolerance.
pub fn run(args: &LmCheckArgs) -> Result<Outcome> {
    match args.device {
        DeviceKind::Cpu => check_on(args, Arc::new(Cpu::new(0)?)),
        DeviceKind::Cuda => check_on(args, Arc::new(Cuda::new(0, Precision::F32)?)),
    }
}

fn check_on<D: Device>(args: &LmCheckArgs, device: Arc<D>) -> Result<Outcome> {
    let name = device.name();
    let report = check::run(&args.dir, device)?;
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
    // JSON knows no infinity: such an error is null.
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
