//! The checkpoints of a run: one directory for each round with an update.

use crate::directories::{KnownSums, StagedDirectory, check_directory, remove_directory};
use crate::error::{CallerError, Error, Result};
use crate::files;
use crate::rounds::{check_number, directory_name, numbered_directories, parse_json, write_json};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const ABOUT: &str = "checkpoint.json";

/// Which checkpoints to keep. The newest one is always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepPolicy {
    /// Number of newest checkpoints to keep.
    pub last: u32,
    /// Also keeps checkpoints whose round is a multiple of this; 0 disables this rule.
    pub every: u32,
}

/// The content of `checkpoint.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AboutCheckpoint {
    /// The round whose update produced the weights.
    pub round: u32,
    /// Opaque text that the caller needs after a crash between the checkpoint and the end of the round, such as losses.
    pub detail: String,
}

/// A checkpoint on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The round whose update produced the weights.
    pub round: u32,
    /// Its directory, with `solver/` and `conjecturer/`.
    pub directory: PathBuf,
}

impl Checkpoint {
    /// Checks every file against its checksum, and that the weights are those of this round. Takes about one second per
    /// gigabyte.
    ///
    /// # Errors
    /// Returns [`Error::Damaged`] with the first file that does not match.
    pub fn check(&self) -> Result<AboutCheckpoint> {
        check_directory(&self.directory)?;
        self.about()
    }

    /// Reads `checkpoint.json`.
    ///
    /// # Errors
    /// Returns an error if `checkpoint.json` is missing, damaged or that of another round.
    pub fn about(&self) -> Result<AboutCheckpoint> {
        let path = self.directory.join(ABOUT);
        let about: AboutCheckpoint = parse_json(&path, &files::read(&path)?)?;
        check_number(&self.directory, self.round, about.round)?;
        Ok(about)
    }
}

/// A checkpoint that is complete and durable, but not published. Dropping it removes the directory.
#[derive(Debug)]
pub struct PreparedCheckpoint {
    checkpoint: Checkpoint,
    staged: StagedDirectory,
    detail: String,
}

impl PreparedCheckpoint {
    /// Returns the round whose update produced the weights.
    pub fn round(&self) -> u32 {
        self.checkpoint.round
    }

    /// Returns the caller's text.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Renames the directory to its final name.
    pub(crate) fn publish(self) -> Result<Checkpoint> {
        self.staged.publish()?;
        Ok(self.checkpoint)
    }
}

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    directory: PathBuf,
}

impl Checkpoints {
    /// Creates access to the checkpoints in `directory`, which need not exist.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Lists all checkpoints in ascending order, without checking them.
    pub fn list(&self) -> Result<Vec<Checkpoint>> {
        let found = numbered_directories(&self.directory)?;
        Ok(found.into_iter().map(|(round, directory)| Checkpoint { round, directory }).collect())
    }

    /// Returns the checkpoint of a round, without checking it, or `None` if there is none.
    pub fn get(&self, round: u32) -> Option<Checkpoint> {
        let directory = self.directory_of(round);
        directory.is_dir().then_some(Checkpoint { round, directory })
    }

    /// Returns the newest intact checkpoint of the rounds up to `up_to`. Damaged ones are skipped with a warning in the log.
    pub fn newest_valid(&self, up_to: u32) -> Result<Option<Checkpoint>> {
        for checkpoint in self.list()?.into_iter().rev().filter(|c| c.round <= up_to) {
            match checkpoint.check() {
                Ok(_) => return Ok(Some(checkpoint)),
                Err(error) => tracing::warn!("skipping checkpoint {}: {error}", checkpoint.round),
            }
        }
        Ok(None)
    }

    /// Writes a checkpoint without publishing it. `fill` writes `solver/`, `conjecturer/` and so on into an empty directory,
    /// and may return checksums that it already knows.
    ///
    /// # Errors
    /// Returns an error if the round has a checkpoint, `fill` fails, or a file cannot be written. Nothing remains in that case.
    pub fn prepare<S: Into<KnownSums>>(
        &self,
        round: u32,
        detail: &str,
        fill: impl FnOnce(&Path) -> Result<S, CallerError>,
    ) -> Result<PreparedCheckpoint> {
        let directory = self.directory_of(round);
        let staged = StagedDirectory::prepare(&directory, |staging| {
            let known = fill(staging)?;
            write_json(&staging.join(ABOUT), &AboutCheckpoint { round, detail: detail.to_owned() })?;
            Ok(known)
        })?;
        Ok(PreparedCheckpoint {
            checkpoint: Checkpoint { round, directory },
            staged,
            detail: detail.to_owned(),
        })
    }

    /// Removes a checkpoint atomically: after a crash it is either complete or gone.
    pub fn remove(&self, round: u32) -> Result<()> {
        remove_directory(&self.directory_of(round))
    }

