//! Sampling in this process: prompts to tokens, completions back to text, independent of any board.

use crate::error::Result;
use sgs_formal::Prompt;
use sgs_lm::Device;
use sgs_lm::chat::ChatMessage;
use sgs_lm::model::Model;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm_sampler::{
    Decode, Finish, Request, RequestId, SampledCompletion, Sampler, SamplerOptions, SamplingParams,
};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A prompt with the seed of its sample.
pub struct Ask {
    pub prompt: Arc<[u32]>,
    pub seed: u64,
}

/// Encodes a role's prompt.
pub fn encode(tokenizer: &Tokenizer, prompt: &Prompt) -> Result<Arc<[u32]>> {
    Ok(match prompt {
        Prompt::Raw(text) => tokenizer.encode(text)?.into(),
        Prompt::Chat(text) => tokenizer.encode_chat(&[ChatMessage::new("user", text.clone())], true)?.into(),
        Prompt::Dialogue(messages) => {
            let speakers = ["user", "assistant"].into_iter().cycle();
            let messages: Vec<_> =
                speakers.zip(messages).map(|(role, text)| ChatMessage::new(role, text.clone())).collect();
            tokenizer.encode_chat(&messages, true)?.into()
        }
    })
}

/// Returns the longest completion of a prompt, in tokens: `limit`, or the rest of the context window. At least 1, so
/// that the sampler reports a prompt that leaves no space.
pub fn room(limit: usize, prompt: usize, window: usize) -> usize {
    limit.min(window.saturating_sub(prompt)).max(1)
}

/// Encodes a prompt, to be sampled once per seed.
pub fn asks(
    tokenizer: &Tokenizer,
    prompt: &Prompt,
    seeds: impl IntoIterator<Item = u64>,
) -> Result<Vec<Ask>> {
    let prompt = encode(tokenizer, prompt)?;
    Ok(seeds.into_iter().map(|seed| Ask { prompt: Arc::clone(&prompt), seed }).collect())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The model ended the text.
    Whole(String),
    /// The completion reached the limit.
    Cut {
        text: String,
        /// Its length in tokens.
        tokens: usize,
    },
    /// The sampler refused the prompt, for this reason.
    Refused(String),
    /// The server failed; this says nothing about the model.
    Lost,
}

impl Answer {
    /// Returns the text, also of a completion that reached the limit.
    pub fn text(&self) -> &str {
        match self {
            Self::Whole(text) | Self::Cut { text, .. } => text,
            Self::Refused(_) | Self::Lost => "",
        }
    }
}

/// Returns options for `batch` concurrent completions with a cache of `memory_mib` MiB.
pub fn options(batch: usize, memory_mib: u64) -> SamplerOptions {
    SamplerOptions {
        max_batch: batch,
        memory_budget_bytes: memory_mib.saturating_mul(1 << 20),
        ..SamplerOptions::default()
    }
}

/// Samples texts from a model of this process.
pub struct TextSampler<'a, D: Device> {
    pub model: &'a Model<D>,
    pub tokenizer: &'a Tokenizer,
    /// Maximum completion length, in tokens.
    pub max_new_tokens: usize,
    pub temperature: f32,
    /// The batch and the cache.
    pub options: SamplerOptions,
}

impl<D: Device + Decode> TextSampler<'_, D> {
    /// Samples every prompt once. Passes each answer to `take` as soon as it ends, with the index of its prompt. If
    /// `take` breaks, the remaining prompts are not sampled.
    pub fn each(&self, asks: &[Ask], mut take: impl FnMut(usize, Answer) -> ControlFlow<()>) -> Result<()> {
        let mut sampler = Sampler::new(self.model, &self.options)?;
        let stop: Arc<[u32]> = self.tokenizer.eos().into();
        let request = |(i, ask): (usize, &Ask)| Request {
            id: RequestId(i as u64),
            prompt: Arc::clone(&ask.prompt),
            seed: ask.seed,
            max_new_tokens: room(self.max_new_tokens, ask.prompt.len(), self.model.max_positions),
            params: SamplingParams { temperature: self.temperature, ..SamplingParams::default() },
            stop: Arc::clone(&stop),
        };
        let mut end: Option<Result<()>> = None;
        sampler.run(self.model, asks.iter().enumerate().map(request), |sampler, completion| {
            // Other completions can end in the same step as the one that ended the search.
            if end.is_some() {
                return;
            }
            match self.answer(&completion).map(|answer| take(completion.id.0 as usize, answer)) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => end = Some(Ok(())),
                Err(error) => end = Some(Err(error)),
            }
            if end.is_some() {
                sampler.cancel_all();
            }
        })?;
        end.unwrap_or(Ok(()))
    }

    /// Samples every prompt once and returns the answers in the order of the prompts.
    #[allow(clippy::expect_used, reason = "the sampler ends every request")]
    pub fn answers(&self, asks: &[Ask], on_answer: impl Fn()) -> Result<Vec<Answer>> {
        let mut answers: Vec<Option<Answer>> = vec![None; asks.len()];
        self.each(asks, |i, answer| {
            on_answer();
            answers[i] = Some(answer);
            ControlFlow::Continue(())
        })?;
        let given = |answer: Option<Answer>| answer.expect("invariant: the sampler answers every request");
        Ok(answers.into_iter().map(given).collect())
    }

    fn answer(&self, completion: &SampledCompletion) -> Result<Answer> {
        let text = self.tokenizer.decode(&completion.tokens)?;
        Ok(match &completion.finish {
            Finish::Stop => Answer::Whole(text),
            Finish::Length | Finish::Cancelled => Answer::Cut { text, tokens: completion.tokens.len() },
            Finish::Refused(why) => Answer::Refused(why.to_string()),
        })
    }
}
