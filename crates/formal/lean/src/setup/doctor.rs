//! What of Lean is usable here, and how to get the rest.

use super::plan::{SetupOptions, plan};
use super::run::is_done;
use crate::sandbox::{Sandbox, available};
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// Where Lean is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeanPaths {
    /// Folder of the setup.
    pub root: PathBuf,
    /// Version that is wanted.
    pub version: String,
    /// Folder of the WebAssembly build.
    pub wasm: PathBuf,
    /// The launcher of the sandbox: program and leading arguments.
    pub launcher: Vec<OsString>,
}

/// Whether something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There and usable.
    Ready,
    /// Not there; the system works with less.
    Partial,
    /// Not there.
    Missing,
}

/// One thing that was looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub what: String,
    /// Whether it is there.
    pub state: State,
    /// Where it was looked for and what was found.
    pub detail: String,
    /// What to do about it, where something can be done.
    pub remedy: Option<String>,
}

/// Looks at everything that checking Lean needs. Starts nothing but the sandbox's launcher.
pub fn examine(paths: &LeanPaths) -> Vec<Finding> {
    let mut findings = vec![native(paths), wasm(paths)];
    findings.extend(sandbox(paths));
    findings.push(memory());
    findings
}

/// The one command to run next, if checking is not possible yet.
pub fn suggestion(findings: &[Finding]) -> Option<String> {
    let ready = findings.iter().take(2).any(|f| f.state == State::Ready);
    if ready { None } else { findings.iter().find_map(|f| f.remedy.clone()) }
}

fn native(paths: &LeanPaths) -> Finding {
    let options = SetupOptions { root: paths.root.clone(), version: paths.version.clone(), wasm: false };
    let plan = plan(&options);
    let undone: Vec<&str> = plan.steps.iter().filter(|s| !is_done(s)).map(|s| s.title.as_str()).collect();
    let disk: u64 = plan.steps.iter().filter(|s| !is_done(s)).map(|s| s.disk).sum();
    let ready = undone.is_empty();
    Finding {
        what: format!("Lean {} with Mathlib and the REPL", paths.version),
        state: if ready { State::Ready } else { State::Missing },
        detail: if ready {
            format!("in {}", paths.root.display())
        } else {
            format!(
                "in {}: {} of {} steps to do, {:.1} GB of disk space; first: {}",
                paths.root.display(),
                undone.len(),
                plan.steps.len(),
                disk as f64 / 1e9,
                undone.first().copied().unwrap_or_default()
            )
        },
        remedy: (!ready)
            .then(|| format!("sgs lean setup --root {} --version {}", paths.root.display(), paths.version)),
    }
}

fn wasm(paths: &LeanPaths) -> Finding {
    let ready = paths.wasm.join("build/lean.js").exists() && paths.wasm.join("lean").exists();
    Finding {
        what: "core Lean as WebAssembly (no Mathlib, lists no axioms; for trials and tests)".into(),
        state: if ready { State::Ready } else { State::Missing },
        detail: format!("{} {}", if ready { "in" } else { "not in" }, paths.wasm.display()),
        remedy: (!ready).then(|| format!("sgs lean setup --wasm --root {}", paths.wasm.display())),
    }
}

fn sandbox(paths: &LeanPaths) -> Vec<Finding> {
    let cgroup = crate::sandbox::cgroup_base();
    let specification = Sandbox { cgroup: cgroup.as_ref().ok().cloned(), ..Sandbox::default() };
    match available(&specification, &paths.launcher) {
        Ok(layers) => layers
            .into_iter()
            .map(|layer| {
                let detail = match (&cgroup, layer.active, layer.layer) {
                    (Err(why), false, crate::sandbox::Layer::Cgroup) => why.clone(),
                    _ => layer.detail,
                };
                Finding {
                    what: format!("sandbox: {}", name(layer.layer)),
                    state: if layer.active { State::Ready } else { State::Partial },
                    detail,
                    remedy: None,
                }
            })
            .collect(),
        Err(error) => {
            vec![Finding { what: "sandbox".into(), state: State::Missing, detail: error, remedy: None }]
        }
    }
}

fn name(layer: crate::sandbox::Layer) -> &'static str {
    use crate::sandbox::Layer;
    match layer {
        Layer::Landlock => "files and TCP (Landlock)",
        Layer::Seccomp => "system calls (seccomp)",
        Layer::ResourceLimits => "resource limits",
        Layer::Privileges => "privileges",
        Layer::Cgroup => "memory of a group (cgroup v2)",
    }
}

/// Mathlib's shared pages, and half a gigabyte a slot (measured by others: 0.5 to 0.9 GB private a process).
fn memory() -> Finding {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0);
    let free = kib * 1024;
    let slots = free.saturating_sub(6 << 30) / (1 << 30);
    Finding {
        what: "memory for Mathlib".into(),
        state: if slots > 0 { State::Ready } else { State::Partial },
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
    fn a_bare_machine_is_told_what_to_run() {
        let root = tempfile::tempdir().unwrap();
        let paths = LeanPaths {
            root: root.path().join("native"),
            version: "v4.15.0".into(),
            wasm: root.path().join("wasm"),
            launcher: vec!["/nonexistent/launcher".into()],
        };
        let findings = examine(&paths);
        assert_eq!(findings[0].state, State::Missing);
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
