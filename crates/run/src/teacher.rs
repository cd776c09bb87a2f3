//! A model behind a chat endpoint that is asked about problems until it gives an answer that can be read.

use crate::endpoint::{EndpointConfig, ask_all};
use crate::evaluate::Answer;
use crate::ledger::{Ledger, Subject};
use anyhow::{Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sgs_endpoint::{Chat, End, Question};
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{ProblemId, Role};
use std::sync::{Mutex, PoisonError};

/// A model that answers. Nobody is asked anything before the first question is open.
pub struct Teacher {
    config: EndpointConfig,
    max_tokens: usize,
    chat: Option<Chat>,
}

/// A question about a problem.
#[derive(Clone, Debug)]
pub struct About {
    /// Which problem, asked what.
    pub subject: Subject,
    /// What is asked.
    pub text: String,
}

impl About {
    /// A question about a problem.
    pub fn new(id: &ProblemId, text: String) -> Self {
        Self { subject: Subject::new(id, &text), text }
    }
}

/// What it said of a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Said<T> {
    /// What was read.
    pub said: T,
    /// How often it was asked.
    pub asked: u32,
}

/// When to stop asking.
#[derive(Clone, Copy, Debug)]
pub struct Enough {
    /// How often each question is asked at most.
    pub tries: u32,
    /// No question is asked again when more than this share of them are answered; 1 asks for all.
    pub share: f64,
}

/// So many questions of a turn may get no answer at all; when more do, the server is not well.
fn most_lost(questions: usize) -> usize {
    (questions / 20).max(4).min(questions.saturating_sub(1))
}

impl Teacher {
    /// A model of a server.
    pub fn new(config: EndpointConfig, max_tokens: usize) -> Self {
        Self { config, max_tokens, chat: None }
    }

    /// The served model's name, as far as it is known.
    pub fn model(&self) -> Option<&str> {
        let named = Some(self.config.model.as_str()).filter(|name| !name.is_empty());
        self.chat.as_ref().map(Chat::model).or(named)
    }

    /// Finds out whether the endpoint answers, if that is not known.
    fn chat(&mut self, probe: &str) -> Result<&Chat> {
        let chat = match self.chat.take() {
            Some(chat) => chat,
            None => {
                let max_tokens = self.max_tokens.min(16);
                let probe = Question { text: probe.to_owned(), seed: 0, max_tokens };
                Chat::connect(self.config.settings()?, &probe)?
            }
        };
        Ok(self.chat.insert(chat))
    }

    /// Asks every question that the ledger holds no answer to, and those again of which the answer could not be read. Each
    /// answer that can goes to the ledger as it comes; `on_answer` hears how many of the questions are answered.
    ///
    /// # Errors
    /// The endpoint is not or no longer usable (the address, the model, the key; too many questions get no answer), or the
    /// ledger cannot be written.
    pub fn ask<T: Clone + Send + Serialize + DeserializeOwned>(
        &mut self,
        ledger: &mut Ledger<Said<T>>,
        questions: &[About],
        seed: u64,
        enough: Enough,
        read: impl Fn(&str) -> Option<T> + Sync,
        on_answer: impl Fn(usize) + Sync,
    ) -> Result<()> {
        for turn in 0..enough.tries {
            let open: Vec<&About> =
                questions.iter().filter(|about| ledger.found(&about.subject).is_none()).collect();
            let answered = questions.len() - open.len();
            on_answer(answered);
            let is_enough = answered as f64 > enough.share * questions.len() as f64;
            let Some(first) = open.first().filter(|_| turn == 0 || !is_enough) else { break };
            let (requests, max_tokens, url) =
                (self.config.concurrency, self.max_tokens, self.config.url.clone());
            let chat = self.chat(&first.text)?;
            let one = |about: &&About, is_over: &dyn Fn() -> bool| {
                let seed = task_seed(seed, turn, Role::Guide, &about.subject.id, 0);
                let question = Question { text: about.text.clone(), seed, max_tokens };
                let reply = chat.ask(&question, is_over)?;
                Ok(match reply.end {
                    End::Stop => Answer::Whole(reply.text),
                    End::Length => Answer::Cut,
                })
            };
            let state = Mutex::new((&mut *ledger, answered, 0));
            let take = |about: &&About, answer: &Answer| {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                let (ledger, answered, lost) = &mut *state;
                match answer {
                    Answer::Whole(text) => {
                        let Some(said) = read(text) else { return Ok(()) };
                        ledger.add(vec![(about.subject.clone(), Said { said, asked: turn + 1 })])?;
                        *answered += 1;
                        on_answer(*answered);
                    }
                    Answer::Cut => {}
                    Answer::Lost => *lost += 1,
                }
                if *lost > most_lost(questions.len()) {
                    bail!(
                        "{url} gave no answer to {lost} of {} questions: it is not well; what it said before is kept, and \
                         the same command goes on from there",
                        open.len()
                    );
                }
                Ok(())
            };
            ask_all(&url, requests, &open, take, one)?;
        }
        Ok(())
    }
}
