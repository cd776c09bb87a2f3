//! Start and end of runs: the final summary, existing runs, more rounds, time budgets and sweeps.

use crate::program::{ProgramOutput, command, file, path, project, sgs};
use crate::small_run::{embedded, journal_records, settings, settings_without_evaluation, wait_for};
use crate::snapshot::snapshot;
use rustix::process::{Pid, Signal, kill_process};
use sgs_run::config::folder::seconds_worked;
use sgs_rundir::RunView;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Executes the small run with additional settings in a folder.
fn run(out: &str, more: &[&str]) -> ProgramOutput {
    let more: Vec<String> = more.iter().flat_map(|set| ["--set".to_owned(), (*set).to_owned()]).collect();
    sgs(&[&settings()[..], &more, &["--out".to_owned(), out.to_owned()]].concat())
}

#[test]
fn a_run_ends_with_results_and_next_steps() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "first");
    let done = run(&out, &[]).expect(0);
    assert!(!done.out.contains('\x1b') && !done.err.contains('\x1b'), "escape sequences without a terminal");
    let ended = "ended       all rounds are done (2 of 2)";
    for name in ["solved      ", "time        ", ended, "next        sgs prove --run "] {
        assert!(done.out.lines().any(|line| line.starts_with(name)), "{name}\n{}", done.out);
    }
    assert!(done.out.contains("ever solved") && done.out.contains("this round pass@1"), "{}", done.out);
    assert!(done.out.contains(&format!("sgs resume {out} --rounds 4")), "{}", done.out);
    let page = std::fs::read_to_string(Path::new(&out).join("report/index.html")).unwrap();
    assert!(page.contains(" --rounds 2 --minutes 0"), "the page has a command for as many rounds");
    let has_change =
        ["; pass@1 changed by ", "; pass@1 stayed at "].iter().any(|text| done.out.contains(text));
    assert!(has_change && done.out.contains("(95% interval"), "{}", done.out);
    assert!(sgs(&["status", &out]).expect(0).out.contains("finished"));
    assert!(
        done.out.lines().any(|line| line.starts_with("round ") && line.ends_with(" left")),
        "{}",
        done.out
    );
    assert!(done.out.contains("\nreport      "), "{}", done.out);
    let journal = sgs(&["status", "--journal", &out]).expect(0);
    assert!(journal.out.is_empty() && journal.err.contains("no unpublished results"), "{}", journal.err);
    let note = "problems of `held-out` that are not trained on";
    assert!(!done.err.contains("nothing to do") && done.err.contains(note), "{}", done.err);
    let resumed = sgs(&["resume", &out]).expect(0);
    let nothing =
        "nothing to do: the run has reached its limit (2 rounds); the command to continue is below\n";
    assert_eq!(resumed.err, nothing);
    assert!(resumed.out.contains(&format!("\nto continue sgs resume {out} --rounds 4\n")), "{}", resumed.out);
    // A run of a program with a custom formal system needs that program.
    let checker = Path::new(&out).join("checker.txt");
    let own = std::fs::read(&checker).unwrap();
    std::fs::write(&checker, "echo\n").unwrap();
    for command in [
        &["resume", &out, "--rounds", "4"][..],
        &["eval", "--run", &out, "-k", "1"],
        &["prove", "--run", &out, "|- ( ph -> ph )"],
        &["export", &out, "--jsonl", "-"],
    ] {
        let refused = sgs(command).expect(2);
        assert!(refused.err.contains("the custom formal system `echo`"), "{command:?}: {}", refused.err);
    }
    std::fs::write(&checker, own).unwrap();
    let none = path(folder.path(), "none");
    let none = run(&none, &["minutes=0.0001", "evaluation.held_out=quick"]).expect(0).out;
    assert!(none.contains("all 100 problems of `quick` are among the targets"), "{none}");
    assert!(none.contains("0 rounds in 0 s") && !none.contains(", pass@1"), "{none}");
}

#[test]
fn a_run_whose_configuration_does_not_fit_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "run");
    for (settings, part, code) in [
        (
            &["algorithm.guide.min_readable=0.8", "model.context=10"][..],
            "does not know the prompts of Metamath",
            1,
        ),
        (&["model.context=3"], "no prompt fits", 2),
        (&["sampling.batch=1000000"], "raise sampling.memory_mib to 80288, or lower sampling.batch", 2),
    ] {
        let done = run(&out, settings).expect(code);
        assert!(done.err.contains(part), "{}", done.err);
        assert!(!Path::new(&out).exists(), "{part}");
    }
}

