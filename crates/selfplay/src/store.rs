//! The proofs of targets that a run keeps; expert iteration trains on them (paper, Appendix G.4).

use crate::data::ProblemId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A proved rollout of a target, identified by round and index. Its tokens are in the round's rollouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredProof {
    /// The round of the rollout.
    pub round: u32,
    /// Index of the rollout among those of its problem.
    pub index: u32,
    /// Weight in the loss; `None` if it is not trained on (because of a forbidden tactic).
    pub weight: Option<f64>,
    /// Number of sampled tokens.
    pub generated_tokens: u32,
    /// Fingerprint of the proof's text.
    pub fingerprint: u64,
}

/// The first proof of a solved target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolvedTarget {
    /// The round of the first proof.
    pub round: u32,
    /// The first proved rollout of that round.
    pub index: u32,
    /// The first proof.
    pub proof: Arc<str>,
    /// Highest solve rate of any round.
    pub best_rate: f64,
}

/// The stored proofs of all targets, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProofStore {
    proofs: BTreeMap<ProblemId, Vec<StoredProof>>,
}

impl ProofStore {
    /// Returns the stored proofs of a target.
    pub fn of(&self, target: &ProblemId) -> &[StoredProof] {
        self.proofs.get(target).map_or(&[], Vec::as_slice)
    }

    /// Adds proofs of a target.
    pub fn extend(&mut self, target: &ProblemId, proofs: impl IntoIterator<Item = StoredProof>) {
        let mut proofs = proofs.into_iter().peekable();
        if proofs.peek().is_some() {
            self.proofs.entry(target.clone()).or_default().extend(proofs);
        }
    }

    /// Returns the targets that have proofs, in order of their ids, with their proofs.
    pub fn iter(&self) -> impl Iterator<Item = (&ProblemId, &[StoredProof])> {
        self.proofs.iter().map(|(id, proofs)| (id, proofs.as_slice()))
    }
}

/// Returns the first proofs of `new` that fit below the cap (paper: 16). With `distinct`, skips proofs that are already
/// stored or occur earlier in `new`.
pub fn admit(stored: &[StoredProof], new: &[StoredProof], cap: u32, distinct: bool) -> Vec<StoredProof> {
    let room = (cap as usize).saturating_sub(stored.len());
    let mut admitted: Vec<StoredProof> = Vec::new();
    for proof in new {
        if admitted.len() == room {
            break;
        }
        let known = |p: &StoredProof| p.fingerprint == proof.fingerprint;
        if !(distinct && (stored.iter().any(known) || admitted.iter().any(known))) {
            admitted.push(proof.clone());
        }
    }
    admitted
}

/// Returns whether a proof of round `round` is trained on in round `current`. A window of 3 includes the current round and
/// the two before it.
pub fn in_window(round: u32, current: u32, window: u32) -> bool {
    round <= current && u64::from(round) + u64::from(window) > u64::from(current)
}

/// Returns the fingerprint of a text: the first eight bytes, little-endian, of its SHA-256 digest.
pub fn fingerprint(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    let mut word = [0u8; 8];
    word.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(word)
}
