//! The distribution of samples: they follow the model, their log-probabilities are those of the trainer, and
//! they do not depend on other requests.

use std::path::Path;
use std::sync::Arc;

use sgs_lm::model::{Mode, Model};
use sgs_lm::trainer::Trainer;
use sgs_lm::weights::HostWeights;
use sgs_lm_cpu::Cpu;
use sgs_lm_sampler::{
    Finish, Request, RequestId, SampledCompletion, Sampler, SamplerOptions, SamplingParams,
};

const MODELS: [&str; 5] = ["llama_mha", "llama_gqa_tied", "llama_yarn", "qwen2_bias", "qwen3"];

fn device() -> Arc<Cpu> {
    Arc::new(Cpu::new(2).unwrap())
}

fn model(device: &Arc<Cpu>, name: &str) -> Model<Cpu> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/data").join(name);
    Model::new(Arc::clone(device), HostWeights::load(&dir).unwrap(), 4096).unwrap()
}

fn options(max_batch: usize) -> SamplerOptions {
    SamplerOptions { memory_budget_bytes: 256 << 20, max_batch, ..SamplerOptions::default() }
}

fn request(id: u64, prompt: &[u32], max_new_tokens: usize) -> Request {
    Request {
        id: RequestId(id),
        prompt: prompt.into(),
        seed: 1000 + id,
        max_new_tokens,
        params: SamplingParams::default(),
        stop: Arc::from([]),
    }
}

/// Runs all requests; returns the completions in the order of ids.
fn finish(sampler: &mut Sampler<Cpu>, model: &Model<Cpu>, requests: Vec<Request>) -> Vec<SampledCompletion> {
    let mut done = Vec::new();
    sampler.run(model, requests, |_, completion| done.push(completion)).unwrap();
    done.sort_by_key(|c| c.id);
    assert_eq!(sampler.free_pages(), sampler.memory().pages, "all pages come back");
    done
}

/// Creates prompts of all lengths around those of pages and panels, with three rollouts of different lengths each.
fn mixed_requests(vocabulary: usize) -> Vec<Request> {
    let lengths = [1, 2, 15, 16, 17, 18, 33, 63, 64, 65, 66, 70, 7, 49];
    (0..3 * lengths.len() as u64)
        .map(|id| {
            let length = lengths[id as usize / 3];
            let prompt: Vec<u32> = (0..length).map(|t| ((t * 7 + length * 3) % vocabulary) as u32).collect();
            let mut request = request(id, &prompt, 5 + (id as usize * 5) % 40);
            request.stop = Arc::from([3]);
            request
        })
        .collect()
}

#[test]
fn sampled_log_probs_equal_the_trainers() {
    let device = device();
    for name in MODELS {
        let model = model(&device, name);
        let mut sampler = Sampler::new(&model, &options(16)).unwrap();
        let requests = mixed_requests(model.config.vocab_size);
        let done = finish(&mut sampler, &model, requests.clone());
        let mut trainer = Trainer::new(Arc::clone(&device), &model.config, 512, Mode::Infer).unwrap();
        let whole: Vec<Vec<u32>> =
            requests.iter().zip(&done).map(|(r, c)| [&r.prompt[..], &c.tokens[..]].concat()).collect();
        let forced = trainer
            .log_probs(&model, whole.iter().zip(&requests).map(|(tokens, r)| (&tokens[..], r.prompt.len())))
            .unwrap();
        let (mut stopped, mut compared) = (0, 0);
        for ((request, done), forced) in requests.iter().zip(&done).zip(&forced) {
            assert_eq!(done.tokens.len(), forced.log_probs.len());
            let pairs = done.log_probs.iter().zip(&forced.log_probs);
            for (a, b) in pairs.chain(done.entropies.iter().zip(&forced.entropies)) {
                assert!((a - b).abs() < 1e-4, "{name}, request {}: {a} sampled, {b} recomputed", done.id);
                compared += 1;
            }
            let ends = done.tokens.last() == Some(&3);
            assert_eq!(done.finish, if ends { Finish::Stop } else { Finish::Length });
            assert!(ends || done.tokens.len() == request.max_new_tokens);
            assert!(done.tokens.iter().rev().skip(1).all(|t| *t != 3));
            stopped += usize::from(ends);
        }
        assert!(stopped > 0 && compared > 500, "{stopped} {compared}");
    }
}

