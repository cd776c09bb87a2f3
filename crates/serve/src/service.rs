//! HTTP: who may ask, what for, and how the answers are sent.

use crate::engine::{Ask, Engine, Load, Said, reason};
use crate::protocol::{
    Call, Choice, Generate, Heading, LogProbs, MOST_COMPLETIONS, Prompts, Rpc, Update, Usage, answer, error,
};
use crate::transcript::Transcript;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use sgs_endpoint::Key;
use sgs_http::ServiceThread;
use sgs_lm::sampler::Completion;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
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

/// Largest body of a request, bytes.
const LARGEST_BODY: usize = 16 << 20;
/// A request's head, and its body, have to arrive within this time each.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most connections at a time; more wait.
const MOST_CONNECTIONS: usize = 512;
/// Completions that are asked for and not done; with more, one is told to come again.
const MOST_OPEN: usize = 16_384;

/// How to listen, and what may be asked for.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Where. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// What callers have to know. Without one only this machine is listened to.
    pub key: Option<Key>,
    /// The model's name.
    pub name: String,
    /// The folder in which weights may lie that are to be loaded; `None` if none may.
    pub updates: Option<PathBuf>,
}

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// It would be open to the network without a key.
    #[error("refusing to listen on {0} without a key: give one in a file, or listen on 127.0.0.1")]
    Unprotected(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// The folder of updates cannot be had.
    #[error("{0}: {1}")]
    Updates(PathBuf, std::io::Error),
}

/// A running service; it ends when this is dropped.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    _thread: ServiceThread,
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// The prompts of a call, and what is heard of each of its completions.
type Begun = (Vec<Arc<[u32]>>, Vec<UnboundedReceiver<Said>>);

/// What is refused: the status and why.
type Refusal = (StatusCode, String);

struct Desk {
    engine: Engine,
    tokenizer: Tokenizer,
    config: ServiceConfig,
    /// The folder that the model was first read from: what vLLM's calls read again.
    home: PathBuf,
    started: u64,
    asked: AtomicU64,
}

impl Service {
    /// Binds the address and serves from a thread of its own.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn start(
        engine: Engine,
        tokenizer: Tokenizer,
        mut config: ServiceConfig,
    ) -> Result<Self, ServiceError> {
        let listen = config.listen;
        if config.key.is_none() && !listen.ip().is_loopback() {
            return Err(ServiceError::Unprotected(listen));
        }
        if let Some(folder) = &mut config.updates {
            // Compared with whole paths later, links followed.
            *folder = folder.canonicalize().map_err(|e| ServiceError::Updates(folder.clone(), e))?;
        }
        let failed = |error| ServiceError::Listen(listen, error);
        let thread = ServiceThread::start("completions").map_err(failed)?;
        let (listener, address) = thread.listen(listen).map_err(failed)?;
        let home = PathBuf::from(engine.served().folder);
        let desk = Desk { engine, tokenizer, config, home, started: now(), asked: AtomicU64::new(0) };
        thread.handle().spawn(accept(listener, Arc::new(desk)));
        Ok(Self { address, _thread: thread })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: tokio::net::TcpListener, desk: Arc<Desk>) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(seat) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = sgs_http::accept(&listener).await;
        let desk = Arc::clone(&desk);
        tokio::spawn(async move {
            let _seat = seat;
            let answer = |request| {
                let desk = Arc::clone(&desk);
                async move { desk.answer(request).await }
            };
            sgs_http::converse(stream, PATIENCE, answer).await;
        });
    }
}

