//! HTTP server: authentication, routes and replies.

use crate::engine::{ModelEngine, SampleEvent, SampleRequest, WeightLoad, reason};
use crate::protocol::{
    ChoiceLogProbs, CompletionChoice, CompletionParams, GenerateParams, MAX_COMPLETIONS, Prompts,
    ReplyHeader, RpcParams, TokenUsage, UpdateParams, error, reply,
};
use crate::transcript::Transcript;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use sgs_endpoint::ApiKey;
use sgs_http::ServiceThread;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use sgs_lm_sampler::SampledCompletion;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, oneshot};

/// Maximum size of a request body, in bytes.
const MAX_BODY: usize = 16 << 20;
/// Timeout of the head, and of the body, of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of connections; further ones wait.
const MAX_CONNECTIONS: usize = 512;
/// Maximum number of open completions. Further requests are rejected.
const MAX_OPEN: usize = 16_384;

/// Configuration of a [`ModelServer`].
#[derive(Clone, Debug)]
pub struct ModelServerConfig {
    /// Address to listen on. Port 0 picks a free port.
    pub listen: SocketAddr,
    /// API key of the clients. Without a key, the server listens only on loopback.
    pub key: Option<ApiKey>,
    /// Name of the model.
    pub name: String,
    /// Folder from which new weights may be loaded; `None` forbids updates.
    pub updates: Option<PathBuf>,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ModelServerError {
    /// It would be open to the network without a key.
    #[error("refusing to listen on {0} without a key: provide one in a file, or listen on 127.0.0.1")]
    Unprotected(SocketAddr),
    /// The address is unavailable.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// The folder for updates is inaccessible.
    #[error("{0}: {1}")]
    Updates(PathBuf, std::io::Error),
}

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    _thread: ServiceThread,
}

type BoxedResponse = Response<BoxBody<Bytes, Infallible>>;

/// The prompts of a request, and the event channel of each completion.
type StartedSamples = (Vec<Arc<[u32]>>, Vec<UnboundedReceiver<SampleEvent>>);

/// A rejected request: the status and the reason.
type HttpError = (StatusCode, String);

struct ServerState {
    engine: ModelEngine,
    tokenizer: Tokenizer,
    config: ModelServerConfig,
    /// Folder that the model was first loaded from, which `reload_weights` loads again.
    initial_folder: PathBuf,
    started: u64,
    requests: AtomicU64,
}

impl ModelServer {
    /// Binds the address and starts the server's thread.
    ///
    /// # Errors
    /// Returns an error if the configuration is unsafe, or the address or the folder for updates is unavailable.
    pub fn start(
        engine: ModelEngine,
        tokenizer: Tokenizer,
        mut config: ModelServerConfig,
    ) -> Result<Self, ModelServerError> {
        let listen = config.listen;
        if config.key.is_none() && !listen.ip().is_loopback() {
            return Err(ModelServerError::Unprotected(listen));
        }
        if let Some(folder) = &mut config.updates {
            // Canonical, because it is compared with canonical paths.
            *folder = folder.canonicalize().map_err(|e| ModelServerError::Updates(folder.clone(), e))?;
        }
        let failed = |error| ModelServerError::Listen(listen, error);
        let thread = ServiceThread::start("completions").map_err(failed)?;
        let (listener, address) = thread.listen(listen).map_err(failed)?;
        let initial_folder = PathBuf::from(engine.served().folder);
        let state = ServerState {
            engine,
            tokenizer,
            config,
            initial_folder,
            started: now(),
            requests: AtomicU64::new(0),
        };
        thread.handle().spawn(accept(listener, Arc::new(state)));
        Ok(Self { address, _thread: thread })
    }

    /// Returns the address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: tokio::net::TcpListener, state: Arc<ServerState>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = sgs_http::accept(&listener).await;
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let _permit = permit;
            let answer = |request| {
                let state = Arc::clone(&state);
                async move { state.answer(request).await }
            };
            sgs_http::serve_connection(stream, REQUEST_TIMEOUT, answer).await;
        });
    }
}

