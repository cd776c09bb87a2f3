//! Roles that another server plays: their tasks, or the prompts of `sgs eval`, go to a completions endpoint instead of
//! the built-in sampler.
//!
//! What is served elsewhere does not follow the weights that a run trains by itself: a role that is trained may be served
//! only where the servers are given its weights after each update (`served`).

use super::config::RunConfig;
use crate::evaluate::{Answer, Ask, in_parallel, room};
use crate::tasks::{self, GenerateResult, GenerateTask, SERVED, Sample, served_alone};
use crate::{Usage, authority};
use anyhow::{Context, Result, bail};
use sgs_endpoint::{
    Ask as Wanted, End, Endpoint, EndpointError, Engine, Key, Prompt, PromptForm, Sample as Served, Settings,
};
use sgs_fleet::{Cancel, Coordinator, Drain, Lease, TaskKind as BoardKind, WorkerConfig, WorkerName};
use sgs_keys::above;
use sgs_lm::tokenizer::Tokenizer;
use sgs_selfplay::{AlgorithmConfig, FinishReason, Player, Role, Weights};
use std::collections::BTreeSet;
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
        /// Further servers of the same model, which share its tasks.
        pub urls: Vec<String> = Vec::new(), in "a list of addresses",
        /// The Solver's own servers, in place of those.
        pub solver_urls: Vec<String> = Vec::new(), in "a list of addresses",
        /// The Conjecturer's own servers, in place of those.
        pub conjecturer_urls: Vec<String> = Vec::new(), in "a list of addresses",
        /// The Guide's own servers, in place of those.
        pub guide_urls: Vec<String> = Vec::new(), in "a list of addresses",
        /// How servers are given the weights of a role that is trained, after each update: not at all, by SGLang's calls,
        /// by vLLM's.
        pub refresh: Refresh = Refresh::Never,
        /// Folder for these weights, of this run alone, which the servers see too.
        pub folder: String = String::new(), in "empty for none, or a folder",
        /// The same folder as the servers name it.
        pub folder_there: String = String::new(), in "empty for the same name, or a folder",
        /// The served model's name.
        pub model: String = String::new(), in "empty if it serves exactly one, or a name",
        /// The roles that servers play; without a way to refresh their weights none of them may be trained.
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
        /// File with the certificates (PEM) to trust instead of the public ones, for servers at https:// addresses.
        pub authority: String = String::new(), in "empty for none, or a file",
    }
}

