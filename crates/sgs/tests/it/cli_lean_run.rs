//! `sgs run`, `sgs eval` and `sgs prove` with Lean.
#![cfg(target_os = "linux")]

use crate::lean_fixtures;
use crate::program::{command, file, finish, path, project, sgs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Creates a folder with a model (`model`) and a scripted Lean (`lean`).
fn fixture_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    lean_fixtures::write_model(&dir.path().join("model"));
    lean_fixtures::write_scripted_lean(&dir.path().join("lean"), "4.28.0-pre");
    dir
}

fn run_arguments(dir: &Path, lean: &str, more: &[&str]) -> Vec<String> {
    let mut args = vec!["run".to_owned(), "--size".to_owned(), "lean-core".to_owned()];
    let model = format!("model.base={}", path(dir, "model"));
    let lean = format!("lean.root={lean}");
    let small = [
        &model,
        &lean,
        "problems.set=core",
        "lean.form=non-cot",
        "algorithm.guide.min_readable=0",
        "evaluation.held_out=split",
        "evaluation.every=1",
        "algorithm.batch.size=8",
        "algorithm.rollouts_per_problem=4",
        "algorithm.optimizer.batch_size=8",
        "sampling.batch=16",
        "sampling.memory_mib=64",
    ];
    for setting in small.into_iter().chain(more.iter().copied()) {
        args.extend(["--set".to_owned(), setting.to_owned()]);
    }
    args.extend(["--out".to_owned(), path(dir, "run"), "--json".to_owned()]);
    args
}

fn metrics(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("run/metrics.jsonl")).unwrap();
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn is_evaluation(row: &Value) -> bool {
    row["kind"] == "evaluation"
}

#[test]
fn the_forecast_of_the_paper_size_fits_one_screen() {
    let dir = tempfile::tempdir().unwrap();
    let mut dry = command(&["run", "--size", "lean-d3k", "--dry-run"]);
    // Simulate a machine without programs and libraries, and a working folder without Lean.
    dry.current_dir(dir.path()).env("PATH", "/nonexistent").env_remove("LD_LIBRARY_PATH");
    let done = finish(dry).expect(0);
    let lines: Vec<&str> = done.out.lines().collect();
    assert!(lines.len() <= 60, "{} lines\n{}", lines.len(), done.out);
    let widest = lines.iter().map(|l| l.chars().count()).max().unwrap();
    assert!(widest <= 104, "{widest} columns\n{}", done.out);
    for part in [
        "3323 targets of d3k",
        "6.91 B parameters",
        "Missing on this machine:",
        "Lean      v4.15.0 with Mathlib and the REPL, in lean-setup: 9 of 9 steps to do",
        "model     deepseek-ai/DeepSeek-Prover-V2-7B is neither a model nor a folder",
        "On 8 x H200, assumed: about",
        "200 rounds",
        "devices that sample: 8",
        "checking  ",
        "3 s per proof",
        "ranks: 8; ",
        "5% of the rollouts",
        "Memory of H200 0, the fullest of 8: ",
        "fits into 149 GB (assumed)",
        "  weights of the solver",
        "  Adam's state of the conjecturer",
        "  cache of the guide, ",
        "Memory of the host: ",
        "  copy of the solver for its checkpoint",
        "134 GB  128 checkers",
        "Disk: ",
        " of 193 GB",
        "guide     model.guide is the base model: 45% of its reviews are malformed",
        "Run next: sgs lean setup --root lean-setup --version v4.15.0",
        "then: hf download LukeBailey181Pub/dspv2_guide --local-dir LukeBailey181Pub/dspv2_guide",
        "then: sgs run --size lean-d3k --set model.guide=LukeBailey181Pub/dspv2_guide   (where the GPUs are)",
    ] {
        assert!(done.out.contains(part), "`{part}` is not in\n{}", done.out);
    }
}

