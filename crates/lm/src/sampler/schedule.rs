//! Who is fed in the next step: a queue, the running requests, the prompts that they share, and the
//! cache pages of both. Plain data; knows nothing of the model's arithmetic.
//!
//! A prompt of `n` tokens is computed once up to its last token, which each of its requests feeds itself
//! as its first step; so a request's first draw needs nothing from the prompt but the cache. Whole pages
//! of the prompt are shared, the page that the last tokens fill in part is copied. All pages that a
//! request can need are taken when it is admitted, so what runs is never put back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::pages::{Page, PagePool};
use super::request::{Choice, Completion, Finish, Refusal, Request, RequestId, SamplerError};

/// Sizes that the scheduler keeps to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Requests that run at once.
    pub max_batch: usize,
    /// Positions in a page.
    pub page_len: usize,
    /// Pages in the cache.
    pub pages: usize,
    /// Longest sequence of the model.
    pub max_positions: usize,
    /// Tokens in the model's vocabulary.
    pub vocabulary: usize,
    /// Panels of prompt tokens in one step.
    pub prefill_panels: usize,
    /// Columns in a panel.
    pub panel: usize,
}

/// One token fed at one position of one sequence: a column of a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Which token; below the model's vocabulary.
    pub token: u32,
    /// Where in its sequence, from 0; below the context.
    pub position: u32,
    /// The sequence's pages in [`Plan::tables`]: first and number. Requests of one prompt, and tokens of
    /// one prompt, lie side by side.
    pub table: (u32, u32),
}

/// What the draw at the end of a column needs.
#[derive(Debug, Clone, Copy)]
pub struct Draw {
    pub id: RequestId,
    pub seed: u64,
    /// Which new token of the request this is, from 0.
    pub index: u32,
    /// How to draw it.
    pub choice: Choice,
}

/// What came out of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Drawn {
    pub token: u32,
    /// Its log-probability at temperature 1.
    pub log_prob: f32,
    /// Entropy of the whole distribution at temperature 1, in nats.
    pub entropy: f32,
    /// Whether all logits were numbers.
    pub finite: bool,
}

/// Part of a prompt fed in one step.
#[derive(Debug, Clone, Copy)]
struct Piece {
    prefix: usize,
    count: usize,
}

/// One step: what is copied, fed and drawn. Reused from step to step.
#[derive(Debug, Default)]
pub struct Plan {
    /// Pages copied before anything is fed: from, to.
    pub copies: Vec<(Page, Page)>,
    /// Running requests, one column each.
    pub decode: Vec<Column>,
    /// Their draws, in the same order.
    pub draws: Vec<Draw>,
    pub prefill: Vec<Column>,
    /// Ends of the panels in `prefill`; a prompt is never in two panels of a step, because a token reads
    /// the keys of the tokens before it.
    pub prefill_ends: Vec<usize>,
    /// Page tables that the columns point into.
    pub tables: Vec<Page>,
    slots: Vec<usize>,
    pieces: Vec<Piece>,
}

impl Plan {
    /// Whether the step would do nothing.
    pub fn is_empty(&self) -> bool {
        self.decode.is_empty() && self.prefill.is_empty()
    }

    fn clear(&mut self) {
        self.copies.clear();
        self.decode.clear();
        self.draws.clear();
        self.prefill.clear();
        self.prefill_ends.clear();
        self.tables.clear();
        self.slots.clear();
        self.pieces.clear();
    }
}

/// A prompt with at least one unfinished request.
#[derive(Debug)]
struct Prefix {
    prompt: Arc<[u32]>,
    /// Pages of all tokens but the last; empty while not resident.
    pages: Vec<Page>,
    resident: bool,
    /// Tokens whose keys and values are in the cache.
    filled: usize,
    waiting: usize,
    running: usize,
}

impl Prefix {
    /// Tokens computed once for all requests.
    fn target(&self) -> usize {
        self.prompt.len() - 1
    }
}

/// A running request.
#[derive(Debug)]
struct Slot {
    request: Request,
    prefix: usize,
    /// Pages of the whole sequence: shared ones first.
    table: Vec<Page>,
    /// Whether the prompt is complete and the request is fed.
    decoding: bool,
    out: Completion,
}

