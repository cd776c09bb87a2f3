//! Results of workers are validated before any part of them is used.
#![allow(clippy::unwrap_used)]

use crate::system;
use sgs_lm::tokenizer::Tokenizer;
use sgs_run::config::base_model;
use sgs_run::config::{self, Layers};
use sgs_run::round::sampling_context::SamplingContext;
use sgs_run::workers::tasks::{self, GenerateResult, Sample};
use sgs_selfplay::{Command, FinishReason, TaskKey, TaskKind};
use std::sync::Arc;
use system::Echo;

const LIMIT: usize = 4;
const WEIGHTS: &str = "abcd";

fn sample(end: u32) -> Sample {
    let (tokens, log_probs) = (vec![5, 6, end], vec![-0.5, -0.25, 0.0]);
    Sample { tokens, log_probs, entropy: Some(0.5), finish: FinishReason::Stop, refusal: None }
}

#[test]
fn only_what_the_rounds_weights_can_have_sampled_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let tokenizer =
        Tokenizer::load(&base_model::unpack(config::SystemName::Metamath, dir.path()).unwrap()).unwrap();
    let set = vec![format!("sampling.solver_tokens={LIMIT}")];
    let config = config::resolve(&Layers { set, ..Layers::default() }, std::iter::empty()).unwrap().config;
    let vocabulary = tokenizer.vocab_size();
    let end = tokenizer.eos()[0];
    assert!(![5, 6].contains(&end));
    let sample = || sample(end);
    let mut context = SamplingContext {
        config: &config,
        system: &Echo,
        tokenizer: &tokenizer,
        policy_version: 0,
        window: 8,
        policy_id: Some(WEIGHTS),
    };
    let problem = Arc::clone(&system::targets()[0]);
    let key = TaskKey { round: 0, kind: TaskKind::Rollout, problem: problem.id.clone(), index: 0 };
    let commands = [Command::SampleRollout { key, seed: 1, problem, failed: None }];
    let prompt: Arc<[u32]> = vec![3, 4].into();
    let answer = |context: &SamplingContext<'_>, samples: Vec<Sample>, policy_id: &str| {
        let packed = tasks::pack(&GenerateResult { samples, policy_id: policy_id.into() }).unwrap();
        context.parse_result(&commands, &prompt, packed.as_bytes()).map_err(|e| format!("{e:#}"))
    };
    assert_eq!(answer(&context, vec![sample()], WEIGHTS).unwrap().len(), 1);
    assert_eq!(answer(&context, vec![sample()], tasks::own_mark()).unwrap().len(), 1);
    let with = |change: &dyn Fn(&mut Sample)| {
        let mut sample = sample();
        change(&mut sample);
        sample
    };
    let long = |n: usize| {
        let (tokens, log_probs) = (vec![5; n], vec![-1.0; n]);
        Sample { tokens, log_probs, finish: FinishReason::Length, ..sample() }
    };
    let refused = || Sample::refused("too long".into());
    for right in [long(LIMIT), refused()] {
        assert!(answer(&context, vec![right], WEIGHTS).is_ok());
    }
    let odd = [
        (long(LIMIT + 1), "5 tokens, at most 4 were requested"),
        (with(&|s| s.tokens[1] = vocabulary as u32), "is not in the vocabulary of"),
        (with(&|s| s.tokens[1] = u32::MAX), "is not in the vocabulary of"),
        (with(&|s| s.log_probs[1] = f32::NAN), "the log-prob NaN"),
        (with(&|s| s.log_probs[1] = f32::NEG_INFINITY), "the log-prob -inf"),
        (with(&|s| s.log_probs[1] = 0.5), "the log-prob 0.5"),
        (with(&|s| s.log_probs.truncate(2)), "3 tokens with 2 log-probs"),
        (with(&|s| s.log_probs.clear()), "3 tokens with 0 log-probs"),
        (with(&|s| s.entropy = Some(f32::INFINITY)), "the entropy Some"),
        (with(&|s| s.entropy = Some(-1.0)), "the entropy Some"),
        (with(&|s| s.finish = FinishReason::Cancelled), "cancelled without a request"),
        (Sample { tokens: vec![], log_probs: vec![], ..sample() }, "the first end token is not at the end"),
    ];
    for (sample, why) in odd {
        let error = answer(&context, vec![sample.clone()], WEIGHTS).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
    for (samples, why) in [(vec![], "0 completions for 1"), (vec![sample(); 2], "2 completions for 1")] {
        assert!(answer(&context, samples, WEIGHTS).unwrap_err().contains(why));
    }
    for other in ["", "abce", "own", "own 00000000000000000000000000000000"] {
        let error = answer(&context, vec![sample()], other).unwrap_err();
        assert!(error.contains("the round's are `abcd`"), "{other}: {error}");
    }
    context.window = 4;
    assert!(answer(&context, vec![sample()], WEIGHTS).unwrap_err().contains("3 tokens, at most 2"));
    // If no remote worker may sample, results with another id are rejected.
    (context.window, context.policy_id) = (8, None);
    assert!(answer(&context, vec![sample()], WEIGHTS).is_err());
    assert!(answer(&context, vec![sample()], tasks::own_mark()).is_ok());
}

/// The model shipped for Lean: tokenizer, shape and model card agree, and every target fits into the window together
/// with its proof.
#[test]
fn the_model_that_ships_for_lean_is_the_one_of_its_card() {
    let dir = tempfile::tempdir().unwrap();
    let folder = base_model::unpack(config::SystemName::Lean, dir.path()).unwrap();
    let (tokenizer, shape) = (Tokenizer::load(&folder).unwrap(), sgs_lm::ModelConfig::load(&folder).unwrap());
    tokenizer.check_model(&shape).unwrap();
    let of = |text: &str| tokenizer.encode(text).unwrap();
    assert_eq!(of(sgs_lean::compact::END), tokenizer.eos());
    assert!(sgs_lean::compact::SPECIAL.iter().all(|token| of(token).len() == 1));
    let card = include_str!("../../../../data/lean/base/README.md");
    let parameters = shape.parameters().to_string();
    let thousands: Vec<&str> =
        parameters.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap()).collect();
    assert!(card.contains(&format!("{} parameters", thousands.join(","))), "{parameters}");
    assert!(card.contains(&format!("{} tokens", tokenizer.vocab_size())), "{}", tokenizer.vocab_size());
    for target in sgs_lean::data::composed().unwrap() {
        let prompt = of(&sgs_lean::compact::solver(&target.problem));
        let proof = of(target.proof.as_deref().unwrap());
        assert_eq!(tokenizer.decode(&proof).unwrap(), target.proof.unwrap());
        assert!(prompt.len() + proof.len() < shape.max_positions, "{}", target.problem.id);
    }
}
