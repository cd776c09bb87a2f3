//! The client of an external server. It sends the tasks of served roles, or the prompts of `sgs eval`, to a completions
//! endpoint instead of the built-in sampler.
//!
//! An external server does not see the run's weight updates. A trained role may therefore be served only if its servers
//! load the new weights after each update (see `servers`).

use super::ca_certs;
use crate::Usage;
use crate::config::RunConfig;
use crate::config::endpoint::{EndpointConfig, PromptChoice, Refresh};
use crate::error::{Context, Result, RunError, bail};
use crate::workers::sampling::{Answer, Ask, room};
use crate::workers::tasks::{self, GenerateResult, GenerateTask, Sample};
use sgs_base::parallel;
use sgs_endpoint::{
    ApiKey, CompletionRequest, Endpoint, EndpointError, EndpointSettings, PromptEncoding, PromptMode,
    RemoteCompletion, ServerKind, StopReason, base_of,
};
use sgs_fleet::{Coordinator, Lease, StopFlag, WorkKind, WorkerConfig, WorkerName};
use sgs_lm::tokenizer::Tokenizer;
use sgs_selfplay::{FinishReason, Role};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

impl EndpointConfig {
    /// Converts the configuration to the client's settings and reads the API key.
    ///
    /// # Errors
    /// Returns an error if the URL is not that of an endpoint, or if the API key or the certificates cannot be read.
    pub fn settings(&self) -> Result<EndpointSettings> {
        let key = if self.key_file.is_empty() {
            match std::env::var(&self.key_env) {
                Ok(text) if !self.key_env.is_empty() => Some(ApiKey::new(&text, &self.key_env)?),
                _ => None,
            }
        } else {
            Some(ApiKey::read(Path::new(&self.key_file))?)
        };
        Ok(EndpointSettings {
            url: base_of(&self.url).map_err(Usage::of)?,
            server: match self.refresh {
                Refresh::Never => ServerKind::Any,
                Refresh::Sglang => ServerKind::Sglang,
                Refresh::Vllm => ServerKind::Vllm,
            },
            model: Some(self.model.clone()).filter(|m| !m.is_empty()),
            key,
            trusted: match self.authority.as_str() {
                "" => None,
                path => Some(ca_certs::certificates(Path::new(path), "the endpoint's `authority`")?),
            },
            prompt: match self.prompt {
                PromptChoice::Auto => PromptMode::Auto,
                PromptChoice::Tokens => PromptMode::Tokens,
                PromptChoice::Text => PromptMode::Text,
            },
            tries: self.tries,
            timeout: Duration::from_secs_f64(self.timeout_s),
            patience: Duration::from_secs_f64(self.patience_s),
            connections: self.concurrency,
        })
    }
}

/// A connected endpoint that has passed the compatibility checks.
pub struct ServedRoles {
    pub(crate) endpoint: Endpoint,
    tokenizer: Tokenizer,
    /// Maximum sequence length, in tokens.
    context: usize,
    concurrency: usize,
}

/// The weights that a refreshed server must hold while it works on tasks.
pub(crate) struct WeightBinding<'a> {
    /// The policy version that the server holds. It may only work on tasks of this version.
    pub policy_version: u32,
    /// The name of the weights, as sent to the server.
    pub name: &'a str,
    /// The server's number of outages when its weights were checked.
    pub outages: u64,
}

/// The tokens of a prompt and its completion, and the length of the prompt.
pub(crate) type RecordedCompletion = (Vec<u32>, usize);

impl ServedRoles {
    /// Connects to a server of a run and checks that it is suitable for some roles. `probe` is a prompt of the run;
    /// `context` is the maximum sequence length of its model, in tokens.
    ///
    /// # Errors
    /// Returns the errors of [`ServedRoles::connect`], and an error if a role is trained and the server does not report
    /// the token IDs and log-probs that training needs.
    pub(crate) fn of_run(
        config: &RunConfig,
        url: &str,
        roles: &[Role],
        tokenizer: Tokenizer,
        probe: &[u32],
        context: usize,
    ) -> Result<Self> {
        let mut e = config.sampling.endpoint.at(url);
        let is_trained = roles.iter().any(|role| config.weights_of(*role).is_trained());
        if is_trained {
            e.refresh = config.sampling.endpoint.refresh;
        }
        let longest = roles.iter().map(|role| config.sampling.tokens(*role)).max().unwrap_or(1);
        let served = Self::connect(&e, longest, tokenizer, probe, context)?;
        if is_trained {
            served.check_trainable()?;
        }
        Ok(served)
    }

