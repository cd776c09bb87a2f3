//! `sgs doctor`.

use crate::program::{command, finish, sgs};
use crate::small_run;
use serde_json::Value;

fn area<'a>(json: &'a Value, name: &str) -> &'a Value {
    json["areas"].as_array().unwrap().iter().find(|a| a["name"] == name).unwrap()
}

#[test]
fn the_embedded_default_is_usable() {
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
fn unusable_folders_fail() {
    let done = sgs(&["doctor", "--dir", "/no/such/folder"]).expect(1);
    assert!(done.out.contains("bad ") && done.out.contains("/no/such/folder"), "{}", done.out);
    let done = sgs(&["doctor", "--model", "/no/such/folder"]).expect(1);
    assert!(done.out.contains("bad   model"), "{}", done.out);
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
    let program = |name: &str, more: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{more}echo slurm 23.11.4\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    ["sbatch", "srun", "squeue", "scancel"].iter().for_each(|name| program(name, ""));
    assert!(slurm(true).to_string().contains("slurm 23.11.4"));
    let lost = "Unable to contact slurm controller";
    program("squeue", &format!("[ \"$1\" = --version ] || {{ echo {lost} >&2; exit 1; }}\n"));
    assert!(slurm(false).to_string().contains(&format!("exit status: 1: {lost}")));
}

#[test]
fn altered_files_of_a_run_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let name = run.to_str().unwrap();
    let settings = [
        &small_run::settings_without_evaluation()[..],
        // Only a copy of the shipped model is in the run's folder. With this seed, the model solves a target.
        &["--set", "model.base=shipped", "--set", "seed=1", "--set", "rounds=1", "--out", name]
            .map(String::from),
    ];
    sgs(&settings.concat()).expect(0);
    let done = sgs(&["doctor", name]).expect(0);
    assert!(
        done.out.contains("no damage found") && done.out.contains("configuration, base model, rounds"),
        "{}",
        done.out
    );
    let held = sgs_rundir::RunDir::open(&run).unwrap();
    assert!(sgs(&["resume", name]).expect(2).err.contains("is in use by process"));
    drop(held);
    let done = sgs(&["resume", "--verify", name]).expect(0);
    assert!(done.err.contains("read: ") && done.err.contains(" files, "), "{}", done.err);
    let flip = |file: &str| {
        let mut bytes = std::fs::read(run.join(file)).unwrap();
        // In a table, this byte is part of the length of its description, which every reader needs.
        let at = bytes.len() - 6;
        bytes[at] ^= 1;
        std::fs::write(run.join(file), bytes).unwrap();
    };
    // `resume` always checks the base model, because every round needs it.
    flip("base/model.safetensors");
    let done = sgs(&["resume", name]).expect(1);
    assert!(done.err.contains("base/model.safetensors") && done.err.contains("differs from"), "{}", done.err);
    flip("base/model.safetensors");
    sgs(&["resume", name]).expect(0);
    // Tables, which only reports need, are checked only with `--verify`.
    flip("rounds/0000/rollouts.parquet");
    let resumed = sgs(&["resume", name]).expect(0).err;
    assert!(resumed.contains("warning: ") && resumed.contains("round 0"), "{resumed}");
    let report = sgs(&["report", name]).expect(1).err;
    assert!(report.contains("warning: part of round 0") && report.contains("rollouts.parquet"), "{report}");
    let done = sgs(&["resume", "--verify", name]).expect(1);
    assert!(
        done.err.contains("is not resumed") && done.err.contains("rollouts.parquet has SHA-256"),
        "{}",
        done.err
    );
    let json = sgs(&["doctor", "--json", name]).expect(1).json();
    assert_eq!(area(&json, "run")["usable"], false);
    flip("rounds/0000/rollouts.parquet");
    // Files that a kill left incomplete or that older versions did not write are noted, but are not damage.
    let noted = |what: &[&str]| {
        let done = sgs(&["doctor", name]).expect(0);
        assert!(what.iter().all(|what| done.out.contains(what)), "{what:?}: {}", done.out);
    };
    std::fs::remove_file(run.join("base/tokenizer.json")).unwrap();
    noted(&["base/tokenizer.json is missing", "`sgs resume` writes it"]);
    std::fs::remove_file(run.join("SHA256SUMS")).unwrap();
    noted(&["SHA256SUMS is missing", "edits of config.toml cannot be detected"]);
    let done = sgs(&["resume", "--verify", name]).expect(0);
    assert!(done.err.contains("note: ") && run.join("base/tokenizer.json").is_file(), "{}", done.err);
    // Simulate a run of a program version that shipped another base model.
    let config = std::fs::read_to_string(run.join("config.toml")).unwrap();
    let (ships, other) =
        (sgs_run::config::base_model::hash(sgs_run::config::SystemName::Metamath).unwrap(), {
            std::fs::write(run.join("base/tokenizer.json"), b"{}").unwrap();
            sgs_run::config::base_model::hash_in(&run.join("base")).unwrap().unwrap()
        });
    assert!(config.contains(&ships));
    std::fs::write(run.join("config.toml"), config.replace(&ships, &other)).unwrap();
    std::fs::remove_file(run.join("SHA256SUMS")).unwrap();
    noted(&["this program ships another base model"]);
    std::fs::write(run.join("base/tokenizer.json"), b"[]").unwrap();
    let done = sgs(&["doctor", name]).expect(1);
    assert!(done.out.contains("its files differ from those that the run was created with"), "{}", done.out);
}
