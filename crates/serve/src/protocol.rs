//! Request and reply bodies: OpenAI's completions with the extensions of vLLM, and SGLang's `/generate`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum number of completions per request.
const MAX_COMPLETIONS: usize = 1024;
/// Maximum number of new tokens per request, over all its completions.
const MAX_NEW_TOKENS: usize = 1 << 20;
/// Maximum number of prompt tokens per request, over all its prompts. A single prompt may fill the context.
const MAX_PROMPT_TOKENS: usize = 1 << 19;
/// Maximum size of a prompt's text, in bytes per token of the context.
const MAX_BYTES_PER_TOKEN: usize = 64;
/// Maximum number of stop texts.
const MAX_STOPS: usize = 16;
/// Maximum size of all stop texts together, in bytes.
const MAX_STOP_BYTES: usize = 4096;
/// Maximum number of stop tokens.
const MAX_STOP_TOKENS: usize = 256;
/// Maximum length of an error message, in characters. Messages quote parts of the request.
const MAX_MESSAGE: usize = 500;

/// An invalid field of a request.
#[derive(Debug, PartialEq)]
pub(crate) struct InvalidField {
    pub field: &'static str,
    pub problem: String,
}

/// Returns an error about a field unless the condition holds. The message begins with the field's name.
macro_rules! require {
    ($is_valid:expr, $field:expr, $($problem:tt)+) => {
        if !$is_valid {
            let field = $field;
            let problem = format!("`{field}` {}", format_args!($($problem)+));
            return Err(InvalidField { field, problem });
        }
    };
}

/// Body of `POST /v1/completions`. Unknown fields are ignored, because clients send many. Unsupported fields that would
/// change the sampled distribution are rejected.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CompletionParams {
    pub model: Option<String>,
    pub prompt: Prompts,
    pub max_tokens: Option<usize>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    /// Maximum number of most probable tokens that are kept; -1 and 0 disable the limit.
    pub top_k: Option<i64>,
    pub n: Option<usize>,
    pub seed: Option<i64>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    pub logprobs: Option<u32>,
    pub stop: Option<StopTexts>,
    pub stop_token_ids: Vec<u32>,
    pub return_token_ids: bool,
    /// 0 returns the log-probs of the prompt's own tokens.
    pub prompt_logprobs: Option<u32>,
    pub ignore_eos: bool,
    pub echo: Option<bool>,
    pub best_of: Option<usize>,
    pub suffix: Option<String>,
    pub logit_bias: Option<Value>,
    pub min_p: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub repeat_penalty: Option<f32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StreamOptions {
    pub include_usage: bool,
}

/// One or several prompts, as text or tokens.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text, a list of texts, a list of token ids or a list of such lists")]
pub(crate) enum Prompts {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    Lists(Vec<Vec<u32>>),
}

