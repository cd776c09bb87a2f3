//! What travels over the task board: sampling and checking, as plain data in JSON.

use serde::{Deserialize, Serialize};
use sgs_fleet::TaskKind as BoardKind;
use sgs_selfplay::{Problem, Role, TaskKey};
use sha2::{Digest, Sha256};

/// The kind of the tasks that sample.
pub const GENERATE: BoardKind = BoardKind::of("generate");

/// The kind of the tasks that check.
pub const VERIFY: BoardKind = BoardKind::of("verify");

/// A completion to be sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateTask {
    /// Which model samples.
    pub role: Role,
    /// The policy version that must sample: the number of rounds whose updates it has seen.
    pub policy: u32,
    /// Prompt tokens.
    pub prompt: Vec<u32>,
    /// Fixes the sample.
    pub seed: u64,
    /// Longest completion.
    pub max_new_tokens: usize,
    /// Sampling temperature.
    pub temperature: f32,
}

/// The completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateResult {
    /// Sampled tokens.
    pub tokens: Vec<u32>,
    /// Their log-probs at temperature 1.
    pub log_probs: Vec<f32>,
    /// Mean entropy per token, nats.
    pub entropy: Option<f32>,
    /// Why it ended.
    pub finish: sgs_selfplay::FinishReason,
    /// Why the request was refused, if it was.
    pub refusal: Option<String>,
    /// Fingerprint of the weights, if they were a copy of the run's; without it they were the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
}

/// A proof to be checked; the result is a `Judgement`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyTask {
    /// What it should prove.
    pub problem: Problem,
    /// The proof in canonical text.
    pub proof: String,
    /// Identity of the checker that must judge; `None` for any.
    #[serde(default)]
    pub checker: Option<String>,
}

/// The number under which a task stands on the board: the same for the same key in every process.
pub fn task_number(key: &TaskKey) -> u64 {
    let hash = Sha256::digest(key.to_string().as_bytes());
    let mut word = [0u8; 8];
    word.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(word)
}
