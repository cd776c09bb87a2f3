//! Determines the next step of a run from its directory alone.
//!
//! The journal's markers record which stages each round has reached. `recovery.rs` completes them when a run is opened.

use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::error::{Error, Result};
use crate::journal::{JournalReader, JournalStage, Marker, stage_of};
use std::collections::BTreeMap;

/// The next step of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Choose the round's batch: the round has not started.
    Start,
    /// Sample and judge: replay the round's records from the journal, then run the remaining tasks.
    Sample,
    /// Update the policies on the samples in the journal.
    Update,
    /// Publish the round's tables. The new weights are published, or the round has none.
    Publish,
}

impl NextStep {
    /// Returns whether the round still needs sampling or judging.
    pub fn is_sampling(self) -> bool {
        matches!(self, Self::Start | Self::Sample)
    }
}

/// The progress of a run and its next step.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumePlan {
    /// The round in progress, or the one to start.
    pub round: u32,
    /// The next step of that round.
    pub next: NextStep,
    /// The checkpoint to load, whose checksums have been verified: for [`NextStep::Publish`] the result of this round's
    /// update, otherwise the weights that this round samples with. `None` is the base model.
    pub checkpoint: Option<Checkpoint>,
    /// The markers of this round by stage, with the caller's details.
    pub markers: BTreeMap<JournalStage, Marker>,
    /// Number of this round's records in the journal, by kind.
    pub records: BTreeMap<String, u64>,
    /// Number of published rounds.
    pub published: usize,
}

/// Determines the next step; `first_round` is the number of the run's first round.
pub(crate) fn plan(
    journal: &JournalReader,
    checkpoints: &Checkpoints,
    published: usize,
    first_round: u32,
) -> Result<ResumePlan> {
    let markers = journal.markers()?;
    check_checkpoints(&markers, checkpoints)?;
    // Two rounds may be in progress: one that is being published, and the next one, which is sampling. The earlier round
    // continues first.
    let last = markers.iter().rfind(|m| m.stage == JournalStage::Published);
    let begun = markers.iter().map(|m| m.round).find(|&round| last.is_none_or(|last| round > last.round));
    let round = begun.unwrap_or_else(|| last.map_or(first_round, |last| last.round + 1));
    let next = next_step(stage_of(&markers, round));
    let checkpoint = checkpoint_in_use(&markers).map(|round| {
        let checkpoint = existing(checkpoints, round)?;
        let check = || {
            let about = checkpoint.check()?;
            let updated = markers.iter().find(|m| m.round == round && m.stage == JournalStage::Updated);
            // A marker that was restored from the directories has no detail.
            match updated.filter(|marker| !marker.detail.is_empty() && marker.detail != about.detail) {
                None => Ok(()),
                Some(_) => {
                    let what = "it is not the checkpoint that the journal records";
                    Err(Error::damaged(&checkpoint.directory, what, ""))
                }
            }
        };
        check().map_err(|error| checkpoints.advise(&checkpoint, error))?;
        Ok(checkpoint)
    });
    Ok(ResumePlan {
        round,
        next,
        checkpoint: checkpoint.transpose()?,
        records: journal.counts(round)?,
        markers: markers.into_iter().filter(|m| m.round == round).map(|m| (m.stage, m)).collect(),
        published,
    })
}

/// Returns the step after the stage that a round has reached; `None` is a round that has not started.
pub(crate) fn next_step(reached: Option<JournalStage>) -> NextStep {
    match reached {
        None | Some(JournalStage::Published) => NextStep::Start,
        Some(JournalStage::Started) => NextStep::Sample,
        Some(JournalStage::Sampled) => NextStep::Update,
        Some(JournalStage::Updated) => NextStep::Publish,
    }
}

/// Returns the round of the checkpoint with the current weights.
pub(crate) fn checkpoint_in_use(markers: &[Marker]) -> Option<u32> {
    markers.iter().rev().find(|m| m.stage >= JournalStage::Updated).and_then(|m| m.checkpoint)
}

/// Checks that the checkpoint in use exists, and that no marker names an older checkpoint than exists for its round: the
/// checkpoint of a round is published before its marker. The markers must have been read before, because another process may
/// publish a checkpoint in the meantime.
pub(crate) fn check_checkpoints(markers: &[Marker], checkpoints: &Checkpoints) -> Result<()> {
    let existing = checkpoints.list()?;
    for marker in markers.iter().filter(|marker| marker.stage >= JournalStage::Updated) {
        let is_newer = |c: &&Checkpoint| c.round <= marker.round && Some(c.round) > marker.checkpoint;
        let Some(newer) = existing.iter().rfind(is_newer) else { continue };
        let named = marker.checkpoint.map_or("the base model".into(), |c| format!("checkpoint {c}"));
        let what = format!("it is newer than {named}, which the journal names for round {}", marker.round);
        let advice = "if it belongs to this run, move journal.sqlite away (with its -wal and -shm files) and resume: the run \
                      continues after its last published round with the newest checkpoint; otherwise move it away";
        return Err(Error::damaged(&newer.directory, what, advice));
    }
    match checkpoint_in_use(markers) {
        // A newer one may have replaced it after the markers were read.
        Some(used) if existing.iter().all(|checkpoint| checkpoint.round < used) => {
            self::existing(checkpoints, used).map(drop)
        }
        _ => Ok(()),
    }
}

/// Returns the checkpoint of a round, which must exist.
pub(crate) fn existing(checkpoints: &Checkpoints, round: u32) -> Result<Checkpoint> {
    checkpoints.get(round).ok_or_else(|| {
        let directory = checkpoints.directory_of(round);
        let error = Error::damaged(&directory, "it is missing", "restore it from a copy");
        checkpoints.advise(&Checkpoint { round, directory }, error)
    })
}
