//! The sandbox under real attempts to leave it. Layers that this machine lacks are reported.

use sgs_lean::check::{Launch, Limits, Process};
use sgs_lean::sandbox::{LayerStatus, Sandbox, SandboxLayer, available};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

fn launcher() -> Vec<OsString> {
    vec![env!("CARGO_BIN_EXE_sgs-lean-sandbox").into()]
}

fn sandbox(scratch: &Path) -> Sandbox {
    Sandbox {
        read: Sandbox::system_files(),
        write: vec![scratch.to_owned()],
        file_bytes: 1 << 20,
        children: true,
        ..Sandbox::default()
    }
}

/// Runs a shell command in the sandbox and returns its output and whether it succeeded.
fn run(sandbox: &Sandbox, folder: &Path, script: &str) -> (String, bool) {
    let launch = Launch {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), format!("{script} 2>&1; echo done").into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        folder: folder.to_owned(),
        cgroup: None,
    };
    let mut process = Process::start(&sandbox.wrap(&launch, &launcher())).unwrap();
    process.close_stdin();
    let limits = Limits::default();
    let until = Instant::now() + Duration::from_secs(20);
    let out =
        process.exchange(&[], limits.quota(), &mut || (until, Duration::from_secs(20)), &mut |out, ended| {
            ended.then_some(out.len())
        });
    let success = process.kill().is_some_and(|s| s.success());
    (String::from_utf8_lossy(&out.unwrap()).into_owned(), success)
}

fn layers(sandbox: &Sandbox) -> Vec<LayerStatus> {
    available(sandbox, &launcher()).unwrap()
}

fn active(layers: &[LayerStatus], layer: SandboxLayer) -> bool {
    layers.iter().any(|l| l.layer == layer && l.active)
}

#[test]
fn active_layers_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let layers = layers(&sandbox(folder.path()));
    for layer in &layers {
        println!(
            "{:?}: {} ({})",
            layer.layer,
            if layer.active { "in force" } else { "missing" },
            layer.detail
        );
    }
    assert_eq!(layers.len(), 5);
    assert!(active(&layers, SandboxLayer::ResourceLimits));
    assert!(active(&layers, SandboxLayer::Seccomp), "{layers:?}");
}

#[test]
fn system_calls_and_limits_are_enforced() {
    let folder = tempfile::tempdir().unwrap();
    let open = sandbox(folder.path());
    let (out, ok) =
        run(&open, folder.path(), "echo alive; ulimit -c; head -c 3000000 /dev/zero > big; wc -c < big");
    assert!(ok && out.contains("alive"), "{out}");
    assert!(out.contains("1048576") && !out.contains("3000000"), "a file stops growing at 1 MiB: {out}");
    let closed = Sandbox { children: false, ..open };
    let (out, _) = run(&closed, folder.path(), "/bin/echo child");
    assert!(!out.contains("child\n"), "no child process: {out}");
}

#[test]
fn no_network_and_no_signals_to_others() {
    if !Path::new("/usr/bin/env").exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = sandbox(folder.path());
    let (out, _) = run(&open, folder.path(), &format!("kill -0 {}; echo status $?", std::process::id()));
    assert!(out.contains("status 1") || out.contains("not permitted"), "{out}");
    let script = "exec 3<>/dev/tcp/127.0.0.1/9";
    let bash = Path::new("/bin/bash");
    if bash.exists() {
        let (out, _) = run(&open, folder.path(), &format!("/bin/bash -c '{script}'"));
        assert!(
            out.contains("not permitted") || out.contains("denied") || out.contains("Operation"),
            "{out}"
        );
    }
}

#[test]
fn landlock_denies_files_outside_of_the_scratch_folder() {
    let folder = tempfile::tempdir().unwrap();
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "secret words").unwrap();
    let inside = sandbox(folder.path());
    let has = active(&layers(&inside), SandboxLayer::Landlock);
    let (out, _) =
        run(&inside, folder.path(), &format!("cat {}; echo x > own && cat own", secret.path().display()));
    assert!(out.contains('x'), "the scratch folder is writable: {out}");
    assert_eq!(out.contains("secret words"), !has, "Landlock in force: {has}: {out}");
    let (out, ok) = run(&Sandbox { require: true, ..inside }, folder.path(), "echo alive");
    assert_eq!(ok && out.contains("alive"), has, "required and missing means refused: {out}");
}
