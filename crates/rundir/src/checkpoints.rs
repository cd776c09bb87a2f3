//! The checkpoints of a run: one directory for each round whose update was kept.

use crate::directories::{KnownSums, StagedDirectory, check_directory, remove_directory};
use crate::error::{CallerError, Error, Result};
use crate::rounds::{directory_name, numbered_directories, read_json, write_json};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const ABOUT: &str = "checkpoint.json";

/// Which checkpoints stay; the newest one always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepPolicy {
    /// How many of the newest.
    pub last: u32,
    /// Also those whose round is a multiple of this; 0 for none.
    pub every: u32,
}

/// What a checkpoint says of itself in `checkpoint.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AboutCheckpoint {
    /// The round whose update produced the weights.
    pub round: u32,
    /// Whatever the caller needs after a crash between the checkpoint and the end of the round, such as losses.
    pub detail: String,
}

/// One checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The round whose update produced the weights.
    pub round: u32,
    /// Its directory, with `solver/` and `conjecturer/` as the caller wrote them.
    pub directory: PathBuf,
}

impl Checkpoint {
    /// Checks every file against its checksum. Takes about a second for each gigabyte.
    ///
    /// # Errors
    /// [`Error::Damaged`] names the first file that does not fit.
    pub fn check(&self) -> Result<()> {
        check_directory(&self.directory)
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// `checkpoint.json` is missing or damaged.
    pub fn about(&self) -> Result<AboutCheckpoint> {
        read_json(&self.directory.join(ABOUT))
    }
}

/// A checkpoint that is whole on the disk and lacks nothing but its name. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct PreparedCheckpoint {
    checkpoint: Checkpoint,
    staged: StagedDirectory,
    detail: String,
}

impl PreparedCheckpoint {
    /// The round whose update produced the weights.
    pub fn round(&self) -> u32 {
        self.checkpoint.round
    }

    /// What the caller keeps with it.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// The file system refuses.
    pub(crate) fn publish(self) -> Result<Checkpoint> {
        self.staged.publish()?;
        Ok(self.checkpoint)
    }
}

/// The directory of a run's checkpoints.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    directory: PathBuf,
}

impl Checkpoints {
    /// The checkpoints below `directory`, which may not exist yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// All checkpoints, ascending, unverified.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<Checkpoint>> {
        let found = numbered_directories(&self.directory)?;
        Ok(found.into_iter().map(|(round, directory)| Checkpoint { round, directory }).collect())
    }

    /// The checkpoint of a round, unverified, if there is one.
    pub fn get(&self, round: u32) -> Option<Checkpoint> {
        let directory = self.directory_of(round);
        directory.is_dir().then_some(Checkpoint { round, directory })
    }

    /// The newest checkpoint of rounds up to `up_to` whose files all fit their checksums; damaged ones are passed
    /// over with a warning in the log.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn newest_valid(&self, up_to: u32) -> Result<Option<Checkpoint>> {
        for checkpoint in self.list()?.into_iter().rev().filter(|c| c.round <= up_to) {
            match checkpoint.check() {
                Ok(()) => return Ok(Some(checkpoint)),
                Err(error) => tracing::warn!("checkpoint {} is passed over: {error}", checkpoint.round),
            }
        }
        Ok(None)
    }

    /// Publishes the checkpoint of a round: `fill` writes `solver/`, `conjecturer/` and so on into an empty directory.
    ///
    /// # Errors
    /// There is one already, `fill` failed, or the file system refused; nothing remains then.
    pub fn publish(
        &self,
        round: u32,
        detail: &str,
        fill: impl FnOnce(&Path) -> Result<(), CallerError>,
    ) -> Result<Checkpoint> {
        self.prepare(round, detail, fill)?.publish()
    }

    /// Everything of [`Checkpoints::publish`] but the final name. `fill` may give sums that it knows.
    ///
    /// # Errors
    /// As [`Checkpoints::publish`].
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

    /// Removes a checkpoint; a crash leaves it whole or gone.
    ///
    /// # Errors
    /// There is none, or the file system refuses.
    pub fn remove(&self, round: u32) -> Result<()> {
        remove_directory(&self.directory_of(round))
    }

    /// Removes the checkpoints that the policy does not keep, except those in `in_use`; returns their rounds.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn prune(&self, policy: KeepPolicy, in_use: &[u32]) -> Result<Vec<u32>> {
        let rounds: Vec<u32> = self.list()?.iter().map(|c| c.round).collect();
        let doomed = doomed(&rounds, policy, in_use);
        for &round in &doomed {
            self.remove(round)?;
        }
        Ok(doomed)
    }

    /// Where the checkpoint of a round is, or would be.
    pub fn directory_of(&self, round: u32) -> PathBuf {
        self.directory.join(directory_name(round))
    }

    /// The error that says what to do about a damaged checkpoint.
    pub(crate) fn advise(&self, damaged: &Checkpoint, error: Error) -> Error {
        let Error::Damaged { path, what, .. } = error else { return error };
        let advice = match self.newest_valid(damaged.round.saturating_sub(1)) {
            Ok(Some(valid)) => format!(
                "restore it from a copy; the newest sound checkpoint before it is {}, from which a new run can start",
                valid.directory.display()
            ),
            _ => "restore it from a copy; there is no sound checkpoint before it".into(),
        };
        Error::Damaged { path, what, advice }
    }
}

/// Which of `rounds`, ascending, the policy does not keep.
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
        checkpoints.publish(round, "{}", fill).unwrap();
    }

    #[test]
    fn the_newest_valid_checkpoint_is_found_past_damaged_ones() {
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
            // What is left stays left.
            let again = super::doomed(&left, KeepPolicy { last, every }, &in_use);
            prop_assert!(again.is_empty());
        }
    }
}
