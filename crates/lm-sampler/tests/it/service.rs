//! The sampler's interface: streaming, cancellation, refusals, broken weights, memory limits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use sgs_lm::model::Model;
use sgs_lm::weights::HostWeights;
use sgs_lm_cpu::Cpu;
use sgs_lm_sampler::{
    Finish, Request, RequestId, RequestRefusal, SampledCompletion, Sampler, SamplerError, SamplerOptions,
    SamplingParams,
};

fn model() -> Model<Cpu> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/data/llama_gqa_tied");
    Model::new(Arc::new(Cpu::new(2).unwrap()), HostWeights::load(&dir).unwrap(), 256).unwrap()
}

fn request(id: u64, prompt: Vec<u32>, max_new_tokens: usize) -> Request {
    let (prompt, stop) = (prompt.into(), Arc::from([]));
    Request { id: RequestId(id), prompt, seed: id, max_new_tokens, params: SamplingParams::default(), stop }
}

/// Returns options with a budget for the working buffers and `pages` pages.
fn budget(model: &Model<Cpu>, options: &SamplerOptions, pages: u64) -> SamplerOptions {
    let tiny = SamplerOptions { memory_budget_bytes: 0, ..options.clone() };
    match Sampler::new(model, &tiny) {
        Err(SamplerError::Budget { work, page, .. }) => {
            SamplerOptions { memory_budget_bytes: work + page * pages, ..options.clone() }
        }
        other => panic!("a budget of nothing was accepted: {other:?}"),
    }
}

fn small(model: &Model<Cpu>, pages: u64) -> Sampler<Cpu> {
    let options = SamplerOptions { max_batch: 4, prefill_tokens: Some(64), ..SamplerOptions::default() };
    let sampler = Sampler::new(model, &budget(model, &options, pages)).unwrap();
    assert_eq!(sampler.memory().pages as u64, pages);
    sampler
}

#[test]
fn completions_are_returned_as_they_end() {
    let model = model();
    let mut sampler = small(&model, 40);
    for (id, length) in [(0, 9), (1, 2), (2, 5), (3, 2), (4, 1), (5, 3)] {
        sampler.submit(request(id, vec![id as u32 + 1, 7], length)).unwrap();
    }
    let mut steps = Vec::new();
    while !sampler.is_idle() {
        let mut finished = Vec::new();
        sampler.step(&model, &mut finished).unwrap();
        steps.push(finished.iter().map(|c| c.id.0).collect::<BTreeSet<u64>>());
    }
    // The first step prefills the prompts; two requests wait for a free slot.
    let order: Vec<u64> = steps.iter().flatten().copied().collect();
    assert_eq!(order, [1, 3, 4, 2, 5, 0]);
    assert_eq!(steps.iter().position(|s| s.contains(&1)), steps.iter().position(|s| s.contains(&3)));
    let counters = *sampler.counters();
    assert_eq!((counters.decoded_tokens, counters.prefilled_tokens), (22, 6));
    assert_eq!(counters.reached_length, 6);
    assert!(2 * counters.decoded_tokens > 3 * counters.steps && !counters.time.is_zero());
}

#[test]
fn requests_that_cannot_run_are_refused_without_effect_on_others() {
    let model = model();
    let mut sampler = small(&model, 4);
    let mut truncated = request(15, vec![5], 1);
    truncated.params.top_p = 0.0;
    let mut hot = request(16, vec![5], 1);
    hot.params.temperature = f32::NAN;
    let refused = [
        request(10, vec![1; 250], 7),
        request(11, vec![1; 40], 30),
        request(12, vec![], 3),
        request(13, vec![5, 101], 3),
        request(14, vec![5], 0),
        truncated,
        hot,
    ];
    let mut finishes = BTreeMap::new();
    let good = (0..3).map(|id| request(id, vec![3; 20], 10));
    let mut keep = |c: SampledCompletion| {
        assert!(finishes.insert(c.id.0, c.finish).is_none(), "request {} ended twice", c.id);
    };
    sampler.run(&model, good.chain(refused), |_, c| keep(c)).unwrap();
    assert!((0..3).all(|id| finishes[&id] == Finish::Length));
    let (prompt, max_new) = (250, 7);
    assert_eq!(
        finishes[&10],
        Finish::Refused(RequestRefusal::ExceedsContext { prompt, max_new, limit: 256 })
    );
    let (prompt, max_new) = (40, 30);
    assert_eq!(finishes[&11], Finish::Refused(RequestRefusal::ExceedsBudget { prompt, max_new, limit: 64 }));
    assert_eq!(finishes[&12], Finish::Refused(RequestRefusal::EmptyPrompt));
    let (position, token, vocabulary) = (1, 101, 101);
    assert_eq!(finishes[&13], Finish::Refused(RequestRefusal::UnknownToken { position, token, vocabulary }));
    assert_eq!(finishes[&14], Finish::Refused(RequestRefusal::NoNewTokens));
    for (id, wrong) in [(15, "top_p"), (16, "temperature")] {
        let finish = &finishes[&id];
        assert!(
            matches!(finish, Finish::Refused(RequestRefusal::Parameter { name, .. }) if *name == wrong),
            "{finish:?}"
        );
    }
    assert_eq!(sampler.counters().refused, 7);
}

