//! Lean 4: its installations, the sandbox, memory.

use super::{Area, Check, State};
use crate::args::DoctorArgs;
use sgs_lean::setup::{self, Finding, LeanPaths, examine, suggestion};

/// Looks for all of it.
pub fn area(args: &DoctorArgs) -> Area {
    let paths = LeanPaths {
        root: args.lean_root.clone(),
        version: sgs_lean::VERSION.to_owned(),
        wasm: args.lean_wasm_root.clone(),
        launcher: sgs_run::lean::launcher().unwrap_or_default(),
    };
    let findings = examine(&paths);
    let usable = suggestion(&findings).is_none();
    let checks = findings.into_iter().map(check).collect();
    Area { name: "lean", purpose: "problems in Lean 4", usable, checks }
}

fn check(finding: Finding) -> Check {
    let state = match finding.state {
        setup::State::Ready => State::Ok,
        setup::State::Partial => State::Warning,
        setup::State::Missing => State::Absent,
    };
    Check::new(finding.what, state, finding.detail, finding.remedy.unwrap_or_default())
}