sgs_keys::choice! {
    /// How servers are given the weights of each update.
    pub enum Refresh {
        /// Not at all.
        Never = "never",
        /// By SGLang's `/update_weights_from_disk`.
        Sglang = "sglang",
        /// By vLLM's `reload_weights`.
        Vllm = "vllm",
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

/// Servers that share tasks: those of some roles.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The tasks.
    pub kind: BoardKind,
    /// The roles.
    pub roles: Vec<Role>,
    /// The servers.
    pub urls: Vec<String>,
}

impl EndpointConfig {
    /// Whether another server plays the role.
    pub fn plays(&self, role: Role) -> bool {
        self.roles.contains(&role) && !self.urls_of(role).is_empty()
    }

    /// Who plays the role.
    pub fn player(&self, role: Role) -> Player {
        match (self.plays(role), self.refresh) {
            (false, _) => Player::Own,
            (true, Refresh::Never) => Player::Server,
            (true, Refresh::Sglang | Refresh::Vllm) => Player::Follower,
        }
    }

    /// The servers of a role, if it is served.
    pub fn urls_of(&self, role: Role) -> Vec<&str> {
        let own = self.own_urls(role);
        let shared = [&self.url].into_iter().filter(|url| !url.is_empty()).chain(&self.urls);
        if own.is_empty() {
            shared.map(String::as_str).collect()
        } else {
            own.iter().map(String::as_str).collect()
        }
    }

    fn own_urls(&self, role: Role) -> &[String] {
        match role {
            Role::Solver => &self.solver_urls,
            Role::Conjecturer => &self.conjecturer_urls,
            Role::Guide => &self.guide_urls,
        }
    }

    /// The kind of the tasks of a role that another server plays; `None` if none does.
    pub fn kind_of(&self, role: Role) -> Option<BoardKind> {
        let kind = if self.own_urls(role).is_empty() { SERVED } else { served_alone(role) };
        self.plays(role).then_some(kind)
    }

    /// The servers by the tasks that they share.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for role in &self.roles {
            let Some(kind) = self.kind_of(*role) else { continue };
            match groups.iter_mut().find(|group| group.kind == kind) {
                Some(group) => group.roles.push(*role),
                None => {
                    let urls = self.urls_of(*role).into_iter().map(str::to_owned).collect();
                    groups.push(Group { kind, roles: vec![*role], urls });
                }
            }
        }
        groups
    }

    /// One server alone, which keeps its weights.
    pub fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), refresh: Refresh::Never, ..self.clone() }
    }

    /// Checks the keys against each other and against the algorithm.
    ///
    /// # Errors
    /// A role that is off or has no server, or one that is trained: its weights would go on elsewhere, or its servers
    /// would be given two sets of them.
    pub fn check(&self, algorithm: &AlgorithmConfig) -> Result<()> {
        let served = |role: &Role| !self.urls_of(*role).is_empty();
        let Some(first) = self.roles.first() else {
            if [Role::Solver, Role::Conjecturer, Role::Guide].iter().any(served) {
                bail!(Usage(
                    "`sampling.endpoint.roles` is empty; expected some of solver, conjecturer, guide".into()
                ));
            }
            return Ok(());
        };
        if !self.roles.iter().all(served) {
            let unserved = self.roles.iter().find(|role| !served(role)).unwrap_or(first).as_str();
            bail!(Usage(format!(
                "`sampling.endpoint.roles` names the {unserved}, and no server is given: `sampling.endpoint.url`, or \
                 `sampling.endpoint.{unserved}_urls`"
            )));
        }
        for role in &self.roles {
            self.check_role(*role, algorithm)?;
        }
        self.check_groups(algorithm)
    }

    fn check_role(&self, role: Role, algorithm: &AlgorithmConfig) -> Result<()> {
        let name = role.as_str();
        if !is_on(algorithm, role) {
            bail!(Usage(format!("`sampling.endpoint.roles` names the {name}, but this method has none")));
        }
        if !algorithm.weights_of(role, Player::Own).is_trained() {
            return Ok(());
        }
        if self.refresh == Refresh::Never {
            bail!(Usage(format!(
                "`sampling.endpoint.roles` names the {name}, which this method trains: a server elsewhere would go on \
                 with the old weights. Have its servers given each update's (`sampling.endpoint.refresh` and `.folder`), let \
                 the {name} be sampled here, or choose a method that does not train it (sampling-only; \
                 sgs-frozen-conjecturer for the Conjecturer)"
            )));
        }
        if self.folder.is_empty() {
            bail!(Usage(format!(
                "`sampling.endpoint.folder` is empty; the {name}'s servers need a folder to read its weights from"
            )));
        }
        Ok(())
    }

    /// Servers that are given weights have one set of them, and nobody else's tasks.
    fn check_groups(&self, algorithm: &AlgorithmConfig) -> Result<()> {
        let mut taken: Vec<(&str, bool)> = Vec::new();
        let groups = self.groups();
        for group in &groups {
            let sets = group.roles.iter().map(|role| algorithm.weights_of(*role, self.player(*role)));
            let sets: BTreeSet<Weights> = sets.collect();
            let is_trained = sets.iter().any(|set| set.is_trained());
            if is_trained && sets.len() > 1 {
                let names: Vec<&str> = group.roles.iter().map(|role| role.as_str()).collect();
                let last = names.last().copied().unwrap_or_default();
                bail!(Usage(format!(
                    "the servers at {} are to play the {}, which do not share their weights: give the {last} servers of its \
                     own (`sampling.endpoint.{last}_urls`)",
                    group.urls.join(", "),
                    names.join(" and the ")
                )));
            }
            for url in &group.urls {
                let url = url.trim_end_matches('/');
                if taken.iter().any(|(other, trained)| *other == url && (*trained || is_trained)) {
                    bail!(Usage(format!(
                        "the server {url} is named twice under `sampling.endpoint`: a server that is given weights has one \
                         set of them, and one place"
                    )));
                }
                taken.push((url, is_trained));
            }
        }
        Ok(())
    }

    /// Checks that only one server is named, and nothing that only the servers of a run have; `table` is the table's key.
    ///
    /// # Errors
    /// A key is set that nobody would look at.
    pub fn check_alone(&self, table: &str) -> Result<()> {
        let runs_alone = [
            ("urls", !self.urls.is_empty()),
            ("solver_urls", !self.solver_urls.is_empty()),
            ("conjecturer_urls", !self.conjecturer_urls.is_empty()),
            ("guide_urls", !self.guide_urls.is_empty()),
            ("refresh", self.refresh != Refresh::Never),
            ("folder", !self.folder.is_empty()),
            ("folder_there", !self.folder_there.is_empty()),
            ("roles", !self.roles.is_empty()),
        ];
        match runs_alone.iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((key, _)) => bail!(Usage(format!(
                "`{table}.{key}` is a key of runs; one server is asked here, that of `{table}.url`"
            ))),
        }
    }

    /// As the client wants it, with the key.
    ///
    /// # Errors
    /// The key or the authority's certificates cannot be read.
    pub(crate) fn settings(&self) -> Result<Settings> {
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
            engine: match self.refresh {
                Refresh::Never => Engine::Any,
                Refresh::Sglang => Engine::Sglang,
                Refresh::Vllm => Engine::Vllm,
            },
            model: Some(self.model.clone()).filter(|m| !m.is_empty()),
            key,
            trusted: match self.authority.as_str() {
                "" => None,
                path => Some(authority::certificates(Path::new(path), "the endpoint's `authority`")?),
            },
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
    pub(crate) endpoint: Endpoint,
    tokenizer: Tokenizer,
    /// Longest sequence, tokens.
    context: usize,
    concurrency: usize,
}

