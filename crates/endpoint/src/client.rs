//! An endpoint: found out about once, then asked by any number of threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use ureq::Agent;
#[cfg(feature = "tls")]
use ureq::tls::{Certificate, TlsConfig};

use crate::error::EndpointError;
use crate::key::Key;
use crate::patience::{Pauses, retry_after};
use crate::wire::{
    Ask, Beyond, Call, Generate, GenerateParameters, PromptBody, Sample, Served, error_message, narrow_seed,
    read_generated, read_models, read_sample,
};

/// What is known of an endpoint before it is asked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its address, with or without `/v1` at the end.
    pub url: String,
    /// What it is, as far as it is asked for more than the protocol has.
    pub engine: Engine,
    /// The served model's name; `None` takes the only one that is served.
    pub model: Option<String>,
    /// The key, if it wants one.
    pub key: Option<Key>,
    /// The certificates (DER) to trust instead of the public ones, for an `https://` address.
    pub trusted: Option<Vec<Vec<u8>>>,
    /// How prompts are sent.
    pub prompt: Prompt,
    /// How often one request is sent while others come through.
    pub tries: u32,
    /// Longest time for one answer.
    pub timeout: Duration,
    /// Longest time without any answer.
    pub patience: Duration,
    /// Connections that are kept open.
    pub connections: usize,
}

/// What an endpoint is, as far as it is asked for more than the protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Anything that speaks the protocol; nobody gives it other weights.
    Any,
    /// SGLang: completions by its own call, which tells token ids, and new weights by `/update_weights_from_disk`.
    Sglang,
    /// vLLM with sleep mode and its development calls: new weights by `reload_weights`.
    Vllm,
}

/// How prompts are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// As token ids if the server takes those, else as text.
    Auto,
    /// As token ids or not at all.
    Tokens,
    /// As text.
    Text,
}

/// How prompts turned out to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptForm {
    /// Token ids.
    Tokens,
    /// Text.
    Text,
}

/// What an endpoint turned out to be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// How it takes prompts.
    pub prompt: PromptForm,
    /// Whether it takes fields beyond the protocol; without them nobody can tell it not to truncate the distribution.
    pub beyond: bool,
    /// Whether it tells the token ids of completions.
    pub token_ids: bool,
    /// Whether it tells log-probs.
    pub log_probs: bool,
    /// Its context in tokens, if it tells.
    pub context: Option<usize>,
}

/// A completions endpoint. See the crate's text.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) settings: Settings,
    agent: Agent,
    pub(crate) base: String,
    pub(crate) model: String,
    abilities: Abilities,
    /// When it last answered anything.
    answered: Mutex<Instant>,
    /// How often it did not answer.
    breaks: AtomicU64,
}

/// Time for a connection to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// Largest answer, bytes.
const LARGEST_ANSWER: u64 = 64 << 20;
/// A wait looks this often whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// How one exchange ended.
pub(crate) enum Exchange {
    Answer(Vec<u8>),
    /// Worth another try.
    Again {
        why: String,
        asked: Option<Duration>,
        answered: bool,
    },
    Refused {
        status: u16,
        message: String,
    },
    /// Whoever is there cannot be trusted, or speaks no TLS.
    Untrusted(String),
}

impl Endpoint {
    /// Finds out what is served there: `probe` is sampled once, `needed` is the longest sequence in tokens that will
    /// be asked for and `vocabulary` the number of tokens that prompts may name.
    ///
    /// # Errors
    /// [`EndpointError`], of which none goes away by asking again.
    pub fn connect(
        settings: Settings,
        probe: &Ask,
        needed: usize,
        vocabulary: usize,
    ) -> Result<(Self, Sample), EndpointError> {
        let mut endpoint = Self::new(settings)?;
        endpoint.choose_model(needed, vocabulary)?;
        endpoint.rouse()?;
        let sample = endpoint.find_abilities(probe)?;
        Ok((endpoint, sample))
    }

