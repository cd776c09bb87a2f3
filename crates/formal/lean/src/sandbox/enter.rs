//! Enters the sandbox, and detects the layers that this machine supports.

use super::{LayerStatus, Sandbox, SandboxLayer, syscalls};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use sgs_base::excerpt;
use sgs_formal::process::cgroup;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The layers without which `require` refuses to run. Control groups need a delegation that many machines lack.
const REQUIRED: &[SandboxLayer] =
    &[SandboxLayer::Landlock, SandboxLayer::Seccomp, SandboxLayer::ResourceLimits];

/// Maximum number of open files.
const OPEN_FILES: u64 = 4096;

/// Maximum number of threads in the control group of a process.
const THREADS: u64 = 256;

/// The newest version of Landlock that is requested. The kernel applies what it supports.
const LANDLOCK: ABI = ABI::V6;

/// Places the calling process under the sandbox's rules for the rest of its life. It must have a single thread.
///
/// # Errors
/// Returns an error if a required layer is not active.
pub fn enter(sandbox: &Sandbox) -> Result<Vec<LayerStatus>, String> {
    // Kill the process when its parent dies. If the parent is already gone, the closed pipes end it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let layers = vec![
        status(SandboxLayer::Cgroup, join_cgroup(sandbox)),
        status(SandboxLayer::ResourceLimits, resource_limits(sandbox)),
        status(SandboxLayer::Privileges, drop_privileges()),
        status(SandboxLayer::Landlock, landlock(sandbox)),
        status(SandboxLayer::Seccomp, seccomp(sandbox)),
    ];
    check_required(sandbox, &layers)?;
    Ok(layers)
}

/// Checks that all required layers are active, if the sandbox requires them.
pub(crate) fn check_required(sandbox: &Sandbox, layers: &[LayerStatus]) -> Result<(), String> {
    match layers.iter().find(|l| sandbox.require && !l.active && REQUIRED.contains(&l.layer)) {
        Some(LayerStatus { layer, detail, .. }) => {
            Err(format!("the sandbox is required, but its layer {layer:?} is not active: {detail}"))
        }
        None => Ok(()),
    }
}

fn status(layer: SandboxLayer, result: Result<String, String>) -> LayerStatus {
    match result {
        Ok(detail) => LayerStatus { layer, active: true, detail },
        Err(detail) => LayerStatus { layer, active: false, detail },
    }
}

fn join_cgroup(sandbox: &Sandbox) -> Result<String, String> {
    let base = sandbox.cgroup.as_ref().ok_or("no folder of control groups is configured")?;
    cgroup::join(base, sandbox.memory, THREADS).map_err(|e| format!("{}: {e}", base.display()))?;
    Ok(format!("memory {} bytes, {} threads", sandbox.memory, THREADS))
}

fn resource_limits(sandbox: &Sandbox) -> Result<String, String> {
    let set = |resource, value: u64| {
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
            .map_err(|e| format!("{resource:?}: {e}"))
    };
    // There is no limit on addresses, because Lean maps gigabytes of libraries, and none on processor time, because a
    // process checks many proofs.
    set(Resource::Core, 0)?;
    set(Resource::Fsize, sandbox.file_bytes)?;
    set(Resource::Nofile, OPEN_FILES)?;
    Ok(format!("files of at most {} MiB, {OPEN_FILES} open files, no core dumps", sandbox.file_bytes >> 20))
}

fn drop_privileges() -> Result<String, String> {
    rustix::thread::set_no_new_privs(true).map_err(|e| format!("no_new_privs: {e}"))?;
    let none = rustix::thread::CapabilitySet::empty();
    let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(|e| format!("capabilities: {e}"))?;
    Ok("no capabilities, no new privileges".into())
}

fn landlock(sandbox: &Sandbox) -> Result<String, String> {
    let read = AccessFs::from_read(LANDLOCK);
    let all = AccessFs::from_all(LANDLOCK);
    let restrict = || -> Result<RulesetCreated, landlock::RulesetError> {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all)?
            .handle_access(AccessNet::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?
            .create()?
            .add_rules(path_beneath_rules(&sandbox.read, read))?
            .add_rules(path_beneath_rules(&sandbox.write, all))?
            .add_rules(path_beneath_rules(["/dev/null"], AccessFs::from_file(LANDLOCK)))
    };
    let status = restrict().and_then(RulesetCreated::restrict_self).map_err(|e| e.to_string())?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok("files, TCP and signals".into()),
        RulesetStatus::PartiallyEnforced => Ok("as far as this kernel supports it".into()),
        RulesetStatus::NotEnforced => Err("this kernel does not have Landlock, or it is disabled".into()),
    }
}

fn seccomp(sandbox: &Sandbox) -> Result<String, String> {
    for filter in syscalls::filters(sandbox.children)? {
        seccompiler::apply_filter(&filter).map_err(|e| e.to_string())?;
    }
    let processes = if sandbox.children { "processes allowed" } else { "no processes" };
    Ok(format!("no network, no signals to others, {processes}"))
}

/// The main function of the launcher: `SPECIFICATION PROGRAM ARGUMENT...`, or `--report SPECIFICATION`, which enters the
/// sandbox and prints the active layers. Returns the exit code if it fails.
pub fn run_launcher(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    match launch(&args) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "sandbox: {error}");
            // Lean never exits with this code.
            126
        }
    }
}

fn launch(args: &[OsString]) -> Result<(), String> {
    let usage = |what: &str| format!("usage: sandbox SPECIFICATION-AS-JSON PROGRAM [ARGUMENT]...: {what}");
    let report = args.first().is_some_and(|first| first == "--report");
    let (specification, command) =
        args[usize::from(report)..].split_first().ok_or_else(|| usage("no arguments"))?;
    let sandbox: Sandbox =
        serde_json::from_str(&specification.to_string_lossy()).map_err(|e| usage(&e.to_string()))?;
    if report {
        let text = serde_json::to_string(&enter(&sandbox)?).map_err(|e| e.to_string())?;
        // A closed pipe means that no one reads the report.
        let _ = writeln!(std::io::stdout(), "{text}");
        return Ok(());
    }
    let (program, args) = command.split_first().ok_or_else(|| usage("no program"))?;
    enter(&sandbox)?;
    // Returns only if it fails.
    let error = Command::new(program).args(args).exec();
    Err(format!("cannot start {}: {error}", program.to_string_lossy()))
}

/// Returns the layers that this machine supports. A launcher process tries them, so that the caller is not restricted.
pub fn available(sandbox: &Sandbox, launcher: &[OsString]) -> Result<Vec<LayerStatus>, String> {
    let (program, leading) = launcher.split_first().ok_or("no launcher is configured")?;
    let specification =
        serde_json::to_string(&Sandbox { require: false, ..sandbox.clone() }).map_err(|e| e.to_string())?;
    let output = Command::new(program)
        .args(leading)
        .arg("--report")
        .arg(specification)
        .output()
        .map_err(|e| format!("{}: {e}", program.to_string_lossy()))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let printed = String::from_utf8_lossy(&output.stderr);
        format!("the launcher gave no report: {}", excerpt::end_of(&printed))
    })
}
