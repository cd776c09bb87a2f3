//! The scheduler: the queue, the running requests, the prompts that they share, and the cache pages of both.
//!
//! The scheduler is plain data and does not depend on the model's arithmetic.
//!
//! A prompt of `n` tokens is prefilled once, without its last token. Every request of the prompt feeds that last token
//! itself in its first step, so the first token that it samples depends on the prompt only through the cache. Requests
//! share the full pages of the prompt; the last, partially filled page is copied.
//!
//! A running request gets a page when it needs one, because most completions end long before their maximum length. If no
//! page is free, the running request with the last [`Rank`] is preempted: it gives back its pages and returns to the
//! queue with the tokens that it has sampled. When it runs again, these tokens are *replayed*: they are fed again, one
//! per step, which writes the same keys and values as before. So completions do not depend on preemption. The first
//! request is never preempted, and has room for its maximum length, so every request ends.
//!
//! A queued urgent request preempts running requests that are not urgent until it fits.
//!
//! A step can be planned before the results of the preceding one are known. Such a plan assumes that every request
//! continues, and feeds the token that the running step will sample. The results of requests that have ended meanwhile are
//! ignored. Steps run in the order of their plans, so pages that a request gives back may be used by the next plan, although
//! a running step still writes to them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::pages::PagePool;
use super::request::{Finish, Request, RequestRefusal, SampledCompletion, SamplerError};
use sgs_lm::decode::{InputToken, NextToken, PageId, RequestId, SampleSpec, SampledToken, StepPlan};

/// Sizes that the scheduler must respect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of running requests.
    pub max_batch: usize,
    /// Positions per page.
    pub page_len: usize,
    /// Pages in the cache.
    pub pages: usize,
    /// Longest sequence that the model supports, in tokens.
    pub max_positions: usize,
    /// Vocabulary size, in tokens.
    pub vocabulary: usize,
    /// Maximum number of prefill panels per step.
    pub prefill_panels: usize,
    /// Tokens per panel.
    pub panel: usize,
    /// Free pages that are kept for each running request when another one is admitted. With fewer, more requests run, but
    /// they are preempted more often.
    pub headroom: usize,
}

/// A step, and the data that [`Scheduler::commit`] needs about it. Reused from step to step.
#[derive(Debug, Default)]
pub(crate) struct PlannedStep {
    pub step: StepPlan,
    /// Slots and admissions of the requests in [`StepPlan::decode`], in the same order.
    fed: Vec<(usize, u64)>,
    /// Slots of these requests, while they are sorted.
    slots: Vec<usize>,
}

impl PlannedStep {
    fn clear(&mut self) {
        self.step.clear();
        self.fed.clear();
        self.slots.clear();
    }
}

/// Order in which requests are admitted and get pages: urgent ones first, then by submission. After each plan, every
/// running request precedes every queued one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_ordinary: bool,
    /// Position in the order of submission.
    number: u64,
}

/// A prompt with at least one unfinished request.
#[derive(Debug)]
struct SharedPrompt {
    tokens: Arc<[u32]>,
    /// Pages of all tokens except the last; empty while the prompt is not resident.
    pages: Vec<PageId>,
    /// Whether the prompt owns pages.
    resident: bool,
    /// Number of tokens whose keys and values are in the cache after the planned steps.
    filled: usize,
    /// First rank of the requests for which the prompt is being prefilled.
    rank: Rank,
    /// Number of queued requests.
    waiting: usize,
    /// Number of running requests.
    running: usize,
}

impl SharedPrompt {
    /// Returns the number of tokens that are prefilled once for all requests.
    fn target(&self) -> usize {
        self.tokens.len() - 1
    }

    /// Returns whether requests of this prompt can decode.
    fn is_filled(&self) -> bool {
        self.filled == self.target()
    }
}

/// A request that waits for a slot and pages.
#[derive(Debug)]
struct QueuedRequest {
    rank: Rank,
    request: Request,
    /// Index in [`Scheduler::prompts`].
    prompt: usize,
    /// What it sampled before it was preempted.
    sampled: SampledSoFar,
}

/// The sampled tokens of a request and their statistics, as in [`SampledCompletion`].
#[derive(Debug, Default)]
struct SampledSoFar {
    tokens: Vec<u32>,
    log_probs: Vec<f32>,
    entropies: Vec<f32>,
}

impl SampledSoFar {
    /// Makes room for `count` tokens in all.
    fn reserve(&mut self, count: usize) {
        let more = count - self.tokens.len();
        self.tokens.reserve_exact(more);
        self.log_probs.reserve_exact(more);
        self.entropies.reserve_exact(more);
    }

    fn completion(self, id: RequestId, finish: Finish) -> SampledCompletion {
        let Self { tokens, log_probs, entropies } = self;
        SampledCompletion { id, tokens, log_probs, entropies, finish }
    }
}

#[derive(Debug)]
struct RunningRequest {
    rank: Rank,
    /// Number of this admission, which tells the results of a request from those of others in the same slot.
    admission: u64,
    request: Request,
    /// Index in [`Scheduler::prompts`].
    prompt: usize,
    /// Pages of the sequence so far, the shared ones first.
    table: Vec<PageId>,
    /// Number of pages of the sequence at its maximum length.
    most_pages: usize,
    /// Number of steps that were planned since the admission. The first ones replay `sampled`.
    fed: usize,
    /// Index in the last plan.
    column: usize,
    sampled: SampledSoFar,
}

