//! Other weights for a server that samples, and what it makes of given tokens with the weights that it has.

use serde::Serialize;
use serde_json::json;

use crate::client::{Endpoint, Engine};
use crate::error::EndpointError;
use crate::wire::{
    Call, Generate, GenerateParameters, PromptBody, Scored, read_generated_scores, read_prompt_scores,
};

/// What SGLang has to be started with.
const SGLANG: &str = "start SGLang where it can read that folder, with the model's architecture unchanged";
/// What vLLM has to be started with.
const VLLM: &str =
    "start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode, on the link that the run keeps";

impl Endpoint {
    /// Has the server take the weights of `folder`, as it names it, and call them `version`. What it is sampling for anybody
    /// is given up. vLLM reads the path that it was started with, which must lead there.
    ///
    /// # Errors
    /// [`EndpointError::Refresh`] if it does not do so; it may then be asleep or have no weights. Doing all of it again is
    /// safe, whatever was done before.
    pub fn refresh(
        &self,
        folder: &str,
        version: &str,
        cancelled: &impl Fn() -> bool,
    ) -> Result<(), EndpointError> {
        let tell = |path: &str, body: &serde_json::Value| self.tell(path, body, cancelled);
        let nothing = json!({});
        match self.settings.engine {
            Engine::Any => Ok(()),
            Engine::Sglang => {
                tell("/pause_generation", &json!({ "mode": "abort" }))?;
                let update = json!({ "model_path": folder, "weight_version": version, "abort_all_requests": true,
                    "flush_cache": true });
                let updated = tell("/update_weights_from_disk", &update);
                // Whatever came of it, it does not stay paused.
                tell("/continue_generation", &nothing).and(updated)
            }
            Engine::Vllm => {
                tell("/sleep?level=2", &nothing)?;
                tell("/wake_up?tags=weights", &nothing)?;
                tell("/collective_rpc", &json!({ "method": "reload_weights" }))?;
                tell("/wake_up?tags=kv_cache", &nothing)?;
                tell("/reset_prefix_cache", &nothing)
            }
        }
    }

    /// Wakes a server that a run has left asleep or paused, killed in the midst of a refresh.
    pub(crate) fn rouse(&self) -> Result<(), EndpointError> {
        let path = match self.settings.engine {
            Engine::Any => return Ok(()),
            Engine::Sglang => "/continue_generation",
            Engine::Vllm => "/wake_up",
        };
        self.tell(path, &json!({}), &|| false)
    }

    fn tell(
        &self,
        path: &str,
        body: &impl Serialize,
        cancelled: &impl Fn() -> bool,
    ) -> Result<(), EndpointError> {
        let url = self.beside(path);
        match self.persevere(0, cancelled, || self.post(&url, body)) {
            Ok(_) => Ok(()),
            // A server that wants no key says 403 where it was not started for this.
            Err(
                EndpointError::Refused { status, message, .. }
                | EndpointError::Unauthorised { status: status @ 403, message, .. },
            ) => Err(EndpointError::Refresh {
                url: self.base.clone(),
                call: path.to_owned(),
                problem: format!("HTTP {status}: {message}"),
                needed: if self.settings.engine == Engine::Sglang { SGLANG } else { VLLM },
            }),
            Err(error) => Err(error),
        }
    }

    /// Log-probs of the tokens from `from` (1 or more) on, given those before each, with the weights that it has; and
    /// what it calls those, if it tells.
    ///
    /// # Errors
    /// [`EndpointError`]; no such thing is asked of [`Engine::Any`].
    pub fn score(
        &self,
        tokens: &[u32],
        from: usize,
        cancelled: impl Fn() -> bool,
    ) -> Result<Scored, EndpointError> {
        let scored = if self.settings.engine == Engine::Sglang {
            let call = Generate {
                input_ids: tokens,
                sampling_params: GenerateParameters::new(1, 0.0, &[]),
                return_logprob: true,
                logprob_start_len: Some(0),
            };
            let url = self.beside("/generate");
            let body = self.persevere(0, cancelled, || self.post(&url, &call))?;
            read_generated_scores(&body, tokens, from)
        } else {
            let call = Call {
                model: &self.model,
                prompt: PromptBody::Tokens(tokens),
                max_tokens: 1,
                temperature: 0.0,
                top_p: 1.0,
                seed: 0,
                logprobs: None,
                stop: &[],
                prompt_logprobs: Some(0),
                beyond: None,
            };
            let url = format!("{}/completions", self.base);
            let body = self.persevere(0, cancelled, || self.post(&url, &call))?;
            read_prompt_scores(&body, tokens, from)
        };
        scored.map_err(|problem| self.garbled(problem))
    }
}
