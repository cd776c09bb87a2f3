//! Request and reply bodies of the completions protocol, in the dialects of the supported servers.
//!
//! All servers support `POST /v1/completions` and `GET /v1/models`. They differ in their extensions of the protocol:
//!
//! | | token ids of a completion | log-probs |
//! |---|---|---|
//! | vLLM | `choices[].token_ids` (requested by `return_token_ids`) | `logprobs.token_logprobs` |
//! | llama.cpp | `logprobs.content[].id` | `logprobs.content[].logprob` |
//! | SGLang, llama-cpp-python, others | none: the text is tokenised again | `logprobs.tokens`, `.token_logprobs` |
//! | SGLang, through `POST /generate` ([`ServerKind::Sglang`](crate::ServerKind)) | `meta_info.output_token_logprobs[][1]` | `[][0]` |
//!
//! Log-probs are those of the sampled tokens before the temperature is applied (vLLM: `--logprobs-mode raw_logprobs`, its default).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Request for one completion.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// The prompt as tokens.
    pub tokens: Vec<u32>,
    /// The same prompt as text, with special tokens spelled out, but without a beginning-of-sequence token if the server
    /// adds one.
    pub text: String,
    /// Sampling seed. The protocol's seeds are narrower, so 31 bits of a hash are sent.
    pub seed: u64,
    /// Maximum number of tokens of the completion.
    pub max_tokens: usize,
    /// Sampling temperature; 0 means greedy decoding.
    pub temperature: f32,
    /// Tokens that end the completion, in addition to the model's own.
    pub stop_tokens: Vec<u32>,
    /// Texts that end the completion, and are not included in it.
    pub stop_texts: Vec<String>,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A stop token or stop text.
    Stop,
    /// The maximum number of tokens.
    Length,
}

/// A completion, with the details that the server provides.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteCompletion {
    /// The text, without special tokens.
    pub text: String,
    /// The tokens, if the server returns them. The stop token may be missing.
    pub tokens: Option<Vec<u32>>,
    /// The text of each token, if the server returns it instead of token ids.
    pub pieces: Option<Vec<String>>,
    /// Log-probs (natural logarithm, temperature 1), one per token or piece.
    pub log_probs: Option<Vec<f32>>,
    /// Why it ended.
    pub end: StopReason,
    /// The name of the weights that sampled it, if the server returns it (SGLang).
    pub weights_name: Option<String>,
}

/// Body of `POST /v1/completions`.
#[derive(Debug, Serialize)]
pub(crate) struct CompletionBody<'a> {
    pub model: &'a str,
    pub prompt: PromptBody<'a>,
    pub max_tokens: usize,
    pub temperature: f32,
    pub top_p: f32,
    pub seed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub stop: &'a [String],
    /// Returns the log-probs of the prompt's tokens, and those of this many other tokens per position. vLLM only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<u32>,
    #[serde(flatten)]
    pub extensions: Option<ExtensionFields<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum PromptBody<'a> {
    Tokens(&'a [u32]),
    Text(&'a str),
}

/// Extensions of the protocol. Servers ignore the fields that they do not know. Without them, some servers truncate the
/// distribution (llama.cpp: top-k 40, top-p 0.95, min-p 0.05) or use defaults from the model's files (vLLM).
#[derive(Debug, Serialize)]
pub(crate) struct ExtensionFields<'a> {
    top_k: i32,
    min_p: f32,
    /// Name used by vLLM and SGLang. llama.cpp uses the next one.
    repetition_penalty: f32,
    repeat_penalty: f32,
    stop_token_ids: &'a [u32],
    return_token_ids: bool,
}

impl<'a> ExtensionFields<'a> {
    pub fn new(stop_token_ids: &'a [u32]) -> Self {
        // -1 means "all" for every server, 0 only for some.
        let (repetition_penalty, repeat_penalty) = (1.0, 1.0);
        Self {
            top_k: -1,
            min_p: 0.0,
            repetition_penalty,
            repeat_penalty,
            stop_token_ids,
            return_token_ids: true,
        }
    }
}

