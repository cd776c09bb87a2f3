//! The tasks and results exchanged between the dispatcher and the workers through the board.
//!
//! They are encoded with postcard behind a byte for the format version. Workers run the same program version
//! (`workers::manifest` checks it), so one format suffices; any other version is rejected.

use crate::error::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sgs_fleet::{Payload, WorkKind};
use sgs_selfplay::{FinishReason, Judgement, Problem, Role, TaskKey};
use sha2::{Digest, Sha256};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

pub const GENERATE: WorkKind = WorkKind::of("generate");

pub const VERIFY: WorkKind = WorkKind::of("verify");

/// Format version, the first byte of every payload.
const FORM: u8 = 2;

/// A request for completions of one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateTask {
    /// Which model samples.
    pub role: Role,
    /// The required policy version: number of rounds whose updates the weights have seen.
    pub policy_version: u32,
    /// Digest of these weights, for remote workers. A run that repeats an update after a crash may have different
    /// weights of the same version.
    pub policy_id: String,
    pub prompt: Vec<u32>,
    /// One seed per completion. It alone determines the sample.
    pub seeds: Vec<u64>,
    /// Maximum completion length, in tokens.
    pub max_new_tokens: usize,
    pub temperature: f32,
}

/// The completions, in the order of the task's seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateResult {
    /// One for each seed.
    pub samples: Vec<Sample>,
    /// Digest of the weights, or [`own_mark`] if a process of the run itself has sampled.
    pub policy_id: String,
}

/// Returns the mark of samples of this process and of its ranks, which have the same weights. The mark is random, and
/// only the ranks receive it, over an encrypted connection, so no remote worker can know it.
pub fn own_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| {
        // The keys of the standard library's hash maps come from the system's random generator.
        let keys = RandomState::new();
        format!("own {:016x}{:016x}", keys.hash_one(0_u8), keys.hash_one(1_u8))
    });
    &MARK
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub tokens: Vec<u32>,
    /// Log-probs at temperature 1, natural logarithm; empty if the sampler provides none.
    pub log_probs: Vec<f32>,
    /// Mean entropy per token in nats, if the sampler knows the whole distribution.
    pub entropy: Option<f32>,
    pub finish: FinishReason,
    /// Why the request was refused, if it was.
    pub refusal: Option<String>,
}

impl Sample {
    /// Creates the result of a request that cannot be sampled.
    pub fn refused(why: String) -> Self {
        let finish = FinishReason::Refused;
        Self { tokens: Vec::new(), log_probs: Vec::new(), entropy: None, finish, refusal: Some(why) }
    }
}

/// Proofs to verify. The result is a [`VerifyResult`] in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyTask {
    pub checker: String,
    pub proofs: Vec<(Arc<Problem>, Vec<Arc<str>>)>,
}

pub type VerifyResult = Vec<Judgement>;

/// Encodes a value for the board.
pub fn pack(value: &impl Serialize) -> Result<Payload> {
    Ok(packed(value)?.into())
}

/// Encodes a value for the journal.
pub fn packed(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(512);
    bytes.push(FORM);
    postcard::to_extend(value, bytes).context("a payload for the board")
}

/// Decodes the payload of a task or of its result.
///
/// # Errors
/// Returns an error if the format version differs, or the payload is too short or too long.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&FORM, rest)) => match postcard::take_from_bytes(rest).context("the task's payload")? {
            (value, []) => Ok(value),
            (_, more) => bail!("the task's payload has {} bytes too many", more.len()),
        },
        Some((form, _)) => {
            bail!("the task's payload has format {form}; this program reads {FORM}: use the same program")
        }
        None => bail!("the task's payload is empty"),
    }
}

/// Returns the number of items of a result, which begins with a list, without decoding them. An item can need much more
/// memory than its part of the payload.
///
/// # Errors
/// Returns an error if the format version differs or the number is missing.
pub fn items(bytes: &[u8]) -> Result<u64> {
    match bytes.split_first() {
        Some((&FORM, rest)) => {
            // postcard writes the length of a list like a number.
            let (items, _) = postcard::take_from_bytes(rest).context("the task's payload")?;
            Ok(items)
        }
        // Returns the error about the format.
        _ => unpack::<u64>(bytes),
    }
}

/// Returns the number of a task on the board. It depends only on the task's content, so that a restarted run and
/// workers that outlived it compute the same number. The payload is included, because a round that is sampled again has
/// the same keys and may have different proofs.
pub fn task_number<'a>(keys: impl Iterator<Item = &'a TaskKey>, payload: &[u8]) -> u64 {
    let mut hash = Sha256::new();
    for key in keys {
        hash.update(key.to_string().as_bytes());
        // Separates the keys, so that different lists give different input.
        hash.update([0]);
    }
    hash.update(payload);
    let mut word = [0u8; 8];
    word.copy_from_slice(&hash.finalize()[..8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn task() -> GenerateTask {
        GenerateTask {
            role: Role::Guide,
            policy_version: 3,
            policy_id: "weights".to_owned(),
            prompt: vec![1, 70_000],
            seeds: vec![7, u64::MAX],
            max_new_tokens: 48,
            temperature: 1.0,
        }
    }

    #[test]
    fn payloads_come_back_and_no_damaged_one_is_misread() {
        let packed = pack(&task()).unwrap();
        let bytes = packed.as_bytes();
        assert_eq!(unpack::<GenerateTask>(bytes).unwrap(), task());
        for end in 0..bytes.len() {
            assert!(unpack::<GenerateTask>(&bytes[..end]).is_err(), "{end}");
        }
        let longer = [bytes, &[0]].concat();
        assert!(unpack::<GenerateTask>(&longer).unwrap_err().to_string().contains("1 bytes too many"));
        let other = [&[9], &bytes[1..]].concat();
        assert!(unpack::<GenerateTask>(&other).unwrap_err().to_string().contains("format 9"));
    }

    #[test]
    fn the_number_of_items_is_known_before_they_are_decoded() {
        let samples = vec![Sample::refused("no".to_owned()); 300];
        let result = GenerateResult { samples, policy_id: "weights".to_owned() };
        assert_eq!(items(pack(&result).unwrap().as_bytes()).unwrap(), 300);
        assert_eq!(items(pack(&VerifyResult::new()).unwrap().as_bytes()).unwrap(), 0);
        assert!(items(&[]).is_err() && items(&[FORM]).is_err() && items(&[9, 1]).is_err());
    }

    #[test]
    fn keys_tell_tasks_apart() {
        let key = |problem: &str, index| TaskKey {
            round: 1,
            kind: sgs_selfplay::TaskKind::Rollout,
            problem: sgs_selfplay::ProblemId::new(problem),
            index,
        };
        let (a, b, c) = (key("p", 0), key("p", 1), key("q", 0));
        let number = |keys: &[&TaskKey]| task_number(keys.iter().copied(), b"work");
        assert_eq!(number(&[&a, &b]), number(&[&a, &b]));
        let all = [number(&[&a]), number(&[&b]), number(&[&c]), number(&[&a, &b]), number(&[&b, &a])];
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len());
        assert_ne!(number(&[&a]), task_number([&a].into_iter(), b"other work"));
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_worker_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpack::<GenerateResult>(&bytes);
            let _ = unpack::<GenerateTask>(&bytes);
            let _ = unpack::<VerifyTask>(&bytes);
            let _ = unpack::<VerifyResult>(&bytes);
        }
    }
}