    fn check_trainable(&self) -> Result<()> {
        let capabilities = self.endpoint.capabilities();
        let lacking = [
            (capabilities.prompt != PromptEncoding::Tokens, "it does not accept prompts as token IDs"),
            (!capabilities.token_ids, "it does not return the token IDs of completions"),
            (!capabilities.log_probs, "it does not return log-probs"),
        ];
        match lacking.iter().find(|(lacks, _)| *lacks) {
            None => Ok(()),
            Some((_, what)) => bail!(
                "{} cannot be used for a role that is trained: {what}, and updates need the exact tokens and their log-probs",
                self.endpoint.url()
            ),
        }
    }

    /// Connects to an endpoint and checks that it is suitable. `probe` is a prompt; `longest` is the maximum completion
    /// length and `context` the maximum sequence length that will be requested, in tokens.
    ///
    /// # Errors
    /// Returns an error if nothing listens at the address, the server rejects the API key, or its model, context length or
    /// tokenizer is unsuitable.
    pub fn connect(
        e: &EndpointConfig,
        longest: usize,
        tokenizer: Tokenizer,
        probe: &[u32],
        context: usize,
    ) -> Result<Self> {
        let settings = e.settings()?;
        let probe = ask(&tokenizer, probe, 0, longest.min(16), 1.0)?;
        let (prompt, concurrency) = (settings.prompt, settings.connections);
        let connected = Endpoint::connect(settings, &probe, context, tokenizer.vocab_size());
        let (endpoint, sample) = connected.map_err(|error| match error {
            EndpointError::Absent { .. } => RunError::from(Usage(error.to_string())),
            other => other.into(),
        })?;
        let capabilities = endpoint.capabilities();
        if let Some(problem) = sample.tokens.as_deref().and_then(|t| differs(&tokenizer, t, &sample.text)) {
            let (url, model) = (endpoint.url().to_owned(), endpoint.model().to_owned());
            if prompt != PromptMode::Text {
                return Err(EndpointError::Vocabulary { url, model, problem }.into());
            }
        }
        let missing = [
            (
                !capabilities.extensions,
                "the distribution may be truncated: it does not accept top_k, min_p or stop_token_ids",
            ),
            (!capabilities.token_ids, "it does not return token IDs: completions are tokenised again"),
            (
                !capabilities.log_probs,
                "it does not return log-probs: they are missing from the tables and metrics",
            ),
            (
                capabilities.context.is_none(),
                "it does not report its context length: samples of prompts that are too long are lost",
            ),
        ];
        for (_, what) in missing.iter().filter(|(is, _)| *is) {
            tracing::warn!("{}: {what}", endpoint.url());
        }
        tracing::info!("{} serves {}: {capabilities:?}", endpoint.url(), endpoint.model());
        let context = capabilities.context.unwrap_or(usize::MAX).min(context);
        Ok(Self { endpoint, tokenizer, context, concurrency })
    }

    /// Samples a completion of at most `most` tokens for each prompt that fits into the context.
    pub(crate) fn record(&self, prompts: &[Arc<[u32]>], most: usize) -> Result<Vec<RecordedCompletion>> {
        let fitting = prompts.iter().filter(|prompt| prompt.len() < self.context);
        let one = |prompt: &Arc<[u32]>| {
            let new = most.min(self.context - prompt.len());
            let sample = self.endpoint.sample(&ask(&self.tokenizer, prompt, 0, new, 1.0)?, || false)?;
            let tokens = sample.tokens.with_context(|| {
                format!("{} returned a completion without token IDs", self.endpoint.url())
            })?;
            Ok(([prompt, &tokens[..]].concat(), prompt.len()))
        };
        fitting.map(one).collect()
    }

