//! Weight updates of a sampling server, and scores of given tokens.

use serde::Serialize;
use serde_json::json;

use crate::client::{Endpoint, ServerKind};
use crate::error::EndpointError;
use crate::wire::{
    CompletionBody, GenerateBody, GenerateOptions, PromptBody, TokenScores, read_generated_scores,
    read_prompt_scores,
};

/// Requirement for weight updates of SGLang.
const SGLANG: &str = "start SGLang where it can read that folder, with the same model architecture";
/// Requirement for weight updates of vLLM.
const VLLM: &str = "start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode, on the symbolic link that the run maintains";

impl Endpoint {
    /// Makes the server load the weights in `folder` (a path on the server) under the name `version`. Aborts all completions
    /// in progress. vLLM reloads the path that it was started with, so that path must lead to the folder.
    ///
    /// # Errors
    /// Returns an error if the server fails to do so. It may then be asleep or without weights. A retry is safe.
    pub fn refresh(
        &self,
        folder: &str,
        version: &str,
        cancelled: &impl Fn() -> bool,
    ) -> Result<(), EndpointError> {
        let control = |path: &str, body: &serde_json::Value| self.control(path, body, cancelled);
        let empty = json!({});
        match self.settings.server {
            ServerKind::Any => Ok(()),
            ServerKind::Sglang => {
                control("/pause_generation", &json!({ "mode": "abort" }))?;
                let update = json!({ "model_path": folder, "weight_version": version, "abort_all_requests": true,
                    "flush_cache": true });
                let updated = control("/update_weights_from_disk", &update);
                // Resume the server even if the update has failed.
                control("/continue_generation", &empty).and(updated)
            }
            ServerKind::Vllm => {
                control("/sleep?level=2", &empty)?;
                control("/wake_up?tags=weights", &empty)?;
                control("/collective_rpc", &json!({ "method": "reload_weights" }))?;
                control("/wake_up?tags=kv_cache", &empty)?;
                control("/reset_prefix_cache", &empty)
            }
        }
    }

    /// Wakes a server that was left asleep or paused by a run killed during a refresh.
    pub(crate) fn wake(&self) -> Result<(), EndpointError> {
        let path = match self.settings.server {
            ServerKind::Any => return Ok(()),
            ServerKind::Sglang => "/continue_generation",
            ServerKind::Vllm => "/wake_up",
        };
        self.control(path, &json!({}), &|| false)
    }

    fn control(
        &self,
        path: &str,
        body: &impl Serialize,
        cancelled: &impl Fn() -> bool,
    ) -> Result<(), EndpointError> {
        let url = self.extension_url(path);
        match self.retry(0, cancelled, || self.post(&url, body)) {
            Ok(_) => Ok(()),
            // A server without a key returns 403 if the call is not enabled.
            Err(
                EndpointError::Refused { status, message, .. }
                | EndpointError::Unauthorised { status: status @ 403, message, .. },
            ) => Err(EndpointError::Refresh {
                url: self.base.clone(),
                call: path.to_owned(),
                problem: format!("HTTP {status}: {message}"),
                needed: if self.settings.server == ServerKind::Sglang { SGLANG } else { VLLM },
            }),
            Err(error) => Err(error),
        }
    }

    /// Returns the log-probs of the tokens from index `from` (at least 1) on, under the current weights, and the name
    /// of the weights if the server returns it. Not supported for [`ServerKind::Any`].
    pub fn score(
        &self,
        tokens: &[u32],
        from: usize,
        cancelled: impl Fn() -> bool,
    ) -> Result<TokenScores, EndpointError> {
        let scored = if self.settings.server == ServerKind::Sglang {
            let call = GenerateBody {
                input_ids: tokens,
                sampling_params: GenerateOptions::new(1, 0.0, &[]),
                return_logprob: true,
                logprob_start_len: Some(0),
            };
            let url = self.extension_url("/generate");
            let body = self.retry(0, cancelled, || self.post(&url, &call))?;
            read_generated_scores(&body, tokens, from)
        } else {
            let call = CompletionBody {
                model: &self.model,
                prompt: PromptBody::Tokens(tokens),
                max_tokens: 1,
                temperature: 0.0,
                top_p: 1.0,
                seed: 0,
                logprobs: None,
                stop: &[],
                prompt_logprobs: Some(0),
                extensions: None,
            };
            let url = format!("{}/completions", self.base);
            let body = self.retry(0, cancelled, || self.post(&url, &call))?;
            read_prompt_scores(&body, tokens, from)
        };
        scored.map_err(|problem| self.invalid_reply(problem))
    }
}
