//! `sgs prove` with an untrained model, and with one that was trained on a single proof.

use crate::program::{path, sgs, sgs_with_input};
use sgs_formal::{FormalSystem, Prompt};
use sgs_lm::ModelConfig;
use sgs_lm::loss::{LossConfig, TrainExample};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::{FileType, HostWeights};
use sgs_lm_cpu::Cpu;
use sgs_metamath::system::Metamath;
use sgs_metamath::tokens;
use std::path::Path;
use std::sync::Arc;

const STATEMENT: &str = "|- ( ph -> ( ps -> ph ) )";

/// Writes a small model that was trained for `steps` steps to prove [`STATEMENT`].
fn write_model(dir: &Path, steps: usize) {
    let system = Metamath::shipped().unwrap();
    std::fs::write(dir.join("tokenizer.json"), tokens::tokenizer_json(system.theory()).to_string()).unwrap();
    std::fs::write(dir.join("tokenizer_config.json"), tokens::tokenizer_config_json().to_string()).unwrap();
    let tokenizer = Tokenizer::load(dir).unwrap();
    let config = serde_json::json!({
        "model_type": "llama", "vocab_size": tokenizer.vocab_size(), "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "tie_word_embeddings": true, "eos_token_id": tokenizer.eos()[0],
    });
    let config = ModelConfig::from_json(config, "test").unwrap();
    let device = Arc::new(Cpu::new(1).unwrap());
    let weights = HostWeights::random(&config, 7);
    let mut policy = Policy::new(Model::new(Arc::clone(&device), weights, usize::MAX).unwrap()).unwrap();
    let mut trainer = Trainer::new(device, &config, 64, Mode::Train).unwrap();
    let problem = system.problem_from_text("statement", STATEMENT, "").unwrap();
    let Prompt::Raw(prompt) = system.solver_prompt(&problem) else { panic!("Metamath prompts are raw") };
    let mut tokens = tokenizer.encode(&prompt).unwrap();
    let prompt_len = tokens.len();
    tokens.extend(tokenizer.encode(&system.proof_completion("ax-1")).unwrap());
    tokens.push(tokenizer.eos()[0]);
    let example = TrainExample { tokens, prompt_len, weight: 1.0, ..TrainExample::default() };
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig { learning_rate: 3e-2, ..AdamConfig::default() },
        schedule: LrSchedule::Constant,
        batch_size: 1,
        shuffle_seed: None,
    };
    for _ in 0..steps {
        trainer.step(&mut policy, &[&example], &options).unwrap();
    }
    policy.model.to_host().unwrap().save(dir, FileType::F32).unwrap();
}

#[test]
fn a_found_proof_is_checked_and_shown_as_a_table() {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), 60);
    let folder = path(dir.path(), "");
    let done = sgs(&["prove", "--model", &folder, "--temperature", "0", "-n", "1", STATEMENT]).expect(0);
    assert!(done.out.contains("   1") && done.out.contains("ax-1"), "{}", done.out);
    assert!(done.out.contains("proved by sample 1"), "{}", done.out);
    assert_eq!(done.out.matches("ax-1").count(), 1, "{}", done.out);
    let named = ["prove", "--model", &folder, "--temperature", "0", "--json", "( ph -> ( ps -> ph ) )"];
    let json = sgs(&named).expect(0).json();
    assert_eq!(json["proof"], "ax-1");
    assert_eq!(json["samples"], 1);
    assert_eq!(json["problem"]["statement"], "$p |- ( ph -> ( ps -> ph ) )");

    // The same proof is wrong in a context where `ax-1` is not available yet.
    let early = [
        "prove",
        "--model",
        &folder,
        "--temperature",
        "0",
        "-n",
        "2",
        "--json",
        "--context",
        "ax-1",
        STATEMENT,
    ];
    let json = sgs(&early).json();
    assert!(json["proof"].is_null(), "{json}");
}