impl ServerState {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> BoxedResponse {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answered = match (method, path.as_str()) {
            (Method::GET, "/health" | "/ping") => return plain(StatusCode::OK, &json!({ "status": "ok" })),
            _ if !self.is_authorized(&request) => {
                Err((StatusCode::UNAUTHORIZED, "missing or wrong API key".into()))
            }
            (Method::GET, "/v1/models") => Ok(plain(StatusCode::OK, &self.models())),
            (Method::GET, "/get_model_info" | "/model_info") => Ok(plain(StatusCode::OK, &self.info())),
            (Method::POST, "/v1/completions") => self.complete(request).await,
            (Method::POST, "/generate") => self.generate(request).await,
            (Method::POST, "/update_weights_from_disk") => self.update(request).await,
            (Method::POST, "/pause_generation" | "/sleep") => Ok(self.pause(true)),
            (Method::POST, "/continue_generation") => Ok(self.pause(false)),
            // With the weights alone, the server is not ready yet.
            (Method::POST, "/wake_up") => Ok(self.pause(request.uri().query() == Some("tags=weights"))),
            (Method::POST, "/collective_rpc") => self.collective_rpc(request).await,
            // Nothing is cached beyond the completions of a prompt.
            (Method::POST, "/flush_cache" | "/reset_prefix_cache") => {
                Ok(plain(StatusCode::OK, &json!({ "success": true })))
            }
            (method, path) => Err((StatusCode::NOT_FOUND, format!("no such route: {method} {path}"))),
        };
        answered.unwrap_or_else(|(status, message)| {
            let mut answer = plain(status, &error(status.as_u16(), &message));
            if status == StatusCode::SERVICE_UNAVAILABLE {
                answer.headers_mut().insert(RETRY_AFTER, hyper::header::HeaderValue::from_static("1"));
            }
            answer
        })
    }

    fn is_authorized(&self, request: &Request<Incoming>) -> bool {
        let Some(key) = &self.config.key else { return true };
        let shown = request.headers().get(AUTHORIZATION).map(hyper::header::HeaderValue::as_bytes);
        key.matches(shown.unwrap_or_default())
    }

    fn models(&self) -> Value {
        let served = self.engine.served();
        json!({ "object": "list", "data": [{
            "id": self.config.name, "object": "model", "created": self.started, "owned_by": "sgs",
            "max_model_len": served.window, "meta": { "n_vocab": served.vocabulary },
        }] })
    }

    fn info(&self) -> Value {
        let served = self.engine.served();
        json!({
            "model_path": served.folder, "tokenizer_path": served.folder, "is_generation": true,
            "weight_version": served.weights,
        })
    }

    fn pause(&self, is_paused: bool) -> BoxedResponse {
        self.engine.pause(is_paused);
        plain(StatusCode::OK, &json!({ "success": true }))
    }

    /// Loads weights, as SGLang does. Completions in progress finish with the old weights; later ones wait.
    async fn update(&self, request: Request<Incoming>) -> Result<BoxedResponse, HttpError> {
        self.may_update()?;
        let UpdateParams { model_path, weight_version } = read_body(request).await?;
        let held = self.load(Path::new(&model_path), weight_version).await?;
        Ok(plain(
            StatusCode::OK,
            &json!({ "success": true, "message": "the weights are loaded", "num_paused_requests": held }),
        ))
    }

    /// Calls a method on all workers, as vLLM does. Supports only `reload_weights`.
    async fn collective_rpc(&self, request: Request<Incoming>) -> Result<BoxedResponse, HttpError> {
        self.may_update()?;
        let RpcParams { method } = read_body(request).await?;
        if method != "reload_weights" {
            return Err((
                StatusCode::BAD_REQUEST,
                format!("unknown method `{method}`; expected `reload_weights`"),
            ));
        }
        self.load(&self.initial_folder, None).await?;
        Ok(plain(StatusCode::OK, &json!({ "results": [null] })))
    }

