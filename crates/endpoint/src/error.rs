//! What can be wrong with an endpoint.

/// An endpoint that cannot be used, or a completion that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not an address of an endpoint.
    #[error("{url:?}: {problem}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The key cannot be used.
    #[error("the endpoint's key from {origin}: {problem}")]
    Key {
        /// Where it came from.
        origin: String,
        /// What is wrong.
        problem: String,
    },
    /// Its certificate is not trusted, or it speaks no TLS.
    #[error(
        "{url}: no TLS with it: {problem}; a server whose certificate no public authority has signed needs the file with that authority's certificate (`authority`, --endpoint-authority), and one without TLS an address with http://"
    )]
    Untrusted {
        /// Its address.
        url: String,
        /// What the TLS library says.
        problem: String,
    },
    /// The endpoint wants another key.
    #[error("{url} answers HTTP {status}: {message}; {}", if *.had_key { "the key is not the right one" } else { "it wants a key" })]
    Unauthorised {
        /// Its address.
        url: String,
        /// 401 or 403.
        status: u16,
        /// In its words.
        message: String,
        /// Whether a key was sent.
        had_key: bool,
    },
    /// It does not serve the model.
    #[error("{url} does not serve {}; it serves {}", .asked.as_deref().map_or_else(|| "exactly one model, so the model's name has to be given".to_owned(), |m| format!("the model {m:?}")), list(.served))]
    Model {
        /// Its address.
        url: String,
        /// The model asked for, if one was named.
        asked: Option<String>,
        /// What it serves.
        served: Vec<String>,
    },
    /// Its context is too short.
    #[error(
        "{url} serves {model:?} with a context of {served} tokens, and the run needs {needed}: start the server with a longer one (vLLM: --max-model-len, SGLang: --context-length, llama.cpp: -c, which all slots share)"
    )]
    Context {
        /// Its address.
        url: String,
        /// The model.
        model: String,
        /// Its context, tokens.
        served: usize,
        /// What is needed, tokens.
        needed: usize,
    },
    /// Its vocabulary is not that of the run's tokenizer.
    #[error(
        "{url} serves {model:?}, whose tokens are not those of the run's tokenizer: {problem}; serve a model with the same tokenizer, or send prompts as text"
    )]
    Vocabulary {
        /// Its address.
        url: String,
        /// The model.
        model: String,
        /// What differs.
        problem: String,
    },
    /// It has not answered for long.
    #[error("{url} has not answered for {seconds} s; last: {last}")]
    Away {
        /// Its address.
        url: String,
        /// How long it has been away.
        seconds: u64,
        /// The last failure.
        last: String,
    },
    /// One request failed again and again while others came through.
    #[error("{url}: a request failed {tries} times; last: {last}")]
    Failing {
        /// Its address.
        url: String,
        /// How often it was sent.
        tries: u32,
        /// The last failure.
        last: String,
    },
    /// It refuses a request.
    #[error("{url} answers HTTP {status}: {message}")]
    Refused {
        /// Its address.
        url: String,
        /// The status.
        status: u16,
        /// In its words.
        message: String,
    },
    /// It cannot be given other weights.
    #[error("{url} does not take new weights by {call}: {problem}; {needed}")]
    Refresh {
        /// Its address.
        url: String,
        /// The call that failed.
        call: String,
        /// In its words.
        problem: String,
        /// What it has to be started with.
        needed: &'static str,
    },
    /// It answers something else than the protocol says.
    #[error(
        "{url} answers what is no completion: {problem}; is it an OpenAI-compatible completions endpoint?"
    )]
    Garbled {
        /// Its address.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The caller did not want to wait any longer.
    #[error("cancelled")]
    Cancelled,
}

impl EndpointError {
    /// Whether no other request can fare better: the endpoint itself is not usable.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Failing { .. }
                | Self::Refused { .. }
                | Self::Refresh { .. }
                | Self::Garbled { .. }
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
