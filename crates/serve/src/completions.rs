//! Handles the completions of a request, from its fields to its reply or stream.

use crate::engine::reason;
use crate::protocol::{
    ChoiceLogProbs, CompletionChoice, CompletionParams, GenerateParams, Prompts, ReplyHeader, TokenUsage,
    error, reply,
};
use crate::queue::{CompletionCall, SampleEvent, StartedSample};
use crate::service::{BoxedResponse, HttpError, ServerState, now, parse, plain};
use crate::transcript::Transcript;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Bytes, Frame};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use sgs_http::RequestBody;
use sgs_lm_sampler::{SampledCompletion, SamplingParams};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel};
use tokio::task::{JoinSet, spawn_blocking};

/// Maximum number of events that wait to be sent in a stream.
const MAX_UNSENT: usize = 64;

/// A completion with all its output.
#[derive(Default)]
struct CollectedSample {
    index: usize,
    text: String,
    tokens: Vec<u32>,
    log_probs: Vec<f32>,
    reason: &'static str,
    /// Name of the weights that sampled it.
    weights: String,
    /// Log-probs of the prompt's tokens after the first, if requested.
    scores: Vec<f32>,
}

impl ServerState {
    pub async fn complete(
        self: Arc<Self>,
        request: Request<RequestBody>,
        client: IpAddr,
    ) -> Result<BoxedResponse, HttpError> {
        let state = Arc::clone(&self);
        let prepare = move |body: &[u8]| state.prepare(parse(body)?);
        let (call, params) = self.read(request, prepare).await?;
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut header = ReplyHeader {
            id: format!("cmpl-{:x}-{number}", self.started),
            created: now(),
            model: self.config.name.clone(),
            weights: self.engine.served().weights,
        };
        let (prompts, n, total) = (call.prompts.clone(), call.n, call.total());
        let prompt_tokens: usize = prompts.iter().map(|p| p.len()).sum();
        let started = self.engine.sample(client, call);
        let params = Arc::new(params);
        if params.is_stream() {
            return Ok(self.stream(header, started, total, params, prompt_tokens));
        }
        let samples = self.collect_all(started, total, &params).await?;
        let build = move || {
            let (mut choices, mut completion_tokens) = (Vec::with_capacity(total), 0);
            for sample in samples {
                completion_tokens += sample.tokens.len();
                let (tokens, log_probs) = (&sample.tokens, &sample.log_probs);
                let mut choice =
                    self.choice(sample.index, sample.text, tokens, log_probs, Some(sample.reason), &params)?;
                let scored = prompts.get(sample.index / n).filter(|_| params.prompt_logprobs.is_some());
                choice.prompt_logprobs = scored.map(|prompt| prompt_log_probs(prompt, &sample.scores));
                header.weights = sample.weights;
                choices.push(choice);
            }
            let usage = TokenUsage::of(prompt_tokens, completion_tokens);
            Ok(plain(StatusCode::OK, &reply(&header, &choices, Some(usage))))
        };
        spawn_blocking(build).await.map_err(HttpError::failed)?.map_err(|why: String| HttpError::failed(why))
    }

    /// Samples one completion for SGLang's `/generate`.
    pub async fn generate(
        self: Arc<Self>,
        request: Request<RequestBody>,
        client: IpAddr,
    ) -> Result<BoxedResponse, HttpError> {
        let state = Arc::clone(&self);
        let prepare = move |body: &[u8]| state.prepare(parse::<GenerateParams>(body)?.into_completion()?);
        let (call, params) = self.read(request, prepare).await?;
        let prompt = call.prompts.first().cloned().ok_or_else(HttpError::gone)?;
        let (started, params) = (self.engine.sample(client, call), Arc::new(params));
        let sample = self.collect_all(started, 1, &params).await?.pop().ok_or_else(HttpError::gone)?;
        let CollectedSample { text, tokens, log_probs, reason, weights, scores, .. } = sample;
        let triples = |log_probs: &[f32], tokens: &[u32]| -> Vec<Value> {
            log_probs.iter().zip(tokens).map(|(log_prob, token)| json!([log_prob, token, null])).collect()
        };
        let mut about = json!({ "finish_reason": { "type": reason }, "prompt_tokens": prompt.len(),
            "completion_tokens": tokens.len(), "weight_version": weights });
        if params.logprobs.is_some() {
            about["output_token_logprobs"] = json!(triples(&log_probs, &tokens));
        }
        if params.prompt_logprobs.is_some() {
            let first = json!([null, prompt.first(), null]);
            let rest = triples(&scores, &prompt[1..]);
            about["input_token_logprobs"] = [vec![first], rest].concat().into();
        }
        Ok(plain(StatusCode::OK, &json!({ "text": text, "output_ids": tokens, "meta_info": about })))
    }

