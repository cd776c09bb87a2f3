//! Errors of endpoints.

/// Why an endpoint is unusable, or a request has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The URL is invalid.
    #[error("{url:?}: {problem}")]
    Url {
        /// The URL.
        url: String,
        /// The problem.
        problem: String,
    },
    /// The API key is invalid.
    #[error("the endpoint's key from {origin}: {problem}")]
    ApiKey {
        /// Source of the key.
        origin: String,
        /// The problem.
        problem: String,
    },
    /// The server's certificate is not trusted, or the server does not support TLS.
    #[error(
        "{url}: no TLS with it: {problem}; for a private certificate authority, give its certificate file (`authority`, --endpoint-authority); for a server without TLS, use http://"
    )]
    Untrusted {
        /// The base URL.
        url: String,
        /// Message of the TLS library.
        problem: String,
    },
    /// The server rejects the API key, or requires one.
    #[error("{url} answers HTTP {status}: {message}; {}", if *.had_key { "the key is not the right one" } else { "it wants a key" })]
    Unauthorised {
        /// The base URL.
        url: String,
        /// 401 or 403.
        status: u16,
        /// Message of the server.
        message: String,
        /// Whether a key was sent.
        had_key: bool,
    },
    /// The server does not offer the model.
    #[error("{url} does not serve {}; it serves {}", .asked.as_deref().map_or_else(|| "exactly one model, so the model's name must be given".to_owned(), |m| format!("the model {m:?}")), list(.served))]
    Model {
        /// The base URL.
        url: String,
        /// The requested model, if any.
        asked: Option<String>,
        /// The offered models.
        served: Vec<String>,
    },
    /// The server's context is too short.
    #[error(
        "{url} serves {model:?} with a context of {served} tokens, and the run needs {needed}: start the server with a longer one (vLLM: --max-model-len, SGLang: --context-length, llama.cpp: -c, which all slots share)"
    )]
    Context {
        /// The base URL.
        url: String,
        /// The model.
        model: String,
        /// Context length of the server, in tokens.
        served: usize,
        /// Required context length, in tokens.
        needed: usize,
    },
    /// The server's vocabulary differs from that of the run's tokenizer.
    #[error(
        "{url} serves {model:?}, whose tokens are not those of the run's tokenizer: {problem}; serve a model with the same tokenizer, or send prompts as text"
    )]
    Vocabulary {
        /// The base URL.
        url: String,
        /// The model.
        model: String,
        /// The difference.
        problem: String,
    },
    /// The server has not replied for too long.
    #[error("{url} has not answered for {seconds} s; last: {last}")]
    Unavailable {
        /// The base URL.
        url: String,
        /// Seconds since the last reply.
        seconds: u64,
        /// The last error.
        last: String,
    },
    /// A request failed repeatedly while others succeeded.
    #[error("{url}: a request failed {tries} times; last: {last}")]
    Failing {
        /// The base URL.
        url: String,
        /// Number of attempts.
        tries: u32,
        /// The last error.
        last: String,
    },
    /// The server rejects a request.
    #[error("{url} answers HTTP {status}: {message}")]
    Refused {
        /// The base URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// Message of the server.
        message: String,
    },
    /// The server cannot load new weights.
    #[error("{url} does not take new weights by {call}: {problem}; {needed}")]
    Refresh {
        /// The base URL.
        url: String,
        /// Path of the failed call.
        call: String,
        /// Message of the server.
        problem: String,
        /// How the server must be started.
        needed: &'static str,
    },
    /// The reply does not follow the protocol.
    #[error("{url} returned an invalid reply: {problem}; check that it is an OpenAI-compatible endpoint")]
    InvalidReply {
        /// The base URL.
        url: String,
        /// The problem.
        problem: String,
    },
    /// The caller has cancelled the request.
    #[error("cancelled")]
    Cancelled,
}

impl EndpointError {
    /// Returns true if the endpoint itself is unusable, so that other requests would fail, too.
    #[must_use]
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