/// What is asked of a server's samples where its weights follow those that are trained.
pub struct Bound<'a> {
    /// The policy version that it holds, and whose tasks it may take.
    pub policy_version: u32,
    /// What it was told that its weights are called.
    pub name: &'a str,
    /// How often it had not answered when its weights were checked.
    pub breaks: u64,
}

/// A completion after its prompt, in tokens, and how long the prompt is.
pub type Recorded = (Vec<u32>, usize);

impl ServedRoles {
    /// Finds out whether a server fits that a run is configured with, for some roles; `probe` is a prompt of the run,
    /// `context` the longest sequence of its model in tokens.
    ///
    /// # Errors
    /// As [`ServedRoles::connect`]; or a role is trained, and the server tells too little to be trained on.
    pub fn of_run(
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
        let abilities = self.endpoint.abilities();
        let lacking = [
            (abilities.prompt != PromptForm::Tokens, "it does not take prompts as token ids"),
            (!abilities.token_ids, "it does not tell the token ids of completions"),
            (!abilities.log_probs, "it does not tell log-probs"),
        ];
        match lacking.iter().find(|(lacks, _)| *lacks) {
            None => Ok(()),
            Some((_, what)) => bail!(
                "{} cannot play a role that is trained: {what}, and updates need the very tokens and their log-probs",
                self.endpoint.url()
            ),
        }
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

    /// A completion of each prompt that fits into the context, of so many tokens at most.
    ///
    /// # Errors
    /// It gives none.
    pub fn record(&self, prompts: &[Arc<[u32]>], most: usize) -> Result<Vec<Recorded>> {
        let fitting = prompts.iter().filter(|prompt| prompt.len() < self.context);
        let one = |prompt: &Arc<[u32]>| {
            let new = most.min(self.context - prompt.len());
            let sample = self.endpoint.sample(&ask(&self.tokenizer, prompt, 0, new, 1.0)?, || false)?;
            Ok(([prompt, &sample.tokens.unwrap_or_default()[..]].concat(), prompt.len()))
        };
        fitting.map(one).collect()
    }

    /// Asks for completions for tasks of a kind until the drain begins; of a server that follows the weights that are
    /// trained, as long as nothing speaks against its still having those that it is `bound` to. It begins the drain itself
    /// when something does.
    ///
    /// # Errors
    /// The endpoint is no longer usable, or the coordinator fails.
    pub fn work(
        &self,
        coordinator: Arc<dyn Coordinator>,
        worker: WorkerName,
        kind: BoardKind,
        bound: Option<&Bound<'_>>,
        drain: &Drain,
    ) -> Result<()> {
        let config = WorkerConfig {
            linger: Duration::from_millis(5),
            grace: Duration::from_secs(2),
            poll: Duration::from_millis(100),
            ..WorkerConfig::new(worker, kind)
        };
        let end: Mutex<Option<EndpointError>> = Mutex::new(None);
        let handler = |lease: &Lease, cancel: &Cancel| {
            let task: GenerateTask = tasks::unpack(lease.payload.as_bytes()).map_err(|e| format!("{e:#}"))?;
            // Nobody has failed: the task waits to be given back.
            let give_back = |why: &str| {
                drain.begin();
                while !cancel.is_cancelled() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(format!("given back: {why}"))
            };
            if let Some(bound) = bound.filter(|bound| bound.policy_version != task.policy_version) {
                let (asked, has) = (task.policy_version, bound.policy_version);
                if asked > has {
                    return give_back("the server is about to be given newer weights");
                }
                return Err(format!("asked for policy {asked}, the server has {has}"));
            }
            let is_doubtful = || bound.is_some_and(|bound| self.endpoint.breaks() != bound.breaks);
            let is_over = || cancel.is_cancelled() || is_doubtful();
            let one = |&seed: &u64| {
                let (sample, weights) =
                    self.sample(&task.prompt, seed, task.max_new_tokens, task.temperature, is_over)?;
                match bound.zip(weights).filter(|(bound, weights)| weights != bound.name) {
                    None => Ok(sample),
                    Some((bound, weights)) => {
                        drain.begin();
                        let url = self.endpoint.url();
                        bail!(
                            "{url} has sampled with the weights {weights}, and {} were asked for",
                            bound.name
                        )
                    }
                }
            };
            let samples = task.seeds.iter().map(one).collect::<Result<_>>();
            if is_doubtful() {
                // Meanwhile, with whatever weights.
                return give_back("the server may have been started anew");
            }
            match samples {
                Ok(samples) => {
                    let policy_id = tasks::own_mark().to_owned();
                    tasks::pack(&GenerateResult { samples, policy_id }).map_err(|e| format!("{e:#}"))
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
        let take = |_: &Ask, _: &Answer| {
            on_answer();
            Ok(())
        };
        ask_all(self.endpoint.url(), self.concurrency, asks, take, |ask, is_over| {
            let new = room(max_new_tokens, ask.prompt.len(), self.context);
            let (sample, _) = self.sample(&ask.prompt, ask.seed, new, 1.0, is_over)?;
            self.answer(sample)
        })
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

    /// A completion, and what the server calls the weights that it is of, if it tells.
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

/// Asks for all answers, so many at once; `take` gets each as it comes. One that the server fails to give is lost, with a
/// warning for the first.
///
/// # Errors
/// The endpoint is no longer usable, or `take` fails; then no more is asked.
pub(crate) fn ask_all<A: Sync>(
    url: &str,
    concurrency: usize,
    asks: &[A],
    take: impl Fn(&A, &Answer) -> Result<()> + Sync,
    one: impl Fn(&A, &dyn Fn() -> bool) -> Result<Answer> + Sync,
) -> Result<Vec<Answer>> {
    let end: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let (over, told) = (AtomicBool::new(false), AtomicBool::new(false));
    let stop = |error: anyhow::Error| {
        end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        over.store(true, Ordering::Release);
    };
    let one = |ask: &A| {
        let is_over = || over.load(Ordering::Acquire);
        if is_over() {
            return Answer::Lost;
        }
        let answer = one(ask, &is_over).unwrap_or_else(|error| {
            let is_final = error.downcast_ref::<EndpointError>().is_some_and(EndpointError::is_final);
            if is_final {
                stop(error);
            } else if !is_over() && !told.swap(true, Ordering::AcqRel) {
                tracing::warn!("{url}: a sample is lost: {error:#}");
            }
            Answer::Lost
        });
        // What came while the others were stopped was paid for, too.
        let is_lost = matches!(answer, Answer::Lost);
        if !(is_lost && is_over())
            && let Err(error) = take(ask, &answer)
        {
            stop(error);
        }
        answer
    };
    let answers = in_parallel(concurrency, asks, one);
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
    let Served { text, tokens, pieces, log_probs, end, .. } = sample;
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
    use crate::config::SystemName;
    use sgs_selfplay::Method;

    fn tokenizer() -> Tokenizer {
        let folder = tempfile::tempdir().unwrap();
        Tokenizer::load(&crate::base_model::unpack(SystemName::Metamath, folder.path()).unwrap()).unwrap()
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
    fn a_trained_role_may_be_served_where_its_weights_are_refreshed() {
        let check = |e: &EndpointConfig, method: &str| e.check(&method.parse::<Method>().unwrap().config());
        let roles = [Role::Solver, Role::Conjecturer];
        let solver = EndpointConfig { refresh: Refresh::Sglang, ..served(&roles[..1]) };
        let error = check(&solver, "sgs").unwrap_err().to_string();
        assert!(error.contains("`sampling.endpoint.folder` is empty"), "{error}");
        let solver = EndpointConfig { folder: "weights".into(), ..solver };
        check(&solver, "sgs").unwrap();
        assert_eq!(solver.player(Role::Solver), Player::Follower);
        // Two sets of weights on one server; the Guide beside a role that is trained.
        for (roles, own) in [(&roles[..], "conjecturer_urls"), (&[Role::Solver, Role::Guide], "guide_urls")] {
            let both = EndpointConfig { roles: roles.to_vec(), ..solver.clone() };
            let error = check(&both, "sgs").unwrap_err().to_string();
            assert!(error.contains("do not share their weights") && error.contains(own), "{error}");
        }
        let apart = EndpointConfig {
            roles: roles.to_vec(),
            urls: vec!["http://127.0.0.1:2".into()],
            conjecturer_urls: vec!["http://127.0.0.1:3".into()],
            ..solver.clone()
        };
        check(&apart, "sgs").unwrap();
        let groups: Vec<(String, usize)> =
            apart.groups().iter().map(|group| (group.kind.to_string(), group.urls.len())).collect();
        assert_eq!(groups, [("endpoint".to_owned(), 2), ("endpoint-conjecturer".to_owned(), 1)]);
        for twice in [
            EndpointConfig { urls: vec!["http://127.0.0.1:1/".into()], ..solver },
            EndpointConfig { conjecturer_urls: vec!["http://127.0.0.1:1".into()], ..apart.clone() },
        ] {
            let error = check(&twice, "sgs").unwrap_err().to_string();
            assert!(error.contains("named twice"), "{error}");
        }
        let none = EndpointConfig { url: String::new(), urls: Vec::new(), ..apart };
        let error = check(&none, "sgs").unwrap_err().to_string();
        assert!(error.contains("names the solver, and no server is given"), "{error}");
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
            weights_name: None,
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
