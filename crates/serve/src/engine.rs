//! The engine thread, which owns the model and its sampler.

use sgs_lm::Device;
use sgs_lm::model::{Mode, Model};
use sgs_lm::trainer::Trainer;
use sgs_lm::weights::HostWeights;
use sgs_lm_sampler::{
    Decode, Finish, Request, RequestId, SampledCompletion, Sampler, SamplerError, SamplerOptions,
    SamplingParams,
};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// Why a model cannot be served, or its weights cannot be replaced.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Error of the sampler or the device.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// Error of the model.
    #[error(transparent)]
    Model(#[from] sgs_lm::LmError),
    /// The thread cannot be started.
    #[error("cannot start the sampler's thread: {0}")]
    Thread(std::io::Error),
}

/// The weights being served.
#[derive(Clone, Debug)]
pub struct ServedWeights {
    /// Folder that the weights were loaded from.
    pub folder: String,
    /// Name of the weights: a version given with the update, or a fingerprint.
    pub weights: String,
    /// Context length, in tokens.
    pub window: usize,
    /// Vocabulary size, in tokens.
    pub vocabulary: usize,
}

/// Request for one completion.
#[derive(Clone, Debug)]
pub(crate) struct SampleRequest {
    pub prompt: Arc<[u32]>,
    pub seed: u64,
    pub max_new_tokens: usize,
    pub params: SamplingParams,
    pub stop: Arc<[u32]>,
    /// Whether to send each token as soon as it is sampled.
    pub stream: bool,
    /// Whether to compute the log-probs of the prompt's tokens.
    pub score: bool,
}

/// Events of a completion, in command: `Begun`, tokens if requested, then `Done`; or `Failed`.
#[derive(Debug)]
pub(crate) enum SampleEvent {
    /// Sampling begins.
    Begun {
        /// Name of the weights that sample the whole completion.
        weights: String,
        /// Log-probs of the prompt's tokens after the first, if requested.
        scores: Vec<f32>,
    },
    /// The next token and its log-prob.
    Token(u32, f32),
    /// The whole completion.
    Done(SampledCompletion),
    /// Sampling failed.
    Failed(String),
}

/// New weights to serve.
pub(crate) struct WeightLoad {
    pub weights: HostWeights,
    pub folder: String,
    pub name: String,
    /// Receives the number of completions that were held back, or the reason why the old weights remain.
    pub done: oneshot::Sender<Result<usize, String>>,
}

enum EngineCommand {
    Sample(SampleRequest, UnboundedSender<SampleEvent>),
    WeightLoad(Box<WeightLoad>),
    Pause(bool),
}

/// Handle of the engine thread. The thread ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct ModelEngine {
    commands: Sender<EngineCommand>,
    served: Arc<RwLock<ServedWeights>>,
    open: Arc<AtomicUsize>,
}

