//! Where a run stands, from its directory alone.
//!
//! The markers of the journal say which stages each round has reached. Two effects come *before* their marker, because
//! they are a rename and cannot share a transaction with it: a checkpoint and a round's directory. Both appear whole,
//! so that opening a run takes one that stands there without its marker for finished and writes the marker.

use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::error::{Error, Result};
use crate::journal::{Journal, JournalReader, Marker, Stage};
use crate::metrics::unix_time;
use crate::run::RunView;
use std::collections::BTreeMap;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Fix the round's batch: nothing of the round exists.
    Start,
    /// Sample and judge: what the journal holds of the round is replayed, the rest is still to be done.
    Sample,
    /// Update the policy on the journalled samples.
    Update,
    /// Write the round's tables; the new weights are published, or the round has none.
    Publish,
}

impl NextStep {
    /// Whether something of the round is still to be sampled or judged.
    pub fn is_sampling(self) -> bool {
        matches!(self, Self::Start | Self::Sample)
    }
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumePlan {
    /// The round in progress, or the one to start.
    pub round: u32,
    /// What is to be done next in it.
    pub next: NextStep,
    /// The checkpoint to load, checked: for [`NextStep::Publish`] the one after this round's update, otherwise the one that
    /// this round samples with. `None` is the base model.
    pub checkpoint: Option<Checkpoint>,
    /// The markers of this round that the journal holds, with the caller's details, by stage.
    pub markers: BTreeMap<Stage, Marker>,
    /// How many records of each kind the journal holds of this round.
    pub records: BTreeMap<String, u64>,
    /// How many rounds are published.
    pub published: usize,
}

/// Works out where the run stands; `first_round` is the number that the caller gives to its first round.
pub(crate) fn plan(
    journal: &JournalReader,
    checkpoints: &Checkpoints,
    published: usize,
    first_round: u32,
) -> Result<ResumePlan> {
    let markers = journal.markers()?;
    // Two rounds may be under way: one that is being published, and the next, which samples meanwhile. The first of them
    // goes on first.
    let last = markers.iter().rfind(|m| m.stage == Stage::Published);
    let begun = markers.iter().map(|m| m.round).find(|&round| last.is_none_or(|last| round > last.round));
    let round = begun.unwrap_or_else(|| last.map_or(first_round, |last| last.round + 1));
    let next = next_step(markers.iter().filter(|m| m.round == round).map(|m| m.stage).max());
    let checkpoint = checkpoint_in_use(&markers).map(|round| {
        let checkpoint = checkpoints.get(round).ok_or_else(|| missing(checkpoints, round))?;
        checkpoint.check().map_err(|error| checkpoints.advise(&checkpoint, error))?;
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

/// What follows the stage that a round has reached; `None` if it has not begun.
pub(crate) fn next_step(reached: Option<Stage>) -> NextStep {
    match reached {
        None | Some(Stage::Published) => NextStep::Start,
        Some(Stage::Started) => NextStep::Sample,
        Some(Stage::Sampled) => NextStep::Update,
        Some(Stage::Updated) => NextStep::Publish,
    }
}

/// The checkpoint whose weights the run has now.
pub(crate) fn checkpoint_in_use(markers: &[Marker]) -> Option<u32> {
    markers.iter().rev().find(|m| m.stage >= Stage::Updated).and_then(|m| m.checkpoint)
}

fn missing(checkpoints: &Checkpoints, round: u32) -> Error {
    let directory = checkpoints.directory_of(round);
    let error = Error::damaged(&directory, "it is missing", "restore it from a copy");
    checkpoints.advise(&Checkpoint { round, directory }, error)
}

/// Brings the journal up to what stands in the directories, after whatever end the last process came to.
pub(crate) fn recover(view: &RunView, journal: &Journal) -> Result<()> {
    // In this order: a checkpoint is settled by which rounds are published, and whether a round's samples count depends
    // on whether the checkpoint before it does.
    adopt_rounds(view, journal)?;
    settle_checkpoints(view, journal)?;
    drop_orphan(journal)?;
    // What a crash has cut short of retiring.
    let published = journal.reader().markers()?.into_iter().rev().find(|m| m.stage == Stage::Published);
    let kept = journal.reader().rounds_with_records()?;
    if let (Some(last), Some(&oldest)) = (published, kept.first())
        && oldest <= last.round
    {
        journal.retire(last.round)?;
    }
    Ok(())
}

/// Drops what the journal holds of a round that began while the one before it was being published, if that one's update
/// is lost: it was sampled with weights that exist nowhere any more. Checkpoints are settled before, so that an update
/// that reached the disk without its marker counts.
fn drop_orphan(journal: &Journal) -> Result<()> {
    let markers = journal.reader().markers()?;
    let reached = |round| markers.iter().filter(|m| m.round == round).map(|m| m.stage).max();
    let hangs = |round: &u32| {
        let before = round.checked_sub(1).and_then(reached);
        before.is_some_and(|before| before < Stage::Updated)
    };
    if let Some(round) = markers.iter().map(|m| m.round).find(hangs) {
        tracing::info!(round, "its results are dropped: the update before it was not finished");
        journal.forget(round)?;
    }
    Ok(())
}

/// Marks rounds as published whose directory stands there without the marker; the marker was lost in a crash, or the
/// journal was.
fn adopt_rounds(view: &RunView, journal: &Journal) -> Result<()> {
    let markers = journal.reader().markers()?;
    let reached = |round, stage| markers.iter().find(|m| m.round == round && m.stage == stage);
    let rounds = view.rounds()?;
    let mut unknown = None;
    for round in &rounds {
        let number = round.round();
        if reached(number, Stage::Published).is_some() {
            unknown = None;
            continue;
        }
        // Before it is marked: from then on nothing else holds what is in it.
        round.check()?;
        let checkpoint = match reached(number, Stage::Updated) {
            Some(marker) => marker.checkpoint,
            None => view.checkpoints().list()?.iter().map(|c| c.round).rfind(|&c| c <= number),
        };
        tracing::info!(round = number, "its tables were published before the crash");
        unknown = reached(number, Stage::Updated).is_none().then_some((number, checkpoint));
        // `Published` last: cut short before it, the round is adopted again.
        for stage in Stage::ALL {
            let checkpoint = checkpoint.filter(|_| stage >= Stage::Updated);
            let detail = String::new();
            journal.mark(Marker { round: number, stage, checkpoint, detail, unix_time: unix_time() })?;
        }
    }
    // The last round says which weights the run goes on from. One that trained nothing has no checkpoint either: only the
    // journal could tell the two apart.
    if let Some((round, checkpoint)) = unknown.filter(|(round, checkpoint)| *checkpoint != Some(*round)) {
        let weights =
            checkpoint.map_or("the base model".to_owned(), |c| format!("the checkpoint of round {c}"));
        tracing::warn!(
            round,
            "the journal that said which weights came of it is gone: the run goes on from {weights}"
        );
    }
    let gone = markers
        .iter()
        .find(|m| m.stage == Stage::Published && !rounds.iter().any(|round| round.round() == m.round));
    match gone {
        None => Ok(()),
        Some(marker) => {
            let directory = view.round_directory(marker.round);
            Err(Error::damaged(
                &directory,
                "the journal says that it is published, but it is missing",
                "restore it from a copy",
            ))
        }
    }
}

/// Marks the update of the round in progress as done if its checkpoint stands there whole, and removes what cannot be
/// one: damaged, or of a round whose samples are gone with their journal.
fn settle_checkpoints(view: &RunView, journal: &Journal) -> Result<()> {
    let markers = journal.reader().markers()?;
    let last_published = markers.iter().rev().find(|m| m.stage == Stage::Published).map(|m| m.round);
    let checkpoints = view.checkpoints();
    for checkpoint in checkpoints.list()? {
        let round = checkpoint.round;
        let reached = |stage| markers.iter().any(|m| m.round == round && m.stage == stage);
        if last_published.is_some_and(|last| round <= last) || reached(Stage::Updated) {
            continue;
        }
        let sound = checkpoint.check().and_then(|()| checkpoint.about());
        match sound {
            Ok(about) if reached(Stage::Sampled) => {
                tracing::info!(round, "its update was finished before the crash");
                let (stage, detail) = (Stage::Updated, about.detail);
                journal.mark(Marker {
                    round,
                    stage,
                    checkpoint: Some(round),
                    detail,
                    unix_time: unix_time(),
                })?;
            }
            Ok(_) => {
                tracing::warn!(round, "its checkpoint is removed: the samples that led to it are lost");
                checkpoints.remove(round)?;
            }
            Err(error) => {
                tracing::warn!(round, "its checkpoint is removed, the update is made again: {error}");
                checkpoints.remove(round)?;
            }
        }
    }
    Ok(())
}