#[test]
fn cancelled_requests_return_their_tokens_and_free_their_slot() {
    let model = model();
    let mut sampler = small(&model, 40);
    for id in 0..6 {
        sampler.submit(request(id, vec![9, 9, 4], 12)).unwrap();
    }
    assert!(matches!(sampler.submit(request(5, vec![1], 1)), Err(SamplerError::DuplicateId(RequestId(5)))));
    let mut finished = Vec::new();
    for _ in 0..4 {
        sampler.step(&model, &mut finished).unwrap();
    }
    assert!(sampler.cancel(RequestId(1)) && sampler.cancel(RequestId(5)));
    assert!(!sampler.cancel(RequestId(1)) && !sampler.cancel(RequestId(77)));
    assert_eq!((sampler.running(), sampler.waiting()), (3, 1));
    sampler.run(&model, [], |_, c| finished.push(c)).unwrap();
    let of = |id: u64| finished.iter().find(|c| c.id.0 == id).unwrap();
    assert_eq!((of(1).finish.clone(), of(1).tokens.len(), of(1).log_probs.len()), (Finish::Cancelled, 3, 3));
    assert_eq!((of(5).finish.clone(), of(5).tokens.len()), (Finish::Cancelled, 0));
    assert!([0, 2, 3, 4].iter().all(|id| of(*id).finish == Finish::Length));
    assert_eq!(sampler.free_pages(), 40);
}

#[test]
fn requests_cancelled_during_a_step_end_with_it() {
    let model = model();
    let mut alone = Vec::new();
    small(&model, 40).run(&model, [request(1, vec![9], 6)], |_, c| alone.push(c)).unwrap();
    let mut sampler = small(&model, 40);
    sampler.submit(request(0, vec![9], 6)).unwrap();
    sampler.submit(request(1, vec![9], 6)).unwrap();
    sampler.start(&model).unwrap();
    assert!(sampler.cancel(RequestId(0)) && !sampler.cancel(RequestId(0)));
    // A prompt that is submitted meanwhile does not reuse the entry of the prompt that is being dropped.
    sampler.submit(request(2, vec![4, 4], 2)).unwrap();
    let mut finished = Vec::new();
    assert!(sampler.is_ready().unwrap());
    sampler.finish(&mut finished).unwrap();
    let cancelled = finished.pop().unwrap();
    assert_eq!(
        (cancelled.id, cancelled.finish, cancelled.tokens.len()),
        (RequestId(0), Finish::Cancelled, 1)
    );
    assert!(finished.is_empty());
    sampler.run(&model, [], |_, c| finished.push(c)).unwrap();
    let of = |id: u64| finished.iter().find(|c| c.id.0 == id).unwrap();
    assert_eq!((of(1), of(2).tokens.len()), (&alone[0], 2));

    sampler.submit(request(3, vec![7], 6)).unwrap();
    sampler.start(&model).unwrap();
    sampler.cancel_all();
    finished.clear();
    sampler.finish(&mut finished).unwrap();
    assert_eq!((finished.len(), finished[0].tokens.len(), sampler.free_pages()), (1, 0, 40));
    assert!(sampler.is_idle());
}

#[test]
fn more_can_be_submitted_and_cancelled_while_running() {
    let model = model();
    let mut sampler = small(&model, 40);
    let mut done = Vec::new();
    sampler
        .run(&model, [request(0, vec![2], 3), request(1, vec![2], 200)], |sampler, c| {
            if c.id.0 == 0 {
                sampler.submit(request(2, vec![2, 5], 4)).unwrap();
            } else if c.id.0 == 2 {
                assert!(sampler.cancel(RequestId(1)));
            }
            done.push((c.id.0, c.tokens.len()));
        })
        .unwrap();
    assert_eq!(done, [(0, 3), (2, 4), (1, 8)]);
}