#[test]
fn an_extended_run_equals_one_with_more_rounds_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let long = embedded();
    let out = path(folder.path(), "short");
    run(&out, &["rounds=1"]).expect(0);
    let over = sgs(&["resume", &out]).expect(0);
    assert!(
        over.out.contains("ended       all rounds are done (1 of 1)") && over.out.contains("--rounds 2"),
        "{}",
        over.out
    );
    sgs(&["resume", &out, "--rounds", "2"]).expect(0);
    assert_eq!(snapshot(Path::new(&out)), snapshot(&long));
    let config = RunView::open(Path::new(&out)).unwrap().config().unwrap();
    assert_eq!(config["rounds"].as_integer(), Some(2));
    let history = &config["frozen"]["history"][0];
    let change = (history["key"].as_str(), history["from"].as_integer(), history["to"].as_integer());
    assert_eq!(change, (Some("rounds"), Some(1), Some(2)));
    // It still counts as the same run.
    sgs(&["resume", &out]).expect(0);
    let same = sgs(&["compare", text(&long), &out]).expect(0).out;
    assert!(same.contains("copies of one run"), "{same}");
}

#[test]
fn the_time_budget_covers_all_sessions_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "run");
    run(&out, &["rounds=1", "evaluation.held_out=none"]).expect(0);
    let rounds = || RunView::open(Path::new(&out)).unwrap().rounds().unwrap().len();
    let refused = sgs(&["resume", &out, "--rounds", "3", "--minutes", "0.0001"]).expect(2);
    assert!(
        refused.err.contains("--minutes 0.0001 is the total, and the run has already worked for"),
        "{}",
        refused.err
    );
    // Time spent in earlier sessions counts. The start of the second session exceeds the limit.
    let worked = seconds_worked(&RunView::open(Path::new(&out)).unwrap()).unwrap() / 60.0;
    let limit = format!("{:.6}", worked + 1e-5);
    let over = format!("{}-minute time limit, after 1 of 3 rounds", limit.parse::<f64>().unwrap());
    let over = over.as_str();
    let late = sgs(&["resume", &out, "--rounds", "3", "--minutes", &limit]).expect(0);
    assert!(late.out.contains(&format!("ended       {over}")) && rounds() == 1, "{}", late.out);
    let ended = std::fs::read_to_string(Path::new(&out).join("ended.json")).unwrap();
    assert!(ended.contains("\"minutes\""), "{ended}");
    let again = sgs(&["resume", &out]).expect(0);
    assert!(again.out.contains(over) && again.out.contains("--minutes 0."), "{}", again.out);
    // `--rounds` alone removes the time budget.
    let lifted = sgs(&["resume", &out, "--rounds", "2"]).expect(0);
    assert!(lifted.err.contains("-minute limit is removed"), "{}", lifted.err);
    assert_eq!(rounds(), 2);
    let fewer = sgs(&["resume", &out, "--rounds", "1"]).expect(2);
    assert!(fewer.err.contains("--rounds 1 is the total, and the run already has 2"), "{}", fewer.err);
}

/// No table contains the time before the first round.
#[test]
fn a_run_without_time_for_a_round_says_why_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "run");
    let done = run(&out, &["rounds=3", "minutes=0.0000001", "evaluation.held_out=none"]).expect(0);
    let why = "0.0000001-minute time limit, after 0 of 3 rounds";
    assert!(done.out.contains(&format!("ended       {why}")), "{}", done.out);
    // With --json, standard output is for rounds alone.
    let again = sgs(&["resume", &out, "--json"]).expect(0);
    assert!(
        again.out.is_empty() && again.err.contains(&format!("ended: {why}")),
        "{}{}",
        again.out,
        again.err
    );
}

#[test]
fn a_run_stops_after_the_round_that_reaches_its_generations() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "run");
    let generations = || {
        let rounds = RunView::open(Path::new(&out)).unwrap().rounds().unwrap();
        rounds.iter().map(|round| round.metrics().unwrap().scalars["generations"]).collect::<Vec<f64>>()
    };
    let more = ["--out", &out, "--rounds", "9", "--generations", "30"].map(str::to_owned);
    sgs(&[&settings_without_evaluation()[..], &more].concat()).expect(0);
    let first = generations();
    assert!(first.len() < 9 && first[..first.len() - 1].iter().all(|n| *n < 30.0), "{first:?}");
    assert!(*first.last().unwrap() >= 30.0, "{first:?}");
    let ended = std::fs::read_to_string(Path::new(&out).join("ended.json")).unwrap();
    assert!(ended.contains("\"generations\""), "{ended}");
    let status = sgs(&["status", &out]).expect(0).out;
    assert!(status.contains("finished") && status.contains("generations (limit 30)"), "{status}");
    // The limit holds until it is raised or removed.
    let again = sgs(&["resume", &out]).expect(0);
    assert!(again.out.contains("limit of 30 generations, after"), "{}", again.out);
    let more = first.last().unwrap() + 1.0;
    sgs(&["resume", &out, "--generations", &more.to_string()]).expect(0);
    assert_eq!(generations().len(), first.len() + 1, "{:?}", generations());
    let lifted = sgs(&["resume", &out, "--rounds", &(first.len() + 2).to_string()]).expect(0);
    assert!(lifted.err.contains("--rounds was given without --generations"), "{}", lifted.err);
    assert_eq!(generations().len(), first.len() + 2);
}