    /// Works on tasks of a kind until the drain begins. `bound` gives the weights that a refreshed server must hold: if
    /// the server may have lost them, this function begins the drain itself.
    pub(crate) fn work(
        &self,
        coordinator: Arc<dyn Coordinator>,
        worker: WorkerName,
        kind: WorkKind,
        bound: Option<&WeightBinding<'_>>,
        drain: &StopFlag,
    ) -> Result<()> {
        let config = WorkerConfig {
            linger: Duration::from_millis(5),
            grace: Duration::from_secs(2),
            poll: Duration::from_millis(100),
            ..WorkerConfig::new(worker, kind)
        };
        let end: Mutex<Option<EndpointError>> = Mutex::new(None);
        let handler = |lease: &Lease, cancel: &StopFlag| {
            let task: GenerateTask = tasks::unpack(lease.payload.as_bytes()).map_err(|e| format!("{e:#}"))?;
            // This is not a failure of the task. Wait for the cancellation, which returns its lease.
            let give_back = |why: &str| {
                drain.set();
                while !cancel.is_set() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(format!("returned: {why}"))
            };
            if let Some(bound) = bound.filter(|bound| bound.policy_version != task.policy_version) {
                let (asked, has) = (task.policy_version, bound.policy_version);
                if asked > has {
                    return give_back("the server is about to load newer weights");
                }
                return Err(format!("the task needs policy {asked}, but the server has {has}"));
            }
            let is_doubtful = || bound.is_some_and(|bound| self.endpoint.outages() != bound.outages);
            let is_over = || cancel.is_set() || is_doubtful();
            let one = |&seed: &u64| {
                let (sample, weights) =
                    self.sample(&task.prompt, seed, task.max_new_tokens, task.temperature, is_over)?;
                match bound.zip(weights).filter(|(bound, weights)| weights != bound.name) {
                    None => Ok(sample),
                    Some((bound, weights)) => {
                        drain.set();
                        let url = self.endpoint.url();
                        bail!("{url} sampled with the weights {weights} instead of {}", bound.name)
                    }
                }
            };
            let samples = task.seeds.iter().map(one).collect::<Result<_>>();
            if is_doubtful() {
                // The server may have restarted while it was sampling, with unknown weights.
                return give_back("the server may have been restarted");
            }
            match samples {
                Ok(samples) => {
                    let policy_id = tasks::own_mark().to_owned();
                    tasks::pack(&GenerateResult { samples, policy_id }).map_err(|e| format!("{e:#}"))
                }
                Err(error) => {
                    let message = format!("{error:#}");
                    if let Some(error) = error.final_endpoint_error() {
                        // A poisoned lock is safe to use here and below, because an error is stored as a whole.
                        end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.clone());
                        drain.set();
                    }
                    Err(message)
                }
            }
        };
        let served = sgs_fleet::run_worker(coordinator, config, drain.clone(), self.concurrency, handler);
        if let Some(error) = end.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error).context("the endpoint of `sampling.endpoint` cannot be used");
        }
        served?;
        Ok(())
    }

    /// Samples each prompt once, with the configured number of concurrent requests. Samples whose requests fail are
    /// lost; the first of them is logged as a warning.
    ///
    /// # Errors
    /// Returns an error if the endpoint is no longer usable.
    pub fn answers(
        &self,
        asks: &[Ask],
        max_new_tokens: usize,
        on_answer: impl Fn() + Sync,
    ) -> Result<Vec<Answer>> {
        let take = |_: &Ask, _: Option<&Answer>| {
            on_answer();
            Ok::<(), RunError>(())
        };
        let answers = ask_all(self.endpoint.url(), self.concurrency, asks, take, |ask, is_over| {
            let new = room(max_new_tokens, ask.prompt.len(), self.context);
            let (sample, _) = self.sample(&ask.prompt, ask.seed, new, 1.0, is_over)?;
            if let Some(reason) = sample.refusal {
                return Err(RunError::Failed(reason));
            }
            let (text, tokens) = (self.tokenizer.decode(&sample.tokens)?, sample.tokens.len());
            Ok(match sample.finish {
                FinishReason::Stop => Answer::Whole(text),
                _ => Answer::Cut { text, tokens },
            })
        })?;
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(Answer::Lost)).collect())
    }

    /// Samples a completion. Also returns the name of the weights used, if the server reports it.
    fn sample(
        &self,
        prompt: &[u32],
        seed: u64,
        new: usize,
        temperature: f32,
        cancelled: impl Fn() -> bool,
    ) -> Result<(Sample, Option<String>)> {
        if prompt.len() + new > self.context {
            let (prompt, limit) = (prompt.len(), self.context);
            let refused = Sample::refused(format!(
                "a prompt of {prompt} tokens and up to {new} new ones exceed the context of {limit} tokens"
            ));
            return Ok((refused, None));
        }
        let ask = ask(&self.tokenizer, prompt, seed, new, temperature)?;
        let mut sample = self.endpoint.sample(&ask, cancelled)?;
        let weights = sample.weights_name.take();
        Ok((completion(&self.tokenizer, sample, new)?, weights))
    }
}

