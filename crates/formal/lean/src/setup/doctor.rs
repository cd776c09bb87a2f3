//! Detects which parts of Lean are usable on this machine, and suggests how to install the others.

use super::plan::plan;
use crate::sandbox::{Sandbox, SandboxLayer, available};
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// The locations that are examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeanPaths {
    /// Folder of the setup.
    pub root: PathBuf,
    /// The version that is wanted.
    pub version: String,
    /// Folder of the WebAssembly build.
    pub wasm: PathBuf,
    /// The launcher of the sandbox: program and leading arguments.
    pub launcher: Vec<OsString>,
}

/// Whether a part is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// Present and usable.
    Ready,
    /// Missing or limited. The system works without it.
    Partial,
    /// Missing.
    Missing,
}

/// The result of one examination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// The part that was examined.
    pub what: String,
    /// Whether it is usable.
    pub state: Readiness,
    /// The location and what was found there.
    pub detail: String,
    /// A command that improves the result, if there is one.
    pub remedy: Option<String>,
}

/// Examines everything that checking Lean needs. Starts no process except the sandbox's launcher.
pub fn examine(paths: &LeanPaths) -> Vec<DoctorFinding> {
    let mut findings = vec![native(paths), wasm(paths)];
    findings.extend(sandbox(paths));
    findings.push(memory());
    findings
}

/// Returns the command to run next if no checker is usable.
pub fn suggestion(findings: &[DoctorFinding]) -> Option<String> {
    let ready = findings.iter().take(2).any(|f| f.state == Readiness::Ready);
    if ready { None } else { findings.iter().find_map(|f| f.remedy.clone()) }
}

fn native(paths: &LeanPaths) -> DoctorFinding {
    let (root, version) = (paths.root.display(), &paths.version);
    let plan = plan(&paths.root, version, false);
    let undone: Vec<_> = plan.steps.iter().filter(|s| !s.is_done()).collect();
    let detail = match undone.first() {
        None => format!("in {root}"),
        Some(first) => format!(
            "in {root}: {} of {} steps to do, {:.1} GB of disk space; first: {}",
            undone.len(),
            plan.steps.len(),
            undone.iter().map(|s| s.disk).sum::<u64>() as f64 / 1e9,
            first.title
        ),
    };
    installed(
        format!("Lean {version} with Mathlib and the REPL"),
        undone.is_empty(),
        detail,
        format!("sgs lean setup --root {root} --version {version}"),
    )
}

fn wasm(paths: &LeanPaths) -> DoctorFinding {
    let root = paths.wasm.display();
    let ready = paths.wasm.join("build/lean.js").exists() && paths.wasm.join("lean").exists();
    installed(
        "core Lean as WebAssembly".into(),
        ready,
        format!("{} {root}", if ready { "in" } else { "not in" }),
        format!("sgs lean setup --wasm --root {root}"),
    )
}

fn installed(what: String, ready: bool, detail: String, remedy: String) -> DoctorFinding {
    let state = if ready { Readiness::Ready } else { Readiness::Missing };
    DoctorFinding { what, state, detail, remedy: (!ready).then_some(remedy) }
}

fn sandbox(paths: &LeanPaths) -> Vec<DoctorFinding> {
    let cgroup = sgs_formal::process::cgroup::base();
    let specification = Sandbox { cgroup: cgroup.as_ref().ok().cloned(), ..Sandbox::default() };
    let layers = match available(&specification, &paths.launcher) {
        Ok(layers) => layers,
        Err(detail) => {
            let (what, state) = ("sandbox".to_owned(), Readiness::Missing);
            return vec![DoctorFinding { what, state, detail, remedy: None }];
        }
    };
    let finding = |layer: crate::sandbox::LayerStatus| DoctorFinding {
        what: format!("sandbox: {}", name(layer.layer)),
        state: if layer.active { Readiness::Ready } else { Readiness::Partial },
        detail: match (&cgroup, layer.active, layer.layer) {
            (Err(why), false, SandboxLayer::Cgroup) => why.clone(),
            _ => layer.detail,
        },
        remedy: None,
    };
    layers.into_iter().map(finding).collect()
}

fn name(layer: SandboxLayer) -> &'static str {
    match layer {
        SandboxLayer::Landlock => "files and TCP (Landlock)",
        SandboxLayer::Seccomp => "system calls (seccomp)",
        SandboxLayer::ResourceLimits => "resource limits",
        SandboxLayer::Privileges => "privileges",
        SandboxLayer::Cgroup => "memory of a group (cgroup v2)",
    }
}

/// Checks that memory suffices for some slots: Mathlib's shared pages, and 1 GB per slot (others report 0.5 to 0.9 GB
/// of private memory per process).
fn memory() -> DoctorFinding {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = sgs_base::host::bytes_in(&text, "MemAvailable:").unwrap_or(0);
    let slots = free.saturating_sub(6 << 30) / (1 << 30);
    DoctorFinding {
        what: "memory for Mathlib".into(),
        state: if slots > 0 { Readiness::Ready } else { Readiness::Partial },
        detail: format!(
            "{:.1} GB available: room for about {slots} slots (6 GB shared, 1 GB a slot)",
            free as f64 / 1e9
        ),
        remedy: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_lean_gets_a_suggestion() {
        let root = tempfile::tempdir().unwrap();
        let paths = LeanPaths {
            root: root.path().join("native"),
            version: "v4.15.0".into(),
            wasm: root.path().join("wasm"),
            launcher: vec!["/nonexistent/launcher".into()],
        };
        let findings = examine(&paths);
        assert_eq!(findings[0].state, Readiness::Missing);
        assert!(findings[0].detail.contains("9 of 9 steps"), "{}", findings[0].detail);
        assert!(suggestion(&findings).unwrap().starts_with("sgs lean setup --root"));
        assert!(findings.iter().any(|f| f.what == "sandbox" && f.detail.contains("/nonexistent/launcher")));
        std::fs::create_dir_all(paths.wasm.join("build")).unwrap();
        for file in ["lean", "build/lean.js"] {
            std::fs::write(paths.wasm.join(file), "").unwrap();
        }
        assert_eq!(suggestion(&examine(&paths)), None);
    }
}
