//! `sgs doctor`.
#![allow(clippy::unwrap_used)] // tests say so by panicking

mod program;

use program::{command, finish, sgs};
use serde_json::Value;

fn area<'a>(json: &'a Value, name: &str) -> &'a Value {
    json["areas"].as_array().unwrap().iter().find(|a| a["name"] == name).unwrap()
}

#[test]
fn the_embedded_default_works_here() {
    let done = sgs(&["doctor"]).expect(0);
    assert!(done.out.contains("checker works") && done.out.contains("usable"), "{}", done.out);
    let json = sgs(&["doctor", "--json"]).expect(0).json();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(area(&json, "metamath")["usable"], true);
    for name in ["metamath", "gpu", "lean", "slurm"] {
        for check in area(&json, name)["checks"].as_array().unwrap() {
            let state = check["state"].as_str().unwrap();
            assert!(["ok", "warning", "absent", "broken"].contains(&state), "{check}");
            assert!(!check["found"].as_str().unwrap().is_empty(), "{check}");
        }
    }
}

#[test]
fn what_a_run_cannot_do_without_fails() {
    let done = sgs(&["doctor", "--dir", "/no/such/folder"]).expect(1);
    assert!(done.out.contains("BAD") && done.out.contains("/no/such/folder"), "{}", done.out);
    let done = sgs(&["doctor", "--model", "/no/such/folder"]).expect(1);
    assert!(done.out.contains("BAD   model"), "{}", done.out);
}

#[cfg(unix)]
#[test]
fn slurm_is_found_on_the_path() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let slurm = |complete: bool| {
        let mut doctor = command(&["doctor", "--json"]);
        doctor.env("PATH", dir.path()).env_remove("SLURM_JOB_ID");
        let json = finish(doctor).json();
        let slurm = area(&json, "slurm").clone();
        assert_eq!(slurm["usable"], complete, "{slurm}");
        slurm
    };
    assert!(slurm(false).to_string().contains("not on the PATH"));
    for name in ["sbatch", "srun", "squeue", "scancel"] {
        let path = dir.path().join(name);
        std::fs::write(&path, "#!/bin/sh\necho slurm 23.11.4\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert!(slurm(true).to_string().contains("slurm 23.11.4"));
}
