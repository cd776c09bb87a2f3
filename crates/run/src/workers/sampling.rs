//! Sampling in this process: prompts to tokens, completions back to text, independent of any board.

use crate::error::{Result, bail};
use sgs_formal::Prompt;
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm_sampler::{
    Decode, Finish, Request, RequestId, SampledCompletion, Sampler, SamplerOptions, SamplingParams,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A prompt with the seed of its sample.
pub struct Ask {
    pub prompt: Arc<[u32]>,
    pub seed: u64,
}

/// Encodes a role's prompt.
pub fn encode(tokenizer: &Tokenizer, prompt: &Prompt) -> Result<Arc<[u32]>> {
    Ok(match prompt {
        Prompt::Raw(text) => tokenizer.encode(text)?.into(),
        Prompt::Chat(text) => {
            let message = sgs_lm::chat::ChatMessage::new("user", text.clone());
            tokenizer.encode_chat(&[message], true)?.into()
        }
    })
}

/// Returns the text of a completion without special tokens.
pub fn decode(tokenizer: &Tokenizer, completion: &SampledCompletion) -> Result<String> {
    Ok(tokenizer.decode(&completion.tokens)?)
}

/// Returns the longest completion of a prompt, in tokens: `limit`, or the rest of the context window. At least 1, so
/// that the sampler reports a prompt that leaves no space.
pub fn room(limit: usize, prompt: usize, window: usize) -> usize {
    limit.min(window.saturating_sub(prompt)).max(1)
}

/// Samples one prompt once per seed, with a cache of `memory_mib` MiB.
///
/// # Errors
/// Returns an error as [`sample`] does.
pub fn sample_one<D: Device + Decode>(
    model: &Model<D>,
    tokenizer: &Tokenizer,
    prompt: &Prompt,
    seeds: impl Iterator<Item = u64>,
    max_new_tokens: usize,
    memory_mib: u64,
) -> Result<Vec<String>> {
    let prompt = encode(tokenizer, prompt)?;
    let asks: Vec<Ask> = seeds.map(|seed| Ask { prompt: Arc::clone(&prompt), seed }).collect();
    let options = SamplerOptions {
        max_batch: asks.len().min(256),
        memory_budget_bytes: memory_mib.saturating_mul(1 << 20),
        ..SamplerOptions::default()
    };
    let completions = sample(model, tokenizer, &asks, max_new_tokens, &options, |_, _| ())?;
    completions.iter().map(|completion| decode(tokenizer, completion)).collect()
}

/// Samples every prompt once at temperature 1. Completions have the order of the prompts.
pub fn sample<D: Device + Decode>(
    model: &Model<D>,
    tokenizer: &Tokenizer,
    asks: &[Ask],
    max_new_tokens: usize,
    options: &SamplerOptions,
    mut on_finished: impl FnMut(usize, &SampledCompletion),
) -> Result<Vec<SampledCompletion>> {
    let mut sampler = Sampler::new(model, options)?;
    let stop: Arc<[u32]> = tokenizer.eos().into();
    let requests: Vec<Request> = asks
        .iter()
        .enumerate()
        .map(|(i, ask)| Request {
            id: RequestId(i as u64),
            prompt: Arc::clone(&ask.prompt),
            seed: ask.seed,
            max_new_tokens: room(max_new_tokens, ask.prompt.len(), model.max_positions),
            params: SamplingParams::default(),
            stop: Arc::clone(&stop),
        })
        .collect();
    let mut out: Vec<Option<SampledCompletion>> = vec![None; asks.len()];
    sampler.run(model, requests, |_, completion| {
        let index = completion.id.0 as usize;
        on_finished(index, &completion);
        out[index] = Some(completion);
    })?;
    match out.into_iter().collect::<Option<Vec<_>>>() {
        Some(all) => Ok(all),
        None => bail!("the sampler lost a request"),
    }
}

/// The outcome of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The model ended the text.
    Whole(String),
    /// The completion reached the limit.
    Cut,
    /// The sampler or server failed; this says nothing about the model.
    Lost,
}

/// Samples every prompt once in this process.
///
/// # Errors
/// Returns an error as [`sample`] does.
pub fn answers<D: Device + Decode>(
    model: &Model<D>,
    tokenizer: &Tokenizer,
    asks: &[Ask],
    max_new_tokens: usize,
    options: &SamplerOptions,
    on_answer: impl Fn(),
) -> Result<Vec<Answer>> {
    let completions = sample(model, tokenizer, asks, max_new_tokens, options, |_, _| on_answer())?;
    let answer = |completion: &SampledCompletion| match completion.finish {
        Finish::Stop => decode(tokenizer, completion).map(Answer::Whole),
        _ => Ok(Answer::Cut),
    };
    completions.iter().map(answer).collect()
}

/// Applies `work` to all items on up to `threads` threads. Results have the order of the items.
pub fn in_parallel<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if threads <= 1 || items.len() <= 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let run = || {
            let take = || {
                let i = next.fetch_add(1, Ordering::Relaxed);
                items.get(i).map(|item| (i, item))
            };
            std::iter::from_fn(take).map(|(i, item)| (i, work(item))).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..threads.min(items.len())).map(|_| scope.spawn(run)).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, Vec<(usize, R)>>| match t.join() {
            Ok(results) => results,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}