#[test]
fn failed_samples_are_counted_by_reason() {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), 0);
    let folder = path(dir.path(), "");
    let args = ["prove", "--model", &folder, "-n", "12", "--max-new-tokens", "6", "--problem", "syl"];
    let done = sgs(&args).expect(1);
    assert!(done.out.starts_with("no proof of ") && done.out.contains("in 12 samples"), "{}", done.out);
    let json = sgs(&[&args[..], &["--json"]].concat()).expect(1).json();
    let counts = json["failures"].as_array().unwrap().iter().map(|f| f["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 12);
    assert_eq!(json["problem"]["context"], "syl");
    let again = sgs(&[&args[..], &["--json"]].concat()).expect(1).json();
    assert_eq!(again["failures"], json["failures"], "the same seed gives the same samples");
}

#[test]
fn a_statement_longer_than_the_context_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), 0);
    let folder = path(dir.path(), "");
    let long = format!("|- {}ph{}", "( ph -> ".repeat(30), " )".repeat(30));
    let done = sgs(&["prove", "--model", &folder, &long]).expect(1);
    assert!(done.err.contains("the model's context window has 64"), "{}", done.err);
}

#[test]
fn statements_from_standard_input_are_proved_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), 60);
    let folder = path(dir.path(), "");
    let prove = ["prove", "--model", &folder, "--temperature", "0", "-n", "1"];
    // A theorem's label is a statement, too. Invalid lines do not end the session.
    let input =
        "\u{feff}( ph -> ( ps -> ph ) )\n\nph -> ph\nax-1\n|- ( ch -> ( th -> ch ) )\nquit\nnever read\n";
    let done = sgs_with_input(&prove, input).expect(1);
    assert_eq!(done.out.matches("proved by sample 1").count(), 2, "{}", done.out);
    assert!(done.err.contains("did you mean `|- ( ph -> ph )`?"), "{}", done.err);
    assert!(!done.err.contains("never"), "{}", done.err);
    // Each answer, and each error, names its line.
    assert!(done.out.starts_with("line 1: "), "{}", done.out);
    assert!(done.err.lines().any(|line| line.starts_with("error: line ")), "{}", done.err);
    // The printed form is accepted as input.
    let printed = done.out.lines().find(|line| line.starts_with("|- ")).unwrap();
    let again =
        sgs_with_input(&[&prove[..], &["--json"]].concat(), &format!("{printed}\nnonsense\n")).expect(1);
    let lines = again.lines();
    assert_eq!((&lines[0]["proof"], lines.len()), (&"ax-1".into(), 2), "{}", again.out);
    assert!(lines[1]["error"].as_str().unwrap().contains("`nonsense` is not declared"), "{}", again.out);
    sgs_with_input(&prove, "( ph -> ( ps -> ph ) )\n").expect(0);
    for nothing in ["", "\n \n"] {
        let done = sgs_with_input(&prove, nothing).expect(2);
        assert!(done.err.contains("no statement was given"), "{}", done.err);
    }
    sgs_with_input(&prove, "quit\n").expect(0);
}

#[test]
fn printed_statements_are_accepted_as_input() {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), 0);
    let folder = path(dir.path(), "");
    let parsed = |text: &str| {
        let done = sgs(&["prove", "--model", &folder, "-n", "1", "--max-new-tokens", "2", "--json", text]);
        done.json()["problem"]["statement"].as_str().unwrap().to_owned()
    };
    let canonical = "$d ph x $e |- ( ps -> ph ) $p |- ( ps -> A. x ph )";
    let expected = parsed(canonical);
    assert_eq!(parsed("( ps -> ph )  =>  ( ps -> A. x ph )  ($d x ph)"), expected);
    assert_eq!(parsed("|- ( ps -> ph )  =>  |- ( ps -> A. x ph )  ($d x ph)"), expected);
    let wrong = sgs(&["prove", "--context", "sylx", "( ph -> ph )"]).expect(2);
    assert!(wrong.err.contains("--context: `sylx` is not a label of the database; did you"), "{}", wrong.err);
    let negation = sgs(&["prove", "-. -. ph", "-n", "1"]).expect(1);
    assert!(negation.out.starts_with("no proof of |- -. -. ph in 1 sample"), "{}", negation.out);
    let wrong = sgs(&["prove", "ph -> ( ps -> ph )"]).expect(2);
    assert!(wrong.err.contains("did you mean `|- ( ph -> ( ps -> ph ) )`?"), "{}", wrong.err);
}
