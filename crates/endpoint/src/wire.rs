//! The bodies of the protocol, and what the servers in use make of it.
//!
//! All of them take `POST /v1/completions` and tell `GET /v1/models`; they differ in how they name what goes beyond
//! the protocol:
//!
//! | | token ids of a completion | log-probs |
//! |---|---|---|
//! | vLLM | `choices[].token_ids` (asked for by `return_token_ids`) | `logprobs.token_logprobs` |
//! | llama.cpp | `logprobs.content[].id` | `logprobs.content[].logprob` |
//! | SGLang, llama-cpp-python, others | not told: the text is tokenised again | `logprobs.tokens`, `.token_logprobs` |
//! | SGLang, by its own `POST /generate` ([`Engine::Sglang`](crate::Engine)) | `meta_info.output_token_logprobs[][1]` | `[][0]` |
//!
//! A log-prob is that of the sampled token before temperature (vLLM: `--logprobs-mode raw_logprobs`, its default).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One completion to be sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Prompt tokens.
    pub tokens: Vec<u32>,
    /// The same prompt as text, special tokens spelled out, without the one that begins a sequence if the server puts
    /// that before every text.
    pub text: String,
    /// Fixes the sample, on a server that samples reproducibly. The protocol's seeds are narrower: 31 bits of a hash
    /// of this one are sent.
    pub seed: u64,
    /// Longest completion in tokens.
    pub max_tokens: usize,
    /// Sampling temperature; 0 takes the likeliest token.
    pub temperature: f32,
    /// Tokens that end the completion, beside the model's own.
    pub stop_tokens: Vec<u32>,
    /// Texts that end the completion and are no part of it.
    pub stop_texts: Vec<String>,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At a token or text that ends it.
    Stop,
    /// At its longest length.
    Length,
}

/// One completion, as much as the server tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its text; servers leave special tokens out.
    pub text: String,
    /// Its tokens, if the server tells them; the one that ended it may be missing.
    pub tokens: Option<Vec<u32>>,
    /// The spelling of each token, where the server tells those instead of ids.
    pub pieces: Option<Vec<String>>,
    /// Log-prob of each token, natural logarithm, at temperature 1; as many as there are tokens or pieces.
    pub log_probs: Option<Vec<f32>>,
    /// Why it ended.
    pub end: End,
    /// What the server calls the weights that it is of, if it tells (SGLang).
    pub weights_name: Option<String>,
}

/// The body of `POST /v1/completions`.
#[derive(Debug, Serialize)]
pub(crate) struct Call<'a> {
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
    /// Log-probs of the prompt's tokens: so many others at each place. vLLM's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<u32>,
    #[serde(flatten)]
    pub beyond: Option<Beyond<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum PromptBody<'a> {
    Tokens(&'a [u32]),
    Text(&'a str),
}

/// What goes beyond the protocol. Each server takes the fields that it knows. Without them some servers truncate the
/// distribution (llama.cpp: top-k 40, top-p 0.95, min-p 0.05) or take defaults from the model's files (vLLM).
#[derive(Debug, Serialize)]
pub(crate) struct Beyond<'a> {
    top_k: i32,
    min_p: f32,
    /// vLLM's and SGLang's name of it, then llama.cpp's.
    repetition_penalty: f32,
    repeat_penalty: f32,
    stop_token_ids: &'a [u32],
    return_token_ids: bool,
}

