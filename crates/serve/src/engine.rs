//! The engine thread, which owns the model and its sampler.

use crate::queue::{CompletionCall, FairQueue, NextSample, Origin, SampleEvent, StartedSample};
use sgs_lm::Device;
use sgs_lm::model::{Mode, Model};
use sgs_lm::trainer::Trainer;
use sgs_lm::weights::HostWeights;
use sgs_lm_sampler::{
    Decode, Finish, Request, RequestId, SampledCompletion, Sampler, SamplerError, SamplerOptions,
};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

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

/// New weights to serve.
pub(crate) struct WeightLoad {
    pub weights: HostWeights,
    pub folder: String,
    pub name: String,
    /// Receives the number of completions that were held back, or the reason why the old weights remain.
    pub done: oneshot::Sender<Result<usize, String>>,
    /// Released when the weights are loaded.
    pub permit: OwnedSemaphorePermit,
}

enum EngineCommand {
    Sample(IpAddr, CompletionCall, UnboundedSender<StartedSample>),
    WeightLoad(Box<WeightLoad>),
    Pause(bool),
}

/// Handle of the engine thread. The thread ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct ModelEngine {
    commands: Sender<EngineCommand>,
    served: Arc<RwLock<ServedWeights>>,
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
        let engine = Self { commands, served: Arc::new(RwLock::new(served)) };
        let engine_loop = EngineLoop {
            model,
            sampler,
            max_batch: options.max_batch,
            active: HashMap::new(),
            queue: FairQueue::new(options.max_batch),
            load: None,
            is_paused: false,
            next: 0,
            finished: Vec::new(),
            served: Arc::clone(&engine.served),
        };
        let thread =
            std::thread::Builder::new().name("sampler".into()).spawn(move || engine_loop.run(&received));
        Ok((engine, thread.map_err(EngineError::Thread)?))
    }

    /// Returns the weights being served.
    pub fn served(&self) -> ServedWeights {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests completions for the client at `address`. Dropping the receiver cancels those that have not started.
    pub(crate) fn sample(&self, address: IpAddr, call: CompletionCall) -> UnboundedReceiver<StartedSample> {
        let (to, from) = unbounded_channel();
        // If the thread has ended, the receiver finds the channel closed.
        let _ = self.commands.send(EngineCommand::Sample(address, call, to));
        from
    }

    /// Requests to load new weights.
    pub(crate) fn load(&self, load: WeightLoad) {
        // If the thread has ended, the receiver of `done` finds the channel closed.
        let _ = self.commands.send(EngineCommand::WeightLoad(Box::new(load)));
    }

    /// Holds back new completions, or releases them. Returns false if the thread has ended.
    pub(crate) fn pause(&self, is_paused: bool) -> bool {
        self.commands.send(EngineCommand::Pause(is_paused)).is_ok()
    }
}

/// A completion in progress.
struct ActiveSample {
    origin: Origin,
    to: UnboundedSender<SampleEvent>,
    stream: bool,
    sent: usize,
}

struct EngineLoop<D: Decode> {
    /// Dropped before the weights, which a step in flight reads.
    sampler: Sampler<D>,
    model: Model<D>,
    max_batch: usize,
    active: HashMap<RequestId, ActiveSample>,
    queue: FairQueue,
    load: Option<Box<WeightLoad>>,
    is_paused: bool,
    next: u64,
    finished: Vec<SampledCompletion>,
    served: Arc<RwLock<ServedWeights>>,
}

