//! Errors of endpoints.

/// Why an endpoint is unusable, or a request has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum EndpointError {
    /// The URL is invalid.
    #[error("{url:?}: {problem}")]
    Url { url: String, problem: String },
    #[error("the endpoint's key from {origin}: {problem}")]
    ApiKey { origin: String, problem: String },
    #[error(
        "{url}: no TLS with it: {problem}; for a private certificate authority, give its certificate file (`authority`, --endpoint-authority); for a server without TLS, use http://"
    )]
    Untrusted { url: String, problem: String },
    /// The server rejects the API key, or requires one.
    #[error("{url} answers HTTP {status}: {message}; {}", if *.had_key { "the key is not the right one" } else { "it wants a key" })]
    Unauthorised { url: String, status: u16, message: String, had_key: bool },
    #[error("{url} does not serve {}; it serves {}", .asked.as_deref().map_or_else(|| "exactly one model, so the model's name must be given".to_owned(), |m| format!("the model {m:?}")), list(.served))]
    Model { url: String, asked: Option<String>, served: Vec<String> },
    #[error(
        "{url} serves {model:?} with a context of {served} tokens, and the run needs {needed}: start the server with a longer one (vLLM: --max-model-len, SGLang: --context-length, llama.cpp: -c, which all slots share)"
    )]
    Context { url: String, model: String, served: usize, needed: usize },
    #[error(
        "{url} serves {model:?}, whose tokens are not those of the run's tokenizer: {problem}; serve a model with the same tokenizer, or send prompts as text"
    )]
    Vocabulary { url: String, model: String, problem: String },
    /// Nothing listens at the address.
    #[error(
        "nothing listens at {url} ({problem}): start the server, or correct the host and port; `curl {url}/models` must answer"
    )]
    Absent { url: String, problem: String },
    #[error(
        "{url} has not answered for {seconds} s; last: {last}; start the server again: `curl {url}/models` must answer"
    )]
    Unavailable { url: String, seconds: u64, last: String },
    #[error("{url}: a request failed {tries} times; last: {last}")]
    Failing { url: String, tries: u32, last: String },
    /// The server rejects a request.
    #[error("{url} answers HTTP {status}: {message}")]
    Refused { url: String, status: u16, message: String },
    #[error("{url} does not take new weights by {call}: {problem}; {needed}")]
    Refresh { url: String, call: String, problem: String, needed: &'static str },
    #[error("{url} returned an invalid reply: {problem}; check that it is an OpenAI-compatible endpoint")]
    InvalidReply { url: String, problem: String },
    /// The caller has cancelled the request.
    #[error("cancelled")]
    Cancelled,
}

impl EndpointError {
    /// Returns true if the endpoint itself is unusable, so that other requests would fail, too.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Failing { .. }
                | Self::Refused { .. }
                | Self::Refresh { .. }
                | Self::InvalidReply { .. }
                | Self::Cancelled
        )
    }
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => {
            let shown: Vec<String> = names.iter().take(10).map(|n| format!("{n:?}")).collect();
            let more = if names.len() > shown.len() { ", …" } else { "" };
            format!("{}{more}", shown.join(", "))
        }
    }
}
