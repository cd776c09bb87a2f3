//! The sampler: accepts requests, runs steps on a device and returns completions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::request::{Finish, Request, SampledCompletion, SamplerError};
use super::schedule::{Limits, PlannedStep, Scheduler};
use sgs_lm::config::ModelConfig;
use sgs_lm::decode::{Decode, DecoderSizes, PAGE_BLOCK, PANEL, RequestId, SampledToken};
use sgs_lm::footprint::Footprint;
use sgs_lm::model::Model;

/// Limits of a sampler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Memory budget in bytes for the key/value cache and the working buffers together. The weights belong to
    /// the caller and do not count.
    pub memory_budget_bytes: u64,
    /// Maximum number of requests that are decoded at the same time; at least 1.
    pub max_batch: usize,
    /// Positions per page of the cache; a positive multiple of 16.
    pub page_len: usize,
    /// Prompt tokens that a step prefills in addition to decoding, rounded up to a multiple of 64; at least 1.
    /// `None` chooses a number that suits the device and whose buffers take at most a quarter of the budget.
    pub prefill_tokens: Option<usize>,
}

impl Default for SamplerOptions {
    /// Returns the defaults: 1 GiB, 256 requests at once, pages of 16 positions, and the device's choice of prompt
    /// tokens.
    fn default() -> Self {
        Self { memory_budget_bytes: 1 << 30, max_batch: 256, page_len: 16, prefill_tokens: None }
    }
}

/// Free pages that are kept for each running request when another one is admitted. With lengths like those of a prover,
/// 14% as many tokens are replayed as sampled (the test `pages_as_they_are_needed_save_most_steps`).
pub(crate) const HEADROOM: usize = 8;

/// Smallest number of prompt tokens per step that is chosen automatically.
const PREFILL_TOKENS: usize = 512;

/// How a sampler's memory is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplerMemory {
    /// Bytes of working buffers.
    pub work_bytes: u64,
    /// Bytes reserved for the key/value cache; the system provides them when pages are first written.
    pub cache_bytes: u64,
    /// Pages in the cache.
    pub pages: usize,
    /// Positions in the cache.
    pub positions: usize,
}

impl SamplerOptions {
    /// Divides the memory for models of this shape. The cache gets the part of the budget that the working buffers do
    /// not need, but no more than `max_batch` sequences of `context` tokens can use.
    ///
    /// # Errors
    /// Returns an error if an option is out of range, or if the budget is too small for a single page.
    pub fn plan(
        &self,
        footprint: &dyn Footprint,
        config: &ModelConfig,
        context: usize,
    ) -> Result<(DecoderSizes, SamplerMemory), SamplerError> {
        let Self { memory_budget_bytes: budget, max_batch, page_len, prefill_tokens } = *self;
        let least = prefill_tokens.unwrap_or(PREFILL_TOKENS);
        for (name, value) in [("max_batch", max_batch), ("page_len", page_len), ("prefill_tokens", least)] {
            if value == 0 || value > 1 << 20 {
                return Err(SamplerError::Options(format!("{name} is {value}; expected 1 to {}", 1 << 20)));
            }
        }
        if !page_len.is_multiple_of(PAGE_BLOCK) {
            return Err(SamplerError::Options(format!(
                "page_len is {page_len}; expected a multiple of {PAGE_BLOCK}"
            )));
        }
        let sizes = |prefill_tokens: usize| {
            let prefill_tokens = prefill_tokens.next_multiple_of(PANEL);
            DecoderSizes { max_batch, prefill_tokens, context, page_len, pages: 0 }
        };
        let mut sizes = match prefill_tokens {
            Some(tokens) => sizes(tokens),
            None => std::iter::successors(Some(footprint.prefill_tokens()), |tokens| Some(tokens / 2))
                .take_while(|tokens| *tokens > PREFILL_TOKENS)
                .map(sizes)
                .find(|sizes| footprint.decoder_work_bytes(config, sizes) <= budget / 4)
                .unwrap_or_else(|| sizes(PREFILL_TOKENS)),
        };
        let work = footprint.decoder_work_bytes(config, &sizes);
        let page = footprint.decoder_page_bytes(config, page_len).max(1);
        // Each request may copy the partially filled page of its prompt.
        let useful = max_batch as u64 * (context.div_ceil(page_len) as u64 + 1);
        sizes.pages = (budget.saturating_sub(work) / page).min(useful).min(u64::from(u32::MAX)) as usize;
        let pages = sizes.pages;
        if pages == 0 {
            return Err(SamplerError::Budget { budget, work, page });
        }
        let memory = SamplerMemory {
            work_bytes: work,
            cache_bytes: pages as u64 * page,
            pages,
            positions: pages * page_len,
        };
        Ok((sizes, memory))
    }
}