impl RunningRequest {
    /// Returns the number of pages that the request may still need.
    fn missing_pages(&self) -> usize {
        self.most_pages - self.table.len()
    }

    /// Returns whether another token will be sampled, unless a stop token ends the request.
    fn continues(&self) -> bool {
        self.fed < self.request.max_new_tokens
    }

    /// Returns the next token to feed.
    fn next(&self, prompt: &SharedPrompt) -> NextToken {
        let Some(last) = self.fed.checked_sub(1) else {
            return NextToken::Known(prompt.tokens[prompt.target()]);
        };
        match self.sampled.tokens.get(last) {
            Some(token) => NextToken::Known(*token),
            // The last planned step is still running.
            None => NextToken::Sampled(self.column as u32),
        }
    }
}

/// The state of all unfinished requests.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: Limits,
    pool: PagePool,
    /// In the order of their ranks.
    queue: VecDeque<QueuedRequest>,
    /// Number of submitted requests.
    submitted: u64,
    /// Number of admissions.
    admitted: u64,
    /// Sum over the running requests of the free pages that are kept for them. It is 0 if none needs further pages.
    headroom: usize,
    /// Requests that need a page for the next step, by rank, with their slots. Empty between steps; kept so that a step
    /// allocates nothing.
    lacking: Vec<(Rank, usize)>,
    slots: Vec<Option<RunningRequest>>,
    free_slots: Vec<usize>,
    prompts: Vec<Option<SharedPrompt>>,
    free_prompts: Vec<usize>,
    by_tokens: HashMap<Arc<[u32]>, usize>,
    /// Resident prompts that are not completely prefilled, in the order of their ranks.
    filling: Vec<usize>,
    /// Slot of each unfinished request, or `None` if it is queued.
    slot_of: HashMap<RequestId, Option<usize>>,
    /// Requests that ended outside of a step: refused or cancelled.
    done: Vec<SampledCompletion>,
}

/// Token counts of a committed step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepProgress {
    pub prefilled: usize,
    /// New tokens.
    pub decoded: usize,
    pub replayed: usize,
}

#[allow(clippy::expect_used, reason = "a dangling index must stop the program")]
fn prompt_at(prompts: &[Option<SharedPrompt>], index: usize) -> &SharedPrompt {
    prompts[index].as_ref().expect("invariant: a prompt exists as long as one of its requests is unfinished")
}

#[allow(clippy::expect_used, reason = "a dangling index must stop the program")]
fn prompt_at_mut(prompts: &mut [Option<SharedPrompt>], index: usize) -> &mut SharedPrompt {
    prompts[index].as_mut().expect("invariant: a prompt exists as long as one of its requests is unfinished")
}

#[allow(clippy::expect_used, reason = "a dangling index must stop the program")]
fn running_at_mut(slots: &mut [Option<RunningRequest>], index: usize) -> &mut RunningRequest {
    slots[index].as_mut().expect("invariant: a planned slot holds a request until the step is committed")
}