#[test]
fn a_run_that_does_not_fit_is_not_recommended() {
    let run = sgs(&["run", "--size", "lean-d3k", "--dry-run", "--workers", "local:generate=7"]).expect(0).out;
    assert!(
        run.contains("  GPU       needs more memory than 149 GB: see below") && run.contains("DOES NOT FIT"),
        "{run}"
    );
    assert!(run.contains("(after correcting the settings above)"), "{run}");
    let small = sgs(&["run", "--size", "lean-d3k", "--dry-run", "--set", "sampling.memory_mib=8192"]);
    let error = small.expect(2).err;
    assert!(error.contains("the cache of the conjecturer holds 7408 tokens"), "{error}");
}

#[test]
fn the_forecast_follows_the_configuration() {
    let forecast = |set: &[&str]| {
        let mut args = vec!["run", "--size", "lean-d3k", "--dry-run", "--json"];
        set.iter().for_each(|s| args.extend(["--set", s]));
        let json = sgs(&args).expect(0).json();
        assert_eq!(json["config"]["problems"]["system"], "lean");
        json["forecast"].clone()
    };
    let number = |f: &Value, key: &str| f[key].as_f64().unwrap();
    let all = forecast(&[]);
    // There are 8 rollouts for each of 3,323 targets and of the conjectures, which are 45% as many; each takes 3 CPU
    // seconds.
    assert!((number(&all, "generations") - 8.0 * 3323.0 * 1.45).abs() < 1.0, "{all}");
    // In the first round, every target is unsolved and gets a conjecture.
    let first = &all["first_round"];
    assert!((number(first, "generations") - 8.0 * 3323.0 * 2.0).abs() < 1.0, "{first}");
    assert!(number(first, "round_s") > number(&all, "round_s"), "{all}");
    assert!((number(&all, "checking_cpu_s") - 3.0 * number(&all, "generations")).abs() < 1.0, "{all}");
    // These are three bf16 models of 6.91 billion parameters, and the Adam states of two of them, sharded over 8 GPUs.
    let parts = |f: &Value, process: usize, what: &str| {
        let parts = f["memory"][0][process]["device"].as_array().unwrap().iter();
        let bytes = parts.filter(|part| part["what"].as_str().unwrap().starts_with(what));
        bytes.map(|part| part["bytes"].as_f64().unwrap()).sum::<f64>() / 1e9
    };
    assert!((parts(&all, 0, "weights") - 41.5).abs() < 0.1, "{all}");
    assert!((parts(&all, 0, "Adam") - 17.3).abs() < 0.1, "{all}");
    // The host has a copy of two policies: f32 weights, and 12 bytes per parameter of a shard.
    let host = all["host"].as_array().unwrap().iter().map(|part| part["bytes"].as_f64().unwrap());
    assert!((host.clone().take(2).sum::<f64>() / 1e9 - 76.0).abs() < 1.0, "{all}");
    // A KL penalty needs no further model, because the Guide is the base model; a Guide on a server needs none either.
    assert!((parts(&forecast(&["algorithm.solver.kl_coefficient=0.1"]), 0, "weights") - 41.5).abs() < 0.1);
    let server = ["sampling.endpoint.url=http://127.0.0.1:1/v1", "sampling.endpoint.roles=[\"guide\"]"];
    let served = forecast(&server);
    assert!((parts(&served, 0, "weights") - 27.6).abs() < 0.1, "{served}");
    let half = forecast(&["rounds=100"]);
    assert!((number(&half, "run_s") * 2.0 / number(&all, "run_s") - 1.0).abs() < 1e-9);
    let short = forecast(&["sampling.solver_tokens=200"]);
    assert!(number(&short, "sampling_s") < number(&all, "sampling_s") / 2.0);
    // Every rank samples and trains with one GPU.
    let two = forecast(&["training.ranks=2"]);
    for time in ["sampling_s", "training_s"] {
        let ratio = number(&two, time) / number(&all, time);
        assert!((2.5..=4.0).contains(&ratio), "{ratio}: {time} of {two}");
    }
    // The coordinator's machine alone checks proofs, unless workers do.
    assert_eq!(forecast(&["training.ranks=64"])["checkers"], 128);
    let checking = ["run", "--size", "lean-d3k", "--ranks", "64", "--workers", "slurm:verify=8"];
    let far = sgs(&[&checking[..], &["--dry-run", "--json"]].concat()).expect(0).json();
    assert_eq!((&far["forecast"]["checkers"], &far["forecast"]["samplers"]), (&1024.into(), &64.into()));
    // Seven workers have one GPU each, next to that of the rank, and hold three models and their samplers.
    let workers = sgs(&[
        "run",
        "--size",
        "lean-d3k",
        "--dry-run",
        "--json",
        "--ranks",
        "1",
        "--workers",
        "local:generate=7",
    ]);
    let workers = workers.expect(0).json()["forecast"].clone();
    assert_eq!(workers["samplers"], 7);
    assert_eq!(workers["memory"].as_array().unwrap().len(), 8);
    let worker = json!({"memory": [workers["memory"][1]]});
    assert!((parts(&worker, 0, "weights") - 41.5).abs() < 0.1, "{workers}");
    assert_eq!(parts(&workers, 0, "cache"), 0.0, "the rank does not sample: {workers}");
    let large =
        sgs(&["run", "--size", "lean-d3k", "--dry-run", "--set", "sampling.memory_mib=65536"]).expect(0);
    assert!(large.out.contains("DOES NOT FIT into 149 GB"), "{}", large.out);
}

