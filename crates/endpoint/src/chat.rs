//! One message to a model and its answer: the chat half of the protocol, for models whose tokens nobody here knows.
//!
//! Servers differ in what they call the longest answer: OpenAI's newer models refuse `max_tokens` and take no seed.

use crate::client::{Endpoint, Settings};
use crate::error::EndpointError;
use crate::wire::{End, narrow_seed};
use serde::{Deserialize, Serialize};

/// What is asked of a model, as one message of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The message.
    pub text: String,
    /// Fixes the answer, on a server that samples reproducibly.
    pub seed: u64,
    /// Longest answer in tokens; a model that thinks before it speaks counts its thoughts.
    pub max_tokens: usize,
}

/// What a model answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The text.
    pub text: String,
    /// Why it ended.
    pub end: End,
}

/// A chat endpoint. Any number of threads may ask at once.
#[derive(Debug)]
pub struct Chat {
    endpoint: Endpoint,
    form: Form,
}

/// How a server wants to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `max_tokens` and `seed`, which most servers know.
    Usual,
    /// `max_completion_tokens` alone.
    Newer,
}

#[derive(Serialize)]
struct Call<'a> {
    model: &'a str,
    messages: [Message<'a>; 1],
    temperature: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'a str,
    content: &'a str,
}

impl Chat {
    /// Finds out whether the model is served and how it wants to be asked: `probe` is asked once.
    ///
    /// # Errors
    /// [`EndpointError`], of which none goes away by asking again.
    pub fn connect(settings: Settings, probe: &Question) -> Result<Self, EndpointError> {
        let mut chat = Self { endpoint: Endpoint::of_model(settings)?, form: Form::Usual };
        match chat.ask(probe, || false) {
            Ok(_) => Ok(chat),
            Err(first @ EndpointError::Refused { .. }) => {
                chat.form = Form::Newer;
                chat.ask(probe, || false).map_err(|_| first)?;
                Ok(chat)
            }
            Err(error) => Err(error),
        }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        self.endpoint.url()
    }

    /// The name of the model that answers.
    #[must_use]
    pub fn model(&self) -> &str {
        self.endpoint.model()
    }

    /// Asks at temperature 1. Failures that may pass are tried again; `cancelled` is asked now and then whether to stop.
    ///
    /// # Errors
    /// [`EndpointError`]; see [`EndpointError::is_final`].
    pub fn ask(&self, question: &Question, cancelled: impl Fn() -> bool) -> Result<Reply, EndpointError> {
        let is_usual = self.form == Form::Usual;
        let call = Call {
            model: self.endpoint.model(),
            messages: [Message { role: "user", content: &question.text }],
            temperature: 1.0,
            max_tokens: Some(question.max_tokens).filter(|_| is_usual),
            max_completion_tokens: Some(question.max_tokens).filter(|_| !is_usual),
            seed: Some(narrow_seed(question.seed)).filter(|_| is_usual),
        };
        let url = format!("{}/chat/completions", self.endpoint.url());
        let body = self.endpoint.persevere(question.seed, cancelled, || self.endpoint.post(&url, &call))?;
        read_reply(&body).map_err(|problem| self.endpoint.garbled(problem))
    }
}

#[derive(Deserialize)]
struct ReplyBody {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Said,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    content: Option<String>,
}

/// Reads the answer to `POST /v1/chat/completions`. Without a text there is an empty one: a model may have thought until
/// it was cut off.
fn read_reply(body: &[u8]) -> Result<Reply, String> {
    let reply: ReplyBody = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let choice = reply.choices.into_iter().next().ok_or("there is no choice in it")?;
    let end = match choice.finish_reason.as_deref() {
        Some("stop") => End::Stop,
        // What a filter has cut off is no answer either, and asking again may give one.
        Some("length" | "content_filter") => End::Length,
        other => return Err(format!("finish_reason {other:?}")),
    };
    Ok(Reply { text: choice.message.content.unwrap_or_default(), end })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_is_read_and_what_is_none_refused() {
        let body = br#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}]}"#;
        assert_eq!(read_reply(body).unwrap(), Reply { text: "Yes.".into(), end: End::Stop });
        let cut = br#"{"choices":[{"message":{"content":null,"reasoning_content":"Well"},"finish_reason":"length"}]}"#;
        assert_eq!(read_reply(cut).unwrap(), Reply { text: String::new(), end: End::Length });
        for body in ["", "{}", r#"{"choices":[]}"#, r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#] {
            assert!(read_reply(body.as_bytes()).is_err(), "{body}");
        }
        let filtered = br#"{"choices":[{"message":{"content":""},"finish_reason":"content_filter"}]}"#;
        assert_eq!(read_reply(filtered).unwrap().end, End::Length);
    }
}