    /// Removes the checkpoints that the policy does not keep, except those in `in_use`. Returns their rounds.
    pub fn prune(&self, policy: KeepPolicy, in_use: &[u32]) -> Result<Vec<u32>> {
        let rounds: Vec<u32> = self.list()?.iter().map(|c| c.round).collect();
        let doomed = doomed(&rounds, policy, in_use);
        for &round in &doomed {
            self.remove(round)?;
        }
        Ok(doomed)
    }

    /// Returns the path of a round's checkpoint, whether or not it exists.
    pub fn directory_of(&self, round: u32) -> PathBuf {
        self.directory.join(directory_name(round))
    }

    /// Adds advice to an error about a damaged checkpoint.
    pub(crate) fn advise(&self, damaged: &Checkpoint, error: Error) -> Error {
        let Error::Damaged { path, what, .. } = error else { return error };
        let advice = match self.newest_valid(damaged.round.saturating_sub(1)) {
            Ok(Some(valid)) => format!(
                "restore it from a copy; the newest intact checkpoint before it is {}, from which a new run can start",
                valid.directory.display()
            ),
            _ => "restore it from a copy; there is no intact checkpoint before it".into(),
        };
        Error::Damaged { path, what, advice }
    }
}

/// Returns those of `rounds`, in ascending order, that the policy does not keep.
fn doomed(rounds: &[u32], policy: KeepPolicy, in_use: &[u32]) -> Vec<u32> {
    let newest = rounds.len().saturating_sub(policy.last.max(1) as usize);
    let kept: BTreeSet<u32> = rounds[newest..].iter().chain(in_use).copied().collect();
    let milestone = |round: u32| policy.every > 0 && round.is_multiple_of(policy.every);
    rounds.iter().copied().filter(|&round| !kept.contains(&round) && !milestone(round)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;
    use std::fs;

    fn publish(checkpoints: &Checkpoints, round: u32) {
        let fill = |dir: &Path| {
            fs::create_dir(dir.join("solver"))?;
            Ok(fs::write(dir.join("solver/model.safetensors"), round.to_string())?)
        };
        checkpoints.prepare(round, "{}", fill).unwrap().publish().unwrap();
    }

    #[test]
    fn the_newest_intact_checkpoint_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(dir.path().to_path_buf());
        for round in 1..=4 {
            publish(&checkpoints, round);
        }
        fs::write(checkpoints.get(4).unwrap().directory.join("solver/model.safetensors"), b"torn").unwrap();
        fs::remove_file(checkpoints.get(3).unwrap().directory.join("checkpoint.json")).unwrap();
        assert_eq!(checkpoints.newest_valid(9).unwrap().unwrap().round, 2);
        assert_eq!(checkpoints.newest_valid(1).unwrap().unwrap().round, 1);
        assert_eq!(checkpoints.newest_valid(0).unwrap(), None);
        assert_eq!(checkpoints.get(2).unwrap().about().unwrap().round, 2);
        let damaged = checkpoints.get(4).unwrap();
        let error = checkpoints.advise(&damaged, damaged.check().unwrap_err()).to_string();
        assert!(error.contains("solver/model.safetensors") && error.contains("0002"), "{error}");
    }

    #[test]
    fn pruning_follows_the_policy() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(dir.path().to_path_buf());
        for round in 0..=11 {
            publish(&checkpoints, round);
        }
        let gone = checkpoints.prune(KeepPolicy { last: 2, every: 5 }, &[3]).unwrap();
        assert_eq!(gone, [1, 2, 4, 6, 7, 8, 9]);
        let left: Vec<_> = checkpoints.list().unwrap().iter().map(|c| c.round).collect();
        assert_eq!(left, [0, 3, 5, 10, 11]);
    }

    proptest! {
        #[test]
        fn the_newest_and_those_in_use_are_never_removed(
            rounds in btree_set(0u32..60, 0..20), last in 0u32..5, every in 0u32..7, in_use in btree_set(0u32..60, 0..3),
        ) {
            let rounds: Vec<u32> = rounds.into_iter().collect();
            let in_use: Vec<u32> = in_use.into_iter().collect();
            let doomed = doomed(&rounds, KeepPolicy { last, every }, &in_use);
            let left: Vec<u32> = rounds.iter().copied().filter(|r| !doomed.contains(r)).collect();
            prop_assert_eq!(left.last(), rounds.last());
            prop_assert!(left.len() >= rounds.len().min(last as usize));
            prop_assert!(in_use.iter().all(|r| !doomed.contains(r)));
            // Pruning again removes nothing.
            let again = super::doomed(&left, KeepPolicy { last, every }, &in_use);
            prop_assert!(again.is_empty());
        }
    }
}
