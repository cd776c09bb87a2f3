//! Parses and validates the results of generation and verification tasks.

use crate::error::{Context, Result, bail, ensure};
use crate::round::record::Entry;
use crate::round::sampling_context::{SamplingContext, condition_of, role};
use crate::workers::sampling::room;
use crate::workers::tasks::{self, GenerateResult, Sample, VerifyResult};
use sgs_formal::{Malformed, read_conjecture};
use sgs_selfplay::{Command, Completion, Event, FinishReason, ParsedProof, SampleFacts, Verdict};
use std::sync::Arc;

impl SamplingContext<'_> {
    /// Parses a worker's result for commands that share `prompt`. Returns one entry for each command.
    ///
    /// # Errors
    /// Returns an error if the result is inconsistent with the commands or with the round's weights. No part of such a
    /// result is used.
    pub fn parse_result(
        &self,
        commands: &[Command],
        prompt: &Arc<[u32]>,
        bytes: &[u8],
    ) -> Result<Vec<Entry>> {
        if let Some(Command::Verify { .. }) = commands.first() {
            // Check the number before the items are decoded.
            verdict_count(tasks::items(bytes).context("verdicts from a worker")?, commands.len())?;
            return judgement_entries(commands, tasks::unpack(bytes).context("verdicts from a worker")?);
        }
        let (found, asked) = (tasks::items(bytes).context("completions from a worker")?, commands.len());
        ensure!(found == asked as u64, "{found} completions for {asked} seeds");
        let GenerateResult { samples, policy_id } =
            tasks::unpack(bytes).context("completions from a worker")?;
        if policy_id != tasks::own_mark() {
            let found: String = policy_id.chars().take(64).collect();
            let Some(expected) = self.policy_id else {
                bail!("sampled with weights `{found}`, but no other process samples in this round");
            };
            ensure!(policy_id == expected, "sampled with weights `{found}`, the round's are `{expected}`");
        }
        // Validate all samples before using any of them.
        for (command, sample) in commands.iter().zip(&samples) {
            self.check_sample(command, prompt.len(), sample)
                .with_context(|| format!("task {}", command.key()))?;
        }
        commands.iter().zip(samples).map(|(command, sample)| self.entry(command, prompt, sample)).collect()
    }

    /// Rejects a sample that this program's sampler cannot have produced.
    fn check_sample(&self, command: &Command, prompt: usize, sample: &Sample) -> Result<()> {
        let SamplingContext { config, tokenizer, window, .. } = *self;
        let Sample { tokens, log_probs, entropy, finish, .. } = sample;
        let (n, limit) = (tokens.len(), room(self.limit(command), prompt, window));
        ensure!(n <= limit, "{n} tokens, at most {limit} were requested");
        ensure!(
            n == 0 || prompt + n <= window,
            "{prompt} tokens of the prompt and {n} new ones exceed the context of {window}"
        );
        let vocabulary = tokenizer.vocab_size();
        if let Some(token) = tokens.iter().find(|t| **t as usize >= vocabulary) {
            bail!("token {token} is not in the vocabulary of {vocabulary} tokens");
        }
        let served = self.is_served(command);
        // An endpoint may omit log-probs if the role is not trained.
        let trained = role(command).is_some_and(|role| config.weights_of(role).is_trained());
        let m = log_probs.len();
        ensure!(m == n || (m == 0 && served && !trained), "{n} tokens with {m} log-probs");
        // Rounding can lift the log-prob of a certain token slightly above zero.
        if let Some(odd) = log_probs.iter().find(|p| !p.is_finite() || **p > 1e-3) {
            bail!("the log-prob {odd} is not finite or is above 0");
        }
        ensure!(
            entropy.is_none_or(|e| e.is_finite() && e > -1e-3),
            "the entropy {entropy:?} is not finite or is below 0"
        );
        self.check_end(tokens, *finish, limit, served)
    }

    /// Checks that a completion ends with its first end token or has the maximum length. An endpoint may have a
    /// smaller context.
    fn check_end(&self, tokens: &[u32], finish: FinishReason, limit: usize, served: bool) -> Result<()> {
        let n = tokens.len();
        let end = tokens.iter().position(|token| self.tokenizer.eos().contains(token)).map(|at| at + 1);
        match finish {
            FinishReason::Stop => {
                ensure!(
                    n > 0 && end == Some(n),
                    "the finish reason is `stop`, but the first end token is not at the end"
                )
            }
            FinishReason::Length => {
                ensure!(end.is_none(), "the finish reason is `length`, but there is an end token");
                ensure!(served || n == limit, "cut off after {n} tokens, {limit} were requested");
            }
            FinishReason::Refused => ensure!(n == 0, "{n} tokens for a refused prompt"),
            FinishReason::Cancelled => bail!("cancelled without a request"),
        }
        Ok(())
    }

    fn entry(&self, command: &Command, prompt: &Arc<[u32]>, sample: Sample) -> Result<Entry> {
        let SamplingContext { tokenizer, policy_version, .. } = *self;
        let completion = Completion {
            text: tokenizer.decode(&sample.tokens)?,
            prompt_tokens: Arc::clone(prompt),
            tokens: sample.tokens,
            log_probs: sample.log_probs,
            entropy: sample.entropy,
            finish: sample.finish,
            policy_version,
        };
        let read = self.event(command, &completion);
        // Do not keep the completion of a lost result in the journal, because its task runs again if the loss stops the
        // run.
        let (event, completion) = match read {
            Ok(event) => (event, Some(completion)),
            Err(reason) => (Event::Lost { key: command.key().clone(), reason }, None),
        };
        Ok(Entry { event, completion })
    }

    /// Parses a completion.
    ///
    /// # Errors
    /// Returns the reason if the formal system failed, so that nothing is known about the completion.
    fn event(&self, command: &Command, completion: &Completion) -> Result<Event, String> {
        let system = self.system;
        let (key, sample, ended) = (command.key().clone(), SampleFacts::of(completion), ended(completion));
        let text = &completion.text;
        Ok(match command {
            Command::SampleConjecture { condition, .. } => {
                let conjecturer = &self.config.algorithm.conjecturer;
                let condition = condition_of(condition);
                let read = ended.and_then(|()| read_conjecture(system, conjecturer, condition, text));
                Event::Conjecture { key, read: known(read)?, sample }
            }
            Command::SampleRollout { problem, .. } => {
                let read = ended.and_then(|()| system.read_proof(problem, text));
                let read = read.map(|text| {
                    let penalised = system.is_penalised(&text);
                    let steps = system.proof_steps(&text);
                    ParsedProof { text: text.into(), penalised, steps }
                });
                Event::Rollout { key, read: known(read)?, sample }
            }
            Command::SampleReview { .. } => {
                let read = ended.and_then(|()| system.read_review(text));
                Event::Review { key, read: known(read)?, sample }
            }
            Command::Verify { .. } => {
                unreachable!("invariant: verifications are not in one task with samples")
            }
        })
    }
}