    fn may_update(&self) -> Result<(), HttpError> {
        let refused = || {
            (StatusCode::FORBIDDEN, "weight updates are disabled; enable them with `--updates DIR`".into())
        };
        self.config.updates.as_ref().map(|_| ()).ok_or_else(refused)
    }

    /// Loads the weights of a folder. Returns the number of completions that were held back.
    async fn load(&self, folder: &Path, name: Option<String>) -> Result<usize, HttpError> {
        let bad = |why: String| (StatusCode::BAD_REQUEST, why);
        let requests = folder.display().to_string();
        let folder = folder.canonicalize().map_err(|e| bad(format!("{requests}: {e}")))?;
        let allowed = self.config.updates.as_deref().filter(|allowed| folder.starts_with(allowed));
        if allowed.is_none() {
            let below = self.config.updates.as_deref().unwrap_or(Path::new("")).display();
            return Err(bad(format!("{requests} is not below {below}")));
        }
        let path = folder.clone();
        let read = tokio::task::spawn_blocking(move || read_weights(&path)).await;
        let (weights, fingerprint) = read.map_err(|e| bad(e.to_string()))?.map_err(bad)?;
        let (done, result) = oneshot::channel();
        let name = name.unwrap_or(fingerprint);
        self.engine.load(WeightLoad { weights, folder: folder.display().to_string(), name, done });
        result.await.map_err(|_| gone())?.map_err(bad)
    }

    async fn complete(self: &Arc<Self>, request: Request<Incoming>) -> Result<BoxedResponse, HttpError> {
        let call: CompletionParams = read_body(request).await?;
        let (prompts, sampled) = self.begin(&call)?;
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut header = ReplyHeader {
            id: format!("cmpl-{:x}-{number}", self.started),
            created: now(),
            model: self.config.name.clone(),
            weights: self.engine.served().weights,
        };
        let prompt_tokens: usize = prompts.iter().map(|p| p.len()).sum();
        let output = OutputOptions::of(&call);
        if call.stream == Some(true) {
            return Ok(self.stream(header, sampled, output, prompt_tokens));
        }
        let (mut choices, mut completion_tokens) = (Vec::with_capacity(sampled.len()), 0);
        for (index, mut events) in sampled.into_iter().enumerate() {
            let collected = self.collect(&mut events, &output).await?;
            completion_tokens += collected.tokens.len();
            let choice = self.choice(
                index,
                collected.text,
                &collected.tokens,
                &collected.log_probs,
                Some(collected.reason),
                &output,
            );
            let mut choice = choice.map_err(|why| (StatusCode::INTERNAL_SERVER_ERROR, why))?;
            let scored = prompts.get(index / call.n().max(1)).filter(|_| output.scores);
            choice.prompt_logprobs = scored.map(|prompt| prompt_log_probs(prompt, &collected.scores));
            header.weights = collected.weights;
            choices.push(choice);
        }
        let usage = TokenUsage::of(prompt_tokens, completion_tokens);
        Ok(plain(StatusCode::OK, &reply(&header, &choices, Some(usage))))
    }