#[test]
fn a_sample_does_not_depend_on_the_batch() {
    let device = device();
    for name in MODELS {
        let model = model(&device, name);
        let requests = mixed_requests(model.config.vocab_size);
        let mut wide = Sampler::new(&model, &options(64)).unwrap();
        let together = finish(&mut wide, &model, requests.clone());
        // Repeat in a narrow batch, in small steps, in reverse order, and each request alone.
        assert_eq!(finish(&mut wide, &model, requests.clone()), together);
        let narrow = SamplerOptions { prefill_tokens: Some(1), page_len: 32, ..options(5) };
        let mut narrow = Sampler::new(&model, &narrow).unwrap();
        assert_eq!(finish(&mut narrow, &model, requests.clone()), together);
        assert_eq!(finish(&mut wide, &model, requests.iter().rev().cloned().collect()), together);
        let alone: Vec<SampledCompletion> =
            requests.iter().flat_map(|r| finish(&mut wide, &model, vec![r.clone()])).collect();
        assert_eq!(alone, together);
        let threads = Arc::new(Cpu::new(1).unwrap());
        let single = self::model(&threads, name);
        let mut single_sampler = Sampler::new(&single, &options(64)).unwrap();
        assert_eq!(finish(&mut single_sampler, &single, requests), together);
    }
}

#[test]
fn a_shared_prompt_is_computed_once_and_changes_nothing() {
    let device = device();
    let model = model(&device, "llama_gqa_tied");
    let prompt: Vec<u32> = (0..90).map(|t| (t * 11 + 5) % 101).collect();
    let k = 8;
    let requests: Vec<Request> = (0..k).map(|id| request(id, &prompt, 30)).collect();
    let mut sampler = Sampler::new(&model, &options(64)).unwrap();
    let shared = finish(&mut sampler, &model, requests.clone());
    assert_eq!(sampler.counters().prefilled_tokens, 89);
    assert_eq!(sampler.counters().decoded_tokens, 30 * k);
    let mut peak = 0;
    let apart: Vec<SampledCompletion> = requests
        .into_iter()
        .flat_map(|r| {
            let mut own = Sampler::new(&model, &options(1)).unwrap();
            let done = finish(&mut own, &model, vec![r]);
            peak += own.counters().peak_pages;
            done
        })
        .collect();
    assert_eq!(shared, apart);
    assert!(sampler.counters().peak_pages < peak / 2, "{} of {peak}", sampler.counters().peak_pages);
    assert!((0..k as usize).any(|i| shared[i].tokens != shared[0].tokens), "seeds differ");
}

/// Returns the exact probabilities of the next token after `prompt`, from the trainer's forward pass.
fn distribution(device: &Arc<Cpu>, model: &Model<Cpu>, prompt: &[u32]) -> Vec<f64> {
    let mut trainer = Trainer::new(Arc::clone(device), &model.config, 512, Mode::Infer).unwrap();
    let sequences: Vec<Vec<u32>> =
        (0..model.config.vocab_size as u32).map(|next| [prompt, &[next]].concat()).collect();
    let stats = trainer.log_probs(model, sequences.iter().map(|s| (&s[..], prompt.len()))).unwrap();
    stats.iter().map(|s| f64::from(s.log_probs[0]).exp()).collect()
}

/// Returns Pearson's statistic, standardised (Wilson & Hilferty 1931), which is approximately normal if the counts
/// follow `p`.
fn surprise(counts: &[u64], p: &[f64]) -> f64 {
    let n: u64 = counts.iter().sum();
    assert!(p.iter().all(|p| p * n as f64 > 5.0), "enough draws for every bin");
    let chi2: f64 =
        counts.iter().zip(p).map(|(c, p)| (*c as f64 - p * n as f64).powi(2) / (p * n as f64)).sum();
    let df = p.len() as f64 - 1.0;
    ((chi2 / df).cbrt() - (1.0 - 2.0 / (9.0 * df))) / (2.0 / (9.0 * df)).sqrt()
}

#[test]
fn samples_follow_the_models_probabilities() {
    assert_samples_follow_probabilities(200_000);
}

