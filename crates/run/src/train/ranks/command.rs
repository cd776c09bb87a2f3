//! The commands that rank 0 sends to the other ranks.

use super::board_access::BoardAccess;
use crate::error::{Context, Result};
use crate::train::pass::TrainingPass;
use serde::{Deserialize, Serialize};
use sgs_lm::loss::TrainExample;
use std::borrow::Cow;
use std::path::PathBuf;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum RankCommand<'a> {
    /// Load the trained weights and connect. Sent first, and once.
    Load {
        /// The run's configuration as TOML.
        config: String,
        base: PathBuf,
        /// Checkpoint to continue from; `None` for the base model.
        at: Option<PathBuf>,
        /// Number of updates that these weights have received.
        policy_version: u32,
        /// Whether the rank samples between updates; then it also loads the weights that are not trained.
        samples: bool,
    },
    /// Sample tasks of this board from now on, except during updates. Sent at most once.
    Work(BoardAccess),
    /// Train on examples, together with the other ranks.
    Train {
        pass: TrainingPass,
        /// All examples; each rank takes its part.
        examples: Cow<'a, [TrainExample]>,
    },
    /// The update is complete, and the weights now have this version. Resume sampling, which the first `Train` has
    /// stopped.
    Sample { policy_version: u32 },
    /// Write your part of the optimizer state into a checkpoint folder, and acknowledge.
    Save {
        /// The checkpoint, not yet published.
        folder: PathBuf,
    },
}

impl RankCommand<'_> {
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).context("a command to the ranks")
    }

    pub fn decode(bytes: &[u8]) -> Result<RankCommand<'static>> {
        postcard::from_bytes(bytes)
            .context("a command of rank 0 cannot be read: start all ranks with the same program")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_selfplay::Role;

    #[test]
    fn commands_arrive_unchanged() {
        let examples = vec![
            TrainExample {
                tokens: vec![3, 70_000, 1],
                prompt_len: 1,
                weight: -0.1,
                sampled_log_probs: vec![f32::NEG_INFINITY, -1e-30],
                group: 7,
                ..TrainExample::default()
            },
            TrainExample::plain(vec![5, 6]),
        ];
        let pass = TrainingPass { role: Role::Conjecturer, number: 2, learning_rate: 1e-5 };
        for command in [
            RankCommand::Load {
                config: "seed = 1".into(),
                base: "/base".into(),
                at: None,
                policy_version: 0,
                samples: true,
            },
            RankCommand::Train { pass, examples: Cow::Owned(examples) },
            RankCommand::Sample { policy_version: 3 },
            RankCommand::Save { folder: "/run/checkpoints/.tmp".into() },
        ] {
            let bytes = command.encode().unwrap();
            assert_eq!(RankCommand::decode(&bytes).unwrap(), command);
            assert!(RankCommand::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }
}