#[test]
fn broken_weights_are_an_error_and_the_sampler_stays_usable() {
    let mut model = model();
    let mut sampler = small(&model, 40);
    sampler.submit(request(0, vec![2; 20], 5)).unwrap();
    let mut finished = Vec::new();
    (0..3).for_each(|_| sampler.step(&model, &mut finished).unwrap());
    let at = model.layout.layers[1].down.offset;
    let sound = std::mem::replace(&mut model.params[at], f32::NAN);
    let error = sampler.step(&model, &mut finished).unwrap_err();
    assert!(matches!(error, SamplerError::NotFinite { id: RequestId(0), position: 21 }), "{error}");
    model.params[at] = sound;
    sampler.cancel_all();
    sampler.run(&model, [request(0, vec![2; 20], 5)], |_, c| finished.push(c)).unwrap();
    let mut fresh = small(&model, 40);
    fresh.run(&model, [request(0, vec![2; 20], 5)], |_, c| finished.push(c)).unwrap();
    assert_eq!((finished[0].finish.clone(), finished[0].tokens.len()), (Finish::Cancelled, 2));
    assert_eq!(finished[1], finished[2], "nothing of the broken step is left");
}

#[test]
fn options_and_models_that_do_not_fit_are_errors() {
    let model = model();
    for (options, word) in [
        (SamplerOptions { max_batch: 0, ..SamplerOptions::default() }, "max_batch is 0"),
        (SamplerOptions { page_len: 24, ..SamplerOptions::default() }, "page_len is 24"),
        (SamplerOptions { prefill_tokens: Some(0), ..SamplerOptions::default() }, "prefill_tokens is 0"),
        (
            SamplerOptions { memory_budget_bytes: 1000, ..SamplerOptions::default() },
            "1000 bytes is too small",
        ),
    ] {
        let error = Sampler::new(&model, &options).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/data/llama_mha");
    let other = Model::new(Arc::clone(&model.device), HostWeights::load(&dir).unwrap(), 256).unwrap();
    let mut sampler = small(&model, 4);
    assert!(matches!(sampler.step(&other, &mut Vec::new()), Err(SamplerError::Model(_))));
}

#[test]
fn preemption_changes_no_completion() {
    let model = model();
    // Two requests run at a time, and need 30 pages at their maximum length.
    let requests = || (0..6).map(|id| request(id, vec![5 + id as u32; 20], 200));
    let finish = |pages| {
        let mut sampler = small(&model, pages);
        let mut finished = BTreeMap::new();
        sampler.run(&model, requests(), |_, done| drop(finished.insert(done.id.0, done))).unwrap();
        assert_eq!(sampler.free_pages() as u64, pages);
        (finished, *sampler.counters())
    };
    let (ample, counters) = finish(64);
    assert_eq!((counters.decoded_tokens, counters.replayed_tokens), (1200, 0));
    let (scarce, counters) = finish(28);
    assert!(scarce == ample);
    assert_eq!(counters.decoded_tokens, 1200);
    assert!((1..1200).contains(&counters.replayed_tokens), "{counters:?}");
    assert_eq!(counters.peak_pages, 28);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Checks, for any order of submissions, cancellations and steps, and for any amount of memory, that a request that
    /// is not cancelled gets the same tokens as it gets alone, and that all pages are free at the end.
    #[test]
    fn interleavings_change_no_sample_and_leak_no_page(
        pages in 8u64..24,
        actions in prop::collection::vec((0u8..10, 1usize..40, 0u32..3, 1usize..80), 1..25),
    ) {
        let model = model();
        let mut sampler = small(&model, pages);
        let mut finished: Vec<SampledCompletion> = Vec::new();
        let mut asked = Vec::new();
        for (i, (action, length, kind, max_new)) in actions.iter().enumerate() {
            match action {
                0..6 => {
                    let prompt = (0..*length as u32).map(|t| (t * kind + kind) % 101).collect();
                    asked.push(request(i as u64, prompt, *max_new));
                    sampler.submit(asked[asked.len() - 1].clone()).unwrap();
                }
                6 => { sampler.cancel(RequestId((length % (i + 1)) as u64)); }
                _ => (0..length % 6).for_each(|_| sampler.step(&model, &mut finished).unwrap()),
            }
        }
        sampler.run(&model, [], |_, c| finished.push(c)).unwrap();
        prop_assert_eq!(sampler.free_pages() as u64, pages);
        prop_assert_eq!(finished.len(), asked.len());
        let mut alone = small(&model, 24);
        for done in finished {
            let request = asked.iter().find(|r| r.id == done.id).unwrap().clone();
            let mut want = None;
            alone.run(&model, [request], |_, c| want = Some(c)).unwrap();
            let want = want.unwrap();
            let n = done.tokens.len();
            prop_assert_eq!(&done.tokens[..], &want.tokens[..n]);
            prop_assert_eq!(&done.log_probs[..], &want.log_probs[..n]);
            prop_assert!(done.finish == Finish::Cancelled || n == want.tokens.len());
        }
    }
}