    /// One of which nothing is known but that it serves the model.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    pub(crate) fn of_model(settings: Settings) -> Result<Self, EndpointError> {
        let mut endpoint = Self::new(settings)?;
        endpoint.choose_model(0, 0)?;
        Ok(endpoint)
    }

    fn new(settings: Settings) -> Result<Self, EndpointError> {
        let base = base_of(&settings.url)?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(settings.timeout))
            .max_idle_connections_per_host(settings.connections.max(1))
            .max_idle_connections(settings.connections.max(1))
            .max_redirects(0);
        // Without TLS no address that has a use for it gets here.
        #[cfg(feature = "tls")]
        let config = match &settings.trusted {
            None => config,
            Some(certificates) => {
                let roots = certificates.iter().map(|der| Certificate::from_der(der).to_owned());
                config.tls_config(TlsConfig::builder().root_certs(roots.into()).build())
            }
        };
        let abilities = Abilities {
            prompt: PromptForm::Tokens,
            beyond: true,
            token_ids: false,
            log_probs: false,
            context: None,
        };
        Ok(Self {
            model: settings.model.clone().unwrap_or_default(),
            settings,
            agent: config.build().into(),
            base,
            abilities,
            answered: Mutex::new(Instant::now()),
            breaks: AtomicU64::new(0),
        })
    }

    /// The name of the model that is sampled.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// How often it has not answered, so that it may have been started anew since.
    #[must_use]
    pub fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Acquire)
    }

    /// What it can do.
    #[must_use]
    pub fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn choose_model(&mut self, needed: usize, vocabulary: usize) -> Result<(), EndpointError> {
        let body = match self.get("/models") {
            Ok(body) => body,
            // Some gateways have no list; then the name is taken at its word.
            Err(EndpointError::Refused { status: 404 | 405 | 501, .. }) if self.settings.model.is_some() => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let models = read_models(&body).map_err(|problem| self.garbled(problem))?;
        let found = match &self.settings.model {
            Some(name) => models.iter().find(|m| m.names.contains(name)),
            None => Some(&models[..])
                .filter(|m| m.len() == 1)
                .and_then(|m| m.first())
                .filter(|m| !m.names.is_empty()),
        };
        let Some(Served { names, context, vocabulary: served }) = found else {
            let served = models.into_iter().flat_map(|m| m.names).collect();
            return Err(EndpointError::Model {
                url: self.base.clone(),
                asked: self.settings.model.clone(),
                served,
            });
        };
        self.model = self.settings.model.clone().unwrap_or_else(|| names[0].clone());
        self.abilities.context = *context;
        let (url, model) = (self.base.clone(), self.model.clone());
        if let Some(served) = context.filter(|c| *c < needed) {
            return Err(EndpointError::Context { url, model, served, needed });
        }
        if let Some(served) = served.filter(|s| *s < vocabulary && self.settings.prompt != Prompt::Text) {
            let problem = format!("it has {served} tokens and the run's tokenizer {vocabulary}");
            return Err(EndpointError::Vocabulary { url, model, problem });
        }
        Ok(())
    }

    /// Samples the probe with everything asked for; what is refused is left out the next time.
    fn find_abilities(&mut self, probe: &Ask) -> Result<Sample, EndpointError> {
        let forms: &[PromptForm] = match self.settings.prompt {
            _ if self.settings.engine == Engine::Sglang => &[PromptForm::Tokens],
            Prompt::Auto => &[PromptForm::Tokens, PromptForm::Text],
            Prompt::Tokens => &[PromptForm::Tokens],
            Prompt::Text => &[PromptForm::Text],
        };
        let mut refusal = None;
        for (form, beyond) in forms.iter().flat_map(|f| [(*f, true), (*f, false)]) {
            (self.abilities.prompt, self.abilities.beyond) = (form, beyond);
            match self.sample(probe, || false) {
                Ok(sample) => {
                    self.abilities.token_ids = sample.tokens.is_some();
                    self.abilities.log_probs = sample.log_probs.is_some();
                    return Ok(sample);
                }
                // The first refusal is that of what we would like best; the later ones follow from it.
                Err(error @ (EndpointError::Refused { .. } | EndpointError::Failing { .. })) => {
                    refusal.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refusal.unwrap_or(EndpointError::Cancelled))
    }

    /// Samples one completion. Failures that may pass are tried again with growing pauses; `cancelled` is asked now
    /// and then whether to stop waiting between tries.
    ///
    /// # Errors
    /// [`EndpointError`]; see [`EndpointError::is_final`].
    pub fn sample(&self, ask: &Ask, cancelled: impl Fn() -> bool) -> Result<Sample, EndpointError> {
        if self.settings.engine == Engine::Sglang {
            return self.generate(ask, cancelled);
        }
        let prompt = match self.abilities.prompt {
            PromptForm::Tokens => PromptBody::Tokens(&ask.tokens),
            PromptForm::Text => PromptBody::Text(&ask.text),
        };
        let call = Call {
            model: &self.model,
            prompt,
            max_tokens: ask.max_tokens,
            temperature: ask.temperature,
            top_p: 1.0,
            seed: narrow_seed(ask.seed),
            logprobs: Some(1),
            stop: &ask.stop_texts,
            prompt_logprobs: None,
            beyond: self.abilities.beyond.then(|| Beyond::new(&ask.stop_tokens)),
        };
        let url = format!("{}/completions", self.base);
        let body = self.persevere(ask.seed, cancelled, || self.post(&url, &call))?;
        read_sample(&body).map_err(|problem| self.garbled(problem))
    }

    /// [`Endpoint::sample`] by SGLang's own call.
    fn generate(&self, ask: &Ask, cancelled: impl Fn() -> bool) -> Result<Sample, EndpointError> {
        let mut parameters = GenerateParameters::new(ask.max_tokens, ask.temperature, &ask.stop_tokens);
        parameters.sampling_seed = self.abilities.beyond.then(|| narrow_seed(ask.seed));
        let call = Generate {
            input_ids: &ask.tokens,
            sampling_params: parameters,
            return_logprob: true,
            logprob_start_len: None,
        };
        let url = self.beside("/generate");
        let body = self.persevere(ask.seed, cancelled, || self.post(&url, &call))?;
        read_generated(&body).map_err(|problem| self.garbled(problem))
    }

    /// The address of a call that is no part of the protocol.
    pub(crate) fn beside(&self, path: &str) -> String {
        format!("{}{path}", self.base.strip_suffix("/v1").unwrap_or(&self.base))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, EndpointError> {
        self.persevere(
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
                    message: format!("the request cannot be written: {e}"),
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

    /// Tries until there is an answer. While others are answered, one request has `tries`; while nobody is, all wait
    /// until the endpoint has been away for as long as we have patience.
    pub(crate) fn persevere(
        &self,
        seed: u64,
        cancelled: impl Fn() -> bool,
        mut once: impl FnMut() -> Exchange,
    ) -> Result<Vec<u8>, EndpointError> {
        let begun = Instant::now();
        let mut pauses = Pauses::new(seed);
        let mut tries = 0;
        loop {
            tries += 1;
            let (why, asked) = match once() {
                Exchange::Answer(body) => {
                    self.note_answer();
                    return Ok(body);
                }
                Exchange::Refused { status, message } => return Err(self.refused(status, message)),
                Exchange::Untrusted(problem) => {
                    return Err(EndpointError::Untrusted { url: self.base.clone(), problem });
                }
                Exchange::Again { why, asked, answered } => {
                    if answered {
                        self.note_answer();
                    } else {
                        self.breaks.fetch_add(1, Ordering::AcqRel);
                    }
                    (format!("{why}{}", self.detour()), asked)
                }
            };
            let url = self.base.clone();
            let answered = *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
            if answered > begun && tries >= self.settings.tries.max(1) {
                return Err(EndpointError::Failing { url, tries, last: why });
            }
            let away = answered.max(begun).elapsed();
            if away >= self.settings.patience {
                return Err(EndpointError::Away { url, seconds: away.as_secs(), last: why });
            }
            let pause = pauses.next(asked);
            tracing::warn!("{url}: {why}; trying again in {:.1} s", pause.as_secs_f64());
            wait(pause, &cancelled)?;
        }
    }

    /// Who stands between, as the environment says: what has failed may have failed there.
    fn detour(&self) -> String {
        let to = self.base.parse::<ureq::http::Uri>();
        let proxy = self.agent.config().proxy().filter(|proxy| to.is_ok_and(|to| !proxy.is_no_proxy(&to)));
        proxy.map_or_else(String::new, |proxy| {
            format!(
                " (through the proxy {}:{} of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY; NO_PROXY names who needs none)",
                proxy.host(),
                proxy.port()
            )
        })
    }

    fn note_answer(&self) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
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

    pub(crate) fn garbled(&self, problem: String) -> EndpointError {
        EndpointError::Garbled { url: self.base.clone(), problem }
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
        std::thread::sleep(left.min(LOOK));
    }
}

/// Reads an answer, whatever it says.
fn exchange(url: &str, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Exchange {
    let again = |why: String| Exchange::Again { why, asked: None, answered: false };
    let mut answer = match answer {
        Ok(answer) => answer,
        // So the TLS library says that it does not trust a certificate, or that what comes is no TLS.
        Err(ureq::Error::Io(error))
            if url.starts_with("https://") && error.kind() == std::io::ErrorKind::InvalidData =>
        {
            return Exchange::Untrusted(error.to_string());
        }
        Err(error) => return again(error.to_string()),
    };
    let status = answer.status().as_u16();
    let asked = answer.headers().get("retry-after").and_then(|v| v.to_str().ok());
    let asked = asked.and_then(|text| retry_after(text, SystemTime::now()));
    let body = match answer.body_mut().with_config().limit(LARGEST_ANSWER).read_to_vec() {
        Ok(body) => body,
        Err(error) => return again(format!("the answer broke off: {error}")),
    };
    match status {
        200..300 => Exchange::Answer(body),
        // Too slow, too early, too many, a fault of this request: the server lives and has others.
        408 | 425 | 429 | 500 => {
            Exchange::Again { why: format!("HTTP {status}: {}", error_message(&body)), asked, answered: true }
        }
        502..=504 | 520..=530 => Exchange::Again {
            why: format!("HTTP {status}: {}", error_message(&body)),
            asked,
            answered: false,
        },
        300..400 => {
            let to = answer.headers().get("location").and_then(|to| to.to_str().ok());
            let to = to.map_or_else(|| "nowhere".to_owned(), |to| error_message(to.as_bytes()));
            Exchange::Refused {
                status,
                message: format!("it sends us on, to {to}; give the address that answers"),
            }
        }
        _ => Exchange::Refused { status, message: error_message(&body) },
    }
}

/// The address with `/v1` at its end.
fn base_of(url: &str) -> Result<String, EndpointError> {
    let wrong = |problem: &str| EndpointError::Url { url: url.to_owned(), problem: problem.to_owned() };
    let trimmed = url.trim().trim_end_matches('/');
    let rest = trimmed.strip_prefix("http://").or_else(|| trimmed.strip_prefix("https://"));
    if rest.is_none_or(str::is_empty) {
        return Err(wrong(
            "an endpoint's address begins with http:// or https://, as in http://127.0.0.1:8000/v1",
        ));
    }
    if trimmed.starts_with("https://") && !cfg!(feature = "tls") {
        return Err(wrong("this build has no TLS; build it with the feature `tls`"));
    }
    let trimmed = trimmed.strip_suffix("/completions").unwrap_or(trimmed);
    Ok(if trimmed.ends_with("/v1") { trimmed.to_owned() } else { format!("{trimmed}/v1") })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_may_be_given_in_several_ways() {
        for url in ["http://h:8000", "http://h:8000/", "http://h:8000/v1", " http://h:8000/v1/completions"] {
            assert_eq!(base_of(url).unwrap(), "http://h:8000/v1");
        }
        assert_eq!(base_of("http://h/models/a/v1/").unwrap(), "http://h/models/a/v1");
        for url in ["", "h:8000", "ftp://h", "http://"] {
            assert!(base_of(url).unwrap_err().to_string().contains("http://"), "{url}");
        }
    }
}
