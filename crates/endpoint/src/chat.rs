//! Client of the chat protocol, for models whose tokenizer is unknown.
//!
//! Servers differ in the name of the length limit: OpenAI's newer models reject `max_tokens` and seeds.

use crate::client::{Endpoint, EndpointSettings};
use crate::error::EndpointError;
use crate::wire::{StopReason, narrow_seed};
use serde::{Deserialize, Serialize};

/// A user message to a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatRequest {
    /// The message.
    pub text: String,
    /// Sampling seed.
    pub seed: u64,
    /// Maximum number of tokens of the reply, including reasoning.
    pub max_tokens: usize,
}

/// The reply of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatReply {
    /// The text.
    pub text: String,
    /// Why the reply ended.
    pub end: StopReason,
}

/// Client of a chat endpoint. Any number of threads may use it at the same time.
#[derive(Debug)]
pub struct ChatClient {
    endpoint: Endpoint,
    dialect: ChatDialect,
}

/// The request fields that a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChatDialect {
    /// `max_tokens` and `seed`, for most servers.
    Usual,
    /// `max_completion_tokens` without a seed.
    Newer,
}

#[derive(Serialize)]
struct ChatBody<'a> {
    model: &'a str,
    messages: [UserMessage<'a>; 1],
    temperature: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
}

#[derive(Serialize)]
struct UserMessage<'a> {
    role: &'a str,
    content: &'a str,
}

impl ChatClient {
    /// Checks that the server offers the model, and sends `probe` to find out which request fields it accepts.
    ///
    /// # Errors
    /// Returns an error if the endpoint is unusable. A retry does not help.
    pub fn connect(settings: EndpointSettings, probe: &ChatRequest) -> Result<Self, EndpointError> {
        let mut chat = Self { endpoint: Endpoint::for_model(settings)?, dialect: ChatDialect::Usual };
        match chat.ask(probe, || false) {
            Ok(_) => Ok(chat),
            Err(first @ EndpointError::Refused { .. }) => {
                chat.dialect = ChatDialect::Newer;
                chat.ask(probe, || false).map_err(|_| first)?;
                Ok(chat)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the base URL.
    pub fn url(&self) -> &str {
        self.endpoint.url()
    }

    /// Returns the name of the model.
    pub fn model(&self) -> &str {
        self.endpoint.model()
    }

    /// Requests a reply at temperature 1. Retries temporary failures, and polls `cancelled` while it waits.
    pub fn ask(
        &self,
        request: &ChatRequest,
        cancelled: impl Fn() -> bool,
    ) -> Result<ChatReply, EndpointError> {
        let is_usual = self.dialect == ChatDialect::Usual;
        let call = ChatBody {
            model: self.endpoint.model(),
            messages: [UserMessage { role: "user", content: &request.text }],
            temperature: 1.0,
            max_tokens: Some(request.max_tokens).filter(|_| is_usual),
            max_completion_tokens: Some(request.max_tokens).filter(|_| !is_usual),
            seed: Some(narrow_seed(request.seed)).filter(|_| is_usual),
        };
        let url = format!("{}/chat/completions", self.endpoint.url());
        let body = self.endpoint.retry(request.seed, cancelled, || self.endpoint.post(&url, &call))?;
        read_reply(&body).map_err(|problem| self.endpoint.invalid_reply(problem))
    }
}

#[derive(Deserialize)]
struct ChatReplyBody {
    choices: Vec<ChatChoice>,
}

#[derive(Deserialize)]
struct ChatChoice {
    message: AssistantMessage,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct AssistantMessage {
    content: Option<String>,
}

/// Parses the reply to `POST /v1/chat/completions`. A missing text means an empty reply: the model may have spent all
/// tokens on reasoning.
fn read_reply(body: &[u8]) -> Result<ChatReply, String> {
    let reply: ChatReplyBody = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let choice = reply.choices.into_iter().next().ok_or("it has no choice")?;
    let end = match choice.finish_reason.as_deref() {
        Some("stop") => StopReason::Stop,
        // A reply that a filter has cut off is incomplete, too, and a retry may succeed.
        Some("length" | "content_filter") => StopReason::Length,
        other => return Err(format!("finish_reason {other:?}")),
    };
    Ok(ChatReply { text: choice.message.content.unwrap_or_default(), end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_parsed_and_invalid_ones_rejected() {
        let body = br#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}]}"#;
        assert_eq!(read_reply(body).unwrap(), ChatReply { text: "Yes.".into(), end: StopReason::Stop });
        let cut = br#"{"choices":[{"message":{"content":null,"reasoning_content":"Well"},"finish_reason":"length"}]}"#;
        assert_eq!(read_reply(cut).unwrap(), ChatReply { text: String::new(), end: StopReason::Length });
        for body in ["", "{}", r#"{"choices":[]}"#, r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#] {
            assert!(read_reply(body.as_bytes()).is_err(), "{body}");
        }
        let filtered = br#"{"choices":[{"message":{"content":""},"finish_reason":"content_filter"}]}"#;
        assert_eq!(read_reply(filtered).unwrap().end, StopReason::Length);
    }
}