impl<'a> Beyond<'a> {
    pub fn new(stop_token_ids: &'a [u32]) -> Self {
        // -1 is "all" for every server; 0 only for some.
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

/// 31 bits of a seed: llama.cpp's seeds are 32 bits of which one value means "random", others' are signed.
pub(crate) fn narrow_seed(seed: u64) -> u32 {
    // Mixed, so that seeds that differ anywhere differ here.
    (sgs_random::mix(seed) >> 33) as u32
}

/// What is read of the answer.
#[derive(Debug, Deserialize)]
struct Reply {
    choices: Vec<ChoiceReply>,
}

#[derive(Debug, Deserialize)]
struct ChoiceReply {
    text: String,
    #[serde(default)]
    finish_reason: Option<String>,
    #[serde(default)]
    token_ids: Option<Vec<u32>>,
    #[serde(default)]
    logprobs: Option<LogProbs>,
}

#[derive(Debug, Default, Deserialize)]
struct LogProbs {
    #[serde(default)]
    tokens: Option<Vec<String>>,
    #[serde(default)]
    token_logprobs: Option<Vec<Option<f32>>>,
    #[serde(default)]
    content: Option<Vec<TokenContent>>,
}

#[derive(Debug, Deserialize)]
struct TokenContent {
    #[serde(default)]
    id: Option<u32>,
    #[serde(default)]
    token: String,
    logprob: Option<f32>,
}

/// Reads the answer to `POST /v1/completions`.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn read_sample(body: &[u8]) -> Result<Sample, String> {
    let reply: Reply = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let choice = reply.choices.into_iter().next().ok_or("there is no choice in it")?;
    let end = match choice.finish_reason.as_deref() {
        Some("stop") => End::Stop,
        Some("length") => End::Length,
        Some(other) => return Err(format!("finish_reason {other:?}")),
        None => return Err("there is no finish_reason in it".into()),
    };
    let LogProbs { tokens: pieces, token_logprobs, content } = choice.logprobs.unwrap_or_default();
    let (text, tokens) = (choice.text, choice.token_ids);
    let mut sample = Sample { text, tokens, pieces, log_probs: None, end, weights_name: None };
    sample.log_probs = token_logprobs.and_then(|l| l.into_iter().collect());
    if let Some(content) = content {
        sample.log_probs = content.iter().map(|c| c.logprob).collect();
        match content.iter().map(|c| c.id).collect::<Option<Vec<u32>>>() {
            Some(ids) => sample.tokens = sample.tokens.or(Some(ids)),
            None => sample.pieces = Some(content.into_iter().map(|c| c.token).collect()),
        }
    }
    let number = sample.tokens.as_ref().map(Vec::len).or(sample.pieces.as_ref().map(Vec::len));
    // What cannot be said of which token it is, or is no log-prob, is not told at all.
    sample.log_probs = sample.log_probs.filter(|l| Some(l.len()) == number).and_then(log_probs);
    Ok(sample)
}

/// Log-probs as they are meant; `None` if one is none. Rounding may lift a certain token's a little above zero.
fn log_probs(told: Vec<f32>) -> Option<Vec<f32>> {
    let fits = told.iter().all(|p| p.is_finite() && *p <= 1e-3);
    fits.then(|| told.into_iter().map(|p| p.min(0.0)).collect())
}

/// The body of SGLang's `POST /generate`.
#[derive(Debug, Serialize)]
pub(crate) struct Generate<'a> {
    pub input_ids: &'a [u32],
    pub sampling_params: GenerateParameters<'a>,
    pub return_logprob: bool,
    /// From which token of the prompt on log-probs are told too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprob_start_len: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct GenerateParameters<'a> {
    pub max_new_tokens: usize,
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: i32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub stop_token_ids: &'a [u32],
    /// Servers from before 2025-09 do not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_seed: Option<u32>,
}

impl<'a> GenerateParameters<'a> {
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

/// What is read of the answer to [`Generate`].
#[derive(Debug, Deserialize)]
struct Generated {
    text: String,
    meta_info: About,
}

#[derive(Debug, Deserialize)]
struct About {
    finish_reason: Value,
    /// Log-prob, token, and its text where it is asked for.
    #[serde(default)]
    output_token_logprobs: Option<Vec<TokenTriple>>,
    #[serde(default)]
    input_token_logprobs: Option<Vec<TokenTriple>>,
    #[serde(default)]
    weight_version: Option<String>,
}

type TokenTriple = (Option<f32>, u32, Value);

/// Reads the answer to SGLang's `POST /generate`.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn read_generated(body: &[u8]) -> Result<Sample, String> {
    let Generated { text, meta_info } = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let reason = meta_info.finish_reason.pointer("/type").and_then(Value::as_str);
    let end = match reason {
        Some("stop") => End::Stop,
        Some("length") => End::Length,
        _ => return Err(format!("finish_reason {}", meta_info.finish_reason)),
    };
    let triples = meta_info.output_token_logprobs;
    let tokens = triples.as_ref().map(|triples| triples.iter().map(|triple| triple.1).collect());
    let told = triples.and_then(|triples| triples.iter().map(|triple| triple.0).collect());
    let log_probs = told.and_then(log_probs);
    Ok(Sample { text, tokens, pieces: None, log_probs, end, weights_name: meta_info.weight_version })
}

