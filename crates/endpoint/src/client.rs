//! Client of a completions endpoint.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use ureq::Agent;
use ureq::tls::{Certificate, TlsConfig};

use crate::backoff::{Backoff, retry_after};
use crate::error::EndpointError;
use crate::key::ApiKey;
use crate::wire::{
    CompletionBody, CompletionRequest, ExtensionFields, GenerateBody, GenerateOptions, PromptBody,
    RemoteCompletion, ServedModel, error_message, narrow_seed, read_generated, read_models, read_sample,
};

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Base URL, with or without `/v1` at the end.
    pub url: String,
    /// The server software, which determines the protocol extensions.
    pub server: ServerKind,
    /// Name of the model. `None` selects the only one offered.
    pub model: Option<String>,
    /// API key, if the server requires one.
    pub key: Option<ApiKey>,
    /// Certificates (DER) to trust instead of the public ones, for `https://` URLs.
    pub trusted: Option<Vec<Vec<u8>>>,
    /// Format of prompts.
    pub prompt: PromptMode,
    /// Maximum attempts of a request while other requests succeed.
    pub tries: u32,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Maximum time without any reply before the endpoint counts as unavailable. A server that refuses connections before
    /// its first reply counts as absent after two seconds.
    pub patience: Duration,
    /// Maximum number of idle connections.
    pub connections: usize,
}

/// Server software, as far as its protocol extensions are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// Any OpenAI-compatible server. Its weights cannot be updated.
    Any,
    /// SGLang. Completions use `/generate`, which returns token ids; weights are updated by `/update_weights_from_disk`.
    Sglang,
    /// vLLM with sleep mode and its development API. Weights are updated by `reload_weights`.
    Vllm,
}

/// Requested format of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptMode {
    /// Token ids if the server accepts them, otherwise text.
    Auto,
    /// Token ids only.
    Tokens,
    /// Text only.
    Text,
}

/// Actual format of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptEncoding {
    /// Token ids.
    Tokens,
    /// Text.
    Text,
}

/// Capabilities of an endpoint, as found by probing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Format of prompts.
    pub prompt: PromptEncoding,
    /// Whether it accepts protocol extensions. Without them, it may truncate the distribution.
    pub extensions: bool,
    /// Whether it returns the token ids of completions.
    pub token_ids: bool,
    /// Whether it returns log-probs.
    pub log_probs: bool,
    /// Context length in tokens, if known.
    pub context: Option<usize>,
}

/// Client of a completions endpoint.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) settings: EndpointSettings,
    agent: Agent,
    pub(crate) base: String,
    pub(crate) model: String,
    capabilities: Capabilities,
    /// Time of the last reply; `None` before the first.
    answered: Mutex<Option<Instant>>,
    /// Number of requests without a reply.
    outages: AtomicU64,
}

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a server that has refused every connection counts as absent. It covers a restart that is in progress.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum size of a reply, in bytes.
const MAX_REPLY: u64 = 64 << 20;
/// Interval at which a wait polls for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Result of one attempt.
pub(crate) enum Exchange {
    Answer(Vec<u8>),
    /// A temporary failure.
    Again {
        why: String,
        asked: Option<Duration>,
        answered: bool,
        /// Whether nothing listens at the address.
        is_refused: bool,
    },
    Refused {
        status: u16,
        message: String,
    },
    /// The certificate is not trusted, or the server does not support TLS.
    Untrusted(String),
}

impl Endpoint {
    /// Connects to a server, and probes its capabilities by sampling `probe`. `needed` is the maximum length of prompt and
    /// completion, in tokens, and `vocabulary` the vocabulary size of the prompts. Also returns the probe's completion.
    ///
    /// # Errors
    /// Returns an error if the endpoint is unusable. A retry does not help.
    pub fn connect(
        settings: EndpointSettings,
        probe: &CompletionRequest,
        needed: usize,
        vocabulary: usize,
    ) -> Result<(Self, RemoteCompletion), EndpointError> {
        let mut endpoint = Self::new(settings)?;
        endpoint.choose_model(needed, vocabulary)?;
        endpoint.wake()?;
        let sample = endpoint.probe_capabilities(probe)?;
        Ok((endpoint, sample))
    }

    /// Connects to a server and checks only that it offers the model.
    pub(crate) fn for_model(settings: EndpointSettings) -> Result<Self, EndpointError> {
        let mut endpoint = Self::new(settings)?;
        endpoint.choose_model(0, 0)?;
        Ok(endpoint)
    }