/// Hashes a seed to 31 bits. llama.cpp has 32-bit seeds, with one value for "random"; other servers have signed ones.
pub(crate) fn narrow_seed(seed: u64) -> u32 {
    // Hash the seed, so that seeds that differ in any bit are likely to differ in these 31 bits.
    (sgs_base::random::mix(seed) >> 33) as u32
}

/// The used parts of the reply.
#[derive(Debug, Deserialize)]
struct CompletionReply {
    choices: Vec<ChoiceReply>,
}

#[derive(Debug, Deserialize)]
struct ChoiceReply {
    text: String,
    finish_reason: Option<String>,
    token_ids: Option<Vec<u32>>,
    logprobs: Option<CompletionLogProbs>,
}

#[derive(Debug, Default, Deserialize)]
struct CompletionLogProbs {
    tokens: Option<Vec<String>>,
    token_logprobs: Option<Vec<Option<f32>>>,
    content: Option<Vec<TokenContent>>,
}

#[derive(Debug, Deserialize)]
struct TokenContent {
    id: Option<u32>,
    #[serde(default)]
    token: String,
    logprob: Option<f32>,
}

/// Parses the reply to `POST /v1/completions`.
pub(crate) fn read_sample(body: &[u8]) -> Result<RemoteCompletion, String> {
    let reply: CompletionReply = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let choice = reply.choices.into_iter().next().ok_or("it has no choice")?;
    let end = match choice.finish_reason.as_deref() {
        Some("stop") => StopReason::Stop,
        Some("length") => StopReason::Length,
        Some(other) => return Err(format!("finish_reason {other:?}")),
        None => return Err("it has no finish_reason".into()),
    };
    let CompletionLogProbs { tokens: pieces, token_logprobs, content } = choice.logprobs.unwrap_or_default();
    let (text, tokens) = (choice.text, choice.token_ids);
    let mut sample = RemoteCompletion { text, tokens, pieces, log_probs: None, end, weights_name: None };
    sample.log_probs = token_logprobs.and_then(|l| l.into_iter().collect());
    if let Some(content) = content {
        sample.log_probs = content.iter().map(|c| c.logprob).collect();
        match content.iter().map(|c| c.id).collect::<Option<Vec<u32>>>() {
            Some(ids) => sample.tokens = sample.tokens.or(Some(ids)),
            None => sample.pieces = Some(content.into_iter().map(|c| c.token).collect()),
        }
    }
    let number = sample.tokens.as_ref().map(Vec::len).or(sample.pieces.as_ref().map(Vec::len));
    // Drop log-probs that are invalid or cannot be assigned to tokens.
    sample.log_probs = sample.log_probs.filter(|l| Some(l.len()) == number).and_then(log_probs);
    Ok(sample)
}

/// Returns valid log-probs, or `None` if one is invalid. Tolerates values slightly above zero, which are due to rounding.
fn log_probs(values: Vec<f32>) -> Option<Vec<f32>> {
    let fits = values.iter().all(|p| p.is_finite() && *p <= 1e-3);
    fits.then(|| values.into_iter().map(|p| p.min(0.0)).collect())
}

/// Body of SGLang's `POST /generate`.
#[derive(Debug, Serialize)]
pub(crate) struct GenerateBody<'a> {
    pub input_ids: &'a [u32],
    pub sampling_params: GenerateOptions<'a>,
    pub return_logprob: bool,
    /// Index of the first prompt token whose log-prob is returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprob_start_len: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct GenerateOptions<'a> {
    pub max_new_tokens: usize,
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: i32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub stop_token_ids: &'a [u32],
    /// Sampling seed. Servers from before September 2025 ignore this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_seed: Option<u32>,
}

impl<'a> GenerateOptions<'a> {
    pub fn new(max_new_tokens: usize, temperature: f32, stop_token_ids: &'a [u32]) -> Self {
        Self {
            max_new_tokens,
            temperature,
            top_p: 1.0,
            top_k: -1,
            min_p: 0.0,
            repetition_penalty: 1.0,
            stop_token_ids,
            sampling_seed: None,
        }
    }
}

/// The used parts of the reply to [`GenerateBody`].
#[derive(Debug, Deserialize)]
struct GenerateReply {
    text: String,
    meta_info: GenerateMeta,
}