impl Default for Prompts {
    fn default() -> Self {
        Self::Lists(Vec::new())
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
pub(crate) enum StopTexts {
    One(String),
    Many(Vec<String>),
}

impl CompletionParams {
    /// Checks that all requested features are supported and all sizes within their bounds, before any work on them. `window`
    /// is the context length and `vocabulary` the vocabulary size of the model, in tokens.
    ///
    /// # Errors
    /// Returns the first invalid field and its bound or its allowed values.
    pub fn check(&self, model: &str, window: usize, vocabulary: usize) -> Result<(), InvalidField> {
        let is = |value: Option<f32>, neutral: f32| value.is_none_or(|value| value == neutral);
        let has_bias = |b: &Value| !b.is_null() && b.as_object().is_none_or(|b| !b.is_empty());
        for (is_valid, field, expected) in [
            (self.echo != Some(true), "echo", "false"),
            (self.suffix.as_ref().is_none_or(String::is_empty), "suffix", "null"),
            (self.best_of.is_none_or(|best| best == self.n()), "best_of", "the same as n"),
            (!self.logit_bias.as_ref().is_some_and(has_bias), "logit_bias", "null"),
            (is(self.min_p, 0.0), "min_p", "0"),
            (is(self.presence_penalty, 0.0), "presence_penalty", "0"),
            (is(self.frequency_penalty, 0.0), "frequency_penalty", "0"),
            (is(self.repetition_penalty, 1.0), "repetition_penalty", "1"),
            (is(self.repeat_penalty, 1.0), "repeat_penalty", "1"),
            (self.logprobs.unwrap_or(0) <= 1, "logprobs", "0 or 1: those of the sampled tokens"),
            (self.prompt_logprobs.unwrap_or(0) == 0, "prompt_logprobs", "0: those of the prompt's tokens"),
        ] {
            require!(is_valid, field, "is not supported; expected {expected}");
        }
        let is_plain = !self.is_stream() && self.n() == 1;
        require!(
            self.prompt_logprobs.is_none() || is_plain,
            "prompt_logprobs",
            "needs `n` 1 and no `stream`"
        );
        for (field, value, most) in
            [("n", self.n(), MAX_COMPLETIONS), ("max_tokens", self.max_tokens(), window)]
        {
            require!((1..=most).contains(&value), field, "is {value}; expected 1 to {most}");
        }
        let (most, top_k) = (u32::MAX, self.top_k.unwrap_or(0));
        require!((-1..=i64::from(most)).contains(&top_k), "top_k", "is {top_k}; expected -1 to {most}");
        let (t, top_p) = (self.temperature.unwrap_or(1.0), self.top_p.unwrap_or(1.0));
        require!(t >= 0.0 && t.is_finite(), "temperature", "is {t}; expected a number from 0");
        require!(top_p > 0.0 && top_p <= 1.0, "top_p", "is {top_p}; expected a number above 0 and up to 1");
        let (count, bytes) = (self.stops().len(), self.stops().iter().map(String::len).sum::<usize>());
        let is_short = count <= MAX_STOPS && bytes <= MAX_STOP_BYTES;
        require!(
            is_short && !self.stops().iter().any(String::is_empty),
            "stop",
            "has {count} texts of {bytes} bytes; expected up to {MAX_STOPS} of up to {MAX_STOP_BYTES} bytes in total, none of them empty"
        );
        let count = self.stop_token_ids.len();
        require!(
            count <= MAX_STOP_TOKENS,
            "stop_token_ids",
            "has {count} tokens; expected up to {MAX_STOP_TOKENS}"
        );
        let name = self.model.as_deref().unwrap_or(model);
        require!(name == model, "model", "is `{name:.100}`: no such model; this server offers `{model}`");
        self.check_prompts(window, vocabulary)
    }

    fn check_prompts(&self, window: usize, vocabulary: usize) -> Result<(), InvalidField> {
        let (texts, lists) = match &self.prompt {
            Prompts::Text(text) => (std::slice::from_ref(text), Vec::new()),
            Prompts::Texts(texts) => (texts.as_slice(), Vec::new()),
            Prompts::Tokens(tokens) => (&[][..], vec![tokens]),
            Prompts::Lists(lists) => (&[][..], lists.iter().collect()),
        };
        let prompts = texts.len() + lists.len();
        require!(prompts > 0, "prompt", "is an empty list");
        let total = prompts.saturating_mul(self.n());
        require!(
            total <= MAX_COMPLETIONS,
            "prompt",
            "and `n` ask for {total} completions; expected at most {MAX_COMPLETIONS}"
        );
        let new = total.saturating_mul(self.max_tokens());
        require!(
            new <= MAX_NEW_TOKENS,
            "max_tokens",
            "for {total} completions is {new} tokens in total; expected at most {MAX_NEW_TOKENS}"
        );
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        let most = window.saturating_mul(MAX_BYTES_PER_TOKEN);
        require!(
            longest <= most,
            "prompt",
            "is a text of {longest} bytes; expected at most {most}, {MAX_BYTES_PER_TOKEN} for each token of the context"
        );
        if !lists.is_empty() {
            self.check_tokens(&lists, window)?;
        }
        let largest = lists.into_iter().flatten().copied().max().unwrap_or(0);
        require!(
            (largest as usize) < vocabulary,
            "prompt",
            "contains token {largest}, but the vocabulary size is {vocabulary}"
        );
        Ok(())
    }

    /// Checks the lengths of prompts in tokens.
    ///
    /// # Errors
    /// Returns an error if a prompt is empty, or too long for the context, or if all are too long together.
    pub fn check_tokens(&self, prompts: &[impl AsRef<[u32]>], window: usize) -> Result<(), InvalidField> {
        let lengths = || prompts.iter().map(|prompt| prompt.as_ref().len());
        require!(!lengths().any(|length| length == 0), "prompt", "is empty");
        let (longest, new) = (lengths().max().unwrap_or(0), self.max_tokens());
        require!(
            longest.saturating_add(new) <= window,
            "prompt",
            "has {longest} tokens; with up to {new} new ones (`max_tokens`) they exceed the context of {window} tokens"
        );
        let total: usize = lengths().sum();
        require!(
            prompts.len() == 1 || total <= MAX_PROMPT_TOKENS,
            "prompt",
            "has {total} tokens in total; expected at most {MAX_PROMPT_TOKENS}"
        );
        Ok(())
    }

    pub fn is_stream(&self) -> bool {
        self.stream == Some(true)
    }

    pub fn max_tokens(&self) -> usize {
        self.max_tokens.unwrap_or(16)
    }

    pub fn n(&self) -> usize {
        self.n.unwrap_or(1)
    }

    pub fn stops(&self) -> &[String] {
        match &self.stop {
            None => &[],
            Some(StopTexts::One(stop)) => std::slice::from_ref(stop),
            Some(StopTexts::Many(stops)) => stops,
        }
    }
}

/// Fields common to all replies of a request.
#[derive(Clone, Debug)]
pub(crate) struct ReplyHeader {
    pub id: String,
    pub created: u64,
    pub model: String,
    pub weights: String,
}

/// A completion, or a part of one.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CompletionChoice {
    pub text: String,
    pub index: usize,
    pub logprobs: Option<ChoiceLogProbs>,
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// In vLLM's format: null for the first token, then each token with its log-prob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Vec<Value>>,
}

/// Log-probs of the sampled tokens: natural logarithm, temperature 1, without truncation.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ChoiceLogProbs {
    pub tokens: Vec<String>,
    pub token_logprobs: Vec<f32>,
    pub text_offset: Vec<usize>,
    pub top_logprobs: Option<Vec<Value>>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct TokenUsage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    pub total_tokens: usize,
}

