//! Lean 4: its installations, the sandbox, memory.

use super::{Area, Check, CheckState};
use crate::args::DoctorArgs;
use sgs_lean::setup::{self, DoctorFinding, LeanPaths, examine, suggestion};

/// Checks the Lean requirements.
pub fn area(args: &DoctorArgs) -> Area {
    let paths = LeanPaths {
        root: args.lean_root.clone(),
        version: sgs_lean::VERSION.to_owned(),
        wasm: args.lean_wasm_root.clone(),
        launcher: sgs_run::config::lean::launcher().unwrap_or_default(),
    };
    let findings = examine(&paths);
    let usable = suggestion(&findings).is_none();
    let checks = findings.into_iter().map(check).collect();
    Area { name: "lean", purpose: "problems in Lean 4", usable, checks }
}

fn check(finding: DoctorFinding) -> Check {
    let state = match finding.state {
        setup::Readiness::Ready => CheckState::Ok,
        setup::Readiness::Partial => CheckState::Warning,
        setup::Readiness::Missing => CheckState::Absent,
    };
    Check::new(finding.what, state, finding.detail, finding.remedy.unwrap_or_default())
}