#[test]
fn a_run_with_missing_software_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let out = path(dir.path(), "run");
    let mut run = command(&["run", "--size", "lean-d3k", "--out", &out]);
    run.current_dir(dir.path());
    let done = finish(run).expect(2);
    for part in ["missing: Lean (v4.15.0", "is neither a model nor a folder", "--dry-run"] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    assert!(!Path::new(&out).exists(), "a run folder was created");
    let wrong = sgs(&["run", "--set", "model.base=none", "--out", &out]).expect(2);
    assert!(wrong.err.contains("model.base: none is neither a model nor a folder"), "{}", wrong.err);
    // Other missing models and files are reported, too.
    let missing = ["model.guide=guide/model", "evaluation.held_out=none.jsonl"];
    let sets = missing.iter().flat_map(|set| ["--set", set]);
    for size in ["lean-d3k", "lean-core"] {
        let mut dry = command(&["run", "--size", size, "--dry-run"]);
        dry.args(sets.clone()).current_dir(dir.path());
        let out = finish(dry).expect(0).out;
        for part in [
            "guide/model is neither a model nor a folder",
            "evaluation.held_out: there is no problem set or file `none.jsonl`",
        ] {
            assert!(out.contains(part), "{size}, {part}: {out}");
        }
        let again = format!("sgs run --size {size} --set {} --set {}", missing[0], missing[1]);
        assert!(out.contains(&again), "{again}: {out}");
    }
    // The small size needs no GPU. Its forecast says what it needs.
    let mut dry = command(&["run", "--size", "lean-core", "--dry-run"]);
    dry.current_dir(dir.path());
    let done = finish(dry).expect(0);
    for part in [
        "set = \"composed\"",
        "# missing: Lean (core Lean as WebAssembly",
        "# Run next: sgs lean setup --wasm --root lean-wasm",
    ] {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }
    let mut run = command(&["run", "--size", "lean-core", "--out", &out]);
    run.current_dir(dir.path());
    let done = finish(run).expect(2);
    let install = "To install it: `sgs lean setup --wasm --root lean-wasm`";
    for part in ["missing: Lean (core Lean as WebAssembly", install] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
}