/// Returns what was read or the kind of the defect.
///
/// # Errors
/// Returns the reason if the formal system failed.
fn known<T>(read: Result<T, Malformed>) -> Result<Result<T, String>, String> {
    match read {
        Err(error) if error.is_infra() => Err(error.detail),
        read => Ok(read.map_err(|error| error.kind)),
    }
}

/// Maximum length of a verdict's reason in bytes. Reasons go into the journal and the tables.
const MAX_REASON_BYTES: usize = 1 << 20;

fn verdict_count(found: u64, asked: usize) -> Result<()> {
    ensure!(found == asked as u64, "{found} verdicts for {asked} proofs");
    Ok(())
}

/// Returns an entry for each of these commands, which verify proofs.
///
/// # Errors
/// Returns an error if the number of judgements differs, a checker failed, or the reason of a verdict is too long. No
/// judgement is used then.
pub(crate) fn judgement_entries(commands: &[Command], judgements: VerifyResult) -> Result<Vec<Entry>> {
    verdict_count(judgements.len() as u64, commands.len())?;
    // A checker that breaks gives no verdict; its worker must report a failure.
    if let Some(broken) = judgements.iter().find(|j| j.verdict == Verdict::Infra) {
        bail!("the verdict `infra` is not allowed in a result: {}", broken.reason);
    }
    if let Some(bytes) = judgements.iter().map(|j| j.reason.len()).find(|bytes| *bytes > MAX_REASON_BYTES) {
        bail!("the reason of a verdict has {bytes} bytes, at most {MAX_REASON_BYTES} are allowed");
    }
    let entry = |(command, judgement): (&Command, _)| Entry {
        event: Event::Judgement { key: command.key().clone(), judgement },
        completion: None,
    };
    Ok(commands.iter().zip(judgements).map(entry).collect())
}

/// Rejects a completion that was cut off, whatever its text.
fn ended(completion: &Completion) -> Result<(), Malformed> {
    match completion.finish {
        FinishReason::Stop => Ok(()),
        FinishReason::Length => Err(Malformed::new("no-end", "the completion reached its longest length")),
        FinishReason::Refused => {
            Err(Malformed::new("prompt-too-long", "the prompt does not fit into the context"))
        }
        FinishReason::Cancelled => Err(Malformed::new("cancelled", "the completion was cancelled")),
    }
}