#[test]
#[ignore = "ten seconds: a million samples; .ci/run runs it"]
fn a_million_samples_follow_the_models_probabilities() {
    assert_samples_follow_probabilities(1_000_000);
}

fn assert_samples_follow_probabilities(draws: u64) {
    let device = device();
    let model = model(&device, "llama_gqa_tied");
    let prompt = [5u32, 80, 33];
    let first = distribution(&device, &model, &prompt);
    let likely = (0..first.len()).max_by(|a, b| first[*a].total_cmp(&first[*b])).unwrap() as u32;
    let second = distribution(&device, &model, &[&prompt[..], &[likely]].concat());
    let shared: Arc<[u32]> = Arc::from(prompt);
    let requests = (0..draws).map(|id| Request { prompt: Arc::clone(&shared), ..request(id, &[], 2) });
    let mut sampler = Sampler::new(&model, &options(512)).unwrap();
    let (mut firsts, mut seconds) = (vec![0u64; first.len()], vec![0u64; second.len()]);
    // Only the most probable first token has a successor; any other token stops.
    let others: Arc<[u32]> = (0..first.len() as u32).filter(|t| *t != likely).collect();
    let requests = requests.map(|r| Request { stop: Arc::clone(&others), ..r });
    sampler
        .run(&model, requests, |_, done| {
            firsts[done.tokens[0] as usize] += 1;
            if done.tokens[0] == likely {
                seconds[done.tokens[1] as usize] += 1;
            }
        })
        .unwrap();
    assert_eq!(firsts.iter().sum::<u64>(), draws);
    let (a, b) = (surprise(&firsts, &first), surprise(&seconds, &second));
    assert!(a.abs() < 4.0 && b.abs() < 4.0, "{a} and {b} standard deviations");
}

#[test]
fn greedy_and_truncated_sampling() {
    let device = device();
    let model = model(&device, "llama_mha");
    let p = distribution(&device, &model, &[7, 8]);
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
    let mut sampler = Sampler::new(&model, &options(64)).unwrap();
    let with = |params: SamplingParams| -> Vec<Request> {
        (0..400).map(|id| Request { params, ..request(id, &[7, 8], 1) }).collect()
    };
    for done in finish(&mut sampler, &model, with(SamplingParams::greedy())) {
        assert_eq!(done.tokens[0] as usize, order[0]);
        assert!((f64::from(done.log_probs[0]) - p[order[0]].ln()).abs() < 1e-4);
    }
    let few = SamplingParams { top_k: 3, ..SamplingParams::default() };
    for done in finish(&mut sampler, &model, with(few)) {
        let token = done.tokens[0] as usize;
        assert!(order[..3].contains(&token));
        assert!(
            (f64::from(done.log_probs[0]) - p[token].ln()).abs() < 1e-4,
            "log-probs are the whole model's"
        );
    }
    let nucleus = SamplingParams { top_p: 0.3, temperature: 0.8, ..SamplingParams::default() };
    let kept = finish(&mut sampler, &model, with(nucleus));
    let lowest = kept.iter().map(|c| p[c.tokens[0] as usize]).fold(1.0, f64::min);
    let above: f64 = p.iter().filter(|q| **q > lowest).sum();
    assert!(above < 0.3, "{above}");
}

/// The reciprocal of these temperatures is infinite, or nearly.
#[test]
fn tiny_temperatures_select_the_most_probable_token() {
    let device = device();
    let model = model(&device, "llama_gqa_tied");
    for top_k in [0, 5] {
        let sample = |temperature: f32| {
            let params = SamplingParams { temperature, top_k, ..SamplingParams::default() };
            let mut sampler = Sampler::new(&model, &options(4)).unwrap();
            let mut done = Vec::new();
            // The other request is sampled in the same step.
            let requests = [Request { params, ..request(0, &[3, 1, 4], 20) }, request(1, &[1, 5], 20)];
            sampler.run(&model, requests, |_, completion| done.push(completion)).unwrap();
            done.sort_by_key(|completion| completion.id);
            done
        };
        let greedy = sample(0.0);
        for temperature in [1e-45, 1e-40, 1e-38, f32::MIN_POSITIVE, 1e-37, 1e-30] {
            assert_eq!(sample(temperature), greedy, "{temperature:e}");
        }
    }
}