/// Requests all answers, `concurrency` at a time, and passes each to `take` as it arrives. Answers whose requests fail
/// are lost (`None`); the first of them is logged as a warning.
///
/// # Errors
/// Returns an error if the endpoint is no longer usable or `take` fails. No further requests are sent then.
pub fn ask_all<A: Sync, R: Send, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    url: &str,
    concurrency: usize,
    asks: &[A],
    take: impl Fn(&A, Option<&R>) -> Result<(), E> + Sync,
    one: impl Fn(&A, &dyn Fn() -> bool) -> Result<R> + Sync,
) -> Result<Vec<Option<R>>> {
    let end: Mutex<Option<RunError>> = Mutex::new(None);
    let (over, told) = (AtomicBool::new(false), AtomicBool::new(false));
    let stop = |error: RunError| {
        // A poisoned lock is safe to use here and below, because an error is stored as a whole.
        end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        over.store(true, Ordering::Release);
    };
    let one = |ask: &A| {
        let is_over = || over.load(Ordering::Acquire);
        if is_over() {
            return None;
        }
        let answer = one(ask, &is_over).map_err(|error| {
            if error.final_endpoint_error().is_some() {
                stop(error);
            } else if !is_over() && !told.swap(true, Ordering::AcqRel) {
                tracing::warn!("{url}: a sample is lost: {error:#}");
            }
        });
        let answer = answer.ok();
        // Keep answers that arrived while the other requests were being stopped, because they have already been
        // computed.
        if !(answer.is_none() && is_over())
            && let Err(error) = take(ask, answer.as_ref())
        {
            stop(RunError::Other(error.into()));
        }
        answer
    };
    let answers = parallel::map(concurrency, asks, one);
    match end.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(answers),
    }
}

fn ask(
    tokenizer: &Tokenizer,
    prompt: &[u32],
    seed: u64,
    max_tokens: usize,
    temperature: f32,
) -> Result<CompletionRequest> {
    // Given text, a server adds the BOS token itself.
    let spelled = match prompt {
        [first, rest @ ..] if Some(*first) == tokenizer.bos() => rest,
        all => all,
    };
    Ok(CompletionRequest {
        tokens: prompt.to_vec(),
        text: tokenizer.decode_with_special(spelled)?,
        seed,
        max_tokens,
        temperature,
        stop_tokens: tokenizer.eos().to_vec(),
        stop_texts: Vec::new(),
    })
}

/// Converts a completion to the run's own tokens. If it is finished, it ends with one of the run's EOS tokens.
/// Log-probs are kept only if they match these tokens one to one.
fn completion(tokenizer: &Tokenizer, sample: RemoteCompletion, limit: usize) -> Result<Sample> {
    let RemoteCompletion { text, tokens, pieces, log_probs, end, .. } = sample;
    let (mut tokens, mut log_probs) = match tokens {
        Some(tokens) => {
            let size = tokenizer.vocab_size();
            if let Some(unknown) = tokens.iter().find(|t| **t as usize >= size) {
                bail!("the server sampled token {unknown}, but the run's tokenizer has only {size} tokens");
            }
            (tokens, log_probs.unwrap_or_default())
        }
        None => {
            let tokens = tokenizer.encode_untrusted(&text)?;
            let same = pieces.is_some_and(|pieces| spell_the_same(tokenizer, &tokens, &pieces));
            (tokens, log_probs.filter(|_| same).unwrap_or_default())
        }
    };
    let mut finish = FinishReason::Length;
    if let Some(at) = tokens.iter().position(|t| tokenizer.eos().contains(t)) {
        finish = FinishReason::Stop;
        tokens.truncate(at + 1);
        log_probs.truncate(at + 1);
    } else if end == StopReason::Stop {
        finish = FinishReason::Stop;
        if let Some(eos) = tokenizer.eos().first() {
            tokens.push(*eos);
        }
    }
    if tokens.len() > limit {
        // The server may exceed the limit, and tokenising again may yield more tokens.
        finish = FinishReason::Length;
        tokens.truncate(limit);
        log_probs.truncate(limit);
    }
    if log_probs.len() != tokens.len() {
        log_probs.clear();
    }
    Ok(Sample { tokens, log_probs, entropy: None, finish, refusal: None })
}

/// Returns whether each piece is the text of the token at the same position.
fn spell_the_same(tokenizer: &Tokenizer, tokens: &[u32], pieces: &[String]) -> bool {
    let same =
        |(token, piece): (&u32, &String)| tokenizer.decode(&[*token]).is_ok_and(|t| t.trim() == piece.trim());
    tokens.len() == pieces.len() && tokens.iter().zip(pieces).all(same)
}

