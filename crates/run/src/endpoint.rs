//! Roles that another server plays: their tasks, or the prompts of `sgs eval`, go to a completions endpoint instead of
//! the built-in sampler.
//!
//! What is served elsewhere does not follow the weights that a run trains, so only roles that the method leaves as
//! they are may be served: the Guide, a frozen Conjecturer, every role of `sampling-only`.

use super::config::RunConfig;
use crate::Usage;
use crate::evaluate::{Answer, Ask, in_parallel};
use crate::tasks::{self, GenerateResult, GenerateTask, SERVED, Sample};
use anyhow::{Context, Result, bail};
use sgs_endpoint::{Ask as Wanted, End, Endpoint, EndpointError, Key, Prompt, Sample as Served, Settings};
use sgs_fleet::{Cancel, Coordinator, Drain, Lease, WorkerConfig, WorkerName};
use sgs_keys::above;
use sgs_lm::tokenizer::Tokenizer;
use sgs_selfplay::{AlgorithmConfig, FinishReason, Role};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

sgs_keys::table! {
    /// Which roles another server plays, and how it is asked.
    #[derive(Clone, Debug, PartialEq)]
    pub struct EndpointConfig {
        /// A server that plays some roles: an OpenAI-compatible completions endpoint (vLLM, SGLang, llama.cpp).
        pub url: String = String::new(), in "empty for none, or an address as http://127.0.0.1:8000/v1",
        /// The served model's name.
        pub model: String = String::new(), in "empty if it serves exactly one, or a name",
        /// The roles that it plays; none of them may be trained.
        pub roles: Vec<Role> = Vec::new(), in "a list of solver, conjecturer, guide",
        /// How prompts are sent: as token ids if the server takes them, else text; as token ids, only to a model with the
        /// tokenizer of model.base; as text.
        pub prompt: PromptChoice = PromptChoice::Auto,
        /// Requests at once.
        pub concurrency: usize = 64, in 1..=1024,
        /// How often one request is sent while others come through.
        pub tries: u32 = 8, in 1..=1_000_000,
        /// Longest time for one answer, seconds.
        pub timeout_s: f64 = 600.0, in above(0.0).at_most(1e6),
        /// Longest time without any answer before the run stops, seconds.
        pub patience_s: f64 = 600.0, in above(0.0).at_most(1e6),
        /// Environment variable with the server's key, if it is set.
        pub key_env: String = "SGS_ENDPOINT_KEY".to_owned(), in "a name, or empty",
        /// File with the server's key.
        pub key_file: String = String::new(), in "empty for none, or a file",
    }
}

sgs_keys::choice! {
    /// How prompts are sent.
    pub enum PromptChoice {
        /// As token ids if the server takes those, else as text.
        Auto = "auto",
        /// As token ids or not at all.
        Tokens = "tokens",
        /// As text.
        Text = "text",
    }
}

impl EndpointConfig {
    /// Whether another server plays the role.
    pub fn plays(&self, role: Role) -> bool {
        !self.url.is_empty() && self.roles.contains(&role)
    }

    /// Checks the keys against each other and against the algorithm.
    ///
    /// # Errors
    /// A role that is off, or trained: its weights would go on elsewhere.
    pub fn check(&self, algorithm: &AlgorithmConfig) -> Result<()> {
        if self.url.is_empty() {
            return match self.roles.first() {
                None => Ok(()),
                Some(_) => {
                    bail!(Usage("`sampling.endpoint.roles` is given without `sampling.endpoint.url`".into()))
                }
            };
        }
        let Some(_) = self.roles.first() else {
            bail!(Usage(
                "`sampling.endpoint.roles` is empty; expected some of solver, conjecturer, guide".into()
            ));
        };
        for role in &self.roles {
            if !is_on(algorithm, *role) {
                bail!(Usage(format!(
                    "`sampling.endpoint.roles` names the {0}, but this method has none",
                    role.as_str()
                )));
            }
            if algorithm.weights_of(*role, false).is_trained() {
                bail!(Usage(format!(
                    "`sampling.endpoint.roles` names the {0}, which this method trains: a server elsewhere would go on \
                     with the old weights. Let the {0} be sampled here, or choose a method that does not train it \
                     (sampling-only; sgs-frozen-conjecturer for the Conjecturer)",
                    role.as_str()
                )));
            }
        }
        Ok(())
    }