    /// Samples one completion for SGLang's `/generate`.
    async fn generate(&self, request: Request<Incoming>) -> Result<BoxedResponse, HttpError> {
        let call = read_body::<GenerateParams>(request)
            .await?
            .into_completion()
            .map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let (prompts, sampled) = self.begin(&call)?;
        let output = OutputOptions::of(&call);
        let Some((mut events, prompt)) = sampled.into_iter().next().zip(prompts.first()) else {
            return Err(gone());
        };
        let CollectedSample { text, tokens, log_probs, reason, weights, scores } =
            self.collect(&mut events, &output).await?;
        let triples = |log_probs: &[f32], tokens: &[u32]| -> Vec<Value> {
            log_probs.iter().zip(tokens).map(|(log_prob, token)| json!([log_prob, token, null])).collect()
        };
        let mut about = json!({ "finish_reason": { "type": reason }, "prompt_tokens": prompt.len(),
            "completion_tokens": tokens.len(), "weight_version": weights });
        if output.log_probs {
            about["output_token_logprobs"] = json!(triples(&log_probs, &tokens));
        }
        if output.scores {
            let first = json!([null, prompt.first(), null]);
            let rest = triples(&scores, &prompt[1..]);
            about["input_token_logprobs"] = [vec![first], rest].concat().into();
        }
        Ok(plain(StatusCode::OK, &json!({ "text": text, "output_ids": tokens, "meta_info": about })))
    }

    /// Checks a request and starts its completions.
    fn begin(&self, call: &CompletionParams) -> Result<StartedSamples, HttpError> {
        let bad = |why: String| (StatusCode::BAD_REQUEST, why);
        call.check(&self.config.name).map_err(bad)?;
        let prompts = self.prompts(call).map_err(bad)?;
        let requests = self.sample_requests(call, &prompts).map_err(bad)?;
        if self.engine.open() + requests.len() > MAX_OPEN {
            return Err((StatusCode::SERVICE_UNAVAILABLE, "too many open completions; retry later".into()));
        }
        Ok((prompts, requests.into_iter().map(|request| self.engine.sample(request)).collect()))
    }

    /// Returns the prompts as tokens.
    fn prompts(&self, call: &CompletionParams) -> Result<Vec<Arc<[u32]>>, String> {
        let encode = |text: &String| {
            let tokens = self.tokenizer.encode(text).map_err(|e| format!("`prompt`: {e}"))?;
            Ok::<Arc<[u32]>, String>(tokens.into())
        };
        let prompts: Vec<Arc<[u32]>> = match &call.prompt {
            Prompts::Text(text) => vec![encode(text)?],
            Prompts::Texts(texts) => texts.iter().map(encode).collect::<Result<_, _>>()?,
            Prompts::Tokens(tokens) => vec![tokens.as_slice().into()],
            Prompts::Lists(lists) => lists.iter().map(|tokens| tokens.as_slice().into()).collect(),
        };
        let served = self.engine.served();
        for prompt in &prompts {
            if prompt.is_empty() {
                return Err("`prompt` is empty".to_owned());
            }
            if let Some(token) = prompt.iter().find(|token| **token as usize >= served.vocabulary) {
                return Err(format!(
                    "`prompt` contains token {token}, but the vocabulary size is {}",
                    served.vocabulary
                ));
            }
        }
        match prompts.len().saturating_mul(call.n()) {
            0 => Err("`prompt` is an empty list".to_owned()),
            1..=MAX_COMPLETIONS => Ok(prompts),
            more => Err(format!("{more} completions in one request; expected at most {MAX_COMPLETIONS}")),
        }
    }