#[test]
fn a_run_that_cannot_start_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let plain = file(folder.path(), "mine.jsonl", "|- ( ph -> ph )\n");
    let empty = file(folder.path(), "empty.jsonl", "\n");
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::write(model.join(name), "{}").unwrap();
    }
    let set = |key: &str, value: &str| format!("{key}={value}");
    for (setting, code, part) in [
        (set("problems.set", "quik"), 2, "did you mean `quick`?"),
        (set("evaluation.held_out", "heldout"), 2, "did you mean `held-out`?"),
        (
            set("problems.set", &plain),
            2,
            "line 1 is not a valid problem; a line must look like {\"id\": \"a\"",
        ),
        (
            set("problems.set", &plain),
            2,
            "found `|- ( ph -> ph )`; for statements in plain text: `sgs prove < ",
        ),
        (set("problems.set", &empty), 2, "empty.jsonl contains no problems"),
        (set("model.base", text(&model)), 2, "is not a model folder: tokenizer.json not found"),
    ] {
        let out = folder.path().join("run");
        let done = run(text(&out), &[&setting]).expect(code);
        assert!(done.err.contains(part), "{setting}: {}", done.err);
        assert!(!done.err.contains("writing to") && !out.exists(), "{setting}: {}", done.err);
        // A folder that existed before stays, and stays empty.
        std::fs::create_dir(&out).unwrap();
        run(text(&out), &[&setting]).expect(code);
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0, "{setting}");
        std::fs::remove_dir(&out).unwrap();
    }
}

/// Returns the part of a sweep's plan that selects the small model of the tests.
fn small_model_table() -> String {
    let base = project("crates/run/tests/data/small-model");
    format!("[set.model]\nbase = {base:?}\n")
}

/// A hangup, as when the terminal is closed, stops a sweep and the runs it started. The same command resumes it.
#[test]
fn a_hangup_stops_a_sweep_and_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "seeds = [1, 2]\njobs = 2\n[set]\nrounds = 500\nminutes = 0\n[set.algorithm]\nrollouts_per_problem = 2\n\
                [set.algorithm.guide]\nmin_readable = 0\n[set.algorithm.batch]\nsize = 4\n[set.evaluation]\nheld_out = \"none\"\n";
    let plan = format!("{plan}{}", small_model_table());
    let (sweep, out) = (file(folder.path(), "plan.toml", &plan), path(folder.path(), "runs"));
    let mut child = command(&["sweep", &sweep, "--out", &out])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let runs = ["sgs-seed1", "sgs-seed2"].map(|name| Path::new(&out).join(name));
    wait_for("results of both", || {
        runs.iter().all(|run| journal_records(run) > 0) || child.try_wait().unwrap().is_some()
    });
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{err}");
    assert!(err.contains("to continue"), "{err}");
    for run in &runs {
        let status = sgs(&["status", text(run)]).expect(0).out;
        assert!(status.contains("stopped\nto continue  sgs resume "), "{status}");
    }
}

#[test]
fn a_sweep_reports_why_its_runs_cannot_start() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "runs");
    let sweep = |model: &str| {
        let plan =
            format!("seeds = [1, 2]\n[set]\nmodel = {{ {model} }}\n[set.evaluation]\nheld_out = \"none\"\n");
        sgs(&["sweep", &file(folder.path(), "plan.toml", &plan), "--out", &out])
    };
    let done = sweep("base = \"/no/such/model\"").expect(2);
    assert!(done.err.contains("/no/such/model") && !done.err.contains("failed"), "{}", done.err);
    assert!(!Path::new(&out).exists(), "nothing was started");
    let done = sweep("context = 10").expect(1);
    assert_eq!(done.err.matches("\n  error: 0 of the Guide's 64 reviews").count(), 2, "{}", done.err);
    assert_eq!(done.err.matches("sgs-seed1.log").count(), 2, "at the start and the end: {}", done.err);
    assert!(done.err.contains("2 of 2 runs failed"), "{}", done.err);
}

