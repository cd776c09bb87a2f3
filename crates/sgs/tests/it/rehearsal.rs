//! Runs the rehearsal of the paper's run, with tiny models on two CPU ranks.
#![cfg(target_os = "linux")]

use crate::program::finish;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Rehearses with tiny models and returns the lines of the report.
fn rehearse(arguments: &[&str]) -> Vec<Value> {
    let sgs = Path::new(env!("CARGO_BIN_EXE_sgs"));
    let rehearsal = sgs.with_file_name("examples").join("rehearsal");
    assert!(
        rehearsal.is_file(),
        "build it with `cargo build -p sgs --example rehearsal`, in the profile of the tests"
    );
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(rehearsal);
    command.args(["--shape", "tiny", "--sgs"]).arg(sgs).args(arguments).arg(dir.path());
    let done = finish(command).expect(0);
    let file = std::fs::read_to_string(dir.path().join("rehearsal.jsonl")).unwrap();
    assert_eq!(file, done.out, "the report holds what was printed");
    done.lines()
}

fn events(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["what"].as_str().unwrap()).collect()
}

#[test]
fn a_run_with_workers_survives_the_loss_of_each_process() {
    let lines = rehearse(&["--ranks", "1", "--workers", "2"]);
    let killed = ["checker killed", "worker killed", "round", "coordinator killed", "round", "done"];
    assert_eq!(events(&lines), [&["prepared", "plan", "first result"], &killed[..]].concat());
}

#[test]
fn the_run_of_the_paper_survives_the_loss_of_each_process() {
    let lines = rehearse(&["--ranks", "2", "--set", "training.shared_memory=always"]);
    let expected = [
        "prepared",
        "plan",
        "first result",
        "checker killed",
        "rank killed",
        "round",
        "coordinator killed",
        "round",
        "done",
    ];
    assert_eq!(events(&lines), expected);
    let rounds: Vec<&Value> =
        lines.iter().filter(|line| line["what"] == "round").map(|l| &l["figures"]).collect();
    for (number, round) in rounds.iter().enumerate() {
        let figure = |name: &str| {
            round.pointer(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("{name}: {round}"))
        };
        assert_eq!(figure("/round"), number as f64);
        assert_eq!(figure("/generations"), 4.0 * (8.0 + figure("/conjectures")), "{round}");
        assert!(figure("/conjectures") > 0.0 && figure("/solver_examples") > 0.0, "{round}");
        assert!((20.0..80.0).contains(&figure("/solver_tokens_mean")), "{round}");
        assert!(figure("/stages/sampling_s") > 0.0 && figure("/stages/update_s") > 0.0, "{round}");
        let compared = |pair: &str, value: &str| figure(&format!("/compared/{pair}_per_s_and_rank/{value}"));
        assert!(compared("sampled_tokens", "forecast") > 0.0, "{round}");
        assert!(compared("training_flop", "forecast") > 0.0, "{round}");
        assert!(compared("training_flop", "measured") > 0.0, "{round}");
        assert!(figure("/compared/device_bytes/forecast") > 1e6, "{round}");
        let rank = |rank: usize, name: &str| figure(&format!("/ranks/{rank}/{name}"));
        let idle = [0, 1].map(|number| rank(number, "rank_sampling_idle"));
        // If the last process before the kill had sampled the whole round, the resumed one samples nothing.
        let has_sampled = compared("sampled_tokens", "measured") > 0.0;
        assert!(idle.iter().all(|idle| (0.0..=1.0).contains(idle)), "{round}");
        assert_eq!(idle.iter().any(|idle| *idle < 1.0), has_sampled, "{round}");
        for number in 0..2 {
            assert!((0.0..0.9).contains(&rank(number, "rank_update_idle")), "{round}");
            assert!(rank(number, "rank_memory_peak_bytes") > 1e6, "{round}");
            assert!(rank(number, "rank_sent_bytes") > 1e6, "{round}");
        }
    }
    let sampled = |round: &&Value| {
        round.pointer("/compared/sampled_tokens_per_s_and_rank/measured").is_some_and(|n| *n != 0.0)
    };
    assert!(rounds.iter().any(sampled), "{rounds:?}");
}
