//! A served model that answers questions about problems. A question is repeated until its answer can be parsed.

use super::ledger::{Ledger, Subject};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sgs_endpoint::{ChatClient, ChatRequest, StopReason};
use sgs_run::config::endpoint::EndpointConfig;
use sgs_run::error::{Result, bail};
use sgs_run::served::client::ask_all;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{ProblemId, Role};
use std::sync::{Mutex, PoisonError};

/// Settings of a served model.
#[derive(Clone, Debug)]
pub struct TeacherOptions {
    /// The server.
    pub endpoint: EndpointConfig,
    /// Maximum length of an answer in tokens, including any reasoning before it.
    pub max_tokens: usize,
    /// Maximum number of times that a question is asked until its answer can be parsed.
    pub tries: u32,
    /// Sampling seed.
    pub seed: u64,
}

/// A served model. It connects when the first question is asked.
pub struct Teacher {
    options: TeacherOptions,
    chat: Option<ChatClient>,
}

/// A question about a problem.
#[derive(Clone, Debug)]
pub struct About {
    /// The problem and the question.
    pub subject: Subject,
    /// The text of the question.
    pub text: String,
}

impl About {
    /// Creates a question about a problem.
    pub fn new(id: &ProblemId, text: String) -> Self {
        Self { subject: Subject::new(id, &text), text }
    }
}

/// An answer about a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Said<T> {
    /// The parsed answer.
    pub said: T,
    /// Number of times that the question was asked.
    pub asked: u32,
}

/// Returns the maximum number of questions of a turn that may get no answer. If there are more, the server is broken.
fn most_lost(questions: usize) -> usize {
    (questions / 20).max(4).min(questions.saturating_sub(1))
}

impl Teacher {
    /// Creates a teacher for the model of a server.
    pub fn new(options: TeacherOptions) -> Self {
        Self { options, chat: None }
    }

    /// Returns the served model's name, if it is known.
    pub fn model(&self) -> Option<&str> {
        let named = Some(self.options.endpoint.model.as_str()).filter(|name| !name.is_empty());
        self.chat.as_ref().map(ChatClient::model).or(named)
    }

    /// Connects to the endpoint on the first call.
    fn chat(&mut self, probe: &str) -> Result<&ChatClient> {
        let chat = match self.chat.take() {
            Some(chat) => chat,
            None => {
                let max_tokens = self.options.max_tokens.min(16);
                let probe = ChatRequest { text: probe.to_owned(), seed: 0, max_tokens };
                ChatClient::connect(self.options.endpoint.settings()?, &probe)?
            }
        };
        Ok(self.chat.insert(chat))
    }

    /// Asks every question that has no answer in the ledger, and repeats those whose answer cannot be parsed. Each
    /// parsed answer is added to the ledger as it arrives. `on_answer` is called with the number of answered questions.
    /// If a larger fraction of the questions than `enough` is answered, none is repeated. With 1, questions are repeated
    /// until all are answered.
    ///
    /// # Errors
    /// Returns an error if the endpoint cannot be used, if too many questions get no answer, or if the ledger cannot be
    /// written.
    pub fn ask<T: Clone + Send + Serialize + DeserializeOwned>(
        &mut self,
        ledger: &mut Ledger<Said<T>>,
        questions: &[About],
        enough: f64,
        read: impl Fn(&str) -> Option<T> + Sync,
        on_answer: impl Fn(usize) + Sync,
    ) -> Result<()> {
        let TeacherOptions { endpoint, max_tokens, tries, seed } = self.options.clone();
        let url = &endpoint.url;
        for turn in 0..tries {
            let open: Vec<&About> =
                questions.iter().filter(|about| ledger.found(&about.subject).is_none()).collect();
            let answered = questions.len() - open.len();
            on_answer(answered);
            let is_enough = answered as f64 > enough * questions.len() as f64;
            let Some(first) = open.first().filter(|_| turn == 0 || !is_enough) else { break };
            let chat = self.chat(&first.text)?;
            let one = |about: &&About, is_over: &dyn Fn() -> bool| {
                let seed = task_seed(seed, turn, Role::Guide, &about.subject.id, 0);
                let question = ChatRequest { text: about.text.clone(), seed, max_tokens };
                let reply = chat.ask(&question, is_over)?;
                Ok(Some(reply.text).filter(|_| reply.end == StopReason::Stop))
            };
            let state = Mutex::new((&mut *ledger, answered, 0));
            let take = |about: &&About, answer: Option<&Option<String>>| {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                let (ledger, answered, lost) = &mut *state;
                match answer {
                    Some(Some(text)) => {
                        let Some(said) = read(text) else { return Ok(()) };
                        ledger.add(vec![(about.subject.clone(), Said { said, asked: turn + 1 })])?;
                        *answered += 1;
                        on_answer(*answered);
                    }
                    // The answer reached the length limit.
                    Some(None) => {}
                    None => *lost += 1,
                }
                // Only one of the concurrent requests reports the failure, so that the message has this number.
                if answer.is_none() && *lost == most_lost(questions.len()) + 1 {
                    bail!(
                        "{url} gave no answer to {lost} of {} questions: check the server. Its earlier answers are \
                         kept: the same command continues after them",
                        open.len()
                    );
                }
                Ok(())
            };
            ask_all(url, endpoint.concurrency, &open, take, one)?;
        }
        Ok(())
    }
}