impl TokenUsage {
    pub fn of(prompt_tokens: usize, completion_tokens: usize) -> Self {
        Self { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
    }
}

/// Builds the body of a reply, or of one event of a stream.
pub(crate) fn reply(heading: &ReplyHeader, choices: &[CompletionChoice], usage: Option<TokenUsage>) -> Value {
    json!({
        "id": heading.id, "object": "text_completion", "created": heading.created, "model": heading.model,
        "system_fingerprint": heading.weights, "choices": choices, "usage": usage,
    })
}

/// Builds the body of an error reply. `field` is the invalid field, if any.
pub(crate) fn error(status: u16, message: &str, field: Option<&str>) -> Value {
    let kind = match status {
        401 => "authentication_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    json!({ "error": { "message": message, "type": kind, "param": field, "code": status } })
}

/// Body of SGLang's `POST /update_weights_from_disk`.
#[derive(Debug, Deserialize)]
pub(crate) struct UpdateParams {
    /// Folder in Hugging Face layout.
    pub model_path: String,
    /// New name of the weights.
    #[serde(default)]
    pub weight_version: Option<String>,
}

/// Body of vLLM's `POST /collective_rpc`.
#[derive(Debug, Deserialize)]
pub(crate) struct RpcParams {
    pub method: String,
}

/// Body of SGLang's `POST /generate`. Unknown sampling parameters are rejected.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GenerateParams {
    pub text: Option<String>,
    pub input_ids: Option<Vec<u32>>,
    pub sampling_params: GenerateSampling,
    pub return_logprob: bool,
    /// Index of the first prompt token whose log-prob is returned; -1 for none.
    pub logprob_start_len: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GenerateSampling {
    max_new_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    stop_token_ids: Vec<u32>,
    ignore_eos: bool,
    sampling_seed: Option<i64>,
}

impl GenerateParams {
    /// Converts the request to one for completions.
    ///
    /// # Errors
    /// Returns an error unless there is exactly one prompt.
    pub fn into_completion(self) -> Result<CompletionParams, InvalidField> {
        let prompt = match (self.text, self.input_ids) {
            (Some(text), None) => Prompts::Text(text),
            (None, Some(tokens)) => Prompts::Tokens(tokens),
            _ => {
                let problem = "expected `text` or `input_ids`".to_owned();
                return Err(InvalidField { field: "text", problem });
            }
        };
        let is_scored = self.return_logprob && self.logprob_start_len == Some(0);
        let p = self.sampling_params;
        Ok(CompletionParams {
            max_tokens: p.max_new_tokens.or(Some(128)),
            temperature: p.temperature,
            top_p: p.top_p,
            top_k: p.top_k,
            min_p: p.min_p,
            repetition_penalty: p.repetition_penalty,
            stop_token_ids: p.stop_token_ids,
            ignore_eos: p.ignore_eos,
            seed: p.sampling_seed,
            logprobs: self.return_logprob.then_some(0),
            prompt_logprobs: is_scored.then_some(0),
            prompt,
            ..CompletionParams::default()
        })
    }
}