impl<D: Device + Decode> EngineLoop<D> {
    fn run(mut self, commands: &Receiver<EngineCommand>) {
        loop {
            let is_idle = self.sampler.is_idle() && (self.is_held() || self.queue.len() == 0);
            let command = match is_idle {
                // Sleep until there is something to do.
                true => commands.recv().map_err(|_| TryRecvError::Disconnected),
                false => commands.try_recv(),
            };
            match command {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    self.start_waiting();
                    self.step();
                }
            }
            self.change_weights();
        }
    }

    fn handle(&mut self, command: EngineCommand) {
        match command {
            EngineCommand::Sample(address, call, to) => self.queue.push(address, call, to),
            EngineCommand::WeightLoad(load) => self.load = Some(load),
            EngineCommand::Pause(is_paused) => self.is_paused = is_paused,
        }
    }

    /// Returns whether a pause or a weight update holds new completions back.
    fn is_held(&self) -> bool {
        self.is_paused || self.load.is_some()
    }

    /// Starts waiting completions until the batch is full, and the first ones of further clients. Returns after it has
    /// scored a prompt, so that the completions in progress get a step first.
    fn start_waiting(&mut self) {
        while !self.is_held()
            && let Some(sample) = self.queue.pop(self.free_slots())
        {
            let is_scored = sample.call.score;
            self.start(sample);
            if is_scored {
                return;
            }
        }
    }

    fn free_slots(&self) -> usize {
        self.max_batch.saturating_sub(self.sampler.running() + self.sampler.waiting())
    }

    fn start(&mut self, sample: NextSample) {
        let NextSample { call, index, to: announce, origin, is_first } = sample;
        let id = RequestId(self.next);
        self.next += 1;
        let prompt = Arc::clone(&call.prompts[index / call.n]);
        let scores = if call.score { self.scores(&prompt) } else { Ok(Vec::new()) };
        let (to, events) = unbounded_channel();
        let weights = self.served.read().unwrap_or_else(PoisonError::into_inner).weights.clone();
        let submitted = scores.and_then(|scores| {
            // The first completion uses the seed itself, and so equals a sample of the library.
            let seed = call.seed.wrapping_add(((index % call.n) as u64).wrapping_mul(sgs_base::random::STEP));
            let (max_new_tokens, params, stop) = (call.max_new_tokens, call.params, Arc::clone(&call.stop));
            let request = Request { id, prompt, seed, max_new_tokens, params, stop };
            // A client that fills the batch, or the memory, must not delay another one.
            match is_first {
                true => self.sampler.submit_urgent(request)?,
                false => self.sampler.submit(request)?,
            }
            Ok(scores)
        });
        // Sending fails if the client has gone. The sample is then cancelled after the next step.
        match submitted {
            Ok(scores) => {
                let _ = announce.send(StartedSample { index, weights, scores, events });
                self.active.insert(id, ActiveSample { origin, to, stream: call.stream, sent: 0 });
            }
            Err(error) => {
                self.queue.ended(origin);
                let _ = to.send(SampleEvent::Failed(error.to_string()));
                let _ = announce.send(StartedSample { index, weights, scores: Vec::new(), events });
            }
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

    fn step(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        if let Err(error) = self.sampler.step(&self.model, &mut finished) {
            tracing::error!("{error}");
            self.sampler.cancel_all();
            for (_, sample) in std::mem::take(&mut self.active) {
                self.queue.ended(sample.origin);
                let _ = sample.to.send(SampleEvent::Failed(error.to_string()));
            }
        }
        for (id, sample) in &mut self.active {
            if sample.to.is_closed() {
                self.sampler.cancel(*id);
            } else if sample.stream
                && let Some((tokens, log_probs)) = self.sampler.so_far(*id)
            {
                sample.send_new(tokens, log_probs);
            }
        }
        for completion in finished.drain(..) {
            let Some(mut sample) = self.active.remove(&completion.id) else { continue };
            self.queue.ended(sample.origin);
            if sample.stream {
                sample.send_new(&completion.tokens, &completion.log_probs);
            }
            let _ = sample.to.send(SampleEvent::Done(completion));
        }
        self.finished = finished;
    }

    /// Replaces the weights when no completion is in progress, so that each completion uses one set of weights.
    fn change_weights(&mut self) {
        if !self.sampler.is_idle() {
            return;
        }
        let Some(load) = self.load.take() else { return };
        let WeightLoad { weights, folder, name, done, permit } = *load;
        let result = self.replace_weights(weights, folder, name);
        let result = result.map(|()| self.queue.len()).map_err(|e| e.to_string());
        drop(permit);
        if let Err(error) = &result {
            tracing::warn!("the weights were not replaced: {error}");
        }
        let _ = done.send(result);
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
    fn send_new(&mut self, tokens: &[u32], log_probs: &[f32]) {
        let new = tokens.iter().zip(log_probs).skip(self.sent);
        for (token, log_prob) in new {
            let _ = self.to.send(SampleEvent::Token(*token, *log_prob));
        }
        self.sent = tokens.len();
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
