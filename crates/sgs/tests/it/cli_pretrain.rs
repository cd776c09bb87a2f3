//! `sgs pretrain` and `sgs sft`: learning, exact resumption and refused configurations.

use crate::program::{ProgramOutput, command, file, finish, path, project, sgs, small_recipe};
use rustix::process::{Pid, Signal, kill_process};
use sgs_metamath::system::Metamath;
use sgs_metamath::tokens;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Writes a tokenizer and a corpus of four prompts with completions.
fn write_data(dir: &Path) {
    let system = Metamath::shipped().unwrap();
    std::fs::write(dir.join("tokenizer.json"), tokens::tokenizer_json(system.theory()).to_string()).unwrap();
    std::fs::write(dir.join("tokenizer_config.json"), tokens::tokenizer_config_json().to_string()).unwrap();
    let mut rows = String::new();
    for (prompt, completion) in [
        ("|- ( ph -> ph )", "id"),
        ("|- ( ph -> ( ps -> ph ) )", "ax-1"),
        ("|- ( -. -. ph -> ph )", "notnotr"),
        ("|- ( ph -> -. -. ph )", "notnot"),
    ] {
        let row = serde_json::json!({"role": "solver", "kind": "theorem", "source": completion, "prompt": prompt,
            "completion": format!("{completion} <end>")});
        rows.push_str(&format!("{row}\n"));
    }
    file(dir, "corpus.jsonl", &rows);
}

fn config(dir: &Path, passes: u32, more: &str) -> String {
    let text = format!(
        "data = {:?}\nseed = 3\n{more}\n[[corpus]]\nfile = \"corpus.jsonl\"\npasses = {passes}\n
        [train]\nbatch_size = 4\nmicro_batch_tokens = 128\nlearning_rate = 1e-2\nwarmup_steps = 2\nfloor = 0.1
        weight_decay = 0.0\nbeta2 = 0.98\ncheckpoint_every = 25\n",
        dir.to_str().unwrap()
    );
    file(dir, &format!("train-{passes}-{}.toml", more.len()), &text)
}

const SHAPE: &str = "[model]\nlayers = 2\nhidden_size = 32\nheads = 2\nkv_heads = 1\nintermediate_size = 64\n\
    max_positions = 64\nrope_theta = 10000.0\n";

fn losses(out: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(Path::new(out).join("loss.csv")).unwrap();
    text.lines().skip(1).map(|l| l.split(',').nth(1).unwrap().parse().unwrap()).collect()
}

fn weights(out: &str) -> Vec<u8> {
    std::fs::read(Path::new(out).join("model/model.safetensors")).unwrap()
}

fn pretrain(config: &str, out: &str) -> ProgramOutput {
    sgs(&["pretrain", config, "--out", out])
}

