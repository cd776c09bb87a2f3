//! The thread that owns a model and its sampler.

use sgs_lm::Device;
use sgs_lm::model::{Mode, Model};
use sgs_lm::sampler::{
    Choice, Completion, Decode, Finish, Request, RequestId, Sampler, SamplerError, SamplerOptions,
};
use sgs_lm::trainer::Trainer;
use sgs_lm::weights::HostWeights;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// Why a model cannot be served, or other weights cannot take its place.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The device or the sampler's options.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The model.
    #[error(transparent)]
    Model(#[from] sgs_lm::LmError),
    /// No thread.
    #[error("cannot start the sampler's thread: {0}")]
    Thread(std::io::Error),
}

/// What is served.
#[derive(Clone, Debug)]
pub struct Served {
    /// The folder that the weights came from.
    pub folder: String,
    /// What the weights are called: a number of those who update them, or a fingerprint.
    pub weights: String,
    /// Longest sequence, tokens.
    pub window: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
}

/// One completion to be sampled.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub prompt: Arc<[u32]>,
    pub seed: u64,
    pub max_new_tokens: usize,
    pub choice: Choice,
    pub stop: Arc<[u32]>,
    /// Whether each token is told when it is drawn.
    pub follow: bool,
    /// Whether the log-probs of the prompt's tokens are told.
    pub score: bool,
}

/// What is told of a completion.
#[derive(Debug)]
pub(crate) enum Said {
    /// It begins.
    Begun {
        /// What the weights are called that all of it is sampled with.
        weights: String,
        /// Log-probs of the prompt's tokens after the first, if they are wanted.
        scores: Vec<f32>,
    },
    /// The next token and its log-prob, of a completion that is followed.
    Token(u32, f32),
    /// The end, with the whole completion.
    Done(Completion),
    /// The device failed.
    Failed(String),
}

/// Weights that are to take the place of those that are served.
pub(crate) struct Load {
    pub weights: HostWeights,
    pub folder: String,
    pub name: String,
    /// Told when it is done: how many completions were held back meanwhile, or why the old weights stay.
    pub done: oneshot::Sender<Result<usize, String>>,
}

enum Order {
    Sample(Ask, UnboundedSender<Said>),
    Load(Box<Load>),
    Pause(bool),
}

/// A handle of the thread that samples; it ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Engine {
    orders: Sender<Order>,
    served: Arc<RwLock<Served>>,
    open: Arc<AtomicUsize>,
}

