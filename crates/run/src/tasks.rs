//! What stands on the board: the tasks and results that travel between the dispatcher and the workers.
//!
//! They travel as postcard behind a byte that says which form it is; a worker is of the same program (`workers::sheet`
//! sees to that), so one form is enough, and a byte of another is refused rather than misread.

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sgs_fleet::{Payload, TaskKind as BoardKind};
use sgs_selfplay::{FinishReason, Judgement, Problem, Role, TaskKey};
use sha2::{Digest, Sha256};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

/// The kind of the tasks that sample.
pub const GENERATE: BoardKind = BoardKind::of("generate");

/// The kind of the tasks that check.
pub const VERIFY: BoardKind = BoardKind::of("verify");

/// The kind of the tasks of roles that another server plays; of those that have servers of their own, [`served_alone`].
pub const SERVED: BoardKind = BoardKind::of("endpoint");

/// The kind of a role's tasks if it has servers of its own.
pub const fn served_alone(role: Role) -> BoardKind {
    match role {
        Role::Solver => BoardKind::of("endpoint-solver"),
        Role::Conjecturer => BoardKind::of("endpoint-conjecturer"),
        Role::Guide => BoardKind::of("endpoint-guide"),
    }
}

/// First byte of every payload.
const FORM: u8 = 2;

/// Completions of one prompt, to be sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateTask {
    /// Which model samples.
    pub role: Role,
    /// The policy version that must sample: the number of rounds whose updates it has seen.
    pub policy_version: u32,
    /// Prompt tokens.
    pub prompt: Vec<u32>,
    /// One sampling seed for each completion: it alone fixes the sample.
    pub seeds: Vec<u64>,
    /// Longest completion, tokens.
    pub max_new_tokens: usize,
    /// Sampling temperature.
    pub temperature: f32,
}

/// The completions, in the order of the task's seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateResult {
    /// One for each seed.
    pub samples: Vec<Sample>,
    /// Id of the weights; in place of it [`own_mark`], where the run's own process has sampled.
    pub policy_id: String,
}

/// What says that this process has sampled, with the weights that it has itself. Nobody elsewhere can know it: it is drawn
/// by chance for each process and never told.
pub fn own_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| {
        // The keys of the standard library's hash maps are random bits of the system's.
        let keys = RandomState::new();
        format!("own {:016x}{:016x}", keys.hash_one(0_u8), keys.hash_one(1_u8))
    });
    &MARK
}

/// One completion as its sampler gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Sampled tokens.
    pub tokens: Vec<u32>,
    /// Their log-probs at temperature 1, natural logarithm; empty if the sampler gives none.
    pub log_probs: Vec<f32>,
    /// Mean entropy per token, nats, where the sampler knows the whole distribution.
    pub entropy: Option<f32>,
    /// Why it ended.
    pub finish: FinishReason,
    /// Why the request was refused, if it was.
    pub refusal: Option<String>,
}

impl Sample {
    /// What becomes of a request that no sampler takes.
    pub fn refused(why: String) -> Self {
        let finish = FinishReason::Refused;
        Self { tokens: Vec::new(), log_probs: Vec::new(), entropy: None, finish, refusal: Some(why) }
    }
}

/// Proofs to be checked; the result is a [`VerifyResult`] in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyTask {
    /// Identity of the checker that must judge.
    pub checker: String,
    /// Problems, and proofs of each in canonical text.
    pub proofs: Vec<(Arc<Problem>, Vec<Arc<str>>)>,
}

/// What a verification worker answers.
pub type VerifyResult = Vec<Judgement>;

/// As bytes of the board.
///
/// # Errors
/// The value has no such form: a mistake of this program.
pub fn pack(value: &impl Serialize) -> Result<Payload> {
    Ok(packed(value)?.into())
}

/// The same bytes, for the journal.
///
/// # Errors
/// As [`pack`].
pub fn packed(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(512);
    bytes.push(FORM);
    postcard::to_extend(value, bytes).context("a payload for the board")
}

/// From bytes of the board.
///
/// # Errors
/// They are of another form, end too early or go on too long.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&FORM, rest)) => match postcard::take_from_bytes(rest).context("a payload of the board")? {
            (value, []) => Ok(value),
            (_, more) => bail!("a payload of the board has {} bytes too many", more.len()),
        },
        Some((form, _)) => {
            bail!("a payload of the board has form {form}, this program reads {FORM}: use the same program")
        }
        None => bail!("a payload of the board is empty"),
    }
}

/// The number under which a task stands on the board: the same for the same work in every process, so that a restarted
/// run and workers that outlived it speak of the same task. The payload belongs to it: a round that is sampled again has
/// the same keys and may have other texts, whose verdicts are not those that a worker still holds.
pub fn task_number<'a>(keys: impl Iterator<Item = &'a TaskKey>, payload: &[u8]) -> u64 {
    let mut hash = Sha256::new();
    for key in keys {
        hash.update(key.to_string().as_bytes());
        // No two lists of keys are one text.
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
        assert!(unpack::<GenerateTask>(&other).unwrap_err().to_string().contains("form 9"));
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
