//! The sampler: requests in, completions out, a step at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decode::{Decode, DecoderSizes, PANEL};
use super::kv::BLOCK;
use super::request::{Completion, Finish, Request, RequestId, SamplerError};
use super::schedule::{Drawn, Limits, Plan, Scheduler};
use crate::config::ModelConfig;
use crate::model::Model;

/// How much a sampler may use and run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Bytes for the key/value cache and the working buffers together; the weights are not counted, they
    /// are the caller's.
    pub memory_budget_bytes: u64,
    /// Requests that are decoded at once; at least 1.
    pub max_batch: usize,
    /// Positions in a page of the cache; a positive multiple of 16.
    pub page_len: usize,
    /// Prompt tokens fed in one step beside the running requests, rounded up to 64; at least 1. `None` for as many as
    /// suit the device, whose buffers then take no more than a quarter of the budget.
    pub prefill_tokens: Option<usize>,
}

impl Default for SamplerOptions {
    /// 1 GiB, 256 requests at once, pages of 16 positions, prompt tokens as suits the device.
    fn default() -> Self {
        Self { memory_budget_bytes: 1 << 30, max_batch: 256, page_len: 16, prefill_tokens: None }
    }
}

/// The least that a device feeds of prompts in a step if it may choose.
const PREFILL_TOKENS: usize = 512;

/// Where a sampler's memory goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Bytes of working buffers.
    pub work_bytes: u64,
    /// Bytes of the key/value cache; reserved, and used as pages are first written.
    pub cache_bytes: u64,
    /// Pages in the cache.
    pub pages: usize,
    /// Positions that the cache holds.
    pub positions: usize,
}

/// What a sampler has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Steps of the model.
    pub steps: u64,
    /// Prompt tokens computed once for all requests of a prompt.
    pub prefilled_tokens: u64,
    /// New tokens drawn.
    pub decoded_tokens: u64,
    /// Requests that ended on a stop token.
    pub stopped: u64,
    /// Requests that ended at their longest length.
    pub reached_length: u64,
    /// Requests cancelled by the caller.
    pub cancelled: u64,
    pub refused: u64,
    /// Time in which a step was under way.
    pub time: Duration,
    /// Most pages in use at once.
    pub peak_pages: usize,
}

/// A continuous-batching sampler of one model shape. The weights stay with the caller and are passed to
/// each step; they must not change between a request's submission and its end.
#[derive(Debug)]
pub struct Sampler<D: Decode> {
    device: Arc<D>,
    config: ModelConfig,
    context: usize,
    scheduler: Scheduler,
    decoder: D::Decoder,
    plan: Plan,
    drawn: Vec<Drawn>,
    /// When the step that is under way was started.
    under_way: Option<Instant>,
    /// Requests cancelled since: what a step was planned with stays as it is until its end.
    cancelled: Vec<RequestId>,
    memory: MemoryPlan,
    counters: Counters,
}

