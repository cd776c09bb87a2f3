//! Completions that wait for the sampler, in a fair order.

use sgs_lm_sampler::{SampledCompletion, SamplingParams};
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

/// A call whose completions have not all started.
struct WaitingCall {
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

/// The waiting calls. The next completion is taken from the client that has used the fewest tokens, and there from the call
/// that has used the fewest. New clients and calls start with the smallest number of the others.
#[derive(Default)]
pub(crate) struct FairQueue(Vec<Client>);

impl FairQueue {
    pub fn push(&mut self, address: IpAddr, call: CompletionCall, to: UnboundedSender<StartedSample>) {
        self.remove_abandoned();
        let place = self.0.iter().position(|client| client.address == address).unwrap_or_else(|| {
            let used = self.0.iter().map(|client| client.used).min().unwrap_or(0);
            self.0.push(Client { address, used, calls: Vec::new() });
            self.0.len() - 1
        });
        let calls = &mut self.0[place].calls;
        let used = calls.iter().map(|call| call.used).min().unwrap_or(0);
        calls.push(WaitingCall { call: Arc::new(call), to, next: 0, used });
    }

    /// Takes the next completion: its call, its index, and where to announce it.
    pub fn pop(&mut self) -> Option<(Arc<CompletionCall>, usize, UnboundedSender<StartedSample>)> {
        self.remove_abandoned();
        let client = self.0.iter_mut().min_by_key(|client| client.used)?;
        let (place, waiting) = client.calls.iter_mut().enumerate().min_by_key(|(_, call)| call.used)?;
        let (call, index) = (Arc::clone(&waiting.call), waiting.next);
        let cost = call.prompts[index / call.n].len() + call.max_new_tokens;
        waiting.used += cost as u64;
        client.used += cost as u64;
        waiting.next += 1;
        let to = waiting.to.clone();
        if waiting.next == call.total() {
            client.calls.remove(place);
        }
        Some((call, index, to))
    }

    /// Returns the number of waiting completions.
    pub fn len(&self) -> usize {
        let calls = self.0.iter().flat_map(|client| &client.calls);
        calls.map(|waiting| waiting.call.total() - waiting.next).sum()
    }

    /// Removes the calls whose clients have gone, and clients without calls.
    fn remove_abandoned(&mut self) {
        self.0.retain_mut(|client| {
            client.calls.retain(|waiting| !waiting.to.is_closed());
            !client.calls.is_empty()
        });
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
            queue.pop().unwrap();
        }
        // Add a second call of the same client, and a client with shorter completions.
        queue.push(one, call(1000, 91), to.clone());
        queue.push(two, call(1000, 40), to.clone());
        let taken: Vec<usize> = (0..400).map(|_| queue.pop().unwrap().0.max_new_tokens).collect();
        let count = |max: usize| taken.iter().filter(|m| **m == max).count();
        let counts = [90, 91, 40].map(count);
        assert!(counts.iter().zip([66, 66, 266]).all(|(n, wanted)| n.abs_diff(wanted) < 4), "{counts:?}");
        assert_eq!(queue.len(), 3000 - 500);
        // A client that comes back gets no advantage.
        while queue.0.len() == 2 {
            queue.pop().unwrap();
        }
        queue.push(two, call(1000, 40), to);
        let early = (0..30).filter(|_| queue.pop().unwrap().0.max_new_tokens == 40).count();
        assert!((18..=22).contains(&early), "{early}");
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
        assert!(queue.pop().is_none() && queue.len() == 0);
    }
}
