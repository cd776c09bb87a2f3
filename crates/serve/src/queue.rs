//! Completions that wait for the sampler, in a fair order.

use sgs_lm_sampler::{SampledCompletion, SamplingParams};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// The completions of one request.
#[derive(Debug)]
pub(crate) struct CompletionCall {
    pub prompts: Vec<Arc<[u32]>>,
    /// Number of completions per prompt.
    pub n: usize,
    /// Seed of the first completion.
    pub seed: u64,
    pub max_new_tokens: usize,
    pub params: SamplingParams,
    pub stop: Arc<[u32]>,
    /// Whether to send each token as soon as it is sampled.
    pub stream: bool,
    /// Whether to compute the log-probs of the prompts' tokens.
    pub score: bool,
}

impl CompletionCall {
    /// Returns the number of completions.
    pub fn total(&self) -> usize {
        self.prompts.len() * self.n
    }
}

/// A completion whose sampling begins.
#[derive(Debug)]
pub(crate) struct StartedSample {
    /// Index among the completions of the call, which are ordered by prompt.
    pub index: usize,
    /// Name of the weights that sample the whole completion.
    pub weights: String,
    /// Log-probs of the prompt's tokens after the first, if requested.
    pub scores: Vec<f32>,
    /// Dropping it cancels the completion.
    pub events: UnboundedReceiver<SampleEvent>,
}

/// Events of a completion: tokens if requested, then `Done`; or `Failed`.
#[derive(Debug)]
pub(crate) enum SampleEvent {
    /// The next token and its log-prob.
    Token(u32, f32),
    /// The whole completion.
    Done(SampledCompletion),
    /// Sampling failed.
    Failed(String),
}

/// A completion that is to start.
pub(crate) struct NextSample {
    pub call: Arc<CompletionCall>,
    pub index: usize,
    /// Where to announce it.
    pub to: UnboundedSender<StartedSample>,
    /// The queue is told when the completion has ended.
    pub origin: Origin,
    /// Whether its client has no other completion in progress.
    pub is_first: bool,
}

/// The client and the call that a completion belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    address: IpAddr,
    call: u64,
}

/// A call whose completions have not all started.
struct WaitingCall {
    number: u64,
    call: Arc<CompletionCall>,
    to: UnboundedSender<StartedSample>,
    next: usize,
    /// Tokens of the completions that have started.
    used: u64,
}

/// The waiting calls of a client address.
struct Client {
    address: IpAddr,
    used: u64,
    calls: Vec<WaitingCall>,
}

/// The waiting calls, and the numbers of completions in progress.
///
/// The next completion is taken from a client without completions in progress, otherwise from the client that has used
/// the fewest tokens; and there from the call that has used the fewest. New clients and calls start with the smallest
/// number of the others.
///
/// Without free slots, only clients without completions in progress get one. The last free slots ([`FairQueue::reserve`])
/// are kept for calls without completions in progress, because clients on one machine share an address.
#[derive(Default)]
pub(crate) struct FairQueue {
    clients: Vec<Client>,
    /// Completions in progress, by client. Clients without any are absent.
    of_client: HashMap<IpAddr, usize>,
    /// Completions in progress, by call. Calls without any are absent.
    of_call: HashMap<u64, usize>,
    /// Number of calls so far.
    calls: u64,
    /// Number of slots that calls with completions in progress leave free.
    reserve: usize,
}

impl FairQueue {
    /// Creates a queue for `slots` completions at a time. A sixteenth is kept for further calls; nothing, if that is less than
    /// half a slot.
    pub fn new(slots: usize) -> Self {
        Self { reserve: (slots + 8) / 16, ..Self::default() }
    }

    pub fn push(&mut self, address: IpAddr, call: CompletionCall, to: UnboundedSender<StartedSample>) {
        self.remove_abandoned();
        let place = self.clients.iter().position(|client| client.address == address).unwrap_or_else(|| {
            let used = self.clients.iter().map(|client| client.used).min().unwrap_or(0);
            self.clients.push(Client { address, used, calls: Vec::new() });
            self.clients.len() - 1
        });
        let calls = &mut self.clients[place].calls;
        let used = calls.iter().map(|call| call.used).min().unwrap_or(0);
        calls.push(WaitingCall { number: self.calls, call: Arc::new(call), to, next: 0, used });
        self.calls += 1;
    }

    /// Takes the next completion that may start if `free` slots are free.
    pub fn pop(&mut self, free: usize) -> Option<NextSample> {
        self.remove_abandoned();
        let Self { clients, of_client, of_call, reserve, .. } = self;
        let (is_full, is_scarce) = (free == 0, free <= *reserve);
        let may_start = |waiting: &WaitingCall| !is_scarce || !of_call.contains_key(&waiting.number);
        let client = clients
            .iter_mut()
            .filter(|client| !is_full || !of_client.contains_key(&client.address))
            .filter(|client| client.calls.iter().any(may_start))
            .min_by_key(|client| (of_client.contains_key(&client.address), client.used))?;
        let calls = client.calls.iter_mut().enumerate().filter(|(_, call)| may_start(call));
        let (place, waiting) = calls.min_by_key(|(_, call)| call.used)?;
        let (call, index) = (Arc::clone(&waiting.call), waiting.next);
        let cost = call.prompts[index / call.n].len() + call.max_new_tokens;
        waiting.used += cost as u64;
        client.used += cost as u64;
        waiting.next += 1;
        let (to, origin) = (waiting.to.clone(), Origin { address: client.address, call: waiting.number });
        if waiting.next == call.total() {
            client.calls.remove(place);
        }
        let in_progress = of_client.entry(origin.address).or_default();
        *in_progress += 1;
        *of_call.entry(origin.call).or_default() += 1;
        Some(NextSample { call, index, to, origin, is_first: *in_progress == 1 })
    }