#[test]
fn a_run_uses_the_users_database() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| path(dir.path(), name);
    let mini = std::fs::read_to_string(project("crates/formal/metamath/tests/data/mini.mm")).unwrap();
    // The database includes a file, and a theorem has no proof.
    file(dir.path(), "mini.mm", &mini);
    let database =
        file(dir.path(), "mine.mm", "$[ mini.mm $]\nmine $p |- ( ph -> ( ps -> ( ch -> ph ) ) ) $= ? $.\n");
    let data = at("data");
    sgs(&["data", "build", "--source", &database, "--out", &data, "--composed", "20", "--reviews", "1"])
        .expect(0);
    let recipe = file(dir.path(), "base.toml", &small_recipe().replace("metamath-data", &data));
    pretrain(&recipe, &at("base")).expect(0);

    let (base, run) = (at("base/model"), at("run"));
    let start = |more: &[&str]| {
        let database = format!("problems.database={database}");
        let settings = ["rounds=1", "minutes=0", "algorithm.guide.min_readable=0", &database];
        let mut args = vec!["run", "--out", &run];
        args.extend(settings.iter().chain(more).flat_map(|setting| ["--set", setting]));
        sgs(&args)
    };
    let not_ours = start(&[]).expect(2).err;
    assert!(not_ours.contains("`shipped` was trained on theorems of set.mm"), "{not_ours}");
    let model = format!("model.base={base}");
    for (settings, said) in [
        ([model.as_str(), "problems.set=deep"], "composed from the shipped database"),
        ([model.as_str(), "problems.system=lean"], "requires problems.system=metamath"),
        ([model.as_str(), "problems.database=none.mm"], "none.mm is not a file"),
    ] {
        let error = start(&settings).expect(2).err;
        assert!(error.contains(said) && !Path::new(&run).exists(), "{error}");
    }
    let done = start(&[&model, "problems.set=train", "evaluation.samples=2"]).expect(0);
    assert!(done.err.contains("1 of 585 theorems have no valid proof: `mine`"), "{}", done.err);
    assert!(done.err.contains("held out: 13 problems of `held-out`"), "{}", done.err);
    let config = std::fs::read_to_string(at("run/config.toml")).unwrap();
    assert!(!config.contains(sgs_metamath::slice::SLICE_SHA256), "{config}");
    // Commands on the run use its database. `mine` is not a theorem of the shipped slice.
    sgs(&["conjecture", "--run", &run, "--problem", "mine", "-n", "1"]);
    let proofs = sgs(&["prove", "--run", &run, "--problem", "mine", "-n", "1", "--json"]);
    assert!(proofs.code < 2, "{}", proofs.err);
    let solved =
        sgs(&["eval", "--run", &run, "--problems", "held-out", "-k", "1", "--json"]).expect(0).json();
    assert_eq!(solved["problems"], 13);
    sgs(&["export", &run, "--mm", &at("proved.mm")]).expect(0);
    assert!(std::fs::read_to_string(at("proved.mm")).unwrap().contains("mine $p"));
    // Other processes do not have the database.
    let remote = sgs(&["resume", &run, "--rounds", "2", "--workers", "local:2"]).expect(1).err;
    assert!(remote.contains("a database other than the shipped one"), "{remote}");
    file(dir.path(), "mini.mm", &mini.replace("idd $p", "idd2 $p"));
    let changed = sgs(&["resume", &run, "--rounds", "2"]).expect(1).err;
    assert!(changed.contains("slice"), "{changed}");
}

#[test]
fn killed_training_resumes_to_the_same_weights() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = config(dir.path(), 600, SHAPE);
    let whole = path(dir.path(), "whole");
    pretrain(&config, &whole).expect(0);
    let curve = losses(&whole);
    assert_eq!(curve.len(), 600);
    assert!(curve[599] < 0.1 * curve[0], "the loss fell only from {} to {}", curve[0], curve[599]);
    // If the machine pauses this test, training may end before it is killed. Then the test tries again.
    let mut attempts = (0..10).map(|i| path(dir.path(), &format!("killed-{i}")));
    let is_killed = |out: &String| {
        let mut child = command(&["pretrain", &config, "--out", out]).spawn().unwrap();
        let checkpoint = Path::new(out).join("checkpoint/trainer.json");
        while !checkpoint.exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        checkpoint.exists() && !ended.success()
    };
    let killed = attempts.find(is_killed).expect("one of ten attempts is killed");
    let resumed = pretrain(&config, &killed).expect(0);
    assert!(!resumed.err.contains("from step 0"), "{}", resumed.err);
    assert!(weights(&killed) == weights(&whole), "the weights must be bit-identical");
    assert_eq!(losses(&killed).last(), curve.last());
}

#[test]
fn interrupted_training_resumes_at_its_step_and_finished_training_says_so() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let (config, out) = (config(dir.path(), 6000, SHAPE), path(dir.path(), "out"));
    let mut child = command(&["pretrain", &config, "--out", &out])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !Path::new(&out).join("checkpoint/trainer.json").exists() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "the training ended before its first checkpoint was seen"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{err}");
    let step = err.split_once("stopped after step ").unwrap().1.split(' ').next().unwrap().to_owned();
    // Training resumes at the step where the signal stopped it.
    let resumed =
        command(&["pretrain", &config, "--out", &out]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut resumed = resumed.unwrap();
    let mut lines = BufReader::new(resumed.stderr.take().unwrap()).lines();
    let line = lines.by_ref().map(Result::unwrap).find(|line| line.contains("from step")).unwrap();
    resumed.kill().unwrap();
    resumed.wait().unwrap();
    assert!(line.contains(&format!("from step {step}")), "{line}, stopped after {step}");

    let (short, whole) = (self::config(dir.path(), 5, SHAPE), path(dir.path(), "whole"));
    pretrain(&short, &whole).expect(0);
    let again = pretrain(&short, &whole).expect(0);
    assert!(again.out.starts_with("already done: "), "{}", again.out);
}

