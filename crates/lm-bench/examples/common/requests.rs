//! Random requests for sampling benchmarks.

use std::sync::Arc;

use sgs_base::random::SeededRng;
use sgs_lm_sampler::{Request, RequestId, SamplingParams};

/// Creates a request with a prompt of random tokens.
pub fn random_request(
    id: usize,
    prompt: usize,
    max_new_tokens: usize,
    vocabulary: usize,
    rng: &mut SeededRng,
) -> Request {
    Request {
        id: RequestId(id as u64),
        prompt: (0..prompt).map(|_| rng.index(vocabulary) as u32).collect(),
        seed: id as u64,
        max_new_tokens,
        params: SamplingParams::default(),
        stop: Arc::from([]),
    }
}

/// Creates requests like those of the roles: prompts of 16 to 256 tokens, uniformly distributed, and log-normal
/// numbers of new tokens with median 64 and deviation 1.1, at most 768.
pub fn mixed_requests(count: usize, vocabulary: usize) -> Vec<Request> {
    let mut rng = SeededRng::stream(7, 0);
    (0..count)
        .map(|id| {
            let prompt = 16 + rng.index(241);
            let new = 64.0 * f64::from(1.1 * rng.normal()).exp();
            random_request(id, prompt, (new.round() as usize).clamp(1, 768), vocabulary, &mut rng)
        })
        .collect()
}