    /// Checks a request and tokenizes its prompts.
    fn prepare(&self, mut params: CompletionParams) -> Result<(CompletionCall, CompletionParams), HttpError> {
        let served = self.engine.served();
        params.check(&self.config.name, served.window, served.vocabulary)?;
        let encode = |text: &String| {
            let tokens = self.tokenizer.encode(text).map_err(|e| HttpError::bad(format!("`prompt`: {e}")))?;
            Ok::<Arc<[u32]>, HttpError>(tokens.into())
        };
        let prompts: Vec<Arc<[u32]>> = match std::mem::take(&mut params.prompt) {
            Prompts::Text(text) => vec![encode(&text)?],
            Prompts::Texts(texts) => texts.iter().map(encode).collect::<Result<_, _>>()?,
            Prompts::Tokens(tokens) => vec![tokens.into()],
            Prompts::Lists(lists) => lists.into_iter().map(Into::into).collect(),
        };
        params.check_tokens(&prompts, served.window)?;
        let own: &[u32] = if params.ignore_eos { &[] } else { self.tokenizer.eos() };
        let call = CompletionCall {
            prompts,
            n: params.n(),
            seed: params.seed.map_or_else(|| self.fresh_seed(), i64::cast_unsigned),
            max_new_tokens: params.max_tokens(),
            params: SamplingParams {
                temperature: params.temperature.unwrap_or(1.0),
                top_p: params.top_p.unwrap_or(1.0),
                top_k: u32::try_from(params.top_k.unwrap_or(0)).unwrap_or(0),
            },
            stop: own.iter().chain(&params.stop_token_ids).copied().collect(),
            stream: params.is_stream() || !params.stops().is_empty(),
            score: params.prompt_logprobs.is_some(),
        };
        Ok((call, params))
    }

    /// Returns a seed for a request without one. It differs between requests and between runs of the server.
    fn fresh_seed(&self) -> u64 {
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        nanoseconds ^ self.requests.load(Ordering::Relaxed).wrapping_mul(sgs_base::random::STEP)
    }

    /// Collects all completions of a call, in order.
    async fn collect_all(
        self: &Arc<Self>,
        mut started: UnboundedReceiver<StartedSample>,
        total: usize,
        params: &Arc<CompletionParams>,
    ) -> Result<Vec<CollectedSample>, HttpError> {
        // Dropping the tasks cancels the completions.
        let mut tasks = JoinSet::new();
        while let Some(sample) = started.recv().await {
            let (state, params) = (Arc::clone(self), Arc::clone(params));
            tasks.spawn(async move { state.collect(sample, &params).await });
        }
        let mut samples = Vec::with_capacity(tasks.len());
        while let Some(sample) = tasks.join_next().await {
            samples.push(sample.map_err(HttpError::failed)??);
        }
        samples.sort_unstable_by_key(|sample| sample.index);
        if samples.len() == total { Ok(samples) } else { Err(HttpError::gone()) }
    }

    /// Collects the events of a completion.
    async fn collect(
        &self,
        started: StartedSample,
        params: &CompletionParams,
    ) -> Result<CollectedSample, HttpError> {
        let StartedSample { index, weights, scores, mut events } = started;
        let mut transcript = Transcript::new(&self.tokenizer, params.stops());
        let mut sample = CollectedSample { index, weights, scores, ..CollectedSample::default() };
        loop {
            match events.recv().await.ok_or_else(HttpError::gone)? {
                SampleEvent::Token(token, log_prob) => {
                    sample.tokens.push(token);
                    sample.log_probs.push(log_prob);
                    if transcript.push(token).map_err(HttpError::failed)? {
                        // Dropping the events cancels the rest.
                        transcript.new_text().clone_into(&mut sample.text);
                        return Ok(CollectedSample { reason: "stop", ..sample });
                    }
                }
                SampleEvent::Done(SampledCompletion { tokens, log_probs, finish, .. }) => {
                    let reason = reason(&finish).map_err(HttpError::bad)?;
                    let text = match params.stops().is_empty() {
                        true => self.tokenizer.decode(&tokens),
                        false => transcript.rest().map(str::to_owned),
                    };
                    let text = text.map_err(HttpError::failed)?;
                    return Ok(CollectedSample { text, tokens, log_probs, reason, ..sample });
                }
                SampleEvent::Failed(why) => return Err(HttpError::failed(why)),
            }
        }
    }