    fn settings(&self) -> Result<Settings> {
        let key = if self.key_file.is_empty() {
            match std::env::var(&self.key_env) {
                Ok(text) if !self.key_env.is_empty() => Some(Key::new(&text, &self.key_env)?),
                _ => None,
            }
        } else {
            Some(Key::read(Path::new(&self.key_file))?)
        };
        Ok(Settings {
            url: self.url.clone(),
            model: Some(self.model.clone()).filter(|m| !m.is_empty()),
            key,
            prompt: match self.prompt {
                PromptChoice::Auto => Prompt::Auto,
                PromptChoice::Tokens => Prompt::Tokens,
                PromptChoice::Text => Prompt::Text,
            },
            tries: self.tries,
            timeout: Duration::from_secs_f64(self.timeout_s),
            patience: Duration::from_secs_f64(self.patience_s),
            connections: self.concurrency,
        })
    }
}

fn is_on(a: &AlgorithmConfig, role: Role) -> bool {
    match role {
        Role::Solver => true,
        Role::Conjecturer => a.conjecturer.on,
        Role::Guide => a.guide.on,
    }
}

/// An endpoint that was found fit for a run.
pub struct ServedRoles {
    endpoint: Endpoint,
    tokenizer: Tokenizer,
    /// Longest sequence, tokens.
    context: usize,
    concurrency: usize,
}

impl ServedRoles {
    /// Finds out whether the endpoint that a run is configured with fits; `probe` is a prompt of the run, `context` the
    /// longest sequence of its model in tokens. `None` if no role is served.
    ///
    /// # Errors
    /// As [`ServedRoles::connect`].
    pub fn of_run(
        config: &RunConfig,
        tokenizer: Tokenizer,
        probe: &[u32],
        context: usize,
    ) -> Result<Option<Self>> {
        let e = &config.sampling.endpoint;
        if e.url.is_empty() {
            return Ok(None);
        }
        let longest = e.roles.iter().map(|role| config.sampling.tokens(*role)).max().unwrap_or(1);
        let served = Self::connect(e, longest, tokenizer, probe, context);
        served.context("the endpoint of `sampling.endpoint`").map(Some)
    }

    /// Finds out whether an endpoint fits; `probe` is a prompt, `longest` the longest completion and `context` the longest
    /// sequence that will be asked for, in tokens.
    ///
    /// # Errors
    /// It does not: the model, its context, its tokenizer, the key.
    pub fn connect(
        e: &EndpointConfig,
        longest: usize,
        tokenizer: Tokenizer,
        probe: &[u32],
        context: usize,
    ) -> Result<Self> {
        let probe = ask(&tokenizer, probe, 0, longest.min(16), 1.0)?;
        let (endpoint, sample) = Endpoint::connect(e.settings()?, &probe, context, tokenizer.vocab_size())?;
        let abilities = endpoint.abilities();
        if let Some(problem) = sample.tokens.as_deref().and_then(|t| differs(&tokenizer, t, &sample.text)) {
            let (url, model) = (endpoint.url().to_owned(), endpoint.model().to_owned());
            if e.prompt != PromptChoice::Text {
                bail!(EndpointError::Vocabulary { url, model, problem });
            }
        }
        let missing = [
            (
                !abilities.beyond,
                "the distribution may be truncated: it takes no top_k, min_p or stop_token_ids",
            ),
            (!abilities.token_ids, "it tells no token ids: completions are tokenised again"),
            (!abilities.log_probs, "it tells no log-probs: they are absent from the tables and the metrics"),
            (abilities.context.is_none(), "it does not tell its context: prompts that are too long are lost"),
        ];
        for (_, what) in missing.iter().filter(|(is, _)| *is) {
            tracing::warn!("{}: {what}", endpoint.url());
        }
        tracing::info!("{} serves {}: {abilities:?}", endpoint.url(), endpoint.model());
        let context = abilities.context.unwrap_or(usize::MAX).min(context);
        Ok(Self { endpoint, tokenizer, context, concurrency: e.concurrency })
    }