impl Desk {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answered = match (method, path.as_str()) {
            (Method::GET, "/health" | "/ping") => return plain(StatusCode::OK, &json!({ "status": "ok" })),
            _ if !self.is_known(&request) => {
                Err((StatusCode::UNAUTHORIZED, "this server wants its key".into()))
            }
            (Method::GET, "/v1/models") => Ok(plain(StatusCode::OK, &self.models())),
            (Method::GET, "/get_model_info" | "/model_info") => Ok(plain(StatusCode::OK, &self.info())),
            (Method::POST, "/v1/completions") => self.complete(request).await,
            (Method::POST, "/generate") => self.generate(request).await,
            (Method::POST, "/update_weights_from_disk") => self.update(request).await,
            (Method::POST, "/pause_generation" | "/sleep") => Ok(self.pause(true)),
            (Method::POST, "/continue_generation") => Ok(self.pause(false)),
            // It is awake when all that it needs is there; the weights alone are not all.
            (Method::POST, "/wake_up") => Ok(self.pause(request.uri().query() == Some("tags=weights"))),
            (Method::POST, "/collective_rpc") => self.call_all(request).await,
            // Nothing outlives the completions of a prompt here.
            (Method::POST, "/flush_cache" | "/reset_prefix_cache") => {
                Ok(plain(StatusCode::OK, &json!({ "success": true })))
            }
            (method, path) => Err((StatusCode::NOT_FOUND, format!("there is no {method} {path} here"))),
        };
        answered.unwrap_or_else(|(status, message)| {
            let mut answer = plain(status, &error(status.as_u16(), &message));
            if status == StatusCode::SERVICE_UNAVAILABLE {
                answer.headers_mut().insert(RETRY_AFTER, hyper::header::HeaderValue::from_static("1"));
            }
            answer
        })
    }

    fn is_known(&self, request: &Request<Incoming>) -> bool {
        let Some(key) = &self.config.key else { return true };
        let shown = request.headers().get(AUTHORIZATION).map(hyper::header::HeaderValue::as_bytes);
        key.is_shown_by(shown.unwrap_or_default())
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

    fn pause(&self, is_paused: bool) -> Answer {
        self.engine.pause(is_paused);
        plain(StatusCode::OK, &json!({ "success": true }))
    }

    /// Loads weights, as SGLang does at this call: completions under way end with the old ones, later ones wait.
    async fn update(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        self.may_update()?;
        let Update { model_path, weight_version } = read(request).await?;
        let held = self.load(Path::new(&model_path), weight_version).await?;
        Ok(plain(
            StatusCode::OK,
            &json!({ "success": true, "message": "the weights are loaded", "num_paused_requests": held }),
        ))
    }

    /// Has all workers, of whom there is one, do something, as vLLM does at this call: read the weights again.
    async fn call_all(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        self.may_update()?;
        let Rpc { method } = read(request).await?;
        if method != "reload_weights" {
            return Err((
                StatusCode::BAD_REQUEST,
                format!("there is no method `{method}` here, but `reload_weights`"),
            ));
        }
        self.load(&self.home, None).await?;
        Ok(plain(StatusCode::OK, &json!({ "results": [null] })))
    }

    fn may_update(&self) -> Result<(), Refusal> {
        let refused =
            || (StatusCode::FORBIDDEN, "weights are not updated here (`--updates DIR` allows it)".into());
        self.config.updates.as_ref().map(|_| ()).ok_or_else(refused)
    }

    /// Loads the weights of a folder, links followed; gives how many completions were held back meanwhile.
    async fn load(&self, folder: &Path, name: Option<String>) -> Result<usize, Refusal> {
        let bad = |why: String| (StatusCode::BAD_REQUEST, why);
        let asked = folder.display().to_string();
        let folder = folder.canonicalize().map_err(|e| bad(format!("{asked}: {e}")))?;
        let allowed = self.config.updates.as_deref().filter(|allowed| folder.starts_with(allowed));
        if allowed.is_none() {
            let below = self.config.updates.as_deref().unwrap_or(Path::new("")).display();
            return Err(bad(format!("{asked} is not below {below}")));
        }
        let path = folder.clone();
        let read = tokio::task::spawn_blocking(move || read_weights(&path)).await;
        let (weights, fingerprint) = read.map_err(|e| bad(e.to_string()))?.map_err(bad)?;
        let (done, told) = oneshot::channel();
        let name = name.unwrap_or(fingerprint);
        self.engine.load(Load { weights, folder: folder.display().to_string(), name, done });
        told.await.map_err(|_| gone())?.map_err(bad)
    }

    async fn complete(self: &Arc<Self>, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let call: Call = read(request).await?;
        let (prompts, sampled) = self.begin(&call)?;
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let mut heading = Heading {
            id: format!("cmpl-{:x}-{number}", self.started),
            created: now(),
            model: self.config.name.clone(),
            weights: self.engine.served().weights,
        };
        let prompt_tokens: usize = prompts.iter().map(|p| p.len()).sum();
        let wanted = Wanted::of(&call);
        if call.stream == Some(true) {
            return Ok(self.stream(heading, sampled, wanted, prompt_tokens));
        }
        let (mut choices, mut completion_tokens) = (Vec::with_capacity(sampled.len()), 0);
        for (index, mut said) in sampled.into_iter().enumerate() {
            let collected = self.collect(&mut said, &wanted).await?;
            completion_tokens += collected.tokens.len();
            let mut choice = self.choice(
                index,
                collected.text,
                &collected.tokens,
                &collected.log_probs,
                Some(collected.reason),
                &wanted,
            );
            let scored = prompts.get(index / call.n().max(1)).filter(|_| wanted.scores);
            choice.prompt_logprobs = scored.map(|prompt| prompt_log_probs(prompt, &collected.scores));
            heading.weights = collected.weights;
            choices.push(choice);
        }
        let usage = Usage::of(prompt_tokens, completion_tokens);
        Ok(plain(StatusCode::OK, &answer(&heading, &choices, Some(usage))))
    }

    /// SGLang's own call for one completion.
    async fn generate(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let call =
            read::<Generate>(request).await?.into_call().map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let (prompts, sampled) = self.begin(&call)?;
        let wanted = Wanted::of(&call);
        let Some((mut said, prompt)) = sampled.into_iter().next().zip(prompts.first()) else {
            return Err(gone());
        };
        let Collected { text, tokens, log_probs, reason, weights, scores } =
            self.collect(&mut said, &wanted).await?;
        let triples = |log_probs: &[f32], tokens: &[u32]| -> Vec<Value> {
            log_probs.iter().zip(tokens).map(|(log_prob, token)| json!([log_prob, token, null])).collect()
        };
        let mut about = json!({ "finish_reason": { "type": reason }, "prompt_tokens": prompt.len(),
            "completion_tokens": tokens.len(), "weight_version": weights });
        if wanted.log_probs {
            about["output_token_logprobs"] = json!(triples(&log_probs, &tokens));
        }
        if wanted.scores {
            let first = json!([null, prompt.first(), null]);
            let rest = triples(&scores, prompt.get(1..).unwrap_or_default());
            about["input_token_logprobs"] = [vec![first], rest].concat().into();
        }
        Ok(plain(StatusCode::OK, &json!({ "text": text, "output_ids": tokens, "meta_info": about })))
    }

    /// Checks a call and asks for its completions.
    fn begin(&self, call: &Call) -> Result<Begun, Refusal> {
        let bad = |why: String| (StatusCode::BAD_REQUEST, why);
        call.check(&self.config.name).map_err(bad)?;
        let prompts = self.prompts(call).map_err(bad)?;
        let asks = self.asks(call, &prompts).map_err(bad)?;
        if self.engine.open() + asks.len() > MOST_OPEN {
            return Err((
                StatusCode::SERVICE_UNAVAILABLE,
                "too many completions are waiting: come again".into(),
            ));
        }
        Ok((prompts, asks.into_iter().map(|ask| self.engine.sample(ask)).collect()))
    }

    /// The prompts in tokens.
    fn prompts(&self, call: &Call) -> Result<Vec<Arc<[u32]>>, String> {
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
                return Err(format!("`prompt` has token {token} of a vocabulary of {}", served.vocabulary));
            }
        }
        match prompts.len().saturating_mul(call.n()) {
            0 => Err("`prompt` is an empty list".to_owned()),
            1..=MOST_COMPLETIONS => Ok(prompts),
            more => Err(format!("{more} completions at once; at most {MOST_COMPLETIONS} are sampled")),
        }
    }

    /// One for each completion: those of the first prompt, then those of the second.
    fn asks(&self, call: &Call, prompts: &[Arc<[u32]>]) -> Result<Vec<Ask>, String> {
        let window = self.engine.served().window;
        let new = call.max_tokens.unwrap_or(16);
        let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
        if longest.saturating_add(new) > window {
            return Err(format!(
                "a prompt of {longest} tokens and up to {new} new ones (`max_tokens`) exceed the context of {window} tokens"
            ));
        }
        let choice = sgs_lm::sampler::Choice {
            temperature: call.temperature.unwrap_or(1.0),
            top_p: call.top_p.unwrap_or(1.0),
            top_k: u32::try_from(call.top_k.unwrap_or(0)).unwrap_or(0),
        };
        if !(choice.temperature >= 0.0 && choice.temperature.is_finite()) {
            return Err(format!("`temperature` is {}; expected a number from 0", choice.temperature));
        }
        if !(choice.top_p > 0.0 && choice.top_p <= 1.0) {
            return Err(format!("`top_p` is {}; expected a number above 0 and up to 1", choice.top_p));
        }
        let own: &[u32] = if call.ignore_eos { &[] } else { self.tokenizer.eos() };
        let stop: Arc<[u32]> = own.iter().chain(&call.stop_token_ids).copied().collect();
        let follow = call.stream == Some(true) || !call.stops().is_empty();
        let first = call.seed.map_or_else(|| self.own_seed(), i64::cast_unsigned);
        let ask = |prompt: &Arc<[u32]>, i: usize| Ask {
            prompt: Arc::clone(prompt),
            // The first is the seed itself, so that one completion is what the library samples with it.
            seed: first.wrapping_add((i as u64).wrapping_mul(sgs_random::STEP)),
            max_new_tokens: new,
            choice,
            stop: Arc::clone(&stop),
            follow,
            score: call.prompt_logprobs.is_some(),
        };
        Ok(prompts
            .iter()
            .flat_map(|prompt| (0..call.n()).map(move |i| (prompt, i)))
            .map(|(p, i)| ask(p, i))
            .collect())
    }

    /// A seed for those who name none: no two are alike, and none is that of another start of the server.
    fn own_seed(&self) -> u64 {
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        nanoseconds ^ self.asked.load(Ordering::Relaxed).wrapping_mul(sgs_random::STEP)
    }

    /// A whole completion.
    async fn collect(
        &self,
        said: &mut UnboundedReceiver<Said>,
        wanted: &Wanted,
    ) -> Result<Collected, Refusal> {
        let failed = |why: String| (StatusCode::INTERNAL_SERVER_ERROR, why);
        let mut transcript = Transcript::new(&self.tokenizer, &wanted.stops);
        let mut collected = Collected::default();
        loop {
            match said.recv().await.ok_or_else(gone)? {
                Said::Begun { weights, scores } => (collected.weights, collected.scores) = (weights, scores),
                Said::Token(token, log_prob) => {
                    collected.tokens.push(token);
                    collected.log_probs.push(log_prob);
                    if transcript.push(token).map_err(|e| failed(e.to_string()))? {
                        // What is left of it nobody hears: it is cancelled.
                        return Ok(Collected {
                            text: transcript.fresh().to_owned(),
                            reason: "stop",
                            ..collected
                        });
                    }
                }
                Said::Done(completion) => {
                    let reason = reason(&completion.finish).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
                    let text = self.whole(&completion, &mut transcript, wanted).map_err(failed)?;
                    let (tokens, log_probs) = (completion.tokens, completion.log_probs);
                    return Ok(Collected { text, tokens, log_probs, reason, ..collected });
                }
                Said::Failed(why) => return Err(failed(why)),
            }
        }
    }

    fn whole(
        &self,
        completion: &Completion,
        transcript: &mut Transcript<'_>,
        wanted: &Wanted,
    ) -> Result<String, String> {
        match wanted.stops.is_empty() {
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
        wanted: &Wanted,
    ) -> Choice {
        let logprobs = wanted.log_probs.then(|| self.log_probs(tokens, log_probs));
        let token_ids = wanted.token_ids.then(|| tokens.to_vec());
        Choice { text, index, logprobs, finish_reason, token_ids, prompt_logprobs: None }
    }

    fn log_probs(&self, tokens: &[u32], log_probs: &[f32]) -> LogProbs {
        let spell = |token: &u32| self.tokenizer.decode_with_special(&[*token]).unwrap_or_default();
        let spelled: Vec<String> = tokens.iter().map(spell).collect();
        let text_offset = spelled.iter().scan(0, |end, piece| {
            let start = *end;
            *end += piece.chars().count();
            Some(start)
        });
        let top = spelled.iter().zip(log_probs).map(|(piece, log_prob)| json!({ piece: log_prob }));
        LogProbs {
            text_offset: text_offset.collect(),
            top_logprobs: Some(top.collect()),
            token_logprobs: log_probs.to_vec(),
            tokens: spelled,
        }
    }

    /// Events as the tokens come, each completion's in order.
    fn stream(
        self: &Arc<Self>,
        heading: Heading,
        sampled: Vec<UnboundedReceiver<Said>>,
        wanted: Wanted,
        prompt_tokens: usize,
    ) -> Answer {
        let (to, from) = unbounded_channel::<Bytes>();
        let (desk, wanted) = (Arc::clone(self), Arc::new(wanted));
        tokio::spawn(async move {
            let followed = sampled.into_iter().enumerate().map(|(index, said)| {
                let (desk, heading, wanted) = (Arc::clone(&desk), heading.clone(), Arc::clone(&wanted));
                let to = to.clone();
                tokio::spawn(async move { desk.follow(index, said, heading, &wanted, &to).await })
            });
            let mut completion_tokens = 0;
            for task in followed.collect::<Vec<_>>() {
                completion_tokens += task.await.unwrap_or(0);
            }
            if wanted.usage {
                let usage = Usage::of(prompt_tokens, completion_tokens);
                let _ = to.send(event(&answer(&heading, &[], Some(usage))));
            }
            let _ = to.send(Bytes::from_static(b"data: [DONE]\n\n"));
        });
        let body = BoxBody::new(Events(from));
        let mut answer = Response::new(body);
        let kind = hyper::header::HeaderValue::from_static("text/event-stream; charset=utf-8");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        answer
    }

    /// Sends the events of one completion; gives the number of its tokens. Ends when nobody reads them any more, and with
    /// it the sampling.
    async fn follow(
        &self,
        index: usize,
        mut said: UnboundedReceiver<Said>,
        mut heading: Heading,
        wanted: &Wanted,
        to: &UnboundedSender<Bytes>,
    ) -> usize {
        let mut transcript = Transcript::new(&self.tokenizer, &wanted.stops);
        let mut unsent: (Vec<u32>, Vec<f32>) = (Vec::new(), Vec::new());
        let mut tokens = 0;
        loop {
            let heard = said.recv().await;
            if to.is_closed() {
                return tokens;
            }
            let (text, reason) = match heard {
                Some(Said::Begun { weights, .. }) => {
                    heading.weights = weights;
                    continue;
                }
                Some(Said::Token(token, log_prob)) => {
                    tokens += 1;
                    unsent.0.push(token);
                    unsent.1.push(log_prob);
                    if let Err(why) = transcript.push(token) {
                        return broken(to, &why.to_string(), tokens);
                    }
                    let is_over = transcript.is_over();
                    (transcript.fresh().to_owned(), is_over.then_some("stop"))
                }
                Some(Said::Done(completion)) => match (reason(&completion.finish), transcript.rest()) {
                    (Ok(reason), Ok(rest)) => (rest.to_owned(), Some(reason)),
                    (Err(why), _) => return broken(to, &why, tokens),
                    (_, Err(why)) => return broken(to, &why.to_string(), tokens),
                },
                Some(Said::Failed(why)) => return broken(to, &why, tokens),
                None => return broken(to, &gone().1, tokens),
            };
            // Tokens wait for the text that they are part of.
            if !text.is_empty() || reason.is_some() {
                let (ids, log_probs) = std::mem::take(&mut unsent);
                let choice = self.choice(index, text, &ids, &log_probs, reason, wanted);
                if to.send(event(&answer(&heading, &[choice], None))).is_err() {
                    return tokens;
                }
            }
            if reason.is_some() {
                return tokens;
            }
        }
    }
}