    /// Returns one request per completion, ordered by prompt.
    fn sample_requests(
        &self,
        call: &CompletionParams,
        prompts: &[Arc<[u32]>],
    ) -> Result<Vec<SampleRequest>, String> {
        let window = self.engine.served().window;
        let new = call.max_tokens.unwrap_or(16);
        let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
        if longest.saturating_add(new) > window {
            return Err(format!(
                "a prompt of {longest} tokens and up to {new} new ones (`max_tokens`) exceed the context of {window} tokens"
            ));
        }
        let params = sgs_lm_sampler::SamplingParams {
            temperature: call.temperature.unwrap_or(1.0),
            top_p: call.top_p.unwrap_or(1.0),
            top_k: u32::try_from(call.top_k.unwrap_or(0)).unwrap_or(0),
        };
        if !(params.temperature >= 0.0 && params.temperature.is_finite()) {
            return Err(format!("`temperature` is {}; expected a number from 0", params.temperature));
        }
        if !(params.top_p > 0.0 && params.top_p <= 1.0) {
            return Err(format!("`top_p` is {}; expected a number above 0 and up to 1", params.top_p));
        }
        let own: &[u32] = if call.ignore_eos { &[] } else { self.tokenizer.eos() };
        let stop: Arc<[u32]> = own.iter().chain(&call.stop_token_ids).copied().collect();
        let stream = call.stream == Some(true) || !call.stops().is_empty();
        let first = call.seed.map_or_else(|| self.fresh_seed(), i64::cast_unsigned);
        let request = |prompt: &Arc<[u32]>, i: usize| SampleRequest {
            prompt: Arc::clone(prompt),
            // The first completion uses the seed itself, and so equals a sample of the library.
            seed: first.wrapping_add((i as u64).wrapping_mul(sgs_random::STEP)),
            max_new_tokens: new,
            params,
            stop: Arc::clone(&stop),
            stream,
            score: call.prompt_logprobs.is_some(),
        };
        Ok(prompts
            .iter()
            .flat_map(|prompt| (0..call.n()).map(move |i| (prompt, i)))
            .map(|(p, i)| request(p, i))
            .collect())
    }

    /// Returns a seed for a request without one. It differs between requests and between runs of the server.
    fn fresh_seed(&self) -> u64 {
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        nanoseconds ^ self.requests.load(Ordering::Relaxed).wrapping_mul(sgs_random::STEP)
    }

    /// Collects the events of a completion.
    async fn collect(
        &self,
        events: &mut UnboundedReceiver<SampleEvent>,
        output: &OutputOptions,
    ) -> Result<CollectedSample, HttpError> {
        let failed = |why: String| (StatusCode::INTERNAL_SERVER_ERROR, why);
        let mut transcript = Transcript::new(&self.tokenizer, &output.stops);
        let mut collected = CollectedSample::default();
        loop {
            match events.recv().await.ok_or_else(gone)? {
                SampleEvent::Begun { weights, scores } => {
                    (collected.weights, collected.scores) = (weights, scores)
                }
                SampleEvent::Token(token, log_prob) => {
                    collected.tokens.push(token);
                    collected.log_probs.push(log_prob);
                    if transcript.push(token).map_err(|e| failed(e.to_string()))? {
                        // Dropping the channel cancels the rest.
                        return Ok(CollectedSample {
                            text: transcript.new_text().to_owned(),
                            reason: "stop",
                            ..collected
                        });
                    }
                }
                SampleEvent::Done(completion) => {
                    let reason = reason(&completion.finish).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
                    let text = self.whole(&completion, &mut transcript, output).map_err(failed)?;
                    let (tokens, log_probs) = (completion.tokens, completion.log_probs);
                    return Ok(CollectedSample { text, tokens, log_probs, reason, ..collected });
                }
                SampleEvent::Failed(why) => return Err(failed(why)),
            }
        }
    }

    fn whole(
        &self,
        completion: &SampledCompletion,
        transcript: &mut Transcript<'_>,
        output: &OutputOptions,
    ) -> Result<String, String> {
        match output.stops.is_empty() {
            true => self.tokenizer.decode(&completion.tokens),
            false => transcript.rest().map(str::to_owned),
        }
        .map_err(|e| e.to_string())
    }

    fn choice(
        &self,
        index: usize,
        text: String,
        tokens: &[u32],
        log_probs: &[f32],
        finish_reason: Option<&'static str>,
        output: &OutputOptions,
    ) -> Result<CompletionChoice, String> {
        let logprobs = output.log_probs.then(|| self.log_probs(tokens, log_probs)).transpose()?;
        let token_ids = output.token_ids.then(|| tokens.to_vec());
        Ok(CompletionChoice { text, index, logprobs, finish_reason, token_ids, prompt_logprobs: None })
    }