    /// Asks for completions until the drain begins.
    ///
    /// # Errors
    /// The endpoint is no longer usable, or the coordinator fails.
    pub fn work(&self, coordinator: Arc<dyn Coordinator>, worker: WorkerName, drain: &Drain) -> Result<()> {
        let config = WorkerConfig {
            linger: Duration::from_millis(5),
            grace: Duration::from_secs(2),
            ..WorkerConfig::new(worker, SERVED)
        };
        let end: Mutex<Option<EndpointError>> = Mutex::new(None);
        let handler = |lease: &Lease, cancel: &Cancel| {
            let task: GenerateTask = tasks::unpack(lease.payload.as_bytes()).map_err(|e| format!("{e:#}"))?;
            let one = |&seed: &u64| {
                let is_cancelled = || cancel.is_cancelled();
                self.sample(&task.prompt, seed, task.max_new_tokens, task.temperature, is_cancelled)
            };
            let samples = task.seeds.iter().map(one).collect::<Result<_>>();
            match samples {
                Ok(samples) => {
                    let fingerprint = tasks::own_mark().to_owned();
                    tasks::pack(&GenerateResult { samples, fingerprint }).map_err(|e| format!("{e:#}"))
                }
                Err(error) => {
                    let told = format!("{error:#}");
                    if let Some(error) = error.downcast_ref::<EndpointError>().filter(|e| e.is_final()) {
                        end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.clone());
                        drain.begin();
                    }
                    Err(told)
                }
            }
        };
        let served = sgs_fleet::serve(coordinator, config, drain.clone(), self.concurrency, handler);
        if let Some(error) = end.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error).context("the endpoint of `sampling.endpoint`");
        }
        served?;
        Ok(())
    }

    /// What is served, and where.
    pub fn name(&self) -> String {
        format!("{} at {}", self.endpoint.model(), self.endpoint.url())
    }

    /// Samples every prompt once, so many at once as is configured. A sample that the server fails to give is lost, with
    /// a warning for the first.
    ///
    /// # Errors
    /// The endpoint is no longer usable.
    pub fn answers(
        &self,
        asks: &[Ask],
        max_new_tokens: usize,
        on_answer: impl Fn() + Sync,
    ) -> Result<Vec<Answer>> {
        let end: Mutex<Option<EndpointError>> = Mutex::new(None);
        let (over, told) = (AtomicBool::new(false), AtomicBool::new(false));
        let one = |ask: &Ask| {
            let is_over = || over.load(Ordering::Acquire);
            if is_over() {
                return Answer::Lost;
            }
            let answer = self
                .sample(&ask.prompt, ask.seed, max_new_tokens, 1.0, is_over)
                .and_then(|sample| self.answer(sample));
            on_answer();
            answer.unwrap_or_else(|error| {
                match error.downcast_ref::<EndpointError>().filter(|e| e.is_final()) {
                    Some(error) => {
                        end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.clone());
                        over.store(true, Ordering::Release);
                    }
                    None if !told.swap(true, Ordering::AcqRel) => {
                        tracing::warn!("{}: a sample is lost: {error:#}", self.endpoint.url());
                    }
                    None => {}
                }
                Answer::Lost
            })
        };
        let answers = in_parallel(self.concurrency, asks, one);
        match end.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.into()),
            None => Ok(answers),
        }
    }

    fn answer(&self, sample: Sample) -> Result<Answer> {
        if let Some(reason) = sample.refusal {
            bail!(reason);
        }
        Ok(match sample.finish {
            FinishReason::Stop => Answer::Whole(self.tokenizer.decode(&sample.tokens)?),
            _ => Answer::Cut,
        })
    }

    fn sample(
        &self,
        prompt: &[u32],
        seed: u64,
        new: usize,
        temperature: f32,
        cancelled: impl Fn() -> bool,
    ) -> Result<Sample> {
        if prompt.len() + new > self.context {
            let (prompt, limit) = (prompt.len(), self.context);
            return Ok(Sample::refused(format!(
                "a prompt of {prompt} tokens and up to {new} new ones exceed the context of {limit} tokens"
            )));
        }
        let ask = ask(&self.tokenizer, prompt, seed, new, temperature)?;
        let sample = self.endpoint.sample(&ask, cancelled)?;
        completion(&self.tokenizer, sample, new)
    }
}