impl<D: Decode> Sampler<D> {
    /// Plans memory for models of this one's shape, on its device. The cache gets what the budget leaves
    /// after the working buffers, but no more than `max_batch` sequences of full length can use.
    ///
    /// # Errors
    /// An option is out of range, the budget holds no page, or the device has no room.
    pub fn new(model: &Model<D>, options: &SamplerOptions) -> Result<Self, SamplerError> {
        let SamplerOptions { memory_budget_bytes: budget, max_batch, page_len, prefill_tokens } = *options;
        let least = prefill_tokens.unwrap_or(PREFILL_TOKENS);
        for (name, value) in [("max_batch", max_batch), ("page_len", page_len), ("prefill_tokens", least)] {
            if value == 0 || value > 1 << 20 {
                return Err(SamplerError::Options(format!("{name} is {value}; expected 1 to {}", 1 << 20)));
            }
        }
        if !page_len.is_multiple_of(BLOCK) {
            return Err(SamplerError::Options(format!(
                "page_len is {page_len}; expected a multiple of {BLOCK}"
            )));
        }
        let (device, config, context) = (&model.device, &model.config, model.max_positions);
        let sizes = |prefill_tokens: usize| {
            let prefill_tokens = prefill_tokens.next_multiple_of(PANEL);
            DecoderSizes { max_batch, prefill_tokens, context, page_len, pages: 0 }
        };
        let mut sizes = match prefill_tokens {
            Some(tokens) => sizes(tokens),
            None => std::iter::successors(Some(device.prefill_tokens()), |tokens| Some(tokens / 2))
                .take_while(|tokens| *tokens > PREFILL_TOKENS)
                .map(sizes)
                .find(|sizes| device.decoder_work_bytes(config, sizes) <= budget / 4)
                .unwrap_or_else(|| sizes(PREFILL_TOKENS)),
        };
        let prefill_tokens = sizes.prefill_tokens;
        let work = device.decoder_work_bytes(config, &sizes);
        let page = device.decoder_page_bytes(config, page_len).max(1);
        // A prompt's partial page is held beside its requests' own.
        let useful = max_batch as u64 * (context.div_ceil(page_len) as u64 + 1);
        sizes.pages = (budget.saturating_sub(work) / page).min(useful).min(u64::from(u32::MAX)) as usize;
        let pages = sizes.pages;
        if pages == 0 {
            return Err(SamplerError::Budget { budget, work, page });
        }
        let panel = device.panel(prefill_tokens);
        let limits = Limits {
            max_batch,
            page_len,
            pages,
            max_positions: context,
            vocabulary: config.vocab_size,
            prefill_panels: prefill_tokens / panel,
            panel,
        };
        Ok(Self {
            device: Arc::clone(device),
            config: config.clone(),
            context,
            scheduler: Scheduler::new(limits),
            decoder: device.decoder(config, &sizes)?,
            plan: Plan::default(),
            drawn: Vec::with_capacity(max_batch),
            under_way: None,
            cancelled: Vec::new(),
            memory: MemoryPlan {
                work_bytes: work,
                cache_bytes: pages as u64 * page,
                pages,
                positions: pages * page_len,
            },
            counters: Counters::default(),
        })
    }

    /// Queues a request. One that can never run (empty, too long, unknown tokens, senseless choice) is
    /// handed out as refused by the next step and disturbs nobody.
    ///
    /// # Errors
    /// A request with this id is not finished yet.
    pub fn submit(&mut self, request: Request) -> Result<(), SamplerError> {
        self.scheduler.submit(request)
    }

