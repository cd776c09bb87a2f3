//! The live page of a run that this process does not execute, from the run's folder.

use super::feed::STAGES;
use super::{FINISHED, POLL, STOPPED, show_board};
use crate::activity::{Activity, activity_of, fleet};
use crate::args::PageArgs;
use crate::display::TextDisplay;
use crate::signals;
use anyhow::Result;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::live::{self, LiveOptions, LiveServer, LiveStage, LiveStatus, LiveWorker};
use sgs_run::config::folder::config_of;
use sgs_run::round::record;
use sgs_rundir::RunView;
use sgs_rundir::journal::{JournalReader, JournalStage};
use sgs_selfplay::TaskKind;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

/// Serves a live report of the run until the user stops it.
pub fn watch(run: &Path, address: SocketAddr, args: &PageArgs) -> Result<()> {
    let (stop, _guard) = signals::guard()?;
    let server = LiveServer::start(&LiveOptions { address, token: args.token() })?;
    crate::output::line(server.url())?;
    let shown = TextDisplay::of_run(run)?;
    let mut follower = JournalFollower::new(RunView::open(run)?);
    let each = |server: &LiveServer| server.set_status(&follower.status());
    live::follow(&server, run, Some(&shown), &FigureOptions::default(), POLL, &stop.flag(), each)?;
    Ok(())
}

struct JournalFollower {
    view: RunView,
    /// Number of rounds in the run's configuration.
    rounds: Option<u64>,
    /// Results so far of the round in progress.
    round: RoundCounts,
}

/// The results of a round by kind. Each poll reads only the records that it has not seen.
#[derive(Default)]
struct RoundCounts {
    number: Option<u32>,
    /// Number of the last record that was read.
    last: i64,
    results: BTreeMap<TaskKind, u64>,
}

impl JournalFollower {
    fn new(view: RunView) -> Self {
        let rounds = config_of(&view).ok().map(|config| config.rounds.into());
        Self { view, rounds, round: RoundCounts::default() }
    }

    fn status(&mut self) -> LiveStatus {
        let (stage, mut status, doing) = match self.progress() {
            Ok((stage, status)) => (stage, status, doing(stage).to_owned()),
            Err(error) => (None, LiveStatus::default(), format!("the journal cannot be read: {error:#}")),
        };
        let published = self.view.rounds().map_or(0, |rounds| rounds.len());
        match activity_of(&self.view, self.rounds, published, stage.is_some()) {
            Activity::Running { holder } => {
                // The coordinator knows remote workers; embedded workers are threads of the process.
                match fleet(self.view.path(), &mut Vec::new()) {
                    (_, Some(board)) => show_board(&board, &mut status),
                    _ => {
                        let worker = LiveWorker { name: holder, kind: "run".into(), ..LiveWorker::default() };
                        status.workers = vec![worker];
                    }
                }
                status.message = doing;
            }
            Activity::Stopped => status.message = STOPPED.into(),
            Activity::Damaged { problem } => status.message = problem,
            Activity::Finished => status.message = FINISHED.into(),
        }
        status
    }

    /// Returns the stage of the round in progress, and a status with the round and its results by kind.
    fn progress(&mut self) -> Result<(Option<JournalStage>, LiveStatus)> {
        let journal = self.view.journal()?;
        let marker = journal.markers()?.pop().filter(|marker| marker.stage < JournalStage::Published);
        let Some(marker) = marker else { return Ok(Default::default()) };
        self.round.read(&journal, marker.round)?;
        let stages = STAGES.iter().filter_map(|(kind, name)| {
            let done = *self.round.results.get(kind)?;
            Some(LiveStage { name: (*name).to_owned(), done, ..LiveStage::default() })
        });
        let status =
            LiveStatus { round: Some(marker.round), stages: stages.collect(), ..LiveStatus::default() };
        Ok((Some(marker.stage), status))
    }
}

impl RoundCounts {
    /// Adds the records of a round that were written since the last call.
    fn read(&mut self, journal: &JournalReader, round: u32) -> Result<()> {
        if self.number != Some(round) {
            *self = Self { number: Some(round), ..Self::default() };
        }
        let results = &mut self.results;
        self.last = journal.for_each_record_after(round, self.last, |record| {
            // Records of another version are not counted.
            for entry in record::entries(&record.payload).unwrap_or_default() {
                *results.entry(entry.event.key().kind).or_default() += 1;
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Describes the stage of a round in progress.
fn doing(stage: Option<JournalStage>) -> &'static str {
    match stage {
        Some(JournalStage::Started) => "sampling",
        Some(JournalStage::Sampled) => "updating",
        Some(JournalStage::Updated) => "publishing",
        Some(JournalStage::Published) | None => "between rounds",
    }
}