#[test]
fn a_killed_run_is_resumed() {
    let dir = fixture_folder();
    let lean = path(dir.path(), "lean");
    let run = path(dir.path(), "run");
    let mut args = run_arguments(dir.path(), &lean, &["rounds=4"]);
    // Kill the run as soon as Lean has its scratch folder, and again after the first round.
    let folders = || std::fs::read_dir(dir.path().join("run/lean-scratch")).map_or(0, Iterator::count);
    let has_round = || dir.path().join("run/rounds/0000").exists();
    let moments: [&dyn Fn() -> bool; 2] = [&|| folders() > 0, &has_round];
    for moment in moments {
        let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !moment() && child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(240), "not killed within 240 s");
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(folders(), 1, "only the folder of the killed process is left");
        args = vec!["resume".to_owned(), run.clone()];
    }
    let done = sgs(&["resume", &run, "--json"]).expect(0);
    assert_eq!(folders(), 0, "a scratch folder was left behind");
    assert!(done.err.contains("Lean (version 4.28.0-pre, scripted"), "{}", done.err);
    let (evaluations, rows): (Vec<Value>, Vec<Value>) =
        metrics(dir.path()).into_iter().partition(is_evaluation);
    assert_eq!(rows.len(), 4, "{rows:?}");
    let after: Vec<u64> = evaluations.iter().map(|e| e["round"].as_u64().unwrap()).collect();
    assert_eq!(after, [0, 1, 2, 3, 4], "evaluated on the held-out tenth before each round and at the end");
    assert!(evaluations.iter().all(|e| e["scalars"]["held_out/pass@1"].is_number()), "{evaluations:?}");
    let scalar = |row: &Value, name: &str| row["scalars"][name].as_f64().unwrap_or_default();
    for row in &rows {
        assert_eq!(scalar(row, "infra_share"), 0.0, "{row}");
        let sum: f64 = ["proved", "refused", "malformed"]
            .iter()
            .map(|v| scalar(row, &format!("target_rollouts_{v}")))
            .sum();
        assert_eq!(sum, 32.0, "{row}");
    }
    assert!(rows.iter().any(|r| scalar(r, "target_rollouts_proved") > 0.0), "{rows:?}");
    assert!(rows.iter().any(|r| scalar(r, "target_rollouts_refused") > 0.0), "{rows:?}");
    let checker = std::fs::read_to_string(dir.path().join("run/checker.txt")).unwrap();
    assert!(checker.contains("4.28.0-pre") && checker.contains("maxSynthPendingDepth 3"), "{checker}");
    // Resuming with another Lean would mix verdicts.
    lean_fixtures::write_scripted_lean(&dir.path().join("lean"), "4.29.0");
    let other = sgs(&["resume", &run]).expect(1);
    assert!(other.err.contains("4.28.0-pre") && other.err.contains("4.29.0"), "{}", other.err);
}

/// The tokenizer of the model has a token per byte, so the number of prompt tokens reveals the prompt.
#[test]
fn a_run_keeps_the_prompts_that_it_began_with() {
    let dir = fixture_folder();
    let prompts = path(dir.path(), "prompts");
    let written = sgs(&["lean", "prompts", "--out", &prompts]).expect(0);
    assert!(written.out.contains(&format!("--set lean.prompts={prompts}")), "{}", written.out);
    let again = sgs(&["lean", "prompts", "--out", &prompts]).expect(2);
    assert!(again.err.contains("solver.txt exists: choose another --out"), "{}", again.err);

    let statement = "theorem wrong (n : Nat) : n = n + 1 := by";
    let set = json!({"id": "wrong", "header": "", "statement": statement});
    let set = format!("problems.set={}", file(dir.path(), "set.jsonl", &format!("{set}\n")));
    let key = format!("lean.prompts={prompts}");
    let more = ["rounds=1", "evaluation.held_out=none", &set, &key];
    let mut args = run_arguments(dir.path(), &path(dir.path(), "lean"), &more);
    args.insert(1, "expert-iteration".to_owned());
    let solver = file(dir.path(), "prompts/solver.txt", "Prove {cod}");
    let wrong = sgs(&args).expect(2);
    let told = format!("lean.prompts: {solver}:1: unknown placeholder {{cod}}; this prompt has {{code}}");
    assert!(wrong.err.contains(&told), "{}", wrong.err);

    std::fs::write(&solver, "Prove\n[frozen]\n{code}\n").unwrap();
    args.retain(|arg| arg != "--json");
    args.push("--dry-run".to_owned());
    let dry = sgs(&args).expect(0).out;
    assert!(dry.contains(&format!("prompts = \"{prompts}\"")), "{dry}");
    args.pop();
    sgs(&args).expect(0);
    // Neither the run nor the commands that sample its models need the folder again.
    std::fs::remove_dir_all(&prompts).unwrap();
    let run = path(dir.path(), "run");
    sgs(&["resume", &run, "--rounds", "2"]).expect(0);
    let rows = metrics(dir.path());
    // The chat template adds a token before the prompt and one after it.
    let tokens = (2 + "Prove\n[frozen]\n".len() + statement.len()) as f64 * 4.0;
    let found: Vec<f64> =
        rows.iter().map(|row| row["scalars"]["solver_prompt_tokens"].as_f64().unwrap()).collect();
    assert_eq!(found, [tokens; 2], "{rows:?}");
    sgs(&["prove", "--run", &run, "theorem a (a b : Nat) (h : a < b) : a + 1 ≤ b"]).expect(0);
    let text = std::fs::read_to_string(dir.path().join("run/config.toml")).unwrap();
    assert!(text.contains("[lean.prompts]") && text.contains("[frozen]\n{code}"), "{text}");
}

