//! Request and reply bodies: OpenAI's completions with the extensions of vLLM, and SGLang's `/generate`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum number of completions per request.
pub(crate) const MAX_COMPLETIONS: usize = 1024;
/// Maximum number of stop texts.
const MAX_STOPS: usize = 16;

/// Body of `POST /v1/completions`. Unknown fields are ignored, because clients send many. Unsupported fields that would
/// change the sampled distribution are rejected.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct CompletionParams {
    #[serde(default)]
    pub model: Option<String>,
    pub prompt: Prompts,
    #[serde(default)]
    pub max_tokens: Option<usize>,
    #[serde(default)]
    pub temperature: Option<f32>,
    #[serde(default)]
    pub top_p: Option<f32>,
    /// -1 and 0 disable it.
    #[serde(default)]
    pub top_k: Option<i64>,
    #[serde(default)]
    pub n: Option<usize>,
    #[serde(default)]
    pub seed: Option<i64>,
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub stream_options: Option<StreamOptions>,
    #[serde(default)]
    pub logprobs: Option<u32>,
    #[serde(default)]
    pub stop: Option<StopTexts>,
    #[serde(default)]
    pub stop_token_ids: Vec<u32>,
    #[serde(default)]
    pub return_token_ids: bool,
    /// 0 returns the log-probs of the prompt's own tokens.
    #[serde(default)]
    pub prompt_logprobs: Option<u32>,
    #[serde(default)]
    pub ignore_eos: bool,
    #[serde(default)]
    pub echo: Option<bool>,
    #[serde(default)]
    pub best_of: Option<usize>,
    #[serde(default)]
    pub suffix: Option<String>,
    #[serde(default)]
    pub logit_bias: Option<Value>,
    #[serde(default)]
    pub min_p: Option<f32>,
    #[serde(default)]
    pub presence_penalty: Option<f32>,
    #[serde(default)]
    pub frequency_penalty: Option<f32>,
    #[serde(default)]
    pub repetition_penalty: Option<f32>,
    #[serde(default)]
    pub repeat_penalty: Option<f32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
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
    /// Checks that all requested features are supported.
    ///
    /// # Errors
    /// Returns a message that names the unsupported field and its allowed values.
    pub fn check(&self, model: &str) -> Result<(), String> {
        let is = |value: Option<f32>, neutral: f32| value.is_none_or(|value| value == neutral);
        let unsupported = [
            (self.echo == Some(true), "echo", "false"),
            (self.suffix.as_ref().is_some_and(|s| !s.is_empty()), "suffix", "null"),
            (self.best_of.is_some_and(|best| best != self.n()), "best_of", "the same as n"),
            (
                self.logit_bias
                    .as_ref()
                    .is_some_and(|bias| !bias.is_null() && bias.as_object().is_none_or(|b| !b.is_empty())),
                "logit_bias",
                "null",
            ),
            (!is(self.min_p, 0.0), "min_p", "0"),
            (!is(self.presence_penalty, 0.0), "presence_penalty", "0"),
            (!is(self.frequency_penalty, 0.0), "frequency_penalty", "0"),
            (!is(self.repetition_penalty, 1.0), "repetition_penalty", "1"),
            (!is(self.repeat_penalty, 1.0), "repeat_penalty", "1"),
            (self.logprobs.is_some_and(|n| n > 1), "logprobs", "0 or 1: those of the sampled tokens"),
            (
                self.prompt_logprobs.is_some_and(|n| n > 0),
                "prompt_logprobs",
                "0: those of the prompt's tokens",
            ),
            (
                self.prompt_logprobs.is_some() && self.stream == Some(true),
                "prompt_logprobs",
                "null in a stream",
            ),
            (self.top_k.is_some_and(|k| !(-1..=i64::from(u32::MAX)).contains(&k)), "top_k", "-1 or more"),
            (self.n() == 0, "n", "1 or more"),
            (self.max_tokens == Some(0), "max_tokens", "1 or more"),
        ];
        if let Some((_, field, may_be)) = unsupported.into_iter().find(|(is_set, ..)| *is_set) {
            return Err(format!("`{field}` is not supported; expected {may_be}"));
        }
        let stops = self.stops();
        if stops.len() > MAX_STOPS || stops.iter().any(String::is_empty) {
            return Err(format!("`stop` takes up to {MAX_STOPS} texts, none of them empty"));
        }
        match &self.model {
            Some(name) if name != model => {
                Err(format!("no such model: `{name}`; this server offers `{model}`"))
            }
            _ => Ok(()),
        }
    }

    pub fn n(&self) -> usize {
        self.n.unwrap_or(1)
    }

    pub fn stops(&self) -> Vec<String> {
        match &self.stop {
            None => Vec::new(),
            Some(StopTexts::One(stop)) => vec![stop.clone()],
            Some(StopTexts::Many(stops)) => stops.clone(),
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

/// Builds the body of an error reply.
pub(crate) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": status } })
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
#[derive(Debug, Deserialize)]
pub(crate) struct GenerateParams {
    #[serde(default)]
    pub text: Option<String>,
    #[serde(default)]
    pub input_ids: Option<Vec<u32>>,
    #[serde(default)]
    pub sampling_params: GenerateSampling,
    #[serde(default)]
    pub return_logprob: bool,
    /// Index of the first prompt token whose log-prob is returned; -1 for none.
    #[serde(default)]
    pub logprob_start_len: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerateSampling {
    #[serde(default)]
    max_new_tokens: Option<usize>,
    #[serde(default)]
    temperature: Option<f32>,
    #[serde(default)]
    top_p: Option<f32>,
    #[serde(default)]
    top_k: Option<i64>,
    #[serde(default)]
    min_p: Option<f32>,
    #[serde(default)]
    repetition_penalty: Option<f32>,
    #[serde(default)]
    stop_token_ids: Vec<u32>,
    #[serde(default)]
    ignore_eos: bool,
    #[serde(default)]
    sampling_seed: Option<i64>,
}

impl GenerateParams {
    /// Converts the request to one for completions.
    ///
    /// # Errors
    /// Returns a message unless there is exactly one prompt.
    pub fn into_completion(self) -> Result<CompletionParams, String> {
        let prompt = match (self.text, self.input_ids) {
            (Some(text), None) => Prompts::Text(text),
            (None, Some(tokens)) => Prompts::Tokens(tokens),
            _ => return Err("expected `text` or `input_ids`".to_owned()),
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