impl ModelEngine {
    /// Loads weights onto a device and starts the thread. `positions` limits the context length. `folder` and `name` describe
    /// the weights.
    ///
    /// # Errors
    /// Returns an error if the model or the sampler cannot be created, or the thread cannot be started.
    pub fn start<D: Device + Decode + Send + Sync + 'static>(
        device: Arc<D>,
        weights: HostWeights,
        positions: usize,
        options: &SamplerOptions,
        folder: &str,
        name: &str,
    ) -> Result<(Self, JoinHandle<()>), EngineError>
    where
        Sampler<D>: Send,
        Model<D>: Send,
    {
        let model = Model::new(device, weights, positions)?;
        let sampler = Sampler::new(&model, options)?;
        let served = ServedWeights {
            folder: folder.to_owned(),
            weights: name.to_owned(),
            window: model.max_positions,
            vocabulary: model.config.vocab_size,
        };
        let (commands, received) = channel();
        let engine =
            Self { commands, served: Arc::new(RwLock::new(served)), open: Arc::new(AtomicUsize::new(0)) };
        let engine_loop = EngineLoop {
            model,
            sampler,
            active: HashMap::new(),
            held: VecDeque::new(),
            load: None,
            is_paused: false,
            next: 0,
            finished: Vec::new(),
            served: Arc::clone(&engine.served),
            open: Arc::clone(&engine.open),
        };
        let thread =
            std::thread::Builder::new().name("sampler".into()).spawn(move || engine_loop.run(&received));
        Ok((engine, thread.map_err(EngineError::Thread)?))
    }

    /// Returns the weights being served.
    pub fn served(&self) -> ServedWeights {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of completions in progress or waiting.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Requests a completion. Dropping the receiver cancels it.
    pub(crate) fn sample(&self, request: SampleRequest) -> UnboundedReceiver<SampleEvent> {
        let (to, from) = unbounded_channel();
        self.open.fetch_add(1, Ordering::Relaxed);
        if self.commands.send(EngineCommand::Sample(request, to)).is_err() {
            // The thread has ended, and the receiver finds the channel closed.
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        from
    }

    /// Requests to load new weights.
    pub(crate) fn load(&self, load: WeightLoad) {
        // If the thread has ended, the receiver of `done` finds the channel closed.
        let _ = self.commands.send(EngineCommand::WeightLoad(Box::new(load)));
    }

    /// Holds back new completions, or releases them.
    pub(crate) fn pause(&self, is_paused: bool) {
        let _ = self.commands.send(EngineCommand::Pause(is_paused));
    }
}

/// A completion in progress.
struct ActiveSample {
    to: UnboundedSender<SampleEvent>,
    stream: bool,
    sent: usize,
}

struct EngineLoop<D: Decode> {
    model: Model<D>,
    sampler: Sampler<D>,
    active: HashMap<RequestId, ActiveSample>,
    /// Requests that wait for a weight update or the end of a pause.
    held: VecDeque<(SampleRequest, UnboundedSender<SampleEvent>)>,
    load: Option<Box<WeightLoad>>,
    is_paused: bool,
    next: u64,
    finished: Vec<SampledCompletion>,
    served: Arc<RwLock<ServedWeights>>,
    open: Arc<AtomicUsize>,
}

impl<D: Device + Decode> EngineLoop<D> {
    fn run(mut self, commands: &Receiver<EngineCommand>) {
        loop {
            let command = match self.sampler.is_idle() {
                // Sleep until there is something to do.
                true => commands.recv().map_err(|_| TryRecvError::Disconnected),
                false => commands.try_recv(),
            };
            match command {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => self.step(),
            }
            self.change_weights();
        }
    }

    fn handle(&mut self, command: EngineCommand) {
        match command {
            EngineCommand::Sample(request, to) if self.is_paused || self.load.is_some() => {
                self.held.push_back((request, to))
            }
            EngineCommand::Sample(request, to) => self.submit(request, to),
            EngineCommand::WeightLoad(load) => match self.load {
                None => self.load = Some(load),
                Some(_) => {
                    let _ = load.done.send(Err("other weights are being loaded".to_owned()));
                }
            },
            EngineCommand::Pause(is_paused) => {
                self.is_paused = is_paused;
                self.release();
            }
        }
    }

    /// Submits the waiting requests, unless an update or a pause still holds them back.
    fn release(&mut self) {
        while !self.is_paused
            && self.load.is_none()
            && let Some((request, to)) = self.held.pop_front()
        {
            self.submit(request, to);
        }
    }

    fn submit(&mut self, request: SampleRequest, to: UnboundedSender<SampleEvent>) {
        let id = RequestId(self.next);
        self.next += 1;
        let SampleRequest { prompt, seed, max_new_tokens, params, stop, stream, score } = request;
        let scores = if score { self.scores(&prompt) } else { Ok(Vec::new()) };
        match scores {
            Ok(scores) => {
                let weights = self.served.read().unwrap_or_else(PoisonError::into_inner).weights.clone();
                // Fails if the client has gone.
                let _ = to.send(SampleEvent::Begun { weights, scores });
            }
            Err(error) => return self.end(&to, SampleEvent::Failed(error.to_string())),
        }
        match self.sampler.submit(Request { id, prompt, seed, max_new_tokens, params, stop }) {
            Ok(()) => {
                self.active.insert(id, ActiveSample { to, stream, sent: 0 });
            }
            Err(error) => self.end(&to, SampleEvent::Failed(error.to_string())),
        }
    }

    /// Computes the log-probs of a prompt's tokens after the first.
    fn scores(&self, prompt: &[u32]) -> Result<Vec<f32>, EngineError> {
        let device = Arc::clone(&self.model.device);
        let mut scorer = Trainer::new(device, &self.model.config, prompt.len(), Mode::Infer)?;
        let stats = scorer.log_probs(&self.model, [(prompt, 1)])?;
        #[allow(clippy::expect_used, reason = "follows from the call")]
        let stats = stats.into_iter().next().expect("invariant: one result per sequence");
        Ok(stats.log_probs)
    }

    fn end(&self, to: &UnboundedSender<SampleEvent>, event: SampleEvent) {
        // Before the event is sent, so that a client that has received it does not count as open.
        self.open.fetch_sub(1, Ordering::Relaxed);
        // Fails if the client has gone.
        let _ = to.send(event);
    }

    fn step(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        if let Err(error) = self.sampler.step(&self.model, &mut finished) {
            tracing::error!("{error}");
            self.sampler.cancel_all();
            for (_, sample) in std::mem::take(&mut self.active) {
                self.end(&sample.to, SampleEvent::Failed(error.to_string()));
            }
        }
        for (id, sample) in &mut self.active {
            if sample.to.is_closed() {
                self.sampler.cancel(*id);
            } else if sample.stream
                && let Some(so_far) = self.sampler.so_far(*id)
            {
                sample.send_new(so_far);
            }
        }
        for completion in finished.drain(..) {
            let Some(mut sample) = self.active.remove(&completion.id) else { continue };
            if sample.stream {
                sample.send_new(&completion);
            }
            self.end(&sample.to, SampleEvent::Done(completion));
        }
        self.finished = finished;
    }

    /// Replaces the weights when no completion is in progress, so that each completion uses one set of weights.
    fn change_weights(&mut self) {
        if !self.sampler.is_idle() {
            return;
        }
        let Some(load) = self.load.take() else { return };
        let WeightLoad { weights, folder, name, done } = *load;
        let result =
            self.replace_weights(weights, folder, name).map(|()| self.held.len()).map_err(|e| e.to_string());
        if let Err(error) = &result {
            tracing::warn!("the weights were not replaced: {error}");
        }
        let _ = done.send(result);
        self.release();
    }

    fn replace_weights(
        &mut self,
        weights: HostWeights,
        folder: String,
        name: String,
    ) -> Result<(), EngineError> {
        if weights.config != self.model.config {
            let (new, old) = (&weights.config, &self.model.config);
            return Err(SamplerError::Model(format!("{new:?} instead of {old:?}")).into());
        }
        self.model = Model::new(Arc::clone(&self.model.device), weights, self.model.max_positions)?;
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        (served.folder, served.weights) = (folder, name);
        Ok(())
    }
}

impl ActiveSample {
    fn send_new(&mut self, so_far: &SampledCompletion) {
        let new = so_far.tokens.iter().zip(&so_far.log_probs).skip(self.sent);
        for (token, log_prob) in new {
            let _ = self.to.send(SampleEvent::Token(*token, *log_prob));
        }
        self.sent = so_far.tokens.len();
    }
}

/// Returns the protocol's name of a finish reason, or an error message if the completion was not sampled.
pub(crate) fn reason(finish: &Finish) -> Result<&'static str, String> {
    match finish {
        Finish::Stop => Ok("stop"),
        Finish::Length => Ok("length"),
        Finish::Cancelled => Err("cancelled".to_owned()),
        Finish::Refused(why) => Err(why.to_string()),
    }
}
