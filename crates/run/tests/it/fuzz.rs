//! Fuzz tests of journal records and board payloads.
#![allow(clippy::unwrap_used)]

use crate::fuzzing;
use fuzzing::Fuzzer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sgs_run::round::record::{self, Entry};
use sgs_run::workers::manifest::RunManifest;
use sgs_run::workers::tasks::{self, GenerateResult, GenerateTask, Sample, VerifyResult, VerifyTask};
use sgs_selfplay::{
    Completion, Event, FinishReason, Judgement, ParsedProof, Problem, ProblemId, Review, Role, SampleFacts,
    TaskKey, TaskKind, Verdict,
};
use std::sync::Arc;

fn entries() -> Vec<Vec<Entry>> {
    let key = |kind| TaskKey { round: 3, kind, problem: ProblemId::new("p∀"), index: 7 };
    let completion = || Completion {
        text: "ax-mp ∀".into(),
        prompt_tokens: vec![4, 5].into(),
        tokens: vec![1, 70_000],
        log_probs: vec![-0.5, -1e-6],
        entropy: Some(0.25),
        finish: FinishReason::Stop,
        policy_version: 2,
    };
    let sample = || SampleFacts::of(&completion());
    let sampled = |event| Entry { event, completion: Some(completion()) };
    let proof = ParsedProof { text: "h1 ax-mp".into(), penalised: false, steps: 2 };
    let judgement = Judgement { verdict: Verdict::Refused, reason: "no".into(), step: Some(1), micros: 9 };
    let review = Review { relevance: 3.0, redundancy: 0.0, complexity: 1.0 };
    vec![
        vec![sampled(Event::Rollout { key: key(TaskKind::Rollout), read: Ok(proof), sample: sample() })],
        vec![sampled(Event::Conjecture {
            key: key(TaskKind::Conjecture),
            read: Err("no".into()),
            sample: sample(),
        })],
        vec![sampled(Event::Review { key: key(TaskKind::Review), read: Ok(review), sample: sample() })],
        vec![Entry {
            event: Event::Judgement { key: key(TaskKind::Judgement), judgement },
            completion: None,
        }],
        vec![Entry {
            event: Event::Lost { key: key(TaskKind::Rollout), reason: "lost".into() },
            completion: None,
        }],
    ]
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_records_of_the_journal() {
    let payload = |mut entries: Vec<Entry>| record::record(&mut entries).unwrap().unwrap().payload;
    let mut fuzzer = Fuzzer::new(entries().into_iter().map(payload).collect());
    while let Some(bytes) = fuzzer.input() {
        let Ok(mut read) = record::entries(&bytes) else { continue };
        // A record that is accepted must survive a round trip. The bytes are compared, because NaN is not equal to
        // itself.
        if let Some(written) = record::record(&mut read).unwrap() {
            let mut again = record::entries(&written.payload).unwrap();
            assert_eq!(record::record(&mut again).unwrap().unwrap().payload, written.payload);
        }
        fuzzer.keep(bytes);
    }
    fuzzer.report("records");
}

fn is_whole<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let Ok(value) = tasks::unpack::<T>(bytes) else { return false };
    let written = tasks::pack(&value).unwrap();
    let again: T = tasks::unpack(written.as_bytes()).unwrap();
    assert_eq!(tasks::pack(&again).unwrap().as_bytes(), written.as_bytes());
    true
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_payloads_of_the_board() {
    let task = GenerateTask {
        policy_id: "0123456789abcdef".to_owned(),
        role: Role::Guide,
        policy_version: 3,
        prompt: vec![1, 70_000],
        seeds: vec![7, u64::MAX],
        max_new_tokens: 48,
        temperature: 1.0,
    };
    let sample = Sample {
        tokens: vec![1, 2],
        log_probs: vec![-0.5, -0.1],
        entropy: None,
        finish: FinishReason::Length,
        refusal: None,
    };
    let result =
        GenerateResult { samples: vec![sample, Sample::refused("too long".into())], policy_id: "ab".into() };
    let problem = Problem { id: ProblemId::new("p"), statement: "|- ph".into(), context: "".into() };
    let verify = VerifyTask { checker: "m".into(), proofs: vec![(Arc::new(problem), vec!["ax-mp".into()])] };
    let judgement = Judgement { verdict: Verdict::Proved, reason: String::new(), step: None, micros: 1 };
    let corpus =
        [tasks::pack(&task), tasks::pack(&result), tasks::pack(&verify), tasks::pack(&vec![judgement; 2])];
    let mut fuzzer = Fuzzer::new(corpus.into_iter().map(|p| p.unwrap().as_bytes().to_vec()).collect());
    while let Some(bytes) = fuzzer.input() {
        // A worker parses such a manifest before it loads its weights.
        let _ = RunManifest::read(&bytes);
        let whole = [
            is_whole::<GenerateTask>(&bytes),
            is_whole::<GenerateResult>(&bytes),
            is_whole::<VerifyTask>(&bytes),
            is_whole::<VerifyResult>(&bytes),
        ];
        if whole.contains(&true) {
            fuzzer.keep(bytes);
        }
    }
    fuzzer.report("payloads");
}