/// Totals since the sampler was created.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SamplerCounters {
    /// Steps run.
    pub steps: u64,
    /// Prompt tokens prefilled; each prompt counts once, however many requests share it.
    pub prefilled_tokens: u64,
    /// New tokens sampled.
    pub decoded_tokens: u64,
    /// Tokens fed again after their requests were preempted.
    pub replayed_tokens: u64,
    /// Requests that ended with a stop token.
    pub stopped: u64,
    /// Requests that reached their maximum length.
    pub reached_length: u64,
    /// Requests cancelled by the caller.
    pub cancelled: u64,
    /// Requests that were refused as invalid.
    pub refused: u64,
    /// Time during which steps were in flight.
    pub time: Duration,
    /// Maximum number of pages in use at the same time.
    pub peak_pages: usize,
}

/// A step that was started.
#[derive(Debug, Default)]
struct StepInFlight {
    plan: PlannedStep,
    sampled: Vec<SampledToken>,
}

/// A continuous-batching sampler for one model shape. The caller owns the weights and passes them to each step.
/// They must not change between the submission of a request and its end.
#[derive(Debug)]
pub struct Sampler<D: Decode> {
    device: Arc<D>,
    config: ModelConfig,
    context: usize,
    scheduler: Scheduler,
    decoder: D::Decoder,
    /// Maximum number of steps in flight.
    steps_in_flight: usize,
    /// Steps that were started and not collected, in the order of their starts.
    in_flight: VecDeque<StepInFlight>,
    /// The memory of earlier steps.
    spare: Vec<StepInFlight>,
    /// Since when steps have been in flight without being counted in `counters.time`.
    busy_since: Option<Instant>,
    /// Requests cancelled while steps are in flight. They end after the first of these, with its tokens.
    cancelled: Vec<RequestId>,
    memory: SamplerMemory,
    counters: SamplerCounters,
}

impl<D: Decode> Sampler<D> {
    /// Allocates the memory of [`SamplerOptions::plan`] on the model's device.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`SamplerOptions::plan`], or if the device runs out of memory.
    pub fn new(model: &Model<D>, options: &SamplerOptions) -> Result<Self, SamplerError> {
        let (device, config, context) = (&model.device, &model.config, model.max_positions);
        let (sizes, memory) = options.plan(device.footprint(), config, context)?;
        let DecoderSizes { max_batch, prefill_tokens, page_len, pages, .. } = sizes;
        let panel = device.panel(prefill_tokens);
        let limits = Limits {
            max_batch,
            page_len,
            pages,
            max_positions: context,
            vocabulary: config.vocab_size,
            prefill_panels: prefill_tokens / panel,
            panel,
            headroom: HEADROOM,
        };
        Ok(Self {
            device: Arc::clone(device),
            config: config.clone(),
            context,
            scheduler: Scheduler::new(limits),
            decoder: device.decoder(config, &sizes)?,
            steps_in_flight: device.steps_in_flight(),
            in_flight: VecDeque::new(),
            spare: Vec::new(),
            busy_since: None,
            cancelled: Vec::new(),
            memory,
            counters: SamplerCounters::default(),
        })
    }

    /// Queues a request. A request that can never run (empty, too long, unknown tokens, invalid parameters) is
    /// returned as refused by the next step; it does not affect other requests.
    ///
    /// # Errors
    /// Returns an error if an unfinished request has the same id.
    pub fn submit(&mut self, request: Request) -> Result<(), SamplerError> {
        self.scheduler.submit(request, false)
    }

    /// Queues a request as [`Sampler::submit`] does, but before those that are not urgent. If it does not fit, the next
    /// step preempts running requests that are not urgent; they continue later with the same tokens.
    ///
    /// # Errors
    /// Returns an error if an unfinished request has the same id.
    pub fn submit_urgent(&mut self, request: Request) -> Result<(), SamplerError> {
        self.scheduler.submit(request, true)
    }

