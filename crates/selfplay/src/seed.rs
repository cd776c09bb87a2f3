//! Sampling seeds and shuffles, which depend only on their purpose and never on the order of requests.
//!
//! A sampling seed is the first eight bytes, little-endian, of the SHA-256 digest of
//!
//! ```text
//! "sgs-task-v1" 0x00 | run seed u64 LE | round u32 LE | role u8 | length of the problem's id u32 LE | id | index u32 LE
//! ```
//!
//! with the roles Solver = 0, Conjecturer = 1, Guide = 2. Because the seed depends on nothing else, a resumed,
//! reordered or distributed run requests exactly the same samples.

use crate::data::{ProblemId, Role};
pub use sgs_base::random::SeededRng;
use sha2::{Digest, Sha256};

/// Returns the sampling seed of a completion.
///
/// `index` numbers the completions of a role for a problem in a round from 0: the rollout's index for the Solver, the
/// conjecture's index for its target, the attempt for the Guide.
pub fn task_seed(run_seed: u64, round: u32, role: Role, problem: &ProblemId, index: u32) -> u64 {
    let role = match role {
        Role::Solver => 0u8,
        Role::Conjecturer => 1,
        Role::Guide => 2,
    };
    let id = problem.as_str().as_bytes();
    let mut hash = Sha256::new();
    hash.update(b"sgs-task-v1\0");
    hash.update(run_seed.to_le_bytes());
    hash.update(round.to_le_bytes());
    hash.update([role]);
    hash.update(u32::try_from(id.len()).unwrap_or(u32::MAX).to_le_bytes());
    hash.update(id);
    hash.update(index.to_le_bytes());
    first_word(hash)
}

/// Returns the sampling seed of an evaluation attempt: SHA-256 of
/// `"sgs-evaluation-v1" 0x00 | run seed u64 LE | length of the problem's id u32 LE | id | index u32 LE`. The round is
/// not included: all evaluations of a run use the same seeds, so that two evaluations differ only in the policy.
pub fn evaluation_seed(run_seed: u64, problem: &ProblemId, index: u32) -> u64 {
    let id = problem.as_str().as_bytes();
    let mut hash = Sha256::new();
    hash.update(b"sgs-evaluation-v1\0");
    hash.update(run_seed.to_le_bytes());
    hash.update(u32::try_from(id.len()).unwrap_or(u32::MAX).to_le_bytes());
    hash.update(id);
    hash.update(index.to_le_bytes());
    first_word(hash)
}

/// Returns the seed of a shuffle: SHA-256 of `"sgs-shuffle-v1" 0x00 | run seed u64 LE | counter u64 LE | purpose`.
pub fn shuffle_seed(run_seed: u64, purpose: &str, counter: u64) -> u64 {
    let mut hash = Sha256::new();
    hash.update(b"sgs-shuffle-v1\0");
    hash.update(run_seed.to_le_bytes());
    hash.update(counter.to_le_bytes());
    hash.update(purpose.as_bytes());
    first_word(hash)
}

fn first_word(hash: Sha256) -> u64 {
    let digest = hash.finalize();
    let mut word = [0u8; 8];
    word.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(word)
}
