//! A model behind a chat endpoint that is asked about problems until it gives an answer that can be read.

use crate::endpoint::{EndpointConfig, ask_all};
use crate::evaluate::Answer;
use crate::ledger::Ledger;
use anyhow::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sgs_endpoint::{Chat, End, Question};
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{ProblemId, Role};
use std::collections::HashSet;

/// A model that answers.
pub struct Teacher {
    chat: Chat,
    requests: usize,
    max_tokens: usize,
}

/// What it said of a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Said<T> {
    /// The problem.
    pub id: ProblemId,
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

impl Teacher {
    /// Finds out whether the endpoint answers; `probe` is one of the questions.
    ///
    /// # Errors
    /// It does not: the address, the model, the key.
    pub fn connect(config: &EndpointConfig, max_tokens: usize, probe: &str) -> Result<Self> {
        let probe = Question { text: probe.to_owned(), seed: 0, max_tokens: max_tokens.min(16) };
        let chat = Chat::connect(config.settings()?, &probe)?;
        Ok(Self { chat, requests: config.concurrency, max_tokens })
    }

    /// The served model's name.
    pub fn model(&self) -> &str {
        self.chat.model()
    }

    /// Asks every question, named by its problem, that the ledger does not hold, and those again of which the answer could
    /// not be read. Answers go to the ledger as they come; `on_answer` hears how many of the questions are answered.
    ///
    /// # Errors
    /// The endpoint is no longer usable, or the ledger cannot be written.
    pub fn ask<T: Clone + Serialize + DeserializeOwned>(
        &self,
        ledger: &mut Ledger<Said<T>>,
        questions: &[(ProblemId, String)],
        seed: u64,
        enough: Enough,
        read: impl Fn(&str) -> Option<T>,
        on_answer: impl Fn(usize),
    ) -> Result<()> {
        let known: HashSet<ProblemId> = ledger.rows().iter().map(|row| row.id.clone()).collect();
        let mut open: Vec<&(ProblemId, String)> =
            questions.iter().filter(|q| !known.contains(&q.0)).collect();
        let answered = |open: usize| questions.len() - open;
        on_answer(answered(open.len()));
        for turn in 0..enough.tries {
            let is_enough = answered(open.len()) as f64 > enough.share * questions.len() as f64;
            if open.is_empty() || (turn > 0 && is_enough) {
                break;
            }
            let mut left = Vec::new();
            let mut unasked = open.len();
            for some in open.chunks(4 * self.requests) {
                unasked -= some.len();
                let answers = self.answers(some, seed, turn)?;
                let mut found = Vec::new();
                for (question, answer) in some.iter().zip(answers) {
                    let said = match &answer {
                        Answer::Whole(text) => read(text),
                        Answer::Cut | Answer::Lost => None,
                    };
                    match said {
                        Some(said) => found.push(Said { id: question.0.clone(), said, asked: turn + 1 }),
                        None => left.push(*question),
                    }
                }
                ledger.add(found)?;
                on_answer(answered(left.len() + unasked));
            }
            open = left;
        }
        Ok(())
    }

    fn answers(&self, questions: &[&(ProblemId, String)], seed: u64, turn: u32) -> Result<Vec<Answer>> {
        ask_all(
            self.chat.url(),
            self.requests,
            questions,
            || (),
            |(id, text), is_over| {
                let seed = task_seed(seed, turn, Role::Guide, id, 0);
                let question = Question { text: text.clone(), seed, max_tokens: self.max_tokens };
                let reply = self.chat.ask(&question, is_over)?;
                Ok(match reply.end {
                    End::Stop => Answer::Whole(reply.text),
                    End::Length => Answer::Cut,
                })
            },
        )
    }
}