    /// Cancels a request. The next step returns it with the tokens sampled so far. Returns `false` if no
    /// unfinished request has this id.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if self.in_flight.is_empty() {
            return self.scheduler.cancel(id);
        }
        let known = self.scheduler.knows(id) && !self.cancelled.contains(&id);
        if known {
            self.cancelled.push(id);
        }
        known
    }

    /// Cancels all requests, as [`Sampler::cancel`] does, and discards the steps in flight.
    pub fn cancel_all(&mut self) {
        while let Some(mut step) = self.in_flight.pop_front() {
            // The results are discarded, and so is an error of the step.
            let _ = self.device.collect(&mut self.decoder, &mut step.sampled);
        }
        self.count_time();
        self.cancelled.clear();
        self.scheduler.clear();
    }

    /// Runs one step: admits waiting requests, feeds one token of every running request, and appends the
    /// requests that ended to `finished`. Does nothing without requests.
    ///
    /// # Errors
    /// Returns an error if the model has another shape, if the device fails, or if logits are not finite. In
    /// that case the results of this step are lost; only [`Sampler::cancel_all`] may follow, which returns the tokens
    /// sampled before.
    pub fn step(
        &mut self,
        model: &Model<D>,
        finished: &mut Vec<SampledCompletion>,
    ) -> Result<(), SamplerError> {
        self.start(model)?;
        self.finish(finished)
    }

    /// Runs the first half of [`Sampler::step`]: starts as many steps as the device accepts. On a GPU, they run
    /// concurrently with this thread and with the steps of other samplers.
    pub fn start(&mut self, model: &Model<D>) -> Result<(), SamplerError> {
        self.check(model)?;
        while self.in_flight.len() < self.steps_in_flight && self.start_one(model)? {}
        Ok(())
    }

    /// Plans and starts a step. Returns false if there is nothing to do.
    fn start_one(&mut self, model: &Model<D>) -> Result<bool, SamplerError> {
        let started = Instant::now();
        let mut step = self.spare.pop().unwrap_or_default();
        self.scheduler.plan(&mut step.plan);
        if step.plan.step.is_empty() {
            self.spare.push(step);
            return Ok(false);
        }
        step.sampled.clear();
        step.sampled.resize(step.plan.step.samples.len(), SampledToken::default());
        self.device.decode(&mut self.decoder, model, &step.plan.step, &mut step.sampled)?;
        self.busy_since.get_or_insert(started);
        self.in_flight.push_back(step);
        Ok(true)
    }

    /// Returns whether a step is in flight.
    pub fn has_step_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns whether [`Sampler::finish`] would return without waiting for the first step in flight.
    pub fn is_ready(&self) -> Result<bool, SamplerError> {
        Ok(self.in_flight.is_empty() || self.device.is_done(&self.decoder)?)
    }

    /// Runs the second half of [`Sampler::step`]: waits for the first step in flight, if any, and applies its results. When
    /// the last request has ended, no step is in flight, so the weights may change.
    pub fn finish(&mut self, finished: &mut Vec<SampledCompletion>) -> Result<(), SamplerError> {
        let before = finished.len();
        self.scheduler.take_done(finished);
        self.finish_one(finished)?;
        for id in self.cancelled.drain(..) {
            self.scheduler.cancel(id);
        }
        // What follows was planned before the ends of its requests were known.
        while self.scheduler.has_ended() && !self.in_flight.is_empty() {
            self.finish_one(finished)?;
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

    /// Waits for the first step in flight, if any, and applies its results.
    fn finish_one(&mut self, finished: &mut Vec<SampledCompletion>) -> Result<(), SamplerError> {
        let Some(mut step) = self.in_flight.pop_front() else { return Ok(()) };
        let collected = self.device.collect(&mut self.decoder, &mut step.sampled);
        self.count_time();
        collected?;
        let pages = self.scheduler.pages();
        self.counters.peak_pages = self.counters.peak_pages.max(pages.total() - pages.free());
        let progress = self.scheduler.commit(&step.plan, &step.sampled, finished)?;
        self.counters.steps += 1;
        self.counters.prefilled_tokens += progress.prefilled as u64;
        self.counters.decoded_tokens += progress.decoded as u64;
        self.counters.replayed_tokens += progress.replayed as u64;
        self.spare.push(step);
        Ok(())
    }

    /// Adds the time since the last call to the time in which a step was in flight.
    fn count_time(&mut self) {
        if let Some(since) = self.busy_since.take() {
            let now = Instant::now();
            self.counters.time += now - since;
            self.busy_since = (!self.in_flight.is_empty()).then_some(now);
        }
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

    /// Submits `requests` and runs steps until every request has ended. Each completion is passed to `on_finished` as
    /// soon as it ends, together with the sampler, so that the callback can submit and cancel requests.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Sampler::submit`] and [`Sampler::step`].
    pub fn run(
        &mut self,
        model: &Model<D>,
        requests: impl IntoIterator<Item = Request>,
        mut on_finished: impl FnMut(&mut Self, SampledCompletion),
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

    /// Returns the sampled tokens of a running request so far and their log-probs, or `None` if the request is waiting or
    /// has ended.
    pub fn so_far(&self, id: RequestId) -> Option<(&[u32], &[f32])> {
        self.scheduler.so_far(id)
    }

    /// Returns whether every request has ended and been returned.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// Returns the number of requests that are admitted and unfinished.
    pub fn running(&self) -> usize {
        self.scheduler.running()
    }

    /// Returns the number of requests that are not admitted yet.
    pub fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    /// Returns the number of free pages in the cache.
    pub fn free_pages(&self) -> usize {
        self.scheduler.pages().free()
    }

    /// Returns how the sampler's memory is divided.
    pub fn memory(&self) -> SamplerMemory {
        self.memory
    }

    /// Returns the totals since the sampler was created.
    pub fn counters(&self) -> &SamplerCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_lm::decode::SamplingParams;
    use sgs_lm::device::Device;
    use sgs_lm::weights::HostWeights;
    use sgs_lm_cpu::Cpu;
    use std::collections::BTreeMap;
    use std::path::Path;

    fn model() -> Model<Cpu> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/data/llama_gqa_tied");
        Model::new(Arc::new(Cpu::new(2).unwrap()), HostWeights::load(&dir).unwrap(), 256).unwrap()
    }

    /// Returns requests that end with a stop token or at different lengths.
    fn requests() -> Vec<Request> {
        let request = |id: u64| Request {
            id: RequestId(id),
            prompt: (0..20 + id as u32 / 4).map(|i| 3 * i % 90).collect(),
            seed: id,
            max_new_tokens: 200 - id as usize,
            params: SamplingParams::default(),
            stop: (0..5 * (id as u32 % 2)).collect(),
        };
        (0..12).map(request).collect()
    }

    fn sampler(model: &Model<Cpu>, steps_in_flight: usize, pages: usize) -> Sampler<Cpu> {
        let options = SamplerOptions { max_batch: 6, prefill_tokens: Some(64), ..SamplerOptions::default() };
        let config = &model.config;
        let work = |sizes: &DecoderSizes| model.device.footprint().decoder_work_bytes(config, sizes);
        let (sizes, _) = options.plan(model.device.footprint(), config, model.max_positions).unwrap();
        let page = model.device.footprint().decoder_page_bytes(config, options.page_len);
        let memory_budget_bytes = work(&sizes) + page * pages as u64;
        let mut sampler = Sampler::new(model, &SamplerOptions { memory_budget_bytes, ..options }).unwrap();
        assert_eq!(sampler.memory().pages, pages);
        sampler.steps_in_flight = steps_in_flight;
        sampler
    }

    #[test]
    fn a_second_step_in_flight_changes_no_completion() {
        let model = model();
        // With few pages, requests are preempted while their steps are in flight.
        for pages in [102, 24] {
            let completions = |depth: usize| {
                let (mut sampler, mut done) = (sampler(&model, depth, pages), BTreeMap::new());
                sampler.run(&model, requests(), |_, c| assert!(done.insert(c.id, c).is_none())).unwrap();
                assert!(sampler.in_flight.is_empty() && sampler.busy_since.is_none());
                assert_eq!(sampler.free_pages(), pages);
                let counters = *sampler.counters();
                assert_eq!(
                    counters.decoded_tokens as usize,
                    done.values().map(|c| c.tokens.len()).sum::<usize>()
                );
                (done, counters)
            };
            let ((alone, before), (ahead, after)) = (completions(1), completions(2));
            assert_eq!(alone, ahead);
            assert!(alone.values().any(|c| c.finish == Finish::Stop));
            assert_eq!((before.replayed_tokens > 0, after.replayed_tokens > 0), (pages == 24, pages == 24));
        }
    }

    #[test]
    fn requests_can_be_cancelled_while_two_steps_are_in_flight() {
        let model = model();
        let mut sampler = sampler(&model, 2, 102);
        let long = |id: usize| Request { max_new_tokens: 60, stop: [].into(), ..requests()[id].clone() };
        sampler.run(&model, [long(0)], |_, _| {}).unwrap();
        let mut finished = Vec::new();
        (0..2).for_each(|id| sampler.submit(long(id)).unwrap());
        (0..3).for_each(|_| sampler.step(&model, &mut finished).unwrap());
        sampler.start(&model).unwrap();
        assert_eq!(sampler.in_flight.len(), 2);
        assert!(sampler.cancel(RequestId(0)) && !sampler.cancel(RequestId(0)));
        sampler.finish(&mut finished).unwrap();
        // It ends with the first step in flight. The second one, which is for both requests, remains.
        assert_eq!((finished.len(), finished[0].tokens.len(), sampler.in_flight.len()), (1, 3, 1));
        sampler.submit(long(2)).unwrap();
        sampler.start(&model).unwrap();
        sampler.cancel_all();
        assert!(sampler.in_flight.is_empty());
        finished.clear();
        sampler.finish(&mut finished).unwrap();
        let mut ids: Vec<u64> = finished.iter().map(|c| c.id.0).collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2]);
        assert!(sampler.is_idle() && sampler.free_pages() == 102);
    }
}