/// A child process that is killed on drop.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_worker_leaves_with_an_error_or_at_a_signal() {
    let dir = fixture_folder();
    let bare = dir.path().join("bare");
    lean_fixtures::write_scripted_lean(&bare, "4.28.0-pre");
    std::fs::write(bare.join("lacks"), "Mathlib\n").unwrap();
    let set = file(
        dir.path(),
        "set.jsonl",
        "{\"id\":\"p1\",\"header\":\"import Mathlib\\n\",\"statement\":\"theorem p1 (a b : Nat) (h : a < b) : a + 1 ≤ b := by\"}\n",
    );
    let set = format!("problems.set={set}");
    let lean = path(dir.path(), "lean");
    let mut args = run_arguments(dir.path(), &lean, &["rounds=1", "algorithm.rollouts_per_problem=32", &set]);
    args[0] = "serve".to_owned();
    args.retain(|a| a != "--json");
    args.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
    let log = dir.path().join("log");
    let stderr = std::fs::File::create(&log).unwrap();
    let mut coordinator = Process(command(&args).stdout(Stdio::null()).stderr(stderr).spawn().unwrap());
    let start = Instant::now();
    let url = loop {
        let table = std::fs::read_to_string(dir.path().join("run/fleet.toml")).unwrap_or_default();
        if let Some(url) =
            table.parse::<toml::Table>().ok().and_then(|t| Some(t.get("url")?.as_str()?.to_owned()))
        {
            break url;
        }
        let stderr = || std::fs::read_to_string(&log).unwrap();
        assert!(coordinator.0.try_wait().unwrap().is_none(), "{}", stderr());
        assert!(start.elapsed() < Duration::from_secs(240), "{}", stderr());
        std::thread::sleep(Duration::from_millis(20));
    };
    let token = path(dir.path(), "run/fleet.token");
    let bare = bare.display().to_string();
    let worker = ["worker", "verify", "--connect", &url, "--token-file", &token, "--lean-root", &bare];
    let done = sgs(&[&worker[..], &["--name", "far"]].concat()).expect(1);
    for part in ["verify-far cannot check proofs of this run", "got infra", "unknown module prefix Mathlib"] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }

    // The second worker waits for Lean when it is to stop.
    let (hanging, temporary) = (dir.path().join("hanging"), dir.path().join("temporary"));
    lean_fixtures::write_scripted_lean(&hanging, "4.28.0-pre");
    std::fs::write(hanging.join("lean"), "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::create_dir(&temporary).unwrap();
    let folders = || std::fs::read_dir(&temporary).unwrap().count();
    let hanging = hanging.display().to_string();
    let worker = ["worker", "verify", "--connect", &url, "--token-file", &token, "--lean-root", &hanging];
    let mut worker = command(&[&worker[..], &["--grace", "0"]].concat());
    worker.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null());
    let mut worker = Process(worker.spawn().unwrap());
    let start = Instant::now();
    while folders() == 0 {
        assert!(worker.0.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(240));
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&worker.0), Signal::TERM).unwrap();
    assert_eq!(worker.0.wait().unwrap().code(), Some(1));
    assert_eq!(folders(), 0, "the temporary folder is left");
}