/// The state of all unfinished requests.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: Limits,
    pool: PagePool,
    queue: VecDeque<(Request, usize)>,
    slots: Vec<Option<Slot>>,
    free_slots: Vec<usize>,
    prefixes: Vec<Option<Prefix>>,
    free_prefixes: Vec<usize>,
    by_prompt: HashMap<Arc<[u32]>, usize>,
    /// Prompts whose computation is not complete, in order of admission.
    filling: Vec<usize>,
    /// Where each unfinished request is: its slot, or `None` in the queue.
    places: HashMap<RequestId, Option<usize>>,
    /// Requests that ended outside of a step: refused or cancelled.
    done: Vec<Completion>,
}

/// What a committed step amounted to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    pub prefilled: usize,
    pub decoded: usize,
}

impl Scheduler {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            pool: PagePool::new(limits.pages),
            queue: VecDeque::new(),
            slots: (0..limits.max_batch).map(|_| None).collect(),
            free_slots: (0..limits.max_batch).rev().collect(),
            prefixes: Vec::new(),
            free_prefixes: Vec::new(),
            by_prompt: HashMap::new(),
            filling: Vec::new(),
            places: HashMap::new(),
            done: Vec::new(),
        }
    }

    /// Whether every request has finished and been handed out.
    pub fn is_idle(&self) -> bool {
        self.places.is_empty() && self.done.is_empty()
    }

    /// What a running request has drawn so far.
    pub fn so_far(&self, id: RequestId) -> Option<&Completion> {
        let slot = (*self.places.get(&id)?)?;
        Some(&self.slots.get(slot)?.as_ref()?.out)
    }

    /// Whether a request of this id is not finished.
    pub fn knows(&self, id: RequestId) -> bool {
        self.places.contains_key(&id)
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

    /// Puts a request into the queue; one that can never run is finished as refused at once.
    pub fn submit(&mut self, request: Request) -> Result<(), SamplerError> {
        if self.places.contains_key(&request.id) {
            return Err(SamplerError::DuplicateId(request.id));
        }
        if let Err(refusal) = self.check(&request) {
            self.done.push(ended(request.id, Finish::Refused(refusal)));
            return Ok(());
        }
        let prefix = match self.by_prompt.get(&request.prompt) {
            Some(index) => *index,
            None => self.add_prefix(&request.prompt),
        };
        if let Some(entry) = &mut self.prefixes[prefix] {
            entry.waiting += 1;
        }
        self.places.insert(request.id, None);
        self.queue.push_back((request, prefix));
        Ok(())
    }

    fn add_prefix(&mut self, prompt: &Arc<[u32]>) -> usize {
        let entry = Prefix {
            prompt: Arc::clone(prompt),
            pages: Vec::new(),
            resident: false,
            filled: 0,
            waiting: 0,
            running: 0,
        };
        let index = self.free_prefixes.pop().unwrap_or(self.prefixes.len());
        if index == self.prefixes.len() {
            self.prefixes.push(Some(entry));
        } else {
            self.prefixes[index] = Some(entry);
        }
        self.by_prompt.insert(Arc::clone(prompt), index);
        index
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let (prompt, max_new) = (request.prompt.len(), request.max_new_tokens);
        let choice = request.choice;
        if prompt == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if max_new == 0 {
            return Err(Refusal::NoNewTokens);
        }
        let vocabulary = self.limits.vocabulary;
        if let Some((place, token)) =
            request.prompt.iter().enumerate().find(|(_, token)| **token as usize >= vocabulary)
        {
            return Err(Refusal::UnknownToken { place, token: *token, vocabulary });
        }
        if !(choice.temperature >= 0.0 && choice.temperature.is_finite()) {
            let (name, value) = ("temperature", choice.temperature);
            return Err(Refusal::Choice { name, value, expected: "a number from 0" });
        }
        if !(choice.top_p > 0.0 && choice.top_p <= 1.0) {
            let (name, value) = ("top_p", choice.top_p);
            return Err(Refusal::Choice { name, value, expected: "a number above 0 and up to 1" });
        }
        let limit = self.limits.max_positions;
        if prompt.saturating_add(max_new) > limit {
            return Err(Refusal::ExceedsContext { prompt, max_new, limit });
        }
        let (shared, own) = self.pages_of(prompt, max_new);
        if shared + own > self.limits.pages {
            let limit = self.limits.pages * self.limits.page_len;
            return Err(Refusal::ExceedsBudget { prompt, max_new, limit });
        }
        Ok(())
    }

    /// Pages of a prompt that is computed once, and pages that each of its requests takes besides.
    fn pages_of(&self, prompt: usize, max_new: usize) -> (usize, usize) {
        let len = self.limits.page_len;
        let target = prompt - 1;
        // The last new token is drawn but never fed.
        (target.div_ceil(len), (target + max_new).div_ceil(len) - target / len)
    }

    /// Ends a request with what it has; `false` if there is no such unfinished request.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        match self.places.get(&id).copied() {
            None => false,
            Some(Some(slot)) => {
                if let Some(done) = self.finish(slot, Finish::Cancelled) {
                    self.done.push(done);
                }
                true
            }
            Some(None) => {
                if let Some(place) = self.queue.iter().position(|(request, _)| request.id == id)
                    && let Some((_, prefix)) = self.queue.remove(place)
                {
                    if let Some(entry) = &mut self.prefixes[prefix] {
                        entry.waiting -= 1;
                    }
                    self.settle(prefix);
                }
                self.places.remove(&id);
                self.done.push(ended(id, Finish::Cancelled));
                true
            }
        }
    }

    /// Hands out requests that ended outside of a step.
    pub fn take_done(&mut self, finished: &mut Vec<Completion>) {
        finished.append(&mut self.done);
    }

    /// Plans the next step: admits what fits, then feeds every running request one token and as many
    /// prompt tokens as fit.
    pub fn plan(&mut self, plan: &mut Plan) {
        plan.clear();
        while self.admit_next() {}
        self.plan_decode(plan);
        self.plan_prefill(plan);
    }

    /// Starts the request at the head of the queue if a slot and pages are free.
    fn admit_next(&mut self) -> bool {
        let (Some((request, prefix)), Some(slot)) = (self.queue.front(), self.free_slots.last().copied())
        else {
            return false;
        };
        let (prefix, prompt_len, max_new) = (*prefix, request.prompt.len(), request.max_new_tokens);
        let (shared, own) = self.pages_of(prompt_len, max_new);
        let resident = self.prefixes[prefix].as_ref().is_some_and(|p| p.resident);
        let need = own + if resident { 0 } else { shared };
        if self.pool.free() < need {
            self.evict_idle(prefix);
        }
        if self.pool.free() < need {
            return false;
        }
        let Some((request, _)) = self.queue.pop_front() else { return false };
        let Some(entry) = &mut self.prefixes[prefix] else { return false };
        if !resident {
            entry.pages.extend((0..shared).filter_map(|_| self.pool.take()));
            entry.resident = true;
            entry.filled = 0;
            if entry.target() > 0 {
                self.filling.push(prefix);
            }
        }
        entry.waiting -= 1;
        entry.running += 1;
        let whole = entry.target() / self.limits.page_len;
        let mut table = Vec::with_capacity(whole + own);
        table.extend_from_slice(&entry.pages[..whole]);
        table.iter().for_each(|page| self.pool.hold(*page));
        table.extend((0..own).filter_map(|_| self.pool.take()));
        self.free_slots.pop();
        self.places.insert(request.id, Some(slot));
        let out = Completion {
            id: request.id,
            tokens: Vec::with_capacity(max_new),
            log_probs: Vec::with_capacity(max_new),
            entropies: Vec::with_capacity(max_new),
            finish: Finish::Cancelled,
        };
        self.slots[slot] = Some(Slot { request, prefix, table, decoding: false, out });
        true
    }

    /// Frees prompts that are kept only for requests still in the queue.
    fn evict_idle(&mut self, keep: usize) {
        for index in 0..self.prefixes.len() {
            if index != keep && self.prefixes[index].as_ref().is_some_and(|p| p.resident && p.running == 0) {
                self.unload(index);
            }
        }
    }

    fn unload(&mut self, index: usize) {
        if let Some(entry) = &mut self.prefixes[index] {
            entry.pages.drain(..).for_each(|page| self.pool.release(page));
            entry.resident = false;
            entry.filled = 0;
        }
        self.filling.retain(|i| *i != index);
    }

    /// After a request left a prompt: forgets the prompt if it was the last, frees a half-computed one if
    /// nobody who runs needs it.
    fn settle(&mut self, index: usize) {
        let Some(entry) = &self.prefixes[index] else { return };
        let unwanted = entry.running == 0 && (entry.waiting == 0 || entry.filled < entry.target());
        let last = entry.running == 0 && entry.waiting == 0;
        if unwanted && entry.resident {
            self.unload(index);
        }
        if last && let Some(entry) = self.prefixes[index].take() {
            self.by_prompt.remove(&entry.prompt);
            self.free_prefixes.push(index);
        }
    }

    /// Feeds every running request whose prompt is complete; requests of one prompt side by side, because
    /// neighbours read the shared pages together.
    fn plan_decode(&mut self, plan: &mut Plan) {
        for (index, place) in self.slots.iter().enumerate() {
            let ready = place.as_ref().is_some_and(|slot| {
                self.prefixes[slot.prefix].as_ref().is_some_and(|prefix| prefix.filled == prefix.target())
            });
            if ready {
                plan.slots.push(index);
            }
        }
        let prefix_of = |index: &usize| self.slots[*index].as_ref().map(|slot| slot.prefix);
        plan.slots.sort_unstable_by_key(|index| (prefix_of(index), *index));
        for index in &plan.slots {
            let Some(slot) = &mut self.slots[*index] else { continue };
            let Some(prefix) = &self.prefixes[slot.prefix] else { continue };
            let target = prefix.target();
            if !slot.decoding {
                let whole = target / self.limits.page_len;
                if target % self.limits.page_len > 0 {
                    plan.copies.push((prefix.pages[whole], slot.table[whole]));
                }
                slot.decoding = true;
            }
            let drawn = slot.out.tokens.len();
            let token = slot.out.tokens.last().copied().unwrap_or(prefix.prompt[target]);
            let table = (plan.tables.len() as u32, slot.table.len() as u32);
            plan.tables.extend_from_slice(&slot.table);
            plan.decode.push(Column { token, position: (target + drawn) as u32, table });
            let Request { id, seed, choice, .. } = slot.request;
            plan.draws.push(Draw { id, seed, index: drawn as u32, choice });
        }
    }

    fn plan_prefill(&self, plan: &mut Plan) {
        let mut room = self.limits.panel;
        let mut panels_left = self.limits.prefill_panels;
        for index in &self.filling {
            if panels_left == 0 {
                break;
            }
            let Some(prefix) = &self.prefixes[*index] else { continue };
            let count = (prefix.target() - prefix.filled).min(room);
            let table = (plan.tables.len() as u32, prefix.pages.len() as u32);
            plan.tables.extend_from_slice(&prefix.pages);
            for position in prefix.filled..prefix.filled + count {
                plan.prefill.push(Column {
                    token: prefix.prompt[position],
                    position: position as u32,
                    table,
                });
            }
            plan.pieces.push(Piece { prefix: *index, count });
            room -= count;
            if room == 0 {
                plan.prefill_ends.push(plan.prefill.len());
                room = self.limits.panel;
                panels_left -= 1;
            }
        }
        if room < self.limits.panel {
            plan.prefill_ends.push(plan.prefill.len());
        }
    }

    /// Takes the results of a planned step; `drawn` is in the order of [`Plan::draws`].
    ///
    /// Fails without any effect if a result is not a number.
    pub fn commit(
        &mut self,
        plan: &Plan,
        drawn: &[Drawn],
        finished: &mut Vec<Completion>,
    ) -> Result<Progress, SamplerError> {
        if let Some(((draw, column), _)) =
            plan.draws.iter().zip(&plan.decode).zip(drawn).find(|(_, result)| !result.finite)
        {
            return Err(SamplerError::NotFinite { id: draw.id, position: column.position as usize });
        }
        for piece in &plan.pieces {
            if let Some(prefix) = &mut self.prefixes[piece.prefix] {
                prefix.filled += piece.count;
            }
        }
        let prefixes = &self.prefixes;
        self.filling.retain(|i| prefixes[*i].as_ref().is_some_and(|p| p.filled < p.target()));
        for (index, result) in plan.slots.iter().zip(drawn) {
            let Some(slot) = &mut self.slots[*index] else { continue };
            slot.out.tokens.push(result.token);
            slot.out.log_probs.push(result.log_prob);
            slot.out.entropies.push(result.entropy);
            let finish = if slot.request.stop.contains(&result.token) {
                Finish::Stop
            } else if slot.out.tokens.len() == slot.request.max_new_tokens {
                Finish::Length
            } else {
                continue;
            };
            finished.extend(self.finish(*index, finish));
        }
        Ok(Progress { prefilled: plan.prefill.len(), decoded: plan.decode.len() })
    }

    /// Frees a slot and gives back what it produced.
    fn finish(&mut self, index: usize, finish: Finish) -> Option<Completion> {
        let slot = self.slots[index].take()?;
        self.free_slots.push(index);
        slot.table.iter().for_each(|page| self.pool.release(*page));
        if let Some(prefix) = &mut self.prefixes[slot.prefix] {
            prefix.running -= 1;
        }
        self.settle(slot.prefix);
        self.places.remove(&slot.request.id);
        Some(Completion { finish, ..slot.out })
    }

    /// Cancels everything.
    pub fn clear(&mut self) {
        let ids: Vec<RequestId> = self.places.keys().copied().collect();
        ids.into_iter().for_each(|id| {
            self.cancel(id);
        });
    }
}