fn ask(
    tokenizer: &Tokenizer,
    prompt: &[u32],
    seed: u64,
    max_tokens: usize,
    temperature: f32,
) -> Result<Wanted> {
    // A server that is sent text puts the token that begins a sequence before it.
    let spelled = match prompt {
        [first, rest @ ..] if Some(*first) == tokenizer.bos() => rest,
        all => all,
    };
    Ok(Wanted {
        tokens: prompt.to_vec(),
        text: tokenizer.decode_with_special(spelled)?,
        seed,
        max_tokens,
        temperature,
        stop_tokens: tokenizer.eos().to_vec(),
        stop_texts: Vec::new(),
    })
}

/// A completion in the run's own tokens, ended by one of its end tokens if it has ended. Log-probs are kept only where
/// each belongs to one of these tokens.
fn completion(tokenizer: &Tokenizer, sample: Served, limit: usize) -> Result<Sample> {
    let Served { text, tokens, pieces, log_probs, end } = sample;
    let (mut tokens, mut log_probs) = match tokens {
        Some(tokens) => {
            let size = tokenizer.vocab_size();
            if let Some(unknown) = tokens.iter().find(|t| **t as usize >= size) {
                bail!("the server sampled token {unknown}, and the run's tokenizer has {size}");
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
    } else if end == End::Stop {
        finish = FinishReason::Stop;
        if let Some(eos) = tokenizer.eos().first() {
            tokens.push(*eos);
        }
    }
    if tokens.len() > limit {
        // Whatever the server or the second tokenisation made of it, a task's limit holds.
        finish = FinishReason::Length;
        tokens.truncate(limit);
        log_probs.truncate(limit);
    }
    if log_probs.len() != tokens.len() {
        log_probs.clear();
    }
    Ok(Sample { tokens, log_probs, entropy: None, finish, refusal: None })
}

/// Whether each piece is the spelling of the token at its place.
fn spell_the_same(tokenizer: &Tokenizer, tokens: &[u32], pieces: &[String]) -> bool {
    let same =
        |(token, piece): (&u32, &String)| tokenizer.decode(&[*token]).is_ok_and(|t| t.trim() == piece.trim());
    tokens.len() == pieces.len() && tokens.iter().zip(pieces).all(same)
}

/// How the server's text differs from what its tokens mean here, if it does. White space is the decoders' own affair,
/// and a character may be cut off at the end.
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
    Some(format!("what it calls {:?} is {:?} here", short(text.trim()), short(ours.trim())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sgs_selfplay::Method;

    fn tokenizer() -> Tokenizer {
        let folder = tempfile::tempdir().unwrap();
        Tokenizer::load(&crate::base_model::unpack(folder.path()).unwrap()).unwrap()
    }

    fn served(roles: &[Role]) -> EndpointConfig {
        EndpointConfig {
            url: "http://127.0.0.1:1".into(),
            roles: roles.to_vec(),
            ..EndpointConfig::default()
        }
    }

    #[test]
    fn only_roles_that_stay_as_they_are_may_be_served() {
        let allowed =
            |method: &str, role: Role| served(&[role]).check(&method.parse::<Method>().unwrap().config());
        allowed("sampling-only", Role::Solver).unwrap();
        allowed("sgs", Role::Guide).unwrap();
        allowed("sgs-frozen-conjecturer", Role::Conjecturer).unwrap();
        for (method, role) in [("sgs", Role::Solver), ("sgs", Role::Conjecturer), ("reinforce", Role::Solver)]
        {
            let error = allowed(method, role).unwrap_err().to_string();
            assert!(error.contains("which this method trains"), "{method}: {error}");
        }
        let error = allowed("sampling-only", Role::Guide).unwrap_err().to_string();
        assert!(error.contains("this method has none"), "{error}");
        let error = served(&[]).check(&AlgorithmConfig::default()).unwrap_err().to_string();
        assert!(error.contains("roles"), "{error}");
    }

    #[test]
    fn a_completion_is_brought_into_the_runs_tokens() {
        let tokenizer = tokenizer();
        let [a, b] = ["ph", "ps"].map(|word| tokenizer.id_of(word).unwrap());
        let end = tokenizer.eos()[0];
        let sample = Served {
            text: " ph ps".into(),
            tokens: Some(vec![a, b, end]),
            pieces: None,
            log_probs: Some(vec![-1.0, -2.0, -0.5]),
            end: End::Stop,
        };
        let told = completion(&tokenizer, sample.clone(), 8).unwrap();
        assert_eq!((told.tokens, told.log_probs), (vec![a, b, end], vec![-1.0, -2.0, -0.5]));
        // Text alone: the end token is put back, and no log-prob is made up for it.
        let text = Served { tokens: None, log_probs: None, ..sample.clone() };
        let told = completion(&tokenizer, text, 8).unwrap();
        assert_eq!((told.tokens, told.log_probs, told.finish), (vec![a, b, end], vec![], FinishReason::Stop));
        // Pieces that are the tokens' own spelling keep their log-probs, others do not.
        let cut =
            Served { tokens: None, log_probs: Some(vec![-1.0, -2.0]), end: End::Length, ..sample.clone() };
        let pieces = |pieces: [&str; 2]| Some(pieces.map(str::to_owned).to_vec());
        let told =
            completion(&tokenizer, Served { pieces: pieces([" ph", " ps"]), ..cut.clone() }, 8).unwrap();
        assert_eq!((told.log_probs, told.finish), (vec![-1.0, -2.0], FinishReason::Length));
        let told = completion(&tokenizer, Served { pieces: pieces([" p", "h ps"]), ..cut }, 8).unwrap();
        assert!(told.log_probs.is_empty());
        // What comes after the end, past the limit, or from another vocabulary.
        let after = Served { tokens: Some(vec![a, end, b]), ..sample.clone() };
        assert_eq!(completion(&tokenizer, after, 8).unwrap().tokens, [a, end]);
        let long = Served {
            tokens: Some(vec![a; 50]),
            log_probs: Some(vec![-1.0; 50]),
            end: End::Length,
            ..sample.clone()
        };
        assert_eq!(completion(&tokenizer, long, 8).unwrap().log_probs.len(), 8);
        let foreign = Served { tokens: Some(vec![a, 40_000]), log_probs: None, ..sample };
        assert!(completion(&tokenizer, foreign, 8).unwrap_err().to_string().contains("40000"));
    }

    #[test]
    fn another_tokenizer_is_noticed() {
        let tokenizer = tokenizer();
        let [a, b] = ["ph", "ps"].map(|word| tokenizer.id_of(word).unwrap());
        assert_eq!(differs(&tokenizer, &[a, b, tokenizer.eos()[0]], " ph ps"), None);
        assert_eq!(differs(&tokenizer, &[a, b], " ph p\u{fffd}"), None);
        assert!(differs(&tokenizer, &[a, b], " The answer").unwrap().contains("The answer"));
        assert!(differs(&tokenizer, &[40_000], "x").is_some());
    }
}
