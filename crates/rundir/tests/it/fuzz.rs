//! Randomly damaged run directories are opened, read or rejected without a panic, and their damage is detected.

use crate::fuzzing;
use fuzzing::Fuzzer;
use sgs_rundir::metrics::MetricValues;
use sgs_rundir::*;
use std::fs;
use std::path::{Path, PathBuf};

/// Creates a run with two published rounds and a third one that is partly sampled.
fn make(path: &Path) {
    let config = FrozenConfig { text: "k = 8\n".into(), version: "1".into(), data: Default::default() };
    let run = RunDir::create(path, &config, None).unwrap();
    let record = |round, index| Record {
        key: RecordKey { round, kind: "rollout".into(), problem: "p".into(), index },
        payload: vec![index as u8; 100],
    };
    for round in 0..3 {
        run.start_round(round).unwrap();
        run.journal().append_durably((0..40).map(|i| record(round, i)).collect()).unwrap();
        if round < 2 {
            run.finish_sampling(round).unwrap();
            let weights = |dir: &Path| Ok(fs::write(dir.join("weights"), vec![round as u8; 500])?);
            run.publish_checkpoint(round, "", weights).unwrap();
            let mut metrics = MetricValues::new(round);
            metrics.set("generations", f64::from(round));
            run.publish_round(&metrics, |tables| Ok(tables.write_json("outcome.json", &[round, 17])?))
                .unwrap();
        }
    }
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Reads all parts of a run.
fn read(path: &Path) -> Option<()> {
    let view = RunView::open(path).ok()?;
    let _ = view.config();
    let _ = view.plan(0);
    for round in view.rounds().ok()? {
        let _ = round.metrics();
        let _ = round.problems().map(|rows| rows.for_each(drop));
        let _ = round.conjectures().map(|rows| rows.for_each(drop));
        let _ = round.rollouts().map(|rows| rows.for_each(drop));
        let _ = round.reviews().map(|rows| rows.for_each(drop));
        let _ = round.examples().map(|rows| rows.for_each(drop));
    }
    Some(())
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_run_folders() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, run) = (dir.path().join("sound"), dir.path().join("run"));
    make(&sound);
    let names: Vec<PathBuf> =
        files(&sound).into_iter().map(|file| file.strip_prefix(&sound).unwrap().to_owned()).collect();
    // The index of a file and its damage.
    let mut fuzzer = Fuzzer::new(vec![vec![0; 8]]);
    let mut noticed = 0;
    while fuzzer.input().is_some() {
        let _ = fs::remove_dir_all(&run);
        copy(&sound, &run);
        let pick = fuzzer.below(names.len());
        let (name, file) = (&names[pick], run.join(&names[pick]));
        let before = fs::read(&file).unwrap();
        let mut bytes = before.clone();
        if fuzzer.below(8) == 0 {
            fs::remove_file(&file).unwrap();
            bytes.clear();
        } else {
            (0..=fuzzer.below(3)).for_each(|_| fuzzer.damage(&mut bytes));
            fs::write(&file, &bytes).unwrap();
        }
        // A list of checksums without its last newline is equivalent.
        let is_listed = !name.ends_with("SHA256SUMS")
            && (name.starts_with("rounds")
                || name.starts_with("checkpoints")
                || name.ends_with("config.toml"));
        if bytes != before && is_listed && run.join("config.toml").is_file() {
            let view = RunView::open(&run).unwrap();
            let damages = view.examine().unwrap().damages;
            assert!(!damages.is_empty(), "{}: the damage is not detected", name.display());
            noticed += 1;
        }
        let _ = read(&run);
        if let Ok(opened) = RunDir::open(&run) {
            let _ = opened.plan(0);
            let _ = opened.next_step(2);
            drop(opened);
            let _ = read(&run);
            fuzzer.keep(vec![0; 8]);
        }
    }
    fuzzer.report("run directories (counted as whole: opened for work)");
    assert!(noticed > 0, "no file was damaged");
}