/// What is wanted of each completion.
struct Wanted {
    stops: Vec<String>,
    log_probs: bool,
    token_ids: bool,
    usage: bool,
    /// Log-probs of the prompt's tokens.
    scores: bool,
}

/// A completion with all that may be told of it.
#[derive(Default)]
struct Collected {
    text: String,
    tokens: Vec<u32>,
    log_probs: Vec<f32>,
    reason: &'static str,
    /// What the weights are called that it was sampled with.
    weights: String,
    /// Log-probs of the prompt's tokens after the first, if they are wanted.
    scores: Vec<f32>,
}

/// As vLLM tells them.
fn prompt_log_probs(prompt: &[u32], scores: &[f32]) -> Vec<Value> {
    let one = |(token, log_prob): (&u32, &f32)| json!({ token.to_string(): { "logprob": log_prob } });
    let rest = prompt.iter().skip(1).zip(scores).map(one);
    std::iter::once(Value::Null).chain(rest).collect()
}

impl Wanted {
    fn of(call: &Call) -> Self {
        Self {
            stops: call.stops(),
            log_probs: call.logprobs.is_some(),
            token_ids: call.return_token_ids,
            usage: call.stream_options.as_ref().is_some_and(|options| options.include_usage),
            scores: call.prompt_logprobs.is_some(),
        }
    }
}