/// Compares the server's text with the text of its tokens in the run's tokenizer, and describes the difference if there
/// is one. White space is ignored, because decoders treat it differently, and so is an incomplete character at the end.
fn differs(tokenizer: &Tokenizer, tokens: &[u32], text: &str) -> Option<String> {
    let bare = |text: &str| -> String {
        text.trim_end_matches('\u{fffd}').chars().filter(|c| !c.is_whitespace()).collect()
    };
    let ours = match tokenizer.decode(tokens) {
        Ok(ours) => ours,
        Err(error) => return Some(error.to_string()),
    };
    let (a, b) = (bare(&ours), bare(text));
    let one_begins_the_other = a.starts_with(&b) || b.starts_with(&a);
    if one_begins_the_other && a.is_empty() == b.is_empty() {
        return None;
    }
    let short = |text: &str| text.chars().take(60).collect::<String>();
    Some(format!("its text {:?} is {:?} in the run's tokenizer", short(text.trim()), short(ours.trim())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::SystemName;

    fn tokenizer() -> Tokenizer {
        let folder = tempfile::tempdir().unwrap();
        Tokenizer::load(&crate::config::base_model::unpack(SystemName::Metamath, folder.path()).unwrap())
            .unwrap()
    }

    #[test]
    fn a_completion_is_converted_to_the_runs_tokens() {
        let tokenizer = tokenizer();
        let [a, b] = ["ph", "ps"].map(|word| tokenizer.id_of(word).unwrap());
        let end = tokenizer.eos()[0];
        let sample = RemoteCompletion {
            text: " ph ps".into(),
            tokens: Some(vec![a, b, end]),
            pieces: None,
            log_probs: Some(vec![-1.0, -2.0, -0.5]),
            end: StopReason::Stop,
            weights_name: None,
        };
        let told = completion(&tokenizer, sample.clone(), 8).unwrap();
        assert_eq!((told.tokens, told.log_probs), (vec![a, b, end], vec![-1.0, -2.0, -0.5]));
        // Text only: the EOS token is restored, without a log-prob.
        let text = RemoteCompletion { tokens: None, log_probs: None, ..sample.clone() };
        let told = completion(&tokenizer, text, 8).unwrap();
        assert_eq!((told.tokens, told.log_probs, told.finish), (vec![a, b, end], vec![], FinishReason::Stop));
        // Log-probs are kept only if the pieces match the tokens.
        let cut = RemoteCompletion {
            tokens: None,
            log_probs: Some(vec![-1.0, -2.0]),
            end: StopReason::Length,
            ..sample.clone()
        };
        let pieces = |pieces: [&str; 2]| Some(pieces.map(str::to_owned).to_vec());
        let told =
            completion(&tokenizer, RemoteCompletion { pieces: pieces([" ph", " ps"]), ..cut.clone() }, 8)
                .unwrap();
        assert_eq!((told.log_probs, told.finish), (vec![-1.0, -2.0], FinishReason::Length));
        let told =
            completion(&tokenizer, RemoteCompletion { pieces: pieces([" p", "h ps"]), ..cut }, 8).unwrap();
        assert!(told.log_probs.is_empty());
        // Tokens after the end, past the limit, or outside the vocabulary.
        let after = RemoteCompletion { tokens: Some(vec![a, end, b]), ..sample.clone() };
        assert_eq!(completion(&tokenizer, after, 8).unwrap().tokens, [a, end]);
        let long = RemoteCompletion {
            tokens: Some(vec![a; 50]),
            log_probs: Some(vec![-1.0; 50]),
            end: StopReason::Length,
            ..sample.clone()
        };
        assert_eq!(completion(&tokenizer, long, 8).unwrap().log_probs.len(), 8);
        let foreign = RemoteCompletion { tokens: Some(vec![a, 40_000]), log_probs: None, ..sample };
        assert!(completion(&tokenizer, foreign, 8).unwrap_err().to_string().contains("40000"));
    }

    #[test]
    fn a_different_tokenizer_is_detected() {
        let tokenizer = tokenizer();
        let [a, b] = ["ph", "ps"].map(|word| tokenizer.id_of(word).unwrap());
        assert_eq!(differs(&tokenizer, &[a, b, tokenizer.eos()[0]], " ph ps"), None);
        assert_eq!(differs(&tokenizer, &[a, b], " ph p\u{fffd}"), None);
        assert!(differs(&tokenizer, &[a, b], " The answer").unwrap().contains("The answer"));
        assert!(differs(&tokenizer, &[40_000], "x").is_some());
    }
}