impl Scheduler {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            pool: PagePool::new(limits.pages),
            queue: VecDeque::new(),
            submitted: 0,
            admitted: 0,
            headroom: 0,
            lacking: Vec::with_capacity(limits.max_batch),
            slots: (0..limits.max_batch).map(|_| None).collect(),
            free_slots: (0..limits.max_batch).rev().collect(),
            prompts: Vec::new(),
            free_prompts: Vec::new(),
            by_tokens: HashMap::new(),
            filling: Vec::new(),
            slot_of: HashMap::new(),
            done: Vec::new(),
        }
    }

    /// Returns whether every request has finished and been returned.
    pub fn is_idle(&self) -> bool {
        self.has_ended() && self.done.is_empty()
    }

    /// Returns whether every request has finished.
    pub fn has_ended(&self) -> bool {
        self.slot_of.is_empty()
    }

    /// Returns the sampled tokens of a running request so far and their log-probs.
    pub fn so_far(&self, id: RequestId) -> Option<(&[u32], &[f32])> {
        let slot = (*self.slot_of.get(&id)?)?;
        let running = self.slots.get(slot)?.as_ref()?;
        Some((&running.sampled.tokens, &running.sampled.log_probs))
    }

    /// Returns whether an unfinished request has this id.
    pub fn knows(&self, id: RequestId) -> bool {
        self.slot_of.contains_key(&id)
    }

    pub fn running(&self) -> usize {
        self.limits.max_batch - self.free_slots.len()
    }

    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub fn pages(&self) -> &PagePool {
        &self.pool
    }

    /// Queues a request, an urgent one before the others. A request that can never run finishes immediately as refused.
    pub fn submit(&mut self, mut request: Request, is_urgent: bool) -> Result<(), SamplerError> {
        if self.slot_of.contains_key(&request.id) {
            return Err(SamplerError::DuplicateId(request.id));
        }
        if let Err(reason) = self.check(&request) {
            self.done.push(SampledSoFar::default().completion(request.id, Finish::Refused(reason)));
            return Ok(());
        }
        request.params = request.params.canonical();
        let rank = Rank { is_ordinary: !is_urgent, number: self.submitted };
        self.submitted += 1;
        let prompt = match self.by_tokens.get(&request.prompt) {
            Some(index) => *index,
            None => self.add_prompt(&request.prompt, rank),
        };
        self.enqueue(QueuedRequest { rank, request, prompt, sampled: SampledSoFar::default() });
        Ok(())
    }

    fn enqueue(&mut self, queued: QueuedRequest) {
        prompt_at_mut(&mut self.prompts, queued.prompt).waiting += 1;
        self.slot_of.insert(queued.request.id, None);
        let at = self.queue.partition_point(|other| other.rank < queued.rank);
        self.queue.insert(at, queued);
    }

    fn add_prompt(&mut self, tokens: &Arc<[u32]>, rank: Rank) -> usize {
        let prompt = SharedPrompt {
            tokens: Arc::clone(tokens),
            pages: Vec::new(),
            resident: false,
            filled: 0,
            rank,
            waiting: 0,
            running: 0,
        };
        let index = match self.free_prompts.pop() {
            Some(index) => {
                self.prompts[index] = Some(prompt);
                index
            }
            None => {
                self.prompts.push(Some(prompt));
                self.prompts.len() - 1
            }
        };
        self.by_tokens.insert(Arc::clone(tokens), index);
        index
    }

    /// Checks whether a request can ever run.
    fn check(&self, request: &Request) -> Result<(), RequestRefusal> {
        let (prompt, max_new) = (request.prompt.len(), request.max_new_tokens);
        let params = request.params;
        if prompt == 0 {
            return Err(RequestRefusal::EmptyPrompt);
        }
        if max_new == 0 {
            return Err(RequestRefusal::NoNewTokens);
        }
        let vocabulary = self.limits.vocabulary;
        if let Some((position, token)) =
            request.prompt.iter().enumerate().find(|(_, token)| **token as usize >= vocabulary)
        {
            return Err(RequestRefusal::UnknownToken { position, token: *token, vocabulary });
        }
        if !(params.temperature >= 0.0 && params.temperature.is_finite()) {
            let (name, value) = ("temperature", params.temperature);
            return Err(RequestRefusal::Parameter { name, value, expected: "a number from 0" });
        }
        if !(params.top_p > 0.0 && params.top_p <= 1.0) {
            let (name, value) = ("top_p", params.top_p);
            return Err(RequestRefusal::Parameter { name, value, expected: "a number above 0 and up to 1" });
        }
        let limit = self.limits.max_positions;
        if prompt.saturating_add(max_new) > limit {
            return Err(RequestRefusal::ExceedsContext { prompt, max_new, limit });
        }
        if self.prompt_pages(prompt) + self.own_pages(prompt, max_new) > self.limits.pages {
            let limit = self.limits.pages * self.limits.page_len;
            return Err(RequestRefusal::ExceedsBudget { prompt, max_new, limit });
        }
        Ok(())
    }

    /// Returns how many pages a prompt of `prompt` tokens needs once, for all its requests.
    fn prompt_pages(&self, prompt: usize) -> usize {
        (prompt - 1).div_ceil(self.limits.page_len)
    }

    /// Returns how many pages a request needs in addition to its prompt's to sample `count` tokens.
    fn own_pages(&self, prompt: usize, count: usize) -> usize {
        let (len, target) = (self.limits.page_len, prompt - 1);
        // The last new token is sampled but never fed.
        (target + count).div_ceil(len) - target / len
    }

    /// Ends a request with the tokens that it has. Returns `false` if no unfinished request has this id.
    #[allow(clippy::expect_used, reason = "a lost request must stop the program")]
    pub fn cancel(&mut self, id: RequestId) -> bool {
        match self.slot_of.get(&id).copied() {
            None => return false,
            Some(Some(slot)) => {
                let done = self.finish(slot, Finish::Cancelled);
                self.done.push(done);
            }
            Some(None) => {
                let at = self.queue.iter().position(|queued| queued.request.id == id);
                let queued = at.and_then(|at| self.queue.remove(at));
                let queued = queued.expect("invariant: a request without a slot is in the queue");
                prompt_at_mut(&mut self.prompts, queued.prompt).waiting -= 1;
                self.release_unneeded(queued.prompt);
                self.slot_of.remove(&id);
                self.done.push(queued.sampled.completion(id, Finish::Cancelled));
            }
        }
        true
    }

    /// Moves requests that ended outside of a step to `finished`.
    pub fn take_done(&mut self, finished: &mut Vec<SampledCompletion>) {
        finished.append(&mut self.done);
    }

    /// Plans the next step: gives the running requests the pages that they need, admits the requests that fit, then feeds
    /// one token of every running request and as many prompt tokens as fit.
    pub fn plan(&mut self, plan: &mut PlannedStep) {
        plan.clear();
        // Running requests come first, because a request that is admitted now could be preempted for them at once.
        self.add_pages();
        while self.admit_next() || self.preempt_for_urgent() {}
        self.plan_decode(plan);
        self.plan_prefill(plan);
    }

    /// Gives every request that is decoded in this step a page for its next token, in the order of their ranks.
    fn add_pages(&mut self) {
        if self.headroom == 0 {
            return;
        }
        let len = self.limits.page_len;
        let lacks_page = |running: &RunningRequest| {
            let prompt = prompt_at(&self.prompts, running.prompt);
            prompt.is_filled()
                && running.continues()
                && (prompt.target() + running.fed) / len == running.table.len()
        };
        let slots = self.slots.iter().enumerate();
        let mut lacking = std::mem::take(&mut self.lacking);
        lacking.extend(slots.filter_map(|(slot, running)| {
            running.as_ref().filter(|r| lacks_page(r)).map(|r| (r.rank, slot))
        }));
        lacking.sort_unstable();
        for (rank, slot) in lacking.drain(..) {
            // If this request was preempted, so were all that follow it.
            if self.slots[slot].is_none() || !self.make_room(rank) {
                break;
            }
            let running = running_at_mut(&mut self.slots, slot);
            self.headroom -= self.limits.headroom.min(running.missing_pages());
            running.table.push(self.pool.allocate());
            self.headroom += self.limits.headroom.min(running.missing_pages());
        }
        self.lacking = lacking;
    }

    /// Frees a page for the running request at `rank`: releases the pages of idle prompts, then preempts the requests with
    /// the last ranks. Returns false if that request was itself preempted.
    #[allow(clippy::expect_used, reason = "a pool that is too small for one request must stop the program")]
    fn make_room(&mut self, rank: Rank) -> bool {
        if self.pool.free() == 0 {
            self.evict_idle(None);
        }
        while self.pool.free() == 0 {
            let (last, slot) =
                self.last_running().expect("invariant: the request that needs a page is running");
            self.preempt(slot);
            if last == rank {
                return false;
            }
        }
        true
    }

    /// Returns the last running request and its slot.
    fn last_running(&self) -> Option<(Rank, usize)> {
        let running = self.slots.iter().enumerate();
        running.filter_map(|(slot, running)| Some((running.as_ref()?.rank, slot))).max()
    }

    /// Preempts the last running request if the head of the queue precedes it, which only an urgent request can. Returns
    /// whether it did.
    fn preempt_for_urgent(&mut self) -> bool {
        let Some(queued) = self.queue.front().filter(|queued| !queued.rank.is_ordinary) else { return false };
        let Some((last, slot)) = self.last_running() else { return false };
        let precedes = queued.rank < last;
        if precedes {
            self.preempt(slot);
        }
        precedes
    }

    /// Moves a running request back to the queue, before all that have never run.
    fn preempt(&mut self, slot: usize) {
        let RunningRequest { rank, request, prompt, sampled, .. } = self.vacate(slot);
        self.enqueue(QueuedRequest { rank, request, prompt, sampled });
        self.release_unneeded(prompt);
    }

    /// Starts the request at the head of the queue if a slot and enough pages are free. Returns whether it did.
    fn admit_next(&mut self) -> bool {
        let (Some(queued), Some(slot)) = (self.queue.front(), self.free_slots.last().copied()) else {
            return false;
        };
        let (index, prompt_len) = (queued.prompt, queued.request.prompt.len());
        let full = (prompt_len - 1) / self.limits.page_len;
        let shared = self.prompt_pages(prompt_len);
        // Pages for the tokens that are replayed and for the next one, or all, if the headroom would keep them anyway.
        let first = self.own_pages(prompt_len, queued.sampled.tokens.len() + 1);
        let most = self.own_pages(prompt_len, queued.request.max_new_tokens);
        let own = if most - first <= self.limits.headroom { most } else { first };
        let headroom = self.limits.headroom.min(most - own);
        let most_pages = full + most;
        let resident = prompt_at(&self.prompts, index).resident;
        let needed = own + if resident { 0 } else { shared } + headroom + self.headroom;
        if self.pool.free() < needed {
            self.evict_idle(Some(index));
        }
        if self.pool.free() < needed {
            return false;
        }
        let Some(QueuedRequest { rank, request, mut sampled, .. }) = self.queue.pop_front() else {
            return false;
        };
        let prompt = prompt_at_mut(&mut self.prompts, index);
        if !resident {
            prompt.pages.extend((0..shared).map(|_| self.pool.allocate()));
            prompt.resident = true;
            prompt.filled = 0;
        }
        prompt.waiting -= 1;
        prompt.running += 1;
        // Reserve the host's memory now, so that a step allocates nothing.
        sampled.reserve(request.max_new_tokens);
        let mut table = Vec::with_capacity(most_pages);
        table.extend_from_slice(&prompt.pages[..full]);
        table.iter().for_each(|page| self.pool.share(*page));
        table.extend((0..own).map(|_| self.pool.allocate()));
        self.headroom += headroom;
        self.free_slots.pop();
        self.slot_of.insert(request.id, Some(slot));
        self.admitted += 1;
        let (admission, prompt) = (self.admitted, index);
        let running = RunningRequest {
            rank,
            admission,
            request,
            prompt,
            table,
            most_pages,
            fed: 0,
            column: 0,
            sampled,
        };
        self.slots[slot] = Some(running);
        self.prefill_for(rank, index);
        true
    }

    /// Has a prompt prefilled, unless it is filled, before those of requests that follow `rank`.
    fn prefill_for(&mut self, rank: Rank, index: usize) {
        let prompt = prompt_at_mut(&mut self.prompts, index);
        let place = self.filling.iter().position(|other| *other == index);
        if prompt.is_filled() || place.is_some() && prompt.rank <= rank {
            return;
        }
        prompt.rank = rank;
        if let Some(place) = place {
            self.filling.remove(place);
        }
        let at = self.filling.partition_point(|other| prompt_at(&self.prompts, *other).rank < rank);
        self.filling.insert(at, index);
    }

    /// Releases the pages of prompts without running requests, except those of the prompt `keep`.
    fn evict_idle(&mut self, keep: Option<usize>) {
        for index in 0..self.prompts.len() {
            let idle = self.prompts[index].as_ref().is_some_and(|p| p.resident && p.running == 0);
            if idle && keep != Some(index) {
                self.unload(index);
            }
        }
    }

    /// Releases a prompt's pages.
    fn unload(&mut self, index: usize) {
        let prompt = prompt_at_mut(&mut self.prompts, index);
        prompt.pages.drain(..).for_each(|page| self.pool.release(page));
        prompt.resident = false;
        prompt.filled = 0;
        self.filling.retain(|i| *i != index);
    }

    /// Cleans up after a request has left a prompt. Removes the prompt if that was its last request, and releases the
    /// pages of a partially filled prompt that no running request needs.
    fn release_unneeded(&mut self, index: usize) {
        let prompt = prompt_at(&self.prompts, index);
        if prompt.running > 0 {
            return;
        }
        let last = prompt.waiting == 0;
        if prompt.resident && (last || !prompt.is_filled()) {
            self.unload(index);
        }
        if last && let Some(prompt) = self.prompts[index].take() {
            self.by_tokens.remove(&prompt.tokens);
            self.free_prompts.push(index);
        }
    }

    /// Feeds every running request whose prompt is filled. Requests of one prompt are adjacent, because adjacent requests
    /// read the shared pages together.
    fn plan_decode(&mut self, plan: &mut PlannedStep) {
        let PlannedStep { step, fed, slots } = plan;
        let prompt_of = |slot: &usize| self.slots[*slot].as_ref().map(|running| running.prompt);
        let is_ready = |slot: &usize| {
            let running = self.slots[*slot].as_ref();
            running.is_some_and(|r| r.continues() && prompt_at(&self.prompts, r.prompt).is_filled())
        };
        slots.extend((0..self.slots.len()).filter(is_ready));
        slots.sort_unstable_by_key(|slot| (prompt_of(slot), *slot));
        // Reserve for tables at their maximum length, so that later steps allocate nothing.
        let most_pages = |slot: &usize| self.slots[*slot].as_ref().map_or(0, |running| running.most_pages);
        step.tables.reserve(slots.iter().map(most_pages).sum());
        for (column, slot) in slots.iter().enumerate() {
            let running = running_at_mut(&mut self.slots, *slot);
            let prompt = prompt_at(&self.prompts, running.prompt);
            let target = prompt.target();
            let full = target / self.limits.page_len;
            if running.fed == 0 && !target.is_multiple_of(self.limits.page_len) {
                step.copies.push((prompt.pages[full], running.table[full]));
            }
            let position = (target + running.fed) as u32;
            let table = (step.tables.len() as u32, running.table.len() as u32);
            step.tables.extend_from_slice(&running.table);
            step.decode.push(InputToken { token: running.next(prompt), position, table });
            let Request { id, seed, params, .. } = running.request;
            step.samples.push(SampleSpec { id, seed, index: running.fed as u32, params });
            fed.push((*slot, running.admission));
            running.fed += 1;
            running.column = column;
        }
    }

    fn plan_prefill(&mut self, plan: &mut PlannedStep) {
        let mut room = self.limits.panel;
        let mut panels_left = self.limits.prefill_panels;
        for index in &self.filling {
            if panels_left == 0 {
                break;
            }
            let prompt = prompt_at_mut(&mut self.prompts, *index);
            let count = (prompt.target() - prompt.filled).min(room);
            let table = (plan.step.tables.len() as u32, prompt.pages.len() as u32);
            plan.step.tables.extend_from_slice(&prompt.pages);
            for position in prompt.filled..prompt.filled + count {
                let token = NextToken::Known(prompt.tokens[position]);
                plan.step.prefill.push(InputToken { token, position: position as u32, table });
            }
            prompt.filled += count;
            room -= count;
            if room == 0 {
                plan.step.prefill_ends.push(plan.step.prefill.len());
                room = self.limits.panel;
                panels_left -= 1;
            }
        }
        if room < self.limits.panel {
            plan.step.prefill_ends.push(plan.step.prefill.len());
        }
        let prompts = &self.prompts;
        self.filling.retain(|index| !prompt_at(prompts, *index).is_filled());
    }

    /// Applies the results of a planned step; `sampled` is in the order of [`StepPlan::samples`]. Results of requests that
    /// have ended or were preempted since the plan are ignored.
    ///
    /// # Errors
    /// Returns an error, without any effect, if a result is not finite. All requests must be cancelled then.
    pub fn commit(
        &mut self,
        plan: &PlannedStep,
        sampled: &[SampledToken],
        finished: &mut Vec<SampledCompletion>,
    ) -> Result<StepProgress, SamplerError> {
        let StepPlan { samples, decode, prefill, .. } = &plan.step;
        assert_eq!(sampled.len(), samples.len(), "invariant: a step returns one token per sample");
        let mut progress = StepProgress { prefilled: prefill.len(), ..StepProgress::default() };
        let is_current = |slots: &[Option<RunningRequest>], (slot, admission): (usize, u64)| {
            slots[slot].as_ref().is_some_and(|running| running.admission == admission)
        };
        let columns = || plan.fed.iter().zip(samples).zip(decode).zip(sampled);
        if let Some((((_, spec), input), _)) =
            columns().find(|(((fed, _), _), result)| !result.finite && is_current(&self.slots, **fed))
        {
            return Err(SamplerError::NotFinite { id: spec.id, position: input.position as usize });
        }
        for (((fed, spec), _), result) in columns() {
            if !is_current(&self.slots, *fed) {
                continue;
            }
            let (slot, index) = (fed.0, spec.index as usize);
            let running = running_at_mut(&mut self.slots, slot);
            if index < running.sampled.tokens.len() {
                // The token that follows is known. It may already have been passed on.
                progress.replayed += 1;
                continue;
            }
            assert_eq!(index, running.sampled.tokens.len(), "invariant: steps are committed in their order");
            progress.decoded += 1;
            running.sampled.tokens.push(result.token);
            running.sampled.log_probs.push(result.log_prob);
            running.sampled.entropies.push(result.entropy);
            let finish = if running.request.stop.contains(&result.token) {
                Finish::Stop
            } else if running.sampled.tokens.len() == running.request.max_new_tokens {
                Finish::Length
            } else {
                continue;
            };
            finished.push(self.finish(slot, finish));
        }
        Ok(progress)
    }

    /// Ends a running request and returns its completion.
    fn finish(&mut self, slot: usize, finish: Finish) -> SampledCompletion {
        let RunningRequest { request, prompt, sampled, .. } = self.vacate(slot);
        self.release_unneeded(prompt);
        self.slot_of.remove(&request.id);
        sampled.completion(request.id, finish)
    }

    /// Frees a slot and the pages of its request. The caller releases the prompt.
    #[allow(clippy::expect_used, reason = "a lost request must stop the program")]
    fn vacate(&mut self, slot: usize) -> RunningRequest {
        let running = self.slots[slot].take().expect("invariant: the slot of an unfinished request is taken");
        self.free_slots.push(slot);
        self.headroom -= self.limits.headroom.min(running.missing_pages());
        running.table.iter().for_each(|page| self.pool.release(*page));
        prompt_at_mut(&mut self.prompts, running.prompt).running -= 1;
        running
    }

    /// Cancels every request.
    pub fn clear(&mut self) {
        let ids: Vec<RequestId> = self.slot_of.keys().copied().collect();
        ids.into_iter().for_each(|id| {
            self.cancel(id);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use sgs_base::philox::uniform;
    use sgs_lm::decode::SamplingParams;

    fn limits(pages: usize) -> Limits {
        Limits {
            max_batch: 3,
            page_len: 4,
            pages,
            max_positions: 64,
            vocabulary: 10,
            prefill_panels: 2,
            panel: 8,
            headroom: 1,
        }
    }

    fn request(id: u64, prompt: &[u32], max_new_tokens: usize) -> Request {
        Request {
            id: RequestId(id),
            prompt: prompt.into(),
            seed: id,
            max_new_tokens,
            params: SamplingParams::default(),
            stop: Arc::from([9]),
        }
    }

    /// The token that every step samples. It depends on request and index, so that any confusion of requests shows.
    fn token(seed: u64, index: u32) -> u32 {
        (seed as u32 + index) % 9
    }

    /// A device whose cache remembers only which tokens were fed. It checks each input token against the sequence that it
    /// continues.
    struct Mirror {
        pages: Vec<Vec<Option<u32>>>,
        /// The tokens that the last step samples.
        sampled: Vec<u32>,
        /// Maximum number of steps in flight.
        depth: usize,
        in_flight: VecDeque<PlannedStep>,
    }

    impl Mirror {
        fn new(pages: usize, depth: usize) -> Self {
            let pages = vec![vec![None; 4]; pages];
            Self { pages, sampled: Vec::new(), depth, in_flight: VecDeque::new() }
        }

        fn step(&mut self, scheduler: &Scheduler, plan: &PlannedStep) {
            let len = scheduler.limits.page_len;
            for (from, to) in &plan.step.copies {
                self.pages[*to as usize] = self.pages[*from as usize].clone();
            }
            let mut written = BTreeSet::new();
            for (index, input) in plan.step.decode.iter().chain(&plan.step.prefill).enumerate() {
                let table = &plan.step.tables[input.table.0 as usize..][..input.table.1 as usize];
                let position = input.position as usize;
                let page = table[position / len];
                let own = index >= plan.step.decode.len() || scheduler.pool.references(page) == 1;
                assert!(own, "a request writes to a shared page");
                assert!(written.insert((page, position % len)), "two tokens are written to one position");
                let fed = match input.token {
                    NextToken::Known(token) => token,
                    NextToken::Sampled(column) => self.sampled[column as usize],
                };
                self.pages[page as usize][position % len] = Some(fed);
            }
            for (input, (slot, _)) in plan.step.decode.iter().zip(&plan.fed) {
                let running = scheduler.slots[*slot].as_ref().unwrap();
                let prompt = running.request.prompt.iter().copied();
                let fed = (0..running.fed as u32 - 1).map(|index| token(running.request.seed, index));
                let sequence: Vec<u32> = prompt.chain(fed).collect();
                assert_eq!(input.position as usize + 1, sequence.len());
                for (position, token) in sequence.iter().enumerate() {
                    let page = running.table[position / len];
                    assert_eq!(
                        self.pages[page as usize][position % len],
                        Some(*token),
                        "position {position}"
                    );
                }
            }
            self.sampled = plan.step.samples.iter().map(|d| token(d.seed, d.index)).collect();
        }
    }

    /// Runs `steps` steps.
    fn run_steps(
        scheduler: &mut Scheduler,
        mirror: &mut Mirror,
        finished: &mut Vec<SampledCompletion>,
        steps: usize,
    ) {
        for _ in 0..steps {
            scheduler.take_done(finished);
            while mirror.in_flight.len() < mirror.depth {
                let mut plan = PlannedStep::default();
                scheduler.plan(&mut plan);
                if plan.step.is_empty() {
                    break;
                }
                mirror.step(scheduler, &plan);
                mirror.in_flight.push_back(plan);
            }
            let Some(plan) = mirror.in_flight.pop_front() else {
                assert!(scheduler.has_ended(), "a request waits although nothing runs: {scheduler:?}");
                continue;
            };
            let sampled = |d: &SampleSpec| SampledToken {
                token: token(d.seed, d.index),
                finite: true,
                ..SampledToken::default()
            };
            let sampled: Vec<SampledToken> = plan.step.samples.iter().map(sampled).collect();
            scheduler.commit(&plan, &sampled, finished).unwrap();
        }
        scheduler.take_done(finished);
    }

    #[test]
    fn a_shared_prompt_is_prefilled_once() {
        let mut scheduler = Scheduler::new(limits(40));
        let prompt: Vec<u32> = (0..11).map(|t| t % 9).collect();
        for id in 0..3 {
            scheduler.submit(request(id, &prompt, 5), false).unwrap();
        }
        let mut plan = PlannedStep::default();
        scheduler.plan(&mut plan);
        assert_eq!(
            (plan.step.decode.len(), plan.step.prefill.len(), &plan.step.prefill_ends[..]),
            (0, 8, &[8][..])
        );
        scheduler.commit(&plan, &[], &mut Vec::new()).unwrap();
        scheduler.plan(&mut plan);
        assert_eq!((plan.step.decode.len(), plan.step.prefill.len()), (0, 2));
        scheduler.commit(&plan, &[], &mut Vec::new()).unwrap();
        scheduler.plan(&mut plan);
        assert_eq!((plan.step.decode.len(), plan.step.prefill.len(), plan.step.copies.len()), (3, 0, 3));
        // Two full pages shared by three requests and their prompt, one partial page, and two more pages for
        // each request.
        assert_eq!(scheduler.pool.total() - scheduler.pool.free(), 3 + 3 * 2);
        assert_eq!(scheduler.pool.references(plan.step.tables[0]), 4);
        scheduler.clear();
        assert_eq!(scheduler.pool.free(), 40);
    }

    /// Submits three requests. Each needs six pages at its maximum length, and eight exist.
    fn three_requests() -> (Scheduler, Mirror, Vec<SampledCompletion>) {
        let mut scheduler = Scheduler::new(limits(8));
        for id in 0..3 {
            scheduler.submit(request(id, &[id as u32], 24), false).unwrap();
        }
        (scheduler, Mirror::new(8, 1), Vec::new())
    }

    #[test]
    fn the_last_request_is_preempted_and_replays_its_tokens() {
        let (mut scheduler, mut mirror, mut finished) = three_requests();
        run_steps(&mut scheduler, &mut mirror, &mut finished, 1);
        assert_eq!((scheduler.running(), scheduler.waiting()), (3, 0));
        run_steps(&mut scheduler, &mut mirror, &mut finished, 15);
        // The first two have four pages each.
        assert_eq!((scheduler.running(), scheduler.pool.free()), (2, 0));
        let queued = scheduler.queue.front().unwrap();
        assert_eq!((queued.rank.number, &queued.sampled.tokens[..]), (2, &[2, 3, 4, 5, 6, 7, 8, 0][..]));
        assert!(scheduler.so_far(RequestId(2)).is_none());
        run_steps(&mut scheduler, &mut mirror, &mut finished, 1);
        assert_eq!((scheduler.running(), scheduler.waiting()), (1, 2));
        run_steps(&mut scheduler, &mut mirror, &mut finished, 60);
        assert!(scheduler.is_idle());
        assert_eq!(finished.iter().map(|done| done.id.0).collect::<Vec<_>>(), [0, 1, 2]);
        for done in &finished {
            let want: Vec<u32> = (0..24).map(|i| (done.id.0 as u32 + i) % 9).collect();
            assert_eq!(done.tokens, want);
        }
    }

    #[test]
    fn a_preempted_request_that_is_cancelled_keeps_its_tokens() {
        let (mut scheduler, mut mirror, mut finished) = three_requests();
        run_steps(&mut scheduler, &mut mirror, &mut finished, 16);
        assert!(scheduler.cancel(RequestId(2)));
        scheduler.take_done(&mut finished);
        assert_eq!((finished.len(), finished[0].tokens.len()), (1, 8));
    }

    /// Three requests take all slots, or all pages. An urgent one with a prompt starts in the next step nevertheless.
    #[test]
    fn an_urgent_request_preempts_the_last_ones() {
        for (pages, steps, running) in [(40, 5, 3), (8, 16, 2)] {
            let mut scheduler = Scheduler::new(limits(pages));
            let mut mirror = Mirror::new(pages, 1);
            let mut finished = Vec::new();
            for id in 0..3 {
                scheduler.submit(request(id, &[id as u32], 24), false).unwrap();
            }
            run_steps(&mut scheduler, &mut mirror, &mut finished, steps);
            scheduler.submit(request(3, &[1, 2, 3, 4, 5, 6], 2), true).unwrap();
            // One step for the prompt and two for the tokens.
            run_steps(&mut scheduler, &mut mirror, &mut finished, 3);
            assert_eq!(finished.iter().map(|done| done.id.0).collect::<Vec<_>>(), [3]);
            assert!(scheduler.running() < running + 1 && scheduler.waiting() > 0);
            run_steps(&mut scheduler, &mut mirror, &mut finished, 80);
            assert_eq!(finished.iter().map(|done| done.id.0).collect::<Vec<_>>(), [3, 0, 1, 2]);
            for done in &finished {
                let want: Vec<u32> =
                    (0..done.tokens.len() as u32).map(|i| (done.id.0 as u32 + i) % 9).collect();
                assert_eq!(done.tokens, want);
            }
        }
    }

    /// The prompts of other requests take many steps.
    #[test]
    fn an_urgent_prompt_is_prefilled_first() {
        let mut scheduler = Scheduler::new(limits(60));
        for id in 0..2 {
            scheduler.submit(request(id, &[id as u32; 60], 2), false).unwrap();
        }
        let mut mirror = Mirror::new(60, 1);
        let mut finished = Vec::new();
        run_steps(&mut scheduler, &mut mirror, &mut finished, 1);
        scheduler.submit(request(2, &[2; 9], 1), true).unwrap();
        run_steps(&mut scheduler, &mut mirror, &mut finished, 2);
        assert_eq!(finished.iter().map(|done| done.id.0).collect::<Vec<_>>(), [2]);
        run_steps(&mut scheduler, &mut mirror, &mut finished, 40);
        assert_eq!(finished.len(), 3);
    }

    /// Runs 500 requests with prompts of 200 tokens, eight of each, and with the lengths of a prover: 2% reach 8,192 tokens,
    /// the others have a geometric distribution with mean 800. The cache has 2,700 pages of 16 tokens. Returns the number
    /// of steps and the tokens that were replayed, as a share of those sampled.
    fn sample_like_a_prover(headroom: usize) -> (u64, f64) {
        let limits = Limits {
            max_batch: 128,
            page_len: 16,
            pages: 2700,
            max_positions: 8392,
            vocabulary: 64,
            prefill_panels: 1,
            panel: 512,
            headroom,
        };
        let mut scheduler = Scheduler::new(limits);
        for id in 0..500 {
            scheduler.submit(request(id, &[(id / 8) as u32; 200], 8192), false).unwrap();
        }
        // Whether a token ends its completion follows from the request and the index alone.
        let ends = |spec: &SampleSpec| {
            let is_endless = uniform(spec.seed, u32::MAX) < 0.02;
            !is_endless && uniform(spec.seed, spec.index) < 1.0 / 800.0
        };
        let (mut plan, mut finished) = (PlannedStep::default(), Vec::new());
        let (mut steps, mut total) = (0, StepProgress::default());
        while !scheduler.is_idle() {
            scheduler.plan(&mut plan);
            let token = |spec| SampledToken {
                token: if ends(spec) { 9 } else { 1 },
                finite: true,
                ..Default::default()
            };
            let sampled: Vec<SampledToken> = plan.step.samples.iter().map(token).collect();
            let progress = scheduler.commit(&plan, &sampled, &mut finished).unwrap();
            steps += 1;
            total.decoded += progress.decoded;
            total.replayed += progress.replayed;
        }
        assert_eq!(finished.len(), 500);
        assert_eq!(finished.iter().map(|done| done.tokens.len()).sum::<usize>(), total.decoded);
        (steps, total.replayed as f64 / total.decoded as f64)
    }

    #[test]
    fn pages_as_they_are_needed_save_most_steps() {
        // With this headroom, a request gets all pages that it may need when it is admitted.
        let (reserved, none) = sample_like_a_prover(usize::MAX);
        let (needed, replayed) = sample_like_a_prover(crate::engine::HEADROOM);
        println!("{reserved} steps with reserved pages, {needed} without, {replayed:.2} replayed");
        assert_eq!(none, 0.0);
        assert!(4 * needed < reserved, "{needed} of {reserved}");
        assert!(replayed < 0.4, "{replayed}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Checks, for any order of submissions, cancellations and steps, and for steps that are planned before the results of
        /// the preceding one are known, that every request ends exactly once with its own tokens, no token reads a position that was not written for it, and all pages are free at the end.
        #[test]
        fn no_page_leaks_and_no_request_is_lost(
            pages in 4usize..30,
            headroom in 1usize..4,
            depth in 1usize..3,
            actions in prop::collection::vec((0u8..10, 1usize..30, 0u32..3, 1usize..40), 1..60),
        ) {
            let mut scheduler = Scheduler::new(Limits { headroom, ..limits(pages) });
            let mut mirror = Mirror::new(pages, depth);
            let mut finished = Vec::new();
            let mut asked = BTreeMap::new();
            for (i, (action, length, kind, max_new)) in actions.iter().enumerate() {
                match action {
                    0..6 => {
                        let is_urgent = *action == 5;
                        let prompt: Vec<u32> = (0..*length as u32).map(|t| (t * kind + kind) % 9).collect();
                        asked.insert(i as u64, *max_new);
                        scheduler.submit(request(i as u64, &prompt, *max_new), is_urgent).unwrap();
                    }
                    6 => { scheduler.cancel(RequestId((length % (i + 1)) as u64)); }
                    _ => run_steps(&mut scheduler, &mut mirror, &mut finished, *length % 5),
                }
            }
            run_steps(&mut scheduler, &mut mirror, &mut finished, 4000);
            prop_assert!(scheduler.is_idle());
            prop_assert_eq!((scheduler.pool.free(), scheduler.headroom), (pages, 0));
            prop_assert!(scheduler.prompts.iter().all(Option::is_none) && scheduler.by_tokens.is_empty());
            prop_assert_eq!(finished.len(), asked.len());
            for done in finished {
                let max_new = asked.remove(&done.id.0).unwrap();
                let want: Vec<u32> = (0..done.tokens.len() as u32).map(|i| (done.id.0 as u32 + i) % 9).collect();
                prop_assert_eq!(&done.tokens, &want);
                if done.finish == Finish::Length {
                    prop_assert_eq!(done.tokens.len(), max_new);
                }
            }
        }
    }
}