#[derive(Debug, Deserialize)]
struct GenerateMeta {
    finish_reason: Value,
    /// Log-prob, token, and its text if requested.
    output_token_logprobs: Option<Vec<TokenTriple>>,
    input_token_logprobs: Option<Vec<TokenTriple>>,
    weight_version: Option<String>,
}

type TokenTriple = (Option<f32>, u32, Value);

/// Parses the reply to SGLang's `POST /generate`.
pub(crate) fn read_generated(body: &[u8]) -> Result<RemoteCompletion, String> {
    let GenerateReply { text, meta_info } = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let reason = meta_info.finish_reason.pointer("/type").and_then(Value::as_str);
    let end = match reason {
        Some("stop") => StopReason::Stop,
        Some("length") => StopReason::Length,
        _ => return Err(format!("finish_reason {}", meta_info.finish_reason)),
    };
    let triples = meta_info.output_token_logprobs;
    let tokens = triples.as_ref().map(|triples| triples.iter().map(|triple| triple.1).collect());
    let values = triples.and_then(|triples| triples.iter().map(|triple| triple.0).collect());
    let log_probs = values.and_then(log_probs);
    Ok(RemoteCompletion {
        text,
        tokens,
        pieces: None,
        log_probs,
        end,
        weights_name: meta_info.weight_version,
    })
}

/// Log-probs of prompt tokens, and the name of the weights, if the server returns it.
pub(crate) type TokenScores = (Vec<f32>, Option<String>);

/// Parses the log-probs of the prompt's tokens from index `from` on, from the reply to SGLang's `POST /generate`.
pub(crate) fn read_generated_scores(body: &[u8], tokens: &[u32], from: usize) -> Result<TokenScores, String> {
    let GenerateReply { meta_info, .. } = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let triples = meta_info.input_token_logprobs.ok_or("it has no input_token_logprobs")?;
    if triples.len() != tokens.len() {
        return Err(format!("{} input_token_logprobs for {} tokens", triples.len(), tokens.len()));
    }
    let values = triples.iter().zip(tokens).skip(from);
    let own = values.map(|((log_prob, token, _), asked)| log_prob.filter(|_| token == asked));
    Ok((scores(own)?, meta_info.weight_version))
}

/// Parses the log-probs of the prompt's tokens from index `from` on, from vLLM's reply to `POST /v1/completions`.
pub(crate) fn read_prompt_scores(body: &[u8], tokens: &[u32], from: usize) -> Result<TokenScores, String> {
    let reply: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let values = reply.pointer("/choices/0/prompt_logprobs").and_then(Value::as_array);
    let values = values.ok_or("it has no prompt_logprobs")?;
    if values.len() != tokens.len() {
        return Err(format!("{} prompt_logprobs for {} tokens", values.len(), tokens.len()));
    }
    let of = |(at, token): (&Value, &u32)| {
        at.get(token.to_string())?.get("logprob")?.as_f64().map(|log_prob| log_prob as f32)
    };
    Ok((scores(values.iter().zip(tokens).skip(from).map(of))?, None))
}

fn scores(values: impl Iterator<Item = Option<f32>>) -> Result<Vec<f32>, String> {
    let values: Option<Vec<f32>> = values.collect();
    values.and_then(log_probs).ok_or_else(|| "a token of the prompt has no log-prob".to_owned())
}

/// A model that the server offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServedModel {
    /// Its id and aliases.
    pub names: Vec<String>,
    /// Context length in tokens, if known.
    pub context: Option<usize>,
    /// Vocabulary size in tokens, if known.
    pub vocabulary: Option<usize>,
}

/// Parses the reply to `GET /v1/models`.
pub(crate) fn read_models(body: &[u8]) -> Result<Vec<ServedModel>, String> {
    #[derive(Deserialize)]
    struct Models {
        data: Vec<Value>,
    }
    let models: Models = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    Ok(models.data.iter().map(served).collect())
}

fn served(model: &Value) -> ServedModel {
    let number =
        |path: &str| model.pointer(path).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let aliases = model.get("aliases").and_then(Value::as_array).into_iter().flatten();
    let mut names: Vec<String> = model.get("id").into_iter().chain(aliases).filter_map(text).collect();
    names.dedup();
    let context =
        ["/max_model_len", "/meta/n_ctx", "/context_length", "/max_context_length", "/meta/n_ctx_train"]
            .iter()
            .find_map(|path| number(path));
    ServedModel { names, context, vocabulary: number("/meta/n_vocab") }
}