/// A request that ended before it drew a token.
fn ended(id: RequestId, finish: Finish) -> Completion {
    Completion { id, tokens: Vec::new(), log_probs: Vec::new(), entropies: Vec::new(), finish }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn limits(pages: usize) -> Limits {
        Limits {
            max_batch: 3,
            page_len: 4,
            pages,
            max_positions: 64,
            vocabulary: 10,
            prefill_panels: 2,
            panel: 8,
        }
    }

    fn request(id: u64, prompt: &[u32], max_new_tokens: usize) -> Request {
        Request {
            id: RequestId(id),
            prompt: prompt.into(),
            seed: id,
            max_new_tokens,
            choice: Choice::default(),
            stop: Arc::from([9]),
        }
    }

    /// A cache of which only the fed tokens are remembered, and a check of every column against the
    /// sequence that it should continue.
    struct Mirror {
        pages: Vec<Vec<Option<u32>>>,
    }

    impl Mirror {
        fn step(&mut self, scheduler: &Scheduler, plan: &Plan) {
            let len = scheduler.limits.page_len;
            for (from, to) in &plan.copies {
                self.pages[*to as usize] = self.pages[*from as usize].clone();
            }
            let mut written = BTreeSet::new();
            for (place, column) in plan.decode.iter().chain(&plan.prefill).enumerate() {
                let table = &plan.tables[column.table.0 as usize..][..column.table.1 as usize];
                let position = column.position as usize;
                let page = table[position / len];
                let own = place >= plan.decode.len() || scheduler.pool.holders(page) == 1;
                assert!(own, "a request writes to a shared page");
                assert!(written.insert((page, position % len)), "two columns write one place");
                self.pages[page as usize][position % len] = Some(column.token);
            }
            for (column, slot) in plan.decode.iter().zip(&plan.slots) {
                let slot = scheduler.slots[*slot].as_ref().unwrap();
                let sequence: Vec<u32> =
                    slot.request.prompt.iter().chain(&slot.out.tokens).copied().collect();
                assert_eq!(column.position as usize + 1, sequence.len());
                for (position, token) in sequence.iter().enumerate() {
                    let page = slot.table[position / len];
                    assert_eq!(
                        self.pages[page as usize][position % len],
                        Some(*token),
                        "position {position}"
                    );
                }
            }
        }
    }

    /// Runs to the end; each request's token `i` is `(seed + i) % 9`, so that any mix-up shows.
    fn drain(scheduler: &mut Scheduler, mirror: &mut Mirror, finished: &mut Vec<Completion>, steps: usize) {
        let mut plan = Plan::default();
        for _ in 0..steps {
            scheduler.take_done(finished);
            scheduler.plan(&mut plan);
            assert!(
                !plan.is_empty() || scheduler.places.is_empty(),
                "a request waits and nothing runs: {scheduler:?}"
            );
            mirror.step(scheduler, &plan);
            let drawn: Vec<Drawn> = plan
                .draws
                .iter()
                .map(|d| Drawn { token: (d.seed as u32 + d.index) % 9, finite: true, ..Drawn::default() })
                .collect();
            scheduler.commit(&plan, &drawn, finished).unwrap();
        }
        scheduler.take_done(finished);
    }

    #[test]
    fn a_shared_prompt_is_fed_once() {
        let mut scheduler = Scheduler::new(limits(40));
        let prompt: Vec<u32> = (0..11).map(|t| t % 9).collect();
        for id in 0..3 {
            scheduler.submit(request(id, &prompt, 5)).unwrap();
        }
        let mut plan = Plan::default();
        scheduler.plan(&mut plan);
        assert_eq!((plan.decode.len(), plan.prefill.len(), &plan.prefill_ends[..]), (0, 8, &[8][..]));
        scheduler.commit(&plan, &[], &mut Vec::new()).unwrap();
        scheduler.plan(&mut plan);
        assert_eq!((plan.decode.len(), plan.prefill.len()), (0, 2));
        scheduler.commit(&plan, &[], &mut Vec::new()).unwrap();
        scheduler.plan(&mut plan);
        assert_eq!((plan.decode.len(), plan.prefill.len(), plan.copies.len()), (3, 0, 3));
        // Two whole pages shared by three and their prompt, one partial page, three requests with two more.
        assert_eq!(scheduler.pool.total() - scheduler.pool.free(), 3 + 3 * 2);
        assert_eq!(scheduler.pool.holders(plan.tables[0]), 4);
        scheduler.clear();
        assert_eq!(scheduler.pool.free(), 40);
    }

    #[test]
    fn what_can_never_run_is_refused_with_its_size() {
        let mut scheduler = Scheduler::new(limits(6));
        let mut choice = request(5, &[1], 1);
        choice.choice.top_p = 0.0;
        let mut hot = request(6, &[1], 1);
        hot.choice.temperature = f32::NAN;
        for r in [
            request(0, &[], 1),
            request(1, &[1], 0),
            request(2, &[1, 10], 1),
            request(3, &[1; 60], 5),
            request(4, &[1; 20], 9),
            choice,
            hot,
        ] {
            scheduler.submit(r).unwrap();
        }
        let mut finished = Vec::new();
        scheduler.take_done(&mut finished);
        let reasons: Vec<String> = finished
            .iter()
            .map(|c| match &c.finish {
                Finish::Refused(r) => r.to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
        for (reason, word) in
            reasons.iter().zip(["empty", "is 0", "id 10", "60 tokens", "24 tokens", "top_p", "temperature"])
        {
            assert!(reason.contains(word), "{reason}");
        }
        assert!(scheduler.is_idle());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Whatever is submitted, cancelled and stepped in whatever order: every request ends exactly once
        /// with its own tokens, no column reads what was not written for it, all pages come back.
        #[test]
        fn no_page_leaks_and_no_request_is_lost(
            pages in 4usize..30,
            actions in prop::collection::vec((0u8..10, 1usize..30, 0u32..3, 1usize..12), 1..60),
        ) {
            let mut scheduler = Scheduler::new(limits(pages));
            let mut mirror = Mirror { pages: vec![vec![None; 4]; pages] };
            let mut finished = Vec::new();
            let mut asked = BTreeMap::new();
            for (i, (action, length, kind, max_new)) in actions.iter().enumerate() {
                match action {
                    0..6 => {
                        let prompt: Vec<u32> = (0..*length as u32).map(|t| (t * kind + kind) % 9).collect();
                        asked.insert(i as u64, *max_new);
                        scheduler.submit(request(i as u64, &prompt, *max_new)).unwrap();
                    }
                    6 => { scheduler.cancel(RequestId((length % (i + 1)) as u64)); }
                    _ => drain(&mut scheduler, &mut mirror, &mut finished, *length % 5),
                }
            }
            drain(&mut scheduler, &mut mirror, &mut finished, 1200);
            prop_assert!(scheduler.is_idle());
            prop_assert_eq!(scheduler.pool.free(), pages);
            prop_assert!(scheduler.prefixes.iter().all(Option::is_none) && scheduler.by_prompt.is_empty());
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
