//! The live page of a run that this process does not execute, from the run's folder.

use super::feed::STAGES;
use super::{FINISHED, POLL, STOPPED, show_board};
use crate::activity::{Activity, activity_of, fleet};
use crate::args::PageArgs;
use crate::display::TextDisplay;
use anyhow::Result;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::live::{self, LiveOptions, LiveServer, LiveStage, LiveStatus, LiveWorker};
use sgs_run::StopFlag;
use sgs_run::config::folder::config_of;
use sgs_run::round::record;
use sgs_rundir::RunView;
use sgs_rundir::journal::JournalStage;
use std::net::SocketAddr;
use std::path::Path;

/// Serves a live report of the run until the user stops it.
pub fn watch(run: &Path, address: SocketAddr, args: &PageArgs) -> Result<()> {
    let stop = StopFlag::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.flag())?;
    }
    let server = LiveServer::start(&LiveOptions { address, token: args.token() })?;
    crate::output::line(server.url())?;
    let shown = TextDisplay::of_run(run)?;
    let follower = JournalFollower::new(RunView::open(run)?);
    let each = |server: &LiveServer| server.set_status(&follower.status());
    live::follow(&server, run, Some(&shown), &FigureOptions::default(), POLL, &stop.flag(), each)?;
    Ok(())
}

/// Follows the journal of a run.
struct JournalFollower {
    view: RunView,
    /// Number of rounds in the run's configuration.
    rounds: Option<u64>,
}

impl JournalFollower {
    fn new(view: RunView) -> Self {
        let rounds = config_of(&view).ok().map(|config| config.rounds.into());
        Self { view, rounds }
    }

    fn status(&self) -> LiveStatus {
        // If the run is between two stages, the next poll succeeds.
        let (stage, mut status) = self.progress().unwrap_or_default();
        let doing = match stage {
            Some(JournalStage::Started) => "sampling",
            Some(JournalStage::Sampled) => "updating",
            Some(JournalStage::Updated) => "publishing",
            Some(JournalStage::Published) | None => "between rounds",
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
                status.message = doing.into();
            }
            Activity::Stopped => status.message = STOPPED.into(),
            Activity::Damaged { problem } => status.message = problem,
            Activity::Finished => status.message = FINISHED.into(),
        }
        status
    }

    /// Returns the stage of the round in progress, and a status with the round and its results by kind.
    fn progress(&self) -> Result<(Option<JournalStage>, LiveStatus)> {
        let journal = self.view.journal()?;
        let marker = journal.markers()?.pop().filter(|marker| marker.stage < JournalStage::Published);
        let Some(marker) = marker else { return Ok(Default::default()) };
        let counts = record::counts(&journal, marker.round)?;
        let stages = STAGES.iter().filter_map(|(kind, name)| {
            let done = *counts.get(kind.as_str())?;
            Some(LiveStage { name: (*name).to_owned(), done, ..LiveStage::default() })
        });
        let status =
            LiveStatus { round: Some(marker.round), stages: stages.collect(), ..LiveStatus::default() };
        Ok((Some(marker.stage), status))
    }
}