    fn log_probs(&self, tokens: &[u32], log_probs: &[f32]) -> Result<ChoiceLogProbs, String> {
        let spell = |token: &u32| self.tokenizer.decode_with_special(&[*token]).map_err(|e| e.to_string());
        let spelled = tokens.iter().map(spell).collect::<Result<Vec<String>, String>>()?;
        let text_offset = spelled.iter().scan(0, |end, piece| {
            let start = *end;
            *end += piece.chars().count();
            Some(start)
        });
        let top = spelled.iter().zip(log_probs).map(|(piece, log_prob)| json!({ piece: log_prob }));
        Ok(ChoiceLogProbs {
            text_offset: text_offset.collect(),
            top_logprobs: Some(top.collect()),
            token_logprobs: log_probs.to_vec(),
            tokens: spelled,
        })
    }

    /// Streams the tokens of all completions.
    fn stream(
        self: &Arc<Self>,
        header: ReplyHeader,
        sampled: Vec<UnboundedReceiver<SampleEvent>>,
        output: OutputOptions,
        prompt_tokens: usize,
    ) -> BoxedResponse {
        let (to, from) = unbounded_channel::<Bytes>();
        let (state, output) = (Arc::clone(self), Arc::new(output));
        tokio::spawn(async move {
            let followed = sampled.into_iter().enumerate().map(|(index, events)| {
                let (state, header, output) = (Arc::clone(&state), header.clone(), Arc::clone(&output));
                let to = to.clone();
                tokio::spawn(async move { state.stream_one(index, events, header, &output, &to).await })
            });
            let mut completion_tokens = 0;
            for task in followed.collect::<Vec<_>>() {
                #[allow(clippy::expect_used, reason = "a panic is a bug, and ends the stream")]
                let tokens = task.await.expect("invariant: streaming a completion does not panic");
                completion_tokens += tokens;
            }
            if output.usage {
                let usage = TokenUsage::of(prompt_tokens, completion_tokens);
                let _ = to.send(event(&reply(&header, &[], Some(usage))));
            }
            let _ = to.send(Bytes::from_static(b"data: [DONE]\n\n"));
        });
        let body = BoxBody::new(EventStream(from));
        let mut answer = Response::new(body);
        let kind = hyper::header::HeaderValue::from_static("text/event-stream; charset=utf-8");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        answer
    }

    /// Streams one completion and returns its number of tokens. Stops, and thereby cancels the sampling, when the client has
    /// gone.
    async fn stream_one(
        &self,
        index: usize,
        mut events: UnboundedReceiver<SampleEvent>,
        mut header: ReplyHeader,
        output: &OutputOptions,
        to: &UnboundedSender<Bytes>,
    ) -> usize {
        let mut transcript = Transcript::new(&self.tokenizer, &output.stops);
        let mut unsent: (Vec<u32>, Vec<f32>) = (Vec::new(), Vec::new());
        let mut tokens = 0;
        loop {
            let received = events.recv().await;
            if to.is_closed() {
                return tokens;
            }
            let (text, reason) = match received {
                Some(SampleEvent::Begun { weights, .. }) => {
                    header.weights = weights;
                    continue;
                }
                Some(SampleEvent::Token(token, log_prob)) => {
                    tokens += 1;
                    unsent.0.push(token);
                    unsent.1.push(log_prob);
                    if let Err(why) = transcript.push(token) {
                        return fail_stream(to, &why.to_string(), tokens);
                    }
                    let is_over = transcript.is_over();
                    (transcript.new_text().to_owned(), is_over.then_some("stop"))
                }
                Some(SampleEvent::Done(completion)) => {
                    match (reason(&completion.finish), transcript.rest()) {
                        (Ok(reason), Ok(rest)) => (rest.to_owned(), Some(reason)),
                        (Err(why), _) => return fail_stream(to, &why, tokens),
                        (_, Err(why)) => return fail_stream(to, &why.to_string(), tokens),
                    }
                }
                Some(SampleEvent::Failed(why)) => return fail_stream(to, &why, tokens),
                None => return fail_stream(to, &gone().1, tokens),
            };
            // Hold tokens back until their text is certain.
            if !text.is_empty() || reason.is_some() {
                let (ids, log_probs) = std::mem::take(&mut unsent);
                let choice = match self.choice(index, text, &ids, &log_probs, reason, output) {
                    Ok(choice) => choice,
                    Err(why) => return fail_stream(to, &why, tokens),
                };
                if to.send(event(&reply(&header, &[choice], None))).is_err() {
                    return tokens;
                }
            }
            if reason.is_some() {
                return tokens;
            }
        }
    }
}