/// Line breaks, indentation and symbols with a meaning in Metamath (`=>`, `&`, double spaces) are shown unchanged.
#[test]
fn a_report_shows_lean_text_unchanged() {
    let dir = fixture_folder();
    let set = file(
        dir.path(),
        "set.jsonl",
        "{\"id\":\"lines\",\"header\":\"\",\"statement\":\"theorem lines (a b : Nat)\\n    (h : a < b) :\\n    a + 1 ≤ b := by\"}\n\
         {\"id\":\"signs\",\"header\":\"\",\"statement\":\"theorem signs (p q : Prop)  (f : p => q) (h : p & q) : q ∧ p := by\"}\n\
         {\"id\":\"wrong\",\"header\":\"\",\"statement\":\"theorem wrong (n : Nat) : n = n + 1 := by\"}\n",
    );
    let set = format!("problems.set={set}");
    let mut args = run_arguments(
        dir.path(),
        &path(dir.path(), "lean"),
        &["rounds=1", "algorithm.rollouts_per_problem=64", &set],
    );
    args.retain(|a| a != "--json");
    sgs(&args).expect(0);
    let run = path(dir.path(), "run");
    sgs(&["report", &run]).expect(0);
    let page = std::fs::read_to_string(dir.path().join("run/report/index.html")).unwrap();
    for part in [
        "theorem lines (a b : Nat)\n    (h : a &lt; b) :\n    a + 1 ≤ b",
        "theorem signs (p q : Prop)  (f : p =&gt; q) (h : p &amp; q)",
        "<pre class=\"proof\">\n  omega",
    ] {
        assert!(page.contains(part), "{part} is not in the page");
    }
}

#[test]
fn eval_and_prove_work_with_lean() {
    let dir = fixture_folder();
    let (lean, model) = (path(dir.path(), "lean"), path(dir.path(), "model"));
    let common = ["--system", "lean", "--lean-checker", "wasm", "--lean-root", &lean, "--lean-slots", "1"];
    let eval = ["eval", "--problems", "core", "--limit", "6", "-k", "8", "--batch", "16", "--model", &model];
    let json = sgs(&[&eval[..], &common, &["--json"]].concat()).expect(0).json();
    assert_eq!(json["problems"], 6);
    let count = |name: &str| json["outcomes"][name].as_u64().unwrap_or(0);
    assert!(count("proved") > 0 && count("refused") > 0, "{json}");
    assert!(json["pass@8"].as_f64().unwrap() > 0.0, "{json}");

    // Use the layout of miniF2F.
    let problem = |split: &str, name: &str, says: &str| {
        json!({
            "name": name, "split": split, "informal_prefix": "/-- In words. -/\n", "goal": "⊢ …",
            "formal_statement": format!("theorem {name} {says} := by\n"),
            "header": "import Mathlib\nimport Aesop\n\nset_option maxHeartbeats 400000\n\nopen Nat Real\n\n",
        })
    };
    let lines = [
        problem("test", "sum_of_two", "(x y : ℕ) (h₀ : x + y = 7) (h₁ : x = 3) :\n  y = 4"),
        problem("valid", "remainder", ":\n  (25 + 9) % 4 = 2"),
    ];
    let set = file(dir.path(), "minif2f.jsonl", &lines.map(|line| format!("{line}\n")).concat());
    let eval = ["eval", "--problems", &set, "-k", "64", "--batch", "16", "--model", &model];
    let json = sgs(&[&eval[..], &common, &["--json"]].concat()).expect(0).json();
    assert_eq!((&json["problems"], &json["pass@64"]), (&json!(2), &json!(1.0)), "{json}");

    let prove = ["prove", "theorem a (a b : Nat) (h : a < b) : a + 1 ≤ b", "--model", &model];
    let done = sgs(&[&prove[..], &common].concat()).expect(0);
    assert!(done.out.contains("proved by sample") && done.out.contains("omega"), "{}", done.out);
    assert!(done.out.contains("4.28.0-pre"), "{}", done.out);
    let wrong = ["prove", "not a statement", "--model", &model];
    let done = sgs(&[&wrong[..], &common].concat()).expect(2);
    assert!(done.err.contains("not a valid Lean statement"), "{}", done.err);
}

