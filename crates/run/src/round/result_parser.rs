//! Parses and validates the results of generation and verification tasks.

use crate::config::RunConfig;
use crate::error::{Context, Result, bail, ensure};
use crate::round::record::Entry;
use crate::workers::sampling::room;
use crate::workers::tasks::{self, GenerateResult, Sample, VerifyResult};
use sgs_formal::{Condition, FormalSystem, Malformed};
use sgs_lm::tokenizer::Tokenizer;
use sgs_selfplay::{
    Command, Completion, Event, FinishReason, OwnedCondition, ParsedProof, Role, SampleFacts, Verdict,
};
use std::sync::Arc;

/// Builds tasks for workers, and parses and validates their results.
pub struct Reader<'a> {
    /// The configuration.
    pub config: &'a RunConfig,
    /// The formal system.
    pub system: &'a dyn FormalSystem,
    /// The tokenizer of the model.
    pub tokenizer: &'a Tokenizer,
    /// Number of rounds whose updates the round's weights have seen.
    pub policy_version: u32,
    /// Vocabulary size, in tokens.
    pub vocabulary: usize,
    /// Context window: a prompt and its completion together, in tokens.
    pub context: usize,
    /// Id of the round's weights, if remote workers sample with copies of them.
    pub policy_id: Option<&'a str>,
}

impl Reader<'_> {
    /// Parses a worker's result for commands that share `prompt`. Returns one entry for each command.
    ///
    /// # Errors
    /// Returns an error if the result is inconsistent with the commands or with the round's weights. No part of such a
    /// result is used.
    pub fn read(&self, commands: &[Command], prompt: &Arc<[u32]>, bytes: &[u8]) -> Result<Vec<Entry>> {
        if let Some(Command::Verify { .. }) = commands.first() {
            return judgements(commands, bytes);
        }
        let GenerateResult { samples, policy_id } =
            tasks::unpack(bytes).context("completions from a worker")?;
        if policy_id != tasks::own_mark() {
            let expected = self.policy_id.unwrap_or("with nobody elsewhere");
            let found: String = policy_id.chars().take(64).collect();
            ensure!(policy_id == expected, "sampled with weights `{found}`, the round's are `{expected}`");
        }
        let (found, asked) = (samples.len(), commands.len());
        ensure!(found == asked, "{found} completions for {asked} seeds");
        // Validate all samples before using any of them.
        for (command, sample) in commands.iter().zip(&samples) {
            self.check(command, prompt.len(), sample).with_context(|| format!("task {}", command.key()))?;
        }
        commands.iter().zip(samples).map(|(command, sample)| self.entry(command, prompt, sample)).collect()
    }

    /// Rejects a sample that this program's sampler cannot have produced.
    fn check(&self, command: &Command, prompt: usize, sample: &Sample) -> Result<()> {
        let Sample { tokens, log_probs, entropy, finish, .. } = sample;
        let (n, limit) = (tokens.len(), room(limit(self.config, command), prompt, self.context));
        ensure!(n <= limit, "{n} tokens where at most {limit} were asked for");
        let context = self.context;
        ensure!(n == 0 || prompt + n <= context, "{prompt} and {n} tokens in a context of {context}");
        let vocabulary = self.vocabulary;
        if let Some(token) = tokens.iter().find(|t| **t as usize >= vocabulary) {
            bail!("token {token} of a vocabulary of {vocabulary}");
        }
        let role = role(command);
        let served = role.is_some_and(|role| self.config.sampling.endpoint.plays(role));
        // An endpoint may omit log-probs if the role is not trained.
        let trained = role.is_some_and(|role| self.config.weights_of(role).is_trained());
        let m = log_probs.len();
        ensure!(m == n || (m == 0 && served && !trained), "{n} tokens with {m} log-probs");
        // Rounding can lift the log-prob of a certain token slightly above zero.
        let odd = log_probs.iter().find(|p| !p.is_finite() || **p > 1e-3);
        ensure!(odd.is_none(), "a log-prob is {}", odd.copied().unwrap_or_default());
        ensure!(entropy.is_none_or(|e| e.is_finite() && e > -1e-3), "an entropy is {entropy:?}");
        self.check_end(tokens, *finish, limit, served)
    }

    /// Checks that a completion ends with its first end token or has the maximum length. An endpoint may have a
    /// smaller context.
    fn check_end(&self, tokens: &[u32], finish: FinishReason, limit: usize, served: bool) -> Result<()> {
        let n = tokens.len();
        let end = tokens.iter().position(|token| self.tokenizer.eos().contains(token)).map(|at| at + 1);
        match finish {
            FinishReason::Stop => {
                ensure!(n > 0 && end == Some(n), "it ended without an end token at its end")
            }
            FinishReason::Length => {
                ensure!(end.is_none(), "an end token, and it goes on or is said to be cut off");
                ensure!(served || n == limit, "cut off after {n} tokens, and {limit} were asked for");
            }
            FinishReason::Refused => ensure!(n == 0, "{n} tokens for a prompt that was refused"),
            FinishReason::Cancelled => bail!("it was cancelled, and nobody asked for that"),
        }
        Ok(())
    }

    fn entry(&self, command: &Command, prompt: &Arc<[u32]>, sample: Sample) -> Result<Entry> {
        let completion = Completion {
            text: self.tokenizer.decode(&sample.tokens)?,
            prompt_tokens: Arc::clone(prompt),
            tokens: sample.tokens,
            log_probs: sample.log_probs,
            entropy: sample.entropy,
            finish: sample.finish,
            policy_version: self.policy_version,
        };
        let (key, facts, ended) = (command.key().clone(), SampleFacts::of(&completion), ended(&completion));
        let text = &completion.text;
        let event = match command {
            Command::SampleConjecture { condition, .. } => {
                let read = ended.and_then(|()| self.system.read_conjecture(condition_of(condition), text));
                Event::Conjecture { key, read: read.map_err(|e| e.kind), sample: facts }
            }
            Command::SampleRollout { problem, lemma, .. } => {
                let read = ended.and_then(|()| match lemma {
                    None => self.system.read_proof(problem, text),
                    Some(lemma) => self.system.read_proof_citing(problem, lemma, text),
                });
                let read = read.map(|text| {
                    let penalised = self.system.is_penalised(&text);
                    let steps = self.system.proof_steps(&text);
                    ParsedProof { text: text.into(), penalised, steps }
                });
                Event::Rollout { key, read: read.map_err(|e| e.kind), sample: facts }
            }
            Command::SampleReview { .. } | Command::Verify { .. } => {
                let read = ended.and_then(|()| self.system.read_review(text));
                Event::Review { key, read: read.map_err(|e| e.kind), sample: facts }
            }
        };
        Ok(Entry { event, completion: Some(completion) })
    }
}