#[test]
fn a_sweep_completes_its_runs_and_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |more: &str| {
        format!(
            "methods = [\"sgs\", \"reinforce-half\"]\nseeds = [1, 2]\njobs = 2\n[set]\nrounds = 1\nminutes = 0\n{more}\
             [set.training]\nmicro_batch_tokens = 512\n[set.algorithm]\nrollouts_per_problem = 2\n[set.algorithm.batch]\nsize = 4\n\
             [set.algorithm.guide]\nmin_readable = 0\n[set.evaluation]\nheld_out = \"none\"\n{}",
            small_model_table()
        )
    };
    let (sweep, out) = (file(folder.path(), "plan.toml", &plan("")), path(folder.path(), "runs"));
    let dry = sgs(&["sweep", &sweep, "--out", &out, "--dry-run"]).expect(0).out;
    assert!(
        dry.contains("\nsgs run reinforce-half --out") && dry.contains("4 runs, 2 at a time on"),
        "{dry}"
    );
    assert!(!Path::new(&out).exists());
    let done = sgs(&["sweep", &sweep, "--out", &out]).expect(0);
    for name in ["sgs-seed1", "sgs-seed2", "reinforce-half-seed1", "reinforce-half-seed2"] {
        assert!(done.out.lines().any(|line| line.starts_with(name)), "{name}\n{}", done.out);
        assert_eq!(RunView::open(&Path::new(&out).join(name)).unwrap().rounds().unwrap().len(), 1);
    }
    assert!(Path::new(&out).join("report/index.html").is_file(), "{}", done.err);
    // Finished runs are skipped; a larger number of rounds extends them.
    let again = sgs(&["sweep", &sweep, "--out", &out]).expect(0);
    assert!(again.err.contains("4 already finished"), "{}", again.err);
    let longer = file(
        folder.path(),
        "longer.toml",
        &plan("").replace("rounds = 1", "rounds = 2").replace(", \"reinforce-half\"", ""),
    );
    sgs(&["sweep", &longer, "--out", &out]).expect(0);
    assert_eq!(RunView::open(&Path::new(&out).join("sgs-seed2")).unwrap().rounds().unwrap().len(), 2);
    // Runs with another configuration are not touched, and mistakes are reported before any run starts.
    let other = file(folder.path(), "other.toml", &plan("sampling.batch = 8\n"));
    let refused = sgs(&["sweep", &other, "--out", &out]).expect(2);
    assert!(refused.err.contains("sampling.batch is"), "{}", refused.err);
    for (wrong, message) in [
        ("method = \"sgs\"\n", "method"),
        ("metods = [\"sgs\"]\n", "wrong.toml:1: there is no key `metods`; did you mean `methods`?"),
        (
            "methods = [\"sgs\", \"cipso\"]\n",
            "wrong.toml:1: there is no method `cipso`; did you mean `cispo`?",
        ),
        ("seeds = []\n", "nothing to run"),
        ("seeds = [1, 1]\n", "seed 1 occurs twice"),
        (
            &format!("seeds = {:?}\n", (0..10_001).collect::<Vec<_>>()),
            "10001 runs, more than the maximum of 10000",
        ),
        (
            "[set]\nminutes = 1\n[set.algorithm]\ntemperatur = 1.0\n",
            "wrong.toml:4: there is no key `algorithm.temperatur`",
        ),
        ("[set]\nseed = 1\n", "wrong.toml:2: `seed` is set by `seeds`"),
        ("[set]\nrounds = 0\n", "wrong.toml:2: `rounds` is 0; expected an integer"),
        ("[vary]\n\"algorithm.temperature\" = [1.0, 9.0]\n", "wrong.toml:2: `algorithm.temperature` is 9.0"),
        ("[vary]\nroundz = [1]\n", "wrong.toml:2: there is no key `roundz`; did you mean `rounds`"),
        (&"# much\n".repeat(1 << 18), "longer than 1024 KiB"),
    ] {
        let done = sgs(&["sweep", &file(folder.path(), "wrong.toml", wrong), "--out", "none"]).expect(2);
        assert!(done.err.contains(message), "{}", done.err);
    }
}

#[test]
fn a_sweep_makes_the_base_model_before_its_runs() {
    let dir = tempfile::tempdir().unwrap();
    let plan = file(
        dir.path(),
        "two.toml",
        "seeds = [1, 2]\njobs = 2\nsize = \"metamath-quick\"\n[set.model]\nbase = \"made:13m\"\ndevice = \"cpu\"\n",
    );
    let mut sweep = command(&["sweep", &plan, "--out", &path(dir.path(), "out")])
        .env("XDG_CACHE_HOME", dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(sweep.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first: Vec<String> = lines.take(2).collect();
    // Training would take hours.
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    assert!(first[0].starts_with("2 runs in "), "{first:?}");
    assert!(first[1].contains("the base model made:13m is missing"), "{first:?}");
    assert!(!dir.path().join("out/sgs-seed1.log").exists(), "a run was started");
}