/// Log-probs of the tokens of a prompt from `from` on, and what the weights are called, if that is told.
pub(crate) type Scored = (Vec<f32>, Option<String>);

/// Reads the log-probs of a prompt's tokens out of the answer to SGLang's `POST /generate`.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn read_generated_scores(body: &[u8], tokens: &[u32], from: usize) -> Result<Scored, String> {
    let Generated { meta_info, .. } = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let triples = meta_info.input_token_logprobs.ok_or("there are no input_token_logprobs in it")?;
    if triples.len() != tokens.len() {
        return Err(format!("{} input_token_logprobs for {} tokens", triples.len(), tokens.len()));
    }
    let told = triples.iter().zip(tokens).skip(from);
    let own = told.map(|((log_prob, token, _), asked)| log_prob.filter(|_| token == asked));
    Ok((scores(own)?, meta_info.weight_version))
}

/// Reads the log-probs of a prompt's tokens out of vLLM's answer to `POST /v1/completions`.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn read_prompt_scores(body: &[u8], tokens: &[u32], from: usize) -> Result<Scored, String> {
    let reply: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let told = reply.pointer("/choices/0/prompt_logprobs").and_then(Value::as_array);
    let told = told.ok_or("there are no prompt_logprobs in it")?;
    if told.len() != tokens.len() {
        return Err(format!("{} prompt_logprobs for {} tokens", told.len(), tokens.len()));
    }
    let of = |(at, token): (&Value, &u32)| {
        at.get(token.to_string())?.get("logprob")?.as_f64().map(|log_prob| log_prob as f32)
    };
    Ok((scores(told.iter().zip(tokens).skip(from).map(of))?, None))
}

fn scores(told: impl Iterator<Item = Option<f32>>) -> Result<Vec<f32>, String> {
    let told: Option<Vec<f32>> = told.collect();
    told.and_then(log_probs).ok_or_else(|| "a token of the prompt has no log-prob in it".to_owned())
}

/// One served model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    pub names: Vec<String>,
    /// Longest sequence in tokens, if told.
    pub context: Option<usize>,
    /// Number of tokens in its vocabulary, if told.
    pub vocabulary: Option<usize>,
}

/// Reads the answer to `GET /v1/models`.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn read_models(body: &[u8]) -> Result<Vec<Served>, String> {
    #[derive(Deserialize)]
    struct Models {
        data: Vec<Value>,
    }
    let models: Models = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    Ok(models.data.iter().map(served).collect())
}

fn served(model: &Value) -> Served {
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
    Served { names, context, vocabulary: number("/meta/n_vocab") }
}