impl Engine {
    /// Puts weights on a device and starts the thread. `positions` bounds the window, `folder` and `name` say what is
    /// served.
    ///
    /// # Errors
    /// [`EngineError`].
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
        let served = Served {
            folder: folder.to_owned(),
            weights: name.to_owned(),
            window: model.max_positions,
            vocabulary: model.config.vocab_size,
        };
        let (orders, taken) = channel();
        let engine =
            Self { orders, served: Arc::new(RwLock::new(served)), open: Arc::new(AtomicUsize::new(0)) };
        let bench = Bench {
            model,
            sampler,
            jobs: HashMap::new(),
            held: VecDeque::new(),
            load: None,
            is_paused: false,
            next: 0,
            finished: Vec::new(),
            served: Arc::clone(&engine.served),
            open: Arc::clone(&engine.open),
        };
        let thread = std::thread::Builder::new().name("sampler".into()).spawn(move || bench.work(&taken));
        Ok((engine, thread.map_err(EngineError::Thread)?))
    }

    /// What is served now.
    pub fn served(&self) -> Served {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Completions that are asked for and not done.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Asks for a completion. Dropping the receiver cancels it.
    pub(crate) fn sample(&self, ask: Ask) -> UnboundedReceiver<Said> {
        let (to, from) = unbounded_channel();
        self.open.fetch_add(1, Ordering::Relaxed);
        if self.orders.send(Order::Sample(ask, to)).is_err() {
            // The thread is gone; the receiver finds its other end closed.
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        from
    }

    /// Asks for other weights.
    pub(crate) fn load(&self, load: Load) {
        // Without a thread the receiver of `done` finds its other end closed.
        let _ = self.orders.send(Order::Load(Box::new(load)));
    }

    /// Holds back completions that are asked for from now on, or lets them go.
    pub(crate) fn pause(&self, is_paused: bool) {
        let _ = self.orders.send(Order::Pause(is_paused));
    }
}

/// A completion under way.
struct Job {
    to: UnboundedSender<Said>,
    follow: bool,
    told: usize,
}

struct Bench<D: Decode> {
    model: Model<D>,
    sampler: Sampler<D>,
    jobs: HashMap<RequestId, Job>,
    /// Asked for while weights are about to change, or in a pause.
    held: VecDeque<(Ask, UnboundedSender<Said>)>,
    load: Option<Box<Load>>,
    is_paused: bool,
    next: u64,
    finished: Vec<Completion>,
    served: Arc<RwLock<Served>>,
    open: Arc<AtomicUsize>,
}

impl<D: Device + Decode> Bench<D> {
    fn work(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.sampler.is_idle() {
                // Nothing to do: sleep until there is.
                true => orders.recv().map_err(|_| TryRecvError::Disconnected),
                false => orders.try_recv(),
            };
            match order {
                Ok(order) => self.take(order),
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => self.step(),
            }
            self.change_weights();
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Sample(ask, to) if self.is_paused || self.load.is_some() => self.held.push_back((ask, to)),
            Order::Sample(ask, to) => self.submit(ask, to),
            Order::Load(load) => match self.load {
                None => self.load = Some(load),
                Some(_) => {
                    let _ = load.done.send(Err("other weights are being loaded".to_owned()));
                }
            },
            Order::Pause(is_paused) => {
                self.is_paused = is_paused;
                self.let_go();
            }
        }
    }

    /// Submits what was held back, if nothing holds it back any longer.
    fn let_go(&mut self) {
        while !self.is_paused
            && self.load.is_none()
            && let Some((ask, to)) = self.held.pop_front()
        {
            self.submit(ask, to);
        }
    }

    fn submit(&mut self, ask: Ask, to: UnboundedSender<Said>) {
        let id = RequestId(self.next);
        self.next += 1;
        let Ask { prompt, seed, max_new_tokens, choice, stop, follow, score } = ask;
        let scores = if score { self.scores(&prompt) } else { Ok(Vec::new()) };
        match scores {
            Ok(scores) => {
                let weights = self.served.read().unwrap_or_else(PoisonError::into_inner).weights.clone();
                // Nobody may be listening any more.
                let _ = to.send(Said::Begun { weights, scores });
            }
            Err(error) => return self.end(&to, Said::Failed(error.to_string())),
        }
        match self.sampler.submit(Request { id, prompt, seed, max_new_tokens, choice, stop }) {
            Ok(()) => {
                self.jobs.insert(id, Job { to, follow, told: 0 });
            }
            Err(error) => self.end(&to, Said::Failed(error.to_string())),
        }
    }

    /// Log-probs of a prompt's tokens after the first.
    fn scores(&self, prompt: &[u32]) -> Result<Vec<f32>, EngineError> {
        let device = Arc::clone(&self.model.device);
        let mut scorer = Trainer::new(device, &self.model.config, prompt.len(), Mode::Infer)?;
        let stats = scorer.log_probs(&self.model, [(prompt, 1)])?;
        Ok(stats.into_iter().next().map(|stats| stats.log_probs).unwrap_or_default())
    }

    fn end(&self, to: &UnboundedSender<Said>, said: Said) {
        // Before it is told, so that nobody who has heard it finds it open still.
        self.open.fetch_sub(1, Ordering::Relaxed);
        // Nobody may be listening any more.
        let _ = to.send(said);
    }

    fn step(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        if let Err(error) = self.sampler.step(&self.model, &mut finished) {
            tracing::error!("{error}");
            self.sampler.cancel_all();
            for (_, job) in std::mem::take(&mut self.jobs) {
                self.end(&job.to, Said::Failed(error.to_string()));
            }
        }
        for (id, job) in &mut self.jobs {
            if job.to.is_closed() {
                self.sampler.cancel(*id);
            } else if job.follow
                && let Some(so_far) = self.sampler.so_far(*id)
            {
                job.tell(so_far);
            }
        }
        for completion in finished.drain(..) {
            let Some(mut job) = self.jobs.remove(&completion.id) else { continue };
            if job.follow {
                job.tell(&completion);
            }
            self.end(&job.to, Said::Done(completion));
        }
        self.finished = finished;
    }

    /// Puts new weights in the place of the old ones, once nothing is under way: every completion is of one set.
    fn change_weights(&mut self) {
        if !self.sampler.is_idle() {
            return;
        }
        let Some(load) = self.load.take() else { return };
        let Load { weights, folder, name, done } = *load;
        let said = self.exchange(weights, folder, name).map(|()| self.held.len()).map_err(|e| e.to_string());
        if let Err(error) = &said {
            tracing::warn!("the weights stay as they were: {error}");
        }
        let _ = done.send(said);
        self.let_go();
    }

    fn exchange(&mut self, weights: HostWeights, folder: String, name: String) -> Result<(), EngineError> {
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

impl Job {
    fn tell(&mut self, so_far: &Completion) {
        let new = so_far.tokens.iter().zip(&so_far.log_probs).skip(self.told);
        for (token, log_prob) in new {
            let _ = self.to.send(Said::Token(*token, *log_prob));
        }
        self.told = so_far.tokens.len();
    }
}

/// Why a completion ended, in the protocol's words; an error if it never began.
pub(crate) fn reason(finish: &Finish) -> Result<&'static str, String> {
    match finish {
        Finish::Stop => Ok("stop"),
        Finish::Length => Ok("length"),
        Finish::Cancelled => Err("cancelled".to_owned()),
        Finish::Refused(why) => Err(why.to_string()),
    }
}