    /// Ends a request; the next step hands it out with the tokens it has. `false` if no unfinished request
    /// has this id.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if self.under_way.is_none() {
            return self.scheduler.cancel(id);
        }
        let known = self.scheduler.knows(id) && !self.cancelled.contains(&id);
        if known {
            self.cancelled.push(id);
        }
        known
    }

    /// Ends all requests, as [`Sampler::cancel`]; a step that is under way comes to nothing.
    pub fn cancel_all(&mut self) {
        if self.under_way.take().is_some() {
            // Nobody wants the results, nor the error that they may be.
            let _ = self.device.collect(&mut self.decoder, &mut self.drawn);
        }
        self.cancelled.clear();
        self.scheduler.clear();
    }

    /// Admits waiting requests, feeds every running one a token, and appends those that ended to
    /// `finished`. Does nothing if there is nothing to do.
    ///
    /// # Errors
    /// The model is of another shape, the device fails, or the logits are not numbers; then no request has
    /// advanced, and [`Sampler::cancel_all`] gives back what they have.
    pub fn step(&mut self, model: &Model<D>, finished: &mut Vec<Completion>) -> Result<(), SamplerError> {
        self.start(model)?;
        self.finish(finished)
    }

    /// The first half of [`Sampler::step`]: starts a step unless one is under way. On a GPU it runs beside the
    /// processor and the steps of other samplers.
    ///
    /// # Errors
    /// As [`Sampler::step`].
    pub fn start(&mut self, model: &Model<D>) -> Result<(), SamplerError> {
        self.check(model)?;
        if self.under_way.is_some() {
            return Ok(());
        }
        let started = Instant::now();
        self.scheduler.plan(&mut self.plan);
        if !self.plan.is_empty() {
            self.drawn.clear();
            self.drawn.resize(self.plan.draws.len(), Drawn::default());
            self.device.decode(&mut self.decoder, model, &self.plan, &mut self.drawn)?;
            self.under_way = Some(started);
        }
        Ok(())
    }

    /// Whether [`Sampler::finish`] need not wait.
    ///
    /// # Errors
    /// The device fails.
    pub fn is_ready(&self) -> Result<bool, SamplerError> {
        Ok(self.under_way.is_none() || self.device.is_done(&self.decoder)?)
    }

    /// The second half of [`Sampler::step`]: waits for the step that is under way, if any.
    ///
    /// # Errors
    /// As [`Sampler::step`].
    pub fn finish(&mut self, finished: &mut Vec<Completion>) -> Result<(), SamplerError> {
        let before = finished.len();
        self.scheduler.take_done(finished);
        if let Some(started) = self.under_way.take() {
            self.device.collect(&mut self.decoder, &mut self.drawn)?;
            let pages = self.scheduler.pages();
            self.counters.peak_pages = self.counters.peak_pages.max(pages.total() - pages.free());
            let progress = self.scheduler.commit(&self.plan, &self.drawn, finished)?;
            self.counters.steps += 1;
            self.counters.prefilled_tokens += progress.prefilled as u64;
            self.counters.decoded_tokens += progress.decoded as u64;
            self.counters.time += started.elapsed();
        }
        for id in self.cancelled.drain(..) {
            self.scheduler.cancel(id);
        }
        self.scheduler.take_done(finished);
        for done in &finished[before..] {
            *match done.finish {
                Finish::Stop => &mut self.counters.stopped,
                Finish::Length => &mut self.counters.reached_length,
                Finish::Cancelled => &mut self.counters.cancelled,
                Finish::Refused(_) => &mut self.counters.refused,
            } += 1;
        }
        Ok(())
    }

    fn check(&self, model: &Model<D>) -> Result<(), SamplerError> {
        if model.config != self.config {
            return Err(SamplerError::Model(format!("{:?} instead of {:?}", model.config, self.config)));
        }
        if model.max_positions < self.context {
            let (has, need) = (model.max_positions, self.context);
            return Err(SamplerError::Model(format!(
                "its tables cover {has} positions, and {need} are needed"
            )));
        }
        Ok(())
    }

    /// Submits `requests` and steps until nothing is left; each completion is handed to `on_finished` as
    /// soon as it ends, with the sampler, to which more can be submitted and where others can be cancelled.
    ///
    /// # Errors
    /// As [`Sampler::submit`] and [`Sampler::step`].
    pub fn run(
        &mut self,
        model: &Model<D>,
        requests: impl IntoIterator<Item = Request>,
        mut on_finished: impl FnMut(&mut Self, Completion),
    ) -> Result<(), SamplerError> {
        for request in requests {
            self.submit(request)?;
        }
        let mut finished = Vec::new();
        while !self.is_idle() {
            self.step(model, &mut finished)?;
            for completion in finished.drain(..) {
                on_finished(self, completion);
            }
        }
        Ok(())
    }

    /// What a running request has drawn so far; `None` if it waits still or is over. Its `finish` says nothing yet.
    pub fn so_far(&self, id: RequestId) -> Option<&Completion> {
        self.scheduler.so_far(id)
    }

    /// Whether every request has been handed out.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// Requests admitted and not finished.
    pub fn running(&self) -> usize {
        self.scheduler.running()
    }

    /// Requests not admitted yet.
    pub fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    /// Pages of the cache that nobody holds.
    pub fn free_pages(&self) -> usize {
        self.scheduler.pages().free()
    }

    /// Where the memory goes.
    pub fn memory(&self) -> MemoryPlan {
        self.memory
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