    fn new(settings: EndpointSettings) -> Result<Self, EndpointError> {
        let base = base_of(&settings.url)?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(settings.timeout))
            .max_idle_connections_per_host(settings.connections.max(1))
            .max_idle_connections(settings.connections.max(1))
            .max_redirects(0);
        let config = match &settings.trusted {
            None => config,
            Some(certificates) => {
                let roots = certificates.iter().map(|der| Certificate::from_der(der).to_owned());
                config.tls_config(TlsConfig::builder().root_certs(roots.into()).build())
            }
        };
        let capabilities = Capabilities {
            prompt: PromptEncoding::Tokens,
            extensions: true,
            token_ids: false,
            log_probs: false,
            context: None,
        };
        Ok(Self {
            model: settings.model.clone().unwrap_or_default(),
            settings,
            agent: config.build().into(),
            base,
            capabilities,
            answered: Mutex::new(None),
            outages: AtomicU64::new(0),
        })
    }

    /// Returns the name of the model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the base URL.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Returns the number of requests without a reply. If it has changed, the server may have been restarted.
    pub fn outages(&self) -> u64 {
        self.outages.load(Ordering::Acquire)
    }

    /// Returns the capabilities found by probing.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn choose_model(&mut self, needed: usize, vocabulary: usize) -> Result<(), EndpointError> {
        let body = match self.get("/models") {
            Ok(body) => body,
            // Some gateways have no list of models; then trust the configured name.
            Err(EndpointError::Refused { status: 404 | 405 | 501, .. }) if self.settings.model.is_some() => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let models = read_models(&body).map_err(|problem| self.invalid_reply(problem))?;
        let found = match &self.settings.model {
            Some(name) => models.iter().find(|m| m.names.contains(name)),
            None => Some(&models[..])
                .filter(|m| m.len() == 1)
                .and_then(|m| m.first())
                .filter(|m| !m.names.is_empty()),
        };
        let Some(ServedModel { names, context, vocabulary: served }) = found else {
            let served = models.into_iter().flat_map(|m| m.names).collect();
            return Err(EndpointError::Model {
                url: self.base.clone(),
                asked: self.settings.model.clone(),
                served,
            });
        };
        self.model = self.settings.model.clone().unwrap_or_else(|| names[0].clone());
        self.capabilities.context = *context;
        let (url, model) = (self.base.clone(), self.model.clone());
        if let Some(served) = context.filter(|c| *c < needed) {
            return Err(EndpointError::Context { url, model, served, needed });
        }
        if let Some(served) = served.filter(|s| *s < vocabulary && self.settings.prompt != PromptMode::Text) {
            let problem = format!("it has {served} tokens and the run's tokenizer {vocabulary}");
            return Err(EndpointError::Vocabulary { url, model, problem });
        }
        Ok(())
    }

    /// Samples the probe with all features, and drops one after the other if the server rejects them.
    fn probe_capabilities(&mut self, probe: &CompletionRequest) -> Result<RemoteCompletion, EndpointError> {
        let forms: &[PromptEncoding] = match self.settings.prompt {
            _ if self.settings.server == ServerKind::Sglang => &[PromptEncoding::Tokens],
            PromptMode::Auto => &[PromptEncoding::Tokens, PromptEncoding::Text],
            PromptMode::Tokens => &[PromptEncoding::Tokens],
            PromptMode::Text => &[PromptEncoding::Text],
        };
        let mut refusal = None;
        for (form, extensions) in forms.iter().flat_map(|f| [(*f, true), (*f, false)]) {
            (self.capabilities.prompt, self.capabilities.extensions) = (form, extensions);
            match self.sample(probe, || false) {
                Ok(sample) => {
                    self.capabilities.token_ids = sample.tokens.is_some();
                    self.capabilities.log_probs = sample.log_probs.is_some();
                    return Ok(sample);
                }
                // Report the first rejection, which is about the preferred features.
                Err(error @ (EndpointError::Refused { .. } | EndpointError::Failing { .. })) => {
                    refusal.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refusal.unwrap_or(EndpointError::Cancelled))
    }

    /// Samples one completion. Retries temporary failures with growing delays, and polls `cancelled` during the delays.
    ///
    /// # Errors
    /// Returns an error if sampling fails; see [`EndpointError::is_final`].
    pub fn sample(
        &self,
        request: &CompletionRequest,
        cancelled: impl Fn() -> bool,
    ) -> Result<RemoteCompletion, EndpointError> {
        if self.settings.server == ServerKind::Sglang {
            return self.generate(request, cancelled);
        }
        let prompt = match self.capabilities.prompt {
            PromptEncoding::Tokens => PromptBody::Tokens(&request.tokens),
            PromptEncoding::Text => PromptBody::Text(&request.text),
        };
        let call = CompletionBody {
            model: &self.model,
            prompt,
            max_tokens: request.max_tokens,
            temperature: request.temperature,
            top_p: 1.0,
            seed: narrow_seed(request.seed),
            logprobs: Some(1),
            stop: &request.stop_texts,
            prompt_logprobs: None,
            extensions: self.capabilities.extensions.then(|| ExtensionFields::new(&request.stop_tokens)),
        };
        let url = format!("{}/completions", self.base);
        let body = self.retry(request.seed, cancelled, || self.post(&url, &call))?;
        read_sample(&body).map_err(|problem| self.invalid_reply(problem))
    }

    /// Samples one completion, as [`Endpoint::sample`] does, through SGLang's `/generate`.
    fn generate(
        &self,
        request: &CompletionRequest,
        cancelled: impl Fn() -> bool,
    ) -> Result<RemoteCompletion, EndpointError> {
        let mut parameters =
            GenerateOptions::new(request.max_tokens, request.temperature, &request.stop_tokens);
        parameters.sampling_seed = self.capabilities.extensions.then(|| narrow_seed(request.seed));
        let call = GenerateBody {
            input_ids: &request.tokens,
            sampling_params: parameters,
            return_logprob: true,
            logprob_start_len: None,
        };
        let url = self.extension_url("/generate");
        let body = self.retry(request.seed, cancelled, || self.post(&url, &call))?;
        read_generated(&body).map_err(|problem| self.invalid_reply(problem))
    }

    /// Returns the URL of a call outside the protocol.
    pub(crate) fn extension_url(&self, path: &str) -> String {
        format!("{}{path}", self.base.strip_suffix("/v1").unwrap_or(&self.base))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, EndpointError> {
        self.retry(
            0,
            || false,
            || {
                let request = self.agent.get(format!("{}{path}", self.base));
                let request = match &self.settings.key {
                    Some(key) => request.header("authorization", key.header()),
                    None => request,
                };
                exchange(&self.base, request.call())
            },
        )
    }

    pub(crate) fn post(&self, url: &str, call: &impl Serialize) -> Exchange {
        let body = match serde_json::to_vec(call) {
            Ok(body) => body,
            Err(e) => {
                return Exchange::Refused {
                    status: 0,
                    message: format!("the request cannot be serialized: {e}"),
                };
            }
        };
        let request = self.agent.post(url).header("content-type", "application/json");
        let request = match &self.settings.key {
            Some(key) => request.header("authorization", key.header()),
            None => request,
        };
        exchange(url, request.send(&body[..]))
    }

    /// Repeats a request until it succeeds. While other requests succeed, it fails after `tries` attempts; while none does,
    /// it fails when the endpoint has been unavailable for `patience`, or has never replied and refuses connections.
    pub(crate) fn retry(
        &self,
        seed: u64,
        cancelled: impl Fn() -> bool,
        mut once: impl FnMut() -> Exchange,
    ) -> Result<Vec<u8>, EndpointError> {
        let begun = Instant::now();
        let mut backoff = Backoff::new(seed);
        let mut tries = 0;
        loop {
            tries += 1;
            let (why, asked, is_refused) = match once() {
                Exchange::Answer(body) => {
                    self.note_reply();
                    return Ok(body);
                }
                Exchange::Refused { status, message } => return Err(self.refused(status, message)),
                Exchange::Untrusted(problem) => {
                    return Err(EndpointError::Untrusted { url: self.base.clone(), problem });
                }
                Exchange::Again { why, asked, answered, is_refused } => {
                    if answered {
                        self.note_reply();
                    } else {
                        self.outages.fetch_add(1, Ordering::AcqRel);
                    }
                    (format!("{why}{}", self.proxy_note()), asked, is_refused)
                }
            };
            let url = self.base.clone();
            let last_reply = *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
            let is_absent = is_refused && last_reply.is_none();
            if is_absent && begun.elapsed() >= REFUSAL_PATIENCE {
                return Err(EndpointError::Absent { url, problem: why });
            }
            let answered = last_reply.unwrap_or(begun);
            if answered > begun && tries >= self.settings.tries.max(1) {
                return Err(EndpointError::Failing { url, tries, last: why });
            }
            let away = answered.max(begun).elapsed();
            if away >= self.settings.patience {
                return Err(EndpointError::Unavailable { url, seconds: away.as_secs(), last: why });
            }
            let pause = backoff.next(asked);
            tracing::warn!("{url}: {why}; trying again in {:.1} s", pause.as_secs_f64());
            wait(pause, &cancelled)?;
        }
    }

    /// Names the proxy given by the environment, because the failure may be its own.
    fn proxy_note(&self) -> String {
        let to = self.base.parse::<ureq::http::Uri>();
        let proxy = self.agent.config().proxy().filter(|proxy| to.is_ok_and(|to| !proxy.is_no_proxy(&to)));
        proxy.map_or_else(String::new, |proxy| {
            format!(
                " (through the proxy {}:{} of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY; NO_PROXY excludes hosts)",
                proxy.host(),
                proxy.port()
            )
        })
    }

    fn note_reply(&self) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn refused(&self, status: u16, message: String) -> EndpointError {
        let url = self.base.clone();
        match status {
            401 | 403 => {
                EndpointError::Unauthorised { url, status, message, had_key: self.settings.key.is_some() }
            }
            _ => EndpointError::Refused { url, status, message },
        }
    }

    pub(crate) fn invalid_reply(&self, problem: String) -> EndpointError {
        EndpointError::InvalidReply { url: self.base.clone(), problem }
    }
}

fn wait(span: Duration, cancelled: impl Fn() -> bool) -> Result<(), EndpointError> {
    let deadline = Instant::now() + span;
    loop {
        if cancelled() {
            return Err(EndpointError::Cancelled);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
}

/// Reads a reply and classifies its status.
fn exchange(url: &str, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Exchange {
    let again = |why: String| Exchange::Again { why, asked: None, answered: false, is_refused: false };
    let mut answer = match answer {
        Ok(answer) => answer,
        // The TLS library reports an untrusted certificate, or data that is not TLS, in this way.
        Err(ureq::Error::Io(error))
            if url.starts_with("https://") && error.kind() == std::io::ErrorKind::InvalidData =>
        {
            return Exchange::Untrusted(error.to_string());
        }
        Err(error) => {
            let is_refused =
                matches!(&error, ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::ConnectionRefused);
            let why = error.to_string();
            return Exchange::Again { why, asked: None, answered: false, is_refused };
        }
    };
    let status = answer.status().as_u16();
    let asked = answer.headers().get("retry-after").and_then(|v| v.to_str().ok());
    let asked = asked.and_then(|text| retry_after(text, SystemTime::now()));
    let body = match answer.body_mut().with_config().limit(MAX_REPLY).read_to_vec() {
        Ok(body) => body,
        Err(error) => return again(format!("the reply was cut off: {error}")),
    };
    match status {
        200..300 => Exchange::Answer(body),
        // The server is up, but cannot handle this request now.
        408 | 425 | 429 | 500 | 502..=504 | 520..=530 => Exchange::Again {
            why: format!("HTTP {status}: {}", error_message(&body)),
            asked,
            // The others come from a gateway whose server is away.
            answered: status <= 500,
            is_refused: false,
        },
        300..400 => {
            let to = answer.headers().get("location").and_then(|to| to.to_str().ok());
            let to = to.map_or_else(|| "nowhere".to_owned(), |to| error_message(to.as_bytes()));
            Exchange::Refused { status, message: format!("it redirects to {to}; use that URL instead") }
        }
        _ => Exchange::Refused { status, message: error_message(&body) },
    }
}

/// Returns the URL with `/v1` at its end.
///
/// # Errors
/// Returns an error if it is not the URL of an endpoint.
pub fn base_of(url: &str) -> Result<String, EndpointError> {
    let wrong = |problem: &str| EndpointError::Url { url: url.to_owned(), problem: problem.to_owned() };
    let trimmed = url.trim().trim_end_matches('/');
    let rest = trimmed.strip_prefix("http://").or_else(|| trimmed.strip_prefix("https://"));
    if rest.is_none_or(str::is_empty) {
        return Err(wrong(
            "an endpoint's URL begins with http:// or https://, as in http://127.0.0.1:8000/v1",
        ));
    }
    let trimmed = trimmed.strip_suffix("/completions").unwrap_or(trimmed);
    Ok(if trimmed.ends_with("/v1") { trimmed.to_owned() } else { format!("{trimmed}/v1") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_normalised() {
        for url in ["http://h:8000", "http://h:8000/", "http://h:8000/v1", " http://h:8000/v1/completions"] {
            assert_eq!(base_of(url).unwrap(), "http://h:8000/v1");
        }
        assert_eq!(base_of("http://h/models/a/v1/").unwrap(), "http://h/models/a/v1");
        for url in ["", "h:8000", "ftp://h", "http://"] {
            assert!(base_of(url).unwrap_err().to_string().contains("http://"), "{url}");
        }
    }
}