/// Extracts the message from the body of an error reply. Truncates it and removes control characters.
pub(crate) fn error_message(body: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let message = value.as_ref().and_then(|v| {
        ["/error/message", "/message", "/detail", "/error"].iter().find_map(|path| v.pointer(path)?.as_str())
    });
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(char::is_control, "");
    if line.is_empty() { "no message".into() } else { line.chars().take(400).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Replies of real servers, abridged.
    const LLAMA_CPP: &str = r#"{"choices":[{"text":" ~ax-1 ~ax-mp","index":0,"logprobs":{"content":[
        {"id":365,"token":" ~ax-1","bytes":[32],"logprob":-1.372573971748352,"top_logprobs":[]},
        {"id":364,"token":" ~ax-mp","bytes":[32],"logprob":-0.22294917702674866,"top_logprobs":[]},
        {"id":2,"token":"","bytes":[],"logprob":-0.0009788295719772577,"top_logprobs":[]}]},"finish_reason":"stop"}]}"#;
    const VLLM: &str = r#"{"id":"cmpl-1","object":"text_completion","model":"m","choices":[{"index":0,"text":" two words",
        "logprobs":{"text_offset":[0,4],"token_logprobs":[-0.5,-0.25],"tokens":[" two"," words"],"top_logprobs":[{}]},
        "finish_reason":"length","stop_reason":null,"token_ids":[11,12],"prompt_token_ids":[1]}]}"#;
    const PIECES: &str = r#"{"choices":[{"text":" two words","index":0,"logprobs":{"tokens":[" two"," words"],
        "token_logprobs":[-0.5,-0.25],"text_offset":[0,4]},"finish_reason":"length"}]}"#;

    #[test]
    fn each_dialect_is_parsed() {
        let sample = read_sample(LLAMA_CPP.as_bytes()).unwrap();
        assert_eq!(sample.tokens, Some(vec![365, 364, 2]));
        assert_eq!(sample.log_probs, Some(vec![-1.372_574, -0.222_949_18, -0.000_978_829_6]));
        assert_eq!((sample.text.as_str(), sample.end), (" ~ax-1 ~ax-mp", StopReason::Stop));
        let sample = read_sample(VLLM.as_bytes()).unwrap();
        assert_eq!((sample.tokens, sample.log_probs), (Some(vec![11, 12]), Some(vec![-0.5, -0.25])));
        assert_eq!(sample.end, StopReason::Length);
        let sample = read_sample(PIECES.as_bytes()).unwrap();
        assert_eq!((sample.tokens, sample.log_probs), (None, Some(vec![-0.5, -0.25])));
        assert_eq!(sample.pieces.unwrap(), [" two", " words"]);
    }

    const SGLANG: &str = r#"{"text":" two words","output_ids":[11,12],"meta_info":{"id":"a","finish_reason":{"type":
        "stop","matched":12},"prompt_tokens":2,"weight_version":"7","input_token_logprobs":[[null,1,null],[-2.5,9,null]],
        "output_token_logprobs":[[-0.5,11,null],[-0.25,12,null]],"completion_tokens":2}}"#;

    #[test]
    fn replies_of_sglang_are_parsed() {
        let sample = read_generated(SGLANG.as_bytes()).unwrap();
        assert_eq!((sample.tokens, sample.log_probs), (Some(vec![11, 12]), Some(vec![-0.5, -0.25])));
        assert_eq!((sample.end, sample.weights_name.as_deref()), (StopReason::Stop, Some("7")));
        let scored = read_generated_scores(SGLANG.as_bytes(), &[1, 9], 1).unwrap();
        assert_eq!(scored, (vec![-2.5], Some("7".into())));
        for (tokens, from) in [(&[1, 8][..], 1), (&[1, 9, 9], 1), (&[1, 9], 0)] {
            assert!(read_generated_scores(SGLANG.as_bytes(), tokens, from).is_err(), "{tokens:?}");
        }
        let aborted = SGLANG.replace("\"stop\"", "\"abort\"");
        assert!(read_generated(aborted.as_bytes()).unwrap_err().contains("abort"));
        assert!(read_generated(VLLM.as_bytes()).is_err());
    }

    #[test]
    fn prompt_scores_of_vllm_are_parsed() {
        let body = br#"{"choices":[{"text":"x","prompt_logprobs":[null,{"9":{"logprob":-2.5,"rank":3},"4":{"logprob":-1}}]}]}"#;
        assert_eq!(read_prompt_scores(body, &[1, 9], 1).unwrap(), (vec![-2.5], None));
        assert!(read_prompt_scores(body, &[1, 8], 1).unwrap_err().contains("no log-prob"));
        assert!(read_prompt_scores(body, &[1], 0).unwrap_err().contains("for 1 tokens"));
        assert!(read_prompt_scores(VLLM.as_bytes(), &[1], 0).unwrap_err().contains("no prompt_logprobs"));
    }

    #[test]
    fn log_probs_that_do_not_match_the_tokens_are_dropped() {
        let odd = |log_probs: &str| {
            let body = format!(
                r#"{{"choices":[{{"text":"a b","token_ids":[1,2],"finish_reason":"stop",
                "logprobs":{{"token_logprobs":{log_probs}}}}}]}}"#
            );
            read_sample(body.as_bytes()).unwrap().log_probs
        };
        assert_eq!(odd("[-1.0,-2.0]"), Some(vec![-1.0, -2.0]));
        assert_eq!(odd("[-1.0,0.0000001]"), Some(vec![-1.0, 0.0]), "rounding is tolerated");
        for bad in ["[-1.0]", "[-1.0,null]", "[-1.0,0.5]", "null", "[]"] {
            assert_eq!(odd(bad), None, "{bad}");
        }
    }

    #[test]
    fn invalid_replies_are_errors_and_not_panics() {
        for body in [
            "",
            "<html>",
            "null",
            "{}",
            r#"{"choices":[]}"#,
            r#"{"choices":[{}]}"#,
            r#"{"choices":[{"text":"a"}]}"#,
            r#"{"choices":[{"text":"a","finish_reason":"abort"}]}"#,
            r#"{"choices":[{"text":"a","finish_reason":"stop","token_ids":[-1]}]}"#,
        ] {
            assert!(read_sample(body.as_bytes()).is_err(), "{body}");
        }
        assert!(read_models(b"{}").is_err());
    }

    #[test]
    fn models_are_parsed_with_their_context_length() {
        let body = br#"{"object":"list","data":[
            {"id":"a","aliases":["a","b"],"meta":{"n_vocab":9362,"n_ctx":512,"n_ctx_train":4096}},
            {"id":"org/model","max_model_len":8192},{"id":"bare"}]}"#;
        let models = read_models(body).unwrap();
        assert_eq!(
            models[0],
            ServedModel { names: vec!["a".into(), "b".into()], context: Some(512), vocabulary: Some(9362) }
        );
        assert_eq!((models[1].context, models[2].context), (Some(8192), None));
    }

    #[test]
    fn error_messages_are_extracted() {
        assert_eq!(error_message(br#"{"error":{"code":400,"message":"too  long"}}"#), "too long");
        assert_eq!(error_message(br#"{"object":"error","message":"no such model"}"#), "no such model");
        assert_eq!(error_message(br#"{"detail":"Not Found"}"#), "Not Found");
        assert_eq!(error_message(b"<html>\n502 </html>"), "<html> 502 </html>");
        assert_eq!(error_message(b"a\x1b[31m \x1b]0;b\x07\n c"), "a[31m ]0;b c");
        assert_eq!(error_message(b""), "no message");
        assert!(error_message(&vec![b'x'; 100_000]).len() <= 400);
    }

    #[test]
    fn hashed_seeds_rarely_collide() {
        let seeds: std::collections::BTreeSet<u32> =
            (0..1000u64).flat_map(|n| [narrow_seed(n), narrow_seed(n << 40)]).collect();
        assert!(seeds.len() >= 1998, "0 occurs twice: {}", seeds.len());
        assert!(seeds.iter().all(|s| *s <= i32::MAX as u32));
    }
}