/// Maximum length of a verdict's reason in bytes. Reasons go into the journal and the tables.
const LONGEST_REASON: usize = 1 << 20;

fn judgements(commands: &[Command], bytes: &[u8]) -> Result<Vec<Entry>> {
    let judgements: VerifyResult = tasks::unpack(bytes).context("verdicts from a worker")?;
    let (found, asked) = (judgements.len(), commands.len());
    ensure!(found == asked, "{found} verdicts for {asked} proofs");
    // A checker that breaks gives no verdict; its worker must report a failure.
    let broken = judgements.iter().find(|j| j.verdict == Verdict::Infra);
    ensure!(broken.is_none(), "a verdict that is none: {}", broken.map_or("", |j| j.reason.as_str()));
    let long = judgements.iter().map(|j| j.reason.len()).find(|bytes| *bytes > LONGEST_REASON);
    ensure!(long.is_none(), "a verdict in {} bytes of words", long.unwrap_or_default());
    let entry = |(command, judgement): (&Command, _)| Entry {
        event: Event::Judgement { key: command.key().clone(), judgement },
        completion: None,
    };
    Ok(commands.iter().zip(judgements).map(entry).collect())
}

/// Returns true if verification takes microseconds. Such a system verifies one proof at a time.
pub fn is_quick(system: &dyn FormalSystem) -> bool {
    system.parallel_verifications() <= 1
}

/// The role that a command samples with; `None` for a verification.
pub fn role(command: &Command) -> Option<Role> {
    command.key().kind.role()
}

/// Maximum length of a command's completion, in tokens.
pub fn limit(config: &RunConfig, command: &Command) -> usize {
    role(command).map_or(0, |role| config.sampling.tokens(role))
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

/// Converts a condition into the form that the formal system takes.
pub fn condition_of(condition: &OwnedCondition) -> Condition<'_> {
    match condition {
        OwnedCondition::Target(problem) => Condition::Target(problem),
        OwnedCondition::Solved { problem, proof } => Condition::Solved { problem, proof },
        OwnedCondition::Nothing(problem) => Condition::Nothing(problem),
    }
}