#[test]
fn a_corpus_whose_completions_do_not_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let corpus = dir.path().join("corpus.jsonl");
    let rows = std::fs::read_to_string(&corpus).unwrap();
    let train = |rows: &str| {
        std::fs::write(&corpus, rows).unwrap();
        pretrain(&config(dir.path(), 1, SHAPE), &path(dir.path(), "out"))
    };
    let refused = train(&rows.replace(" <end>", "")).expect(1).err;
    assert!(refused.contains("no completion ends with the tokenizer's end token `<end>`"), "{refused}");
    // A completion that reached a limit has no end token.
    train(&rows.replacen(" <end>", "", 1)).expect(0);
}

#[test]
fn resuming_with_other_corpora_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let out = path(dir.path(), "out");
    pretrain(&config(dir.path(), 2, SHAPE), &out).expect(0);
    let done = pretrain(&config(dir.path(), 3, SHAPE), &out).expect(1);
    assert!(done.err.contains("other corpora"), "{}", done.err);
}

#[test]
fn sft_continues_from_a_trained_model() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let (first, second) = (path(dir.path(), "first"), path(dir.path(), "second"));
    pretrain(&config(dir.path(), 40, SHAPE), &first).expect(0);
    let base = format!("{first}/model");
    let args = ["sft", &config(dir.path(), 40, ""), "--model", &base, "--out", &second];
    finish(command(&args)).expect(0);
    let (before, after) = (losses(&first), losses(&second));
    assert!(after[0] < before[0] && after[39] < before[39], "{before:?} {after:?}");
}

#[test]
fn configuration_mistakes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let out = path(dir.path(), "out");
    let refused = |name: &str, text: &str, told: &str| {
        let done = pretrain(&file(dir.path(), name, text), &out).expect(2);
        assert!(done.err.contains(&format!("{name}:{told}")), "{name}:{told}\n{}", done.err);
    };
    let text = std::fs::read_to_string(config(dir.path(), 1, SHAPE)).unwrap();
    refused("shapeless.toml", &text.replace(SHAPE, ""), " a new model needs its shape, [model]");
    let line = |key: &str| text.lines().position(|line| line.trim_start().starts_with(key)).unwrap() + 1;
    let zero = text.replace("checkpoint_every = 25", "checkpoint_every = 0");
    let told =
        format!("{}: `train.checkpoint_every` is 0; expected an integer from 1 to", line("checkpoint_every"));
    refused("zero.toml", &zero, &told);
    let told = format!(
        "{}: there is no key `train.warmup_step`; did you mean `train.warmup_steps`? (`sgs pretrain --explain` lists all)",
        line("warmup_steps")
    );
    refused("typo.toml", &text.replace("warmup_steps", "warmup_step"), &told);
    let model = path(dir.path(), "model");
    std::fs::create_dir(&model).unwrap();
    let sft = sgs(&["sft", &config(dir.path(), 1, SHAPE), "--model", &model, "--out", &out]).expect(2);
    assert!(sft.err.contains("[model] applies only to `sgs pretrain`"), "{}", sft.err);
    let keys = sgs(&["sft", "--explain"]).expect(0).out;
    assert!(
        keys.contains("corpus[].passes\n    Passes over the corpus") && !keys.contains("model.layers"),
        "{keys}"
    );
    file(dir.path(), "corpus.jsonl", "{\"role\": \"solver\"}\n");
    let done = pretrain(&config(dir.path(), 1, SHAPE), &path(dir.path(), "other")).expect(1);
    assert!(done.err.contains("corpus.jsonl"), "{}", done.err);
}