/// A body of what comes in from elsewhere.
struct Events(UnboundedReceiver<Bytes>);

impl Body for Events {
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

/// Tells a stream's reader of an error, which can no longer be a status.
fn broken(to: &UnboundedSender<Bytes>, why: &str, tokens: usize) -> usize {
    tracing::warn!("a stream ends early: {why}");
    let _ = to.send(event(&error(500, why)));
    tokens
}

fn gone() -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, "the sampler has stopped".to_owned())
}

fn plain(status: StatusCode, value: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(value.to_string())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    answer
}

/// The body of a request, which comes in time and is not too large.
async fn read<T: serde::de::DeserializeOwned>(request: Request<Incoming>) -> Result<T, Refusal> {
    let body = Limited::new(request.into_body(), LARGEST_BODY).collect();
    let body = match tokio::time::timeout(PATIENCE, body).await {
        Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "the body did not arrive".to_owned())),
        Ok(Err(e)) if e.is::<LengthLimitError>() => {
            let why = format!("the body is larger than {LARGEST_BODY} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        Ok(Err(e)) => return Err((StatusCode::BAD_REQUEST, e.to_string())),
        Ok(Ok(body)) => body.to_bytes(),
    };
    serde_json::from_slice(&body).map_err(|e| (StatusCode::BAD_REQUEST, format!("the body: {e}")))
}

/// The weights in a folder, and what they are called if nobody names them.
fn read_weights(folder: &Path) -> Result<(HostWeights, String), String> {
    let weights = HostWeights::load(folder).map_err(|e| e.to_string())?;
    Ok((weights, format!("loaded-{}", now())))
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