/// The message of an error body, in whatever shape it comes; shortened, and without what would move a terminal.
pub(crate) fn error_message(body: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let said = value.as_ref().and_then(|v| {
        ["/error/message", "/message", "/detail", "/error"].iter().find_map(|path| v.pointer(path)?.as_str())
    });
    let text = said.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(char::is_control, "");
    if line.is_empty() { "no message".into() } else { line.chars().take(400).collect() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    // Answers as the servers gave them, shortened.
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
    fn each_dialect_is_read() {
        let sample = read_sample(LLAMA_CPP.as_bytes()).unwrap();
        assert_eq!(sample.tokens, Some(vec![365, 364, 2]));
        assert_eq!(sample.log_probs, Some(vec![-1.372_574, -0.222_949_18, -0.000_978_829_6]));
        assert_eq!((sample.text.as_str(), sample.end), (" ~ax-1 ~ax-mp", End::Stop));
        let sample = read_sample(VLLM.as_bytes()).unwrap();
        assert_eq!((sample.tokens, sample.log_probs), (Some(vec![11, 12]), Some(vec![-0.5, -0.25])));
        assert_eq!(sample.end, End::Length);
        let sample = read_sample(PIECES.as_bytes()).unwrap();
        assert_eq!((sample.tokens, sample.log_probs), (None, Some(vec![-0.5, -0.25])));
        assert_eq!(sample.pieces.unwrap(), [" two", " words"]);
    }

    const SGLANG: &str = r#"{"text":" two words","output_ids":[11,12],"meta_info":{"id":"a","finish_reason":{"type":
        "stop","matched":12},"prompt_tokens":2,"weight_version":"7","input_token_logprobs":[[null,1,null],[-2.5,9,null]],
        "output_token_logprobs":[[-0.5,11,null],[-0.25,12,null]],"completion_tokens":2}}"#;

    #[test]
    fn sglangs_own_answers_are_read() {
        let sample = read_generated(SGLANG.as_bytes()).unwrap();
        assert_eq!((sample.tokens, sample.log_probs), (Some(vec![11, 12]), Some(vec![-0.5, -0.25])));
        assert_eq!((sample.end, sample.weights_name.as_deref()), (End::Stop, Some("7")));
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
    fn vllms_scores_of_a_prompt_are_read() {
        let body = br#"{"choices":[{"text":"x","prompt_logprobs":[null,{"9":{"logprob":-2.5,"rank":3},"4":{"logprob":-1}}]}]}"#;
        assert_eq!(read_prompt_scores(body, &[1, 9], 1).unwrap(), (vec![-2.5], None));
        assert!(read_prompt_scores(body, &[1, 8], 1).unwrap_err().contains("no log-prob"));
        assert!(read_prompt_scores(body, &[1], 0).unwrap_err().contains("for 1 tokens"));
        assert!(read_prompt_scores(VLLM.as_bytes(), &[1], 0).unwrap_err().contains("no prompt_logprobs"));
    }

    #[test]
    fn log_probs_that_fit_no_token_are_left_out() {
        let odd = |log_probs: &str| {
            let body = format!(
                r#"{{"choices":[{{"text":"a b","token_ids":[1,2],"finish_reason":"stop",
                "logprobs":{{"token_logprobs":{log_probs}}}}}]}}"#
            );
            read_sample(body.as_bytes()).unwrap().log_probs
        };
        assert_eq!(odd("[-1.0,-2.0]"), Some(vec![-1.0, -2.0]));
        assert_eq!(odd("[-1.0,0.0000001]"), Some(vec![-1.0, 0.0]), "rounding is no lie");
        for bad in ["[-1.0]", "[-1.0,null]", "[-1.0,0.5]", "null", "[]"] {
            assert_eq!(odd(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_no_completion_is_an_error_and_never_a_panic() {
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
    fn served_models_are_told_with_their_context() {
        let body = br#"{"object":"list","data":[
            {"id":"a","aliases":["a","b"],"meta":{"n_vocab":9362,"n_ctx":512,"n_ctx_train":4096}},
            {"id":"org/model","max_model_len":8192},{"id":"bare"}]}"#;
        let models = read_models(body).unwrap();
        assert_eq!(
            models[0],
            Served { names: vec!["a".into(), "b".into()], context: Some(512), vocabulary: Some(9362) }
        );
        assert_eq!((models[1].context, models[2].context), (Some(8192), None));
    }

    #[test]
    fn the_message_of_an_error_is_found() {
        assert_eq!(error_message(br#"{"error":{"code":400,"message":"too  long"}}"#), "too long");
        assert_eq!(error_message(br#"{"object":"error","message":"no such model"}"#), "no such model");
        assert_eq!(error_message(br#"{"detail":"Not Found"}"#), "Not Found");
        assert_eq!(error_message(b"<html>\n502 </html>"), "<html> 502 </html>");
        assert_eq!(error_message(b"a\x1b[31m \x1b]0;b\x07\n c"), "a[31m ]0;b c");
        assert_eq!(error_message(b""), "no message");
        assert!(error_message(&vec![b'x'; 100_000]).len() <= 400);
    }

    #[test]
    fn seeds_stay_apart() {
        let seeds: std::collections::BTreeSet<u32> =
            (0..1000u64).flat_map(|n| [narrow_seed(n), narrow_seed(n << 40)]).collect();
        assert!(seeds.len() >= 1998, "0 is in it twice: {}", seeds.len());
        assert!(seeds.iter().all(|s| *s <= i32::MAX as u32));
    }
}