    /// Records that a completion has ended.
    pub fn ended(&mut self, origin: Origin) {
        decrement(&mut self.of_client, origin.address);
        decrement(&mut self.of_call, origin.call);
    }

    /// Returns the number of waiting completions.
    pub fn len(&self) -> usize {
        let calls = self.clients.iter().flat_map(|client| &client.calls);
        calls.map(|waiting| waiting.call.total() - waiting.next).sum()
    }

    /// Removes the calls whose clients have gone, and clients without calls.
    fn remove_abandoned(&mut self) {
        self.clients.retain_mut(|client| {
            client.calls.retain(|waiting| !waiting.to.is_closed());
            !client.calls.is_empty()
        });
    }
}

/// Subtracts one from a count, and removes it when it reaches 0.
fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::sync::mpsc::unbounded_channel;

    fn call(prompts: usize, max_new_tokens: usize) -> CompletionCall {
        let params = SamplingParams { temperature: 1.0, top_p: 1.0, top_k: 0 };
        let (prompt, stop): (Arc<[u32]>, Arc<[u32]>) = ([1; 10].into(), [].into());
        let prompts = vec![prompt; prompts];
        CompletionCall { prompts, n: 1, seed: 0, max_new_tokens, params, stop, stream: false, score: false }
    }

    #[test]
    fn clients_and_their_calls_take_turns() {
        let mut queue = FairQueue::default();
        let [one, two] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let (to, _calls) = unbounded_channel();
        queue.push(one, call(1000, 90), to.clone());
        for _ in 0..100 {
            queue.pop(9).unwrap();
        }
        // Add a second call of the same client, and a client with shorter completions.
        queue.push(one, call(1000, 91), to.clone());
        queue.push(two, call(1000, 40), to.clone());
        let taken: Vec<usize> = (0..400).map(|_| queue.pop(9).unwrap().call.max_new_tokens).collect();
        let count = |max: usize| taken.iter().filter(|m| **m == max).count();
        let counts = [90, 91, 40].map(count);
        assert!(counts.iter().zip([66, 66, 266]).all(|(n, wanted)| n.abs_diff(wanted) < 4), "{counts:?}");
        assert_eq!(queue.len(), 3000 - 500);
        // A client that comes back gets no advantage.
        while queue.clients.len() == 2 {
            queue.pop(9).unwrap();
        }
        queue.push(two, call(1000, 40), to);
        let early = (0..30).filter(|_| queue.pop(9).unwrap().call.max_new_tokens == 40).count();
        assert!((18..=22).contains(&early), "{early}");
    }

    #[test]
    fn others_get_the_last_slots() {
        let mut queue = FairQueue::new(32);
        let [one, two] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let (to, _calls) = unbounded_channel();
        queue.push(one, call(1000, 90), to.clone());
        let mut first: Vec<NextSample> = (0..30).map(|started| queue.pop(32 - started).unwrap()).collect();
        assert!(first[0].is_first && first[1..].iter().all(|sample| !sample.is_first));
        assert!(queue.pop(2).is_none(), "two slots are left");
        // Another call of this client gets one of them, but does not displace others.
        queue.push(one, call(1000, 91), to.clone());
        assert!(queue.pop(0).is_none());
        let second = queue.pop(2).unwrap();
        assert!(second.call.max_new_tokens == 91 && !second.is_first && queue.pop(1).is_none());
        // Another client gets a slot in any case, but only one.
        queue.push(two, call(1000, 40), to);
        let other = queue.pop(0).unwrap();
        assert!(other.call.max_new_tokens == 40 && other.is_first && queue.pop(0).is_none());
        queue.ended(other.origin);
        let other = queue.pop(0).unwrap();
        assert!(other.call.max_new_tokens == 40 && other.is_first);
        for sample in first.drain(..).chain([second, other]) {
            queue.ended(sample.origin);
        }
        assert!(queue.of_client.is_empty() && queue.of_call.is_empty());
    }

    #[test]
    fn abandoned_calls_are_forgotten() {
        let mut queue = FairQueue::default();
        let here = IpAddr::from([127, 0, 0, 1]);
        for _ in 0..100 {
            let (to, calls) = unbounded_channel();
            queue.push(here, call(1000, 1), to);
            drop(calls);
        }
        assert_eq!(queue.len(), 1000, "only the last");
        assert!(queue.pop(9).is_none() && queue.len() == 0);
    }
}