/// The requested output of each completion.
struct OutputOptions {
    stops: Vec<String>,
    log_probs: bool,
    token_ids: bool,
    usage: bool,
    /// Whether to return the log-probs of the prompt's tokens.
    scores: bool,
}

/// A completion with all its output.
#[derive(Default)]
struct CollectedSample {
    text: String,
    tokens: Vec<u32>,
    log_probs: Vec<f32>,
    reason: &'static str,
    /// Name of the weights that sampled it.
    weights: String,
    /// Log-probs of the prompt's tokens after the first, if requested.
    scores: Vec<f32>,
}

/// Formats the log-probs of a prompt like vLLM.
fn prompt_log_probs(prompt: &[u32], scores: &[f32]) -> Vec<Value> {
    let one = |(token, log_prob): (&u32, &f32)| json!({ token.to_string(): { "logprob": log_prob } });
    let rest = prompt.iter().skip(1).zip(scores).map(one);
    std::iter::once(Value::Null).chain(rest).collect()
}

impl OutputOptions {
    fn of(call: &CompletionParams) -> Self {
        Self {
            stops: call.stops(),
            log_probs: call.logprobs.is_some(),
            token_ids: call.return_token_ids,
            usage: call.stream_options.as_ref().is_some_and(|options| options.include_usage),
            scores: call.prompt_logprobs.is_some(),
        }
    }
}

/// A response body fed by a channel.
struct EventStream(UnboundedReceiver<Bytes>);

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// Sends an error as an event, because the status has already been sent. Returns `tokens`.
fn fail_stream(to: &UnboundedSender<Bytes>, why: &str, tokens: usize) -> usize {
    tracing::warn!("a stream ends early: {why}");
    let _ = to.send(event(&error(500, why)));
    tokens
}

fn gone() -> HttpError {
    (StatusCode::INTERNAL_SERVER_ERROR, "the sampler has stopped".to_owned())
}

fn plain(status: StatusCode, value: &Value) -> BoxedResponse {
    let mut answer = Response::new(Full::new(Bytes::from(value.to_string())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    answer
}

/// Reads and parses the body of a request, within the limits of time and size.
async fn read_body<T: serde::de::DeserializeOwned>(request: Request<Incoming>) -> Result<T, HttpError> {
    let body = Limited::new(request.into_body(), MAX_BODY).collect();
    let body = match tokio::time::timeout(REQUEST_TIMEOUT, body).await {
        Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned())),
        Ok(Err(e)) if e.is::<LengthLimitError>() => {
            let why = format!("the body is larger than {MAX_BODY} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        Ok(Err(e)) => return Err((StatusCode::BAD_REQUEST, e.to_string())),
        Ok(Ok(body)) => body.to_bytes(),
    };
    serde_json::from_slice(&body).map_err(|e| (StatusCode::BAD_REQUEST, format!("the body: {e}")))
}

/// Loads the weights in a folder. Also returns their default name.
fn read_weights(folder: &Path) -> Result<(HostWeights, String), String> {
    let weights = HostWeights::load(folder).map_err(|e| e.to_string())?;
    Ok((weights, format!("loaded-{}", now())))
}

/// Returns the Unix time in seconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