#[test]
fn a_set_pinned_to_another_toolchain_is_refused() {
    let dir = fixture_folder();
    let lean = path(dir.path(), "lean");
    let set = file(
        dir.path(),
        "set.jsonl",
        "{\"id\":\"p1\",\"header\":\"\",\"statement\":\"theorem p1 : 1 = 1 := by\",\"proof\":\" omega\",\"toolchain\":\"leanprover/lean4:v4.9.0\"}\n",
    );
    let args = ["verify", "--system", "lean", "--lean-checker", "wasm", "--lean-root", &lean, &set];
    let done = sgs(&args).expect(1);
    assert!(done.err.contains("`p1`") && done.err.contains("requires Lean 4.9.0"), "{}", done.err);
    let text = std::fs::read_to_string(&set).unwrap().replace("v4.9.0", "v4.28.0-pre");
    std::fs::write(&set, text).unwrap();
    let line = &sgs(&args).expect(0).lines()[0];
    assert_eq!(line["verdict"], "proved");
    assert_eq!(line["lean"], "Lean (version 4.28.0-pre, scripted, commit 0, Release)");
}

/// A slow proof does not delay other verdicts, so that little is lost if the process ends.
#[test]
fn verdicts_are_written_as_they_arrive() {
    let dir = fixture_folder();
    let lean = path(dir.path(), "lean");
    // A file of theorems has one header, so the slow proof is alone in its own.
    let line = |n: usize| {
        let (header, proof) = if n == 0 { ("open Nat", "omega -- slow") } else { ("", "omega") };
        format!(
            "{{\"id\":\"p{n}\",\"header\":\"{header}\",\"statement\":\"theorem p{n} : {n} = {n} := by\",\"proof\":\" {proof}\"}}\n"
        )
    };
    let set = file(dir.path(), "set.jsonl", &(0..10).map(line).collect::<String>());
    let args = ["verify", "--system", "lean", "--lean-checker", "wasm", "--lean-root", &lean];
    let mut child = command(&[&args[..], &["--lean-slots", "2", "--skip-canaries", &set]].concat())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut ids = Vec::new();
    for line in lines {
        let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(line["verdict"], "proved", "{line}");
        ids.push(line["id"].as_str().unwrap().to_owned());
        if ids.len() == 9 {
            std::fs::write(dir.path().join("lean/go"), "\n").unwrap();
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!((ids.len(), ids[9].as_str()), (10, "p0"), "{ids:?}");
}

/// Tests a run with real Lean: a round, verdicts and `resume`.
#[test]
#[ignore = "runs Lean as WebAssembly (lean/wasm, or SGS_LEAN_WASM): minutes of CPU time; `just lean` runs it"]
fn a_run_with_real_lean_completes() {
    let dir = tempfile::tempdir().unwrap();
    lean_fixtures::write_model(&dir.path().join("model"));
    let lean =
        std::env::var("SGS_LEAN_WASM").unwrap_or_else(|_| project("lean/wasm").to_str().unwrap().to_owned());
    // Each slot starts Lean twice.
    let more = ["rounds=1", "algorithm.rollouts_per_problem=8", "lean.slots=1"];
    let done = sgs(&run_arguments(dir.path(), &lean, &more)).expect(0);
    assert!(done.err.contains("Lean (version 4.28.0-pre"), "{}", done.err);
    let run = path(dir.path(), "run");
    sgs(&["resume", &run]).expect(0);
    let (_, rows): (Vec<_>, Vec<_>) = metrics(dir.path()).into_iter().partition(is_evaluation);
    let scalar = |name: &str| rows[0]["scalars"][name].as_f64().unwrap_or_default();
    assert_eq!(scalar("infra_share"), 0.0, "{rows:?}");
    assert!(
        scalar("target_rollouts_proved") > 0.0,
        "core Lean must prove some targets by `omega` or `simp`: {rows:?}"
    );
    assert!(scalar("target_rollouts_refused") > 0.0, "{rows:?}");
    std::io::Write::write_all(
        &mut std::io::stdout(),
        format!("{}\n", std::fs::read_to_string(dir.path().join("run/metrics.jsonl")).unwrap()).as_bytes(),
    )
    .unwrap();
}