    fn choice(
        &self,
        index: usize,
        text: String,
        tokens: &[u32],
        log_probs: &[f32],
        finish_reason: Option<&'static str>,
        params: &CompletionParams,
    ) -> Result<CompletionChoice, String> {
        let logprobs = params.logprobs.is_some().then(|| self.log_probs(tokens, log_probs)).transpose()?;
        let token_ids = params.return_token_ids.then(|| tokens.to_vec());
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
        self: Arc<Self>,
        header: ReplyHeader,
        mut started: UnboundedReceiver<StartedSample>,
        total: usize,
        params: Arc<CompletionParams>,
        prompt_tokens: usize,
    ) -> BoxedResponse {
        let (to, events) = channel(MAX_UNSENT);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut tasks = JoinSet::new();
            while let Some(sample) = started.recv().await {
                let (state, params, to) = (Arc::clone(&self), Arc::clone(&params), to.clone());
                let header = ReplyHeader { weights: sample.weights.clone(), ..header.clone() };
                tasks.spawn(async move { state.stream_one(sample, &header, &params, &to).await });
            }
            let mut end =
                if tasks.len() == total { Ok(()) } else { Err("the sampler has stopped".to_owned()) };
            let mut completion_tokens = 0;
            while let Some(tokens) = tasks.join_next().await {
                match tokens.map_err(|e| e.to_string()).flatten() {
                    Ok(tokens) => completion_tokens += tokens,
                    Err(why) => end = Err(why),
                }
            }
            // Sending fails if the client has gone.
            if let Err(why) = end {
                // The status has already been sent.
                tracing::warn!("a stream ends early: {why}");
                let _ = to.send(event(&error(500, &why, None))).await;
            }
            if params.stream_options.as_ref().is_some_and(|options| options.include_usage) {
                let usage = TokenUsage::of(prompt_tokens, completion_tokens);
                let _ = to.send(event(&reply(&header, &[], Some(usage)))).await;
            }
            let _ = to.send(Bytes::from_static(b"data: [DONE]\n\n")).await;
        });
        let mut response = Response::new(BoxBody::new(EventStream { events, _task: task }));
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// Streams one completion and returns its number of tokens.
    async fn stream_one(
        &self,
        mut started: StartedSample,
        header: &ReplyHeader,
        params: &CompletionParams,
        to: &Sender<Bytes>,
    ) -> Result<usize, String> {
        let mut transcript = Transcript::new(&self.tokenizer, params.stops());
        let mut unsent: (Vec<u32>, Vec<f32>) = (Vec::new(), Vec::new());
        let mut tokens = 0;
        loop {
            let (text, reason) = match started.events.recv().await {
                Some(SampleEvent::Token(token, log_prob)) => {
                    tokens += 1;
                    unsent.0.push(token);
                    unsent.1.push(log_prob);
                    let is_over = transcript.push(token).map_err(|e| e.to_string())?;
                    (transcript.new_text().to_owned(), is_over.then_some("stop"))
                }
                Some(SampleEvent::Done(completion)) => {
                    let reason = reason(&completion.finish)?;
                    (transcript.rest().map_err(|e| e.to_string())?.to_owned(), Some(reason))
                }
                Some(SampleEvent::Failed(why)) => return Err(why),
                None => return Err("the sampler has stopped".to_owned()),
            };
            // Hold tokens back until their text is certain.
            if !text.is_empty() || reason.is_some() {
                let (ids, log_probs) = std::mem::take(&mut unsent);
                let choice = self.choice(started.index, text, &ids, &log_probs, reason, params)?;
                let _ = to.send(event(&reply(header, &[choice], None))).await;
            }
            if reason.is_some() {
                return Ok(tokens);
            }
        }
    }
}

/// Formats the log-probs of a prompt like vLLM.
fn prompt_log_probs(prompt: &[u32], scores: &[f32]) -> Vec<Value> {
    let one = |(token, log_prob): (&u32, &f32)| json!({ token.to_string(): { "logprob": log_prob } });
    let rest = prompt.iter().skip(1).zip(scores).map(one);
    std::iter::once(Value::Null).chain(rest).collect()
}

/// A response body fed by a task. Dropping it ends the task, and thereby the completions.
struct EventStream {
    events: Receiver<Bytes>,
    _task: JoinSet<()>,
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.events.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}
