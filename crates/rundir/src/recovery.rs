//! Repairs a run's journal when the run is opened.
//!
//! Two effects precede their marker, because they are renames and cannot be part of its transaction: the publication of
//! a checkpoint and that of a round's directory. Both directories appear complete, so opening the run writes a marker
//! that is missing.

use crate::error::Result;
use crate::journal::{Journal, JournalStage, Marker, stage_of};
use crate::view::RunView;

/// Completes the journal's markers from the directories, in whatever state the last process left them.
pub(crate) fn recover(view: &RunView, journal: &Journal) -> Result<()> {
    // The order matters, because whether a checkpoint is accepted depends on which rounds are published, and whether a
    // round's samples are usable depends on the previous checkpoint.
    adopt_rounds(view, journal)?;
    settle_checkpoints(view, journal)?;
    drop_orphan(journal)?;
    // A crash may have interrupted the removal of published rounds' records.
    let published =
        journal.reader().markers()?.into_iter().rev().find(|m| m.stage == JournalStage::Published);
    let kept = journal.reader().rounds_with_records()?;
    if let (Some(last), Some(&oldest)) = (published, kept.first())
        && oldest <= last.round
    {
        journal.retire(last.round)?;
    }
    Ok(())
}

/// Removes from the journal a round that started while the previous one was being published, if the previous round's
/// update is lost. The samples of such a round come from weights that no longer exist.
fn drop_orphan(journal: &Journal) -> Result<()> {
    let markers = journal.reader().markers()?;
    let is_orphan = |round: &u32| {
        let before = round.checked_sub(1).and_then(|round| stage_of(&markers, round));
        before.is_some_and(|before| before < JournalStage::Updated)
    };
    if let Some(round) = markers.iter().map(|m| m.round).find(is_orphan) {
        tracing::info!(round, "removing its results: the update of the previous round was not finished");
        journal.forget(round)?;
    }
    Ok(())
}

/// Marks rounds as published that have a directory but no marker, because a crash came between the two or the journal was
/// lost.
fn adopt_rounds(view: &RunView, journal: &Journal) -> Result<()> {
    let markers = journal.reader().markers()?;
    let reached = |round, stage| markers.iter().find(|m| m.round == round && m.stage == stage);
    let rounds = view.rounds()?;
    let mut unknown = None;
    for round in &rounds {
        let number = round.round();
        if reached(number, JournalStage::Published).is_some() {
            unknown = None;
            continue;
        }
        // Check it before it is marked, because its records are then removed and the directory is the only copy.
        round.check()?;
        let checkpoint = match reached(number, JournalStage::Updated) {
            Some(marker) => marker.checkpoint,
            None => view.checkpoints().list()?.iter().map(|c| c.round).rfind(|&c| c <= number),
        };
        tracing::info!(round = number, "adopting its tables, which were published before the crash");
        unknown = reached(number, JournalStage::Updated).is_none().then_some((number, checkpoint));
        // `Published` is marked last, so that after a crash before it the round is adopted again.
        for stage in JournalStage::ALL {
            let checkpoint = checkpoint.filter(|_| stage >= JournalStage::Updated);
            journal.mark(Marker::now(number, stage, checkpoint, ""))?;
        }
    }
    // The last round determines the weights to continue from. If it has no checkpoint, either it trained nothing or the
    // checkpoint is missing; only the journal could distinguish the two.
    if let Some((round, checkpoint)) = unknown.filter(|(round, checkpoint)| *checkpoint != Some(*round)) {
        let weights =
            checkpoint.map_or("the base model".to_owned(), |c| format!("the checkpoint of round {c}"));
        tracing::warn!(
            round,
            "the journal is missing, so the weights after this round are unknown: the run continues from {weights}"
        );
    }
    view.check_published(&markers)
}

/// Marks the update of the round in progress as complete if its checkpoint is intact. Removes checkpoints that cannot be
/// used: damaged ones, and those of a round whose samples were lost with the journal.
fn settle_checkpoints(view: &RunView, journal: &Journal) -> Result<()> {
    let markers = journal.reader().markers()?;
    let last_published = markers.iter().rev().find(|m| m.stage == JournalStage::Published).map(|m| m.round);
    let checkpoints = view.checkpoints();
    for checkpoint in checkpoints.list()? {
        let round = checkpoint.round;
        let reached = |stage| markers.iter().any(|m| m.round == round && m.stage == stage);
        if last_published >= Some(round) || reached(JournalStage::Updated) {
            continue;
        }
        let sound = checkpoint.check();
        match sound {
            Ok(about) if reached(JournalStage::Sampled) => {
                tracing::info!(round, "adopting its update, which was finished before the crash");
                journal.mark(Marker::now(round, JournalStage::Updated, Some(round), &about.detail))?;
            }
            Ok(_) => {
                tracing::warn!(round, "removing its checkpoint: the samples of its update are lost");
                checkpoints.remove(round)?;
            }
            Err(error) => {
                tracing::warn!(round, "removing its checkpoint and repeating the update: {error}");
                checkpoints.remove(round)?;
            }
        }
    }
    Ok(())
}
