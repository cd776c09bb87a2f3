//! The live page of a run that this process does not execute, from the run's folder.

use super::feed::Feed;
use super::{FINISHED, POLL, STOPPED, show_board};
use crate::activity::{Activity, activity_of, fleet};
use crate::args::PageArgs;
use crate::display::TextDisplay;
use anyhow::Result;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::live::{self, LiveOptions, LiveServer, LiveStatus, LiveWorker};
use sgs_run::StopFlag;
use sgs_run::config::folder::config_of;
use sgs_run::config::held_out;
use sgs_run::config::system::{self, Opened};
use sgs_run::config::{RunConfig, SystemName};
use sgs_run::round::event::EventTranslator;
use sgs_run::round::record;
use sgs_rundir::journal::{JournalReader, JournalStage};
use sgs_rundir::{RunView, read_outcome};
use sgs_selfplay::{Problem, Round, RunState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Serves a live report of the run until the user stops it.
///
/// # Errors
/// Returns an error if the folder is not a run, or if the page cannot be served.
pub fn watch(run: &Path, address: SocketAddr, args: &PageArgs) -> Result<()> {
    let stop = StopFlag::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.flag())?;
    }
    let server = LiveServer::start(&LiveOptions { address, token: args.token() })?;
    crate::output::line(server.url())?;
    let shown = TextDisplay::of_run(run)?;
    let mut follower = JournalFollower::new(RunView::open(run)?);
    let each = |server: &LiveServer| server.set_status(&follower.status());
    live::follow(&server, run, Some(&shown), &FigureOptions::default(), POLL, &stop.flag(), each)?;
    Ok(())
}

/// Reconstructs the round in progress by applying the journal's events to a copy of the round.
struct JournalFollower {
    view: RunView,
    journal: Option<JournalReader>,
    replica: Option<Replica>,
    trouble: Option<String>,
}

struct Replica {
    config: RunConfig,
    targets: Vec<Arc<Problem>>,
    state: RunState,
    feed: Feed,
    teller: EventTranslator,
    round: Option<Round>,
    /// Id of the last applied record.
    last: i64,
}

impl JournalFollower {
    fn new(view: RunView) -> Self {
        let (replica, trouble) = match Replica::new(&view) {
            Ok(replica) => (Some(replica), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        Self { journal: view.journal().ok(), view, replica, trouble }
    }

    fn status(&mut self) -> LiveStatus {
        if self.journal.is_none() {
            self.journal = self.view.journal().ok();
        }
        let mut status = LiveStatus::default();
        let mut stage = None;
        if let Some(journal) = &self.journal {
            match self.replica.as_mut().map(|replica| replica.catch_up(&self.view, journal)) {
                Some(Ok((reached, now))) => (stage, status) = (reached, now),
                // The run is between two stages. The next poll succeeds.
                Some(Err(error)) => status.message = format!("{error:#}"),
                None => status.message = self.trouble.clone().unwrap_or_default(),
            }
        }
        let doing = match stage {
            Some(JournalStage::Started) => "sampling",
            Some(JournalStage::Sampled) => "updating",
            Some(JournalStage::Updated) => "publishing",
            Some(JournalStage::Published) | None => "between rounds",
        };
        let published = self.view.rounds().map_or(0, |rounds| rounds.len());
        let rounds = self.replica.as_ref().map(|replica| u64::from(replica.config.rounds));
        match activity_of(&self.view, rounds, published, stage.is_some()) {
            Activity::Running { holder } => {
                // The coordinator knows remote workers; embedded workers are threads of the process.
                match fleet(self.view.path(), &mut Vec::new()) {
                    (_, Some(board)) => show_board(&board, &mut status),
                    _ => {
                        let worker = LiveWorker { name: holder, kind: "run".into(), ..LiveWorker::default() };
                        status.workers = vec![worker];
                    }
                }
                if status.message.is_empty() {
                    status.message = doing.into();
                }
            }
            Activity::Stopped => status.message = STOPPED.into(),
            Activity::Damaged { problem } => status.message = problem,
            Activity::Finished => status.message = FINISHED.into(),
        }
        status
    }
}

impl Replica {
    fn new(view: &RunView) -> Result<Self> {
        let config = config_of(view)?;
        let problems = &config.problems;
        let set = &problems.set;
        // Nothing is verified here, so Lean is not started; its texts are shown unchanged.
        let (shown, mut targets) = match problems.system {
            SystemName::Metamath => {
                let Opened { system, targets, .. } = system::metamath(&problems.database, set)?;
                (TextDisplay::by(&system), targets)
            }
            SystemName::Lean => {
                let targets = system::lean_targets(set)?;
                (TextDisplay::of(problems)?, targets.into_iter().map(|t| t.problem).collect::<Vec<_>>())
            }
            SystemName::External => (TextDisplay::of(problems)?, system::external_targets(set)?),
        };
        held_out::leave_out(&config.evaluation, &mut targets, &system::says(problems.system));
        let targets: Vec<Arc<Problem>> = targets.into_iter().map(Arc::new).collect();
        let (feed, teller) = (Feed::new(shown), EventTranslator::new(&targets));
        Ok(Self { config, targets, state: RunState::default(), feed, teller, round: None, last: 0 })
    }

    /// Applies the records since the last call; returns the stage of the run and the status to show.
    fn catch_up(
        &mut self,
        view: &RunView,
        journal: &JournalReader,
    ) -> Result<(Option<JournalStage>, LiveStatus)> {
        let marker = journal.markers()?.pop();
        let Some(marker) = marker.filter(|m| m.stage < JournalStage::Published) else {
            return Ok((None, self.feed.status()));
        };
        if self.round.as_ref().is_none_or(|r| r.number() != marker.round) {
            let known = self.state.next_round;
            for published in view.rounds()?.iter().filter(|r| r.round() >= known) {
                self.state.absorb(&read_outcome(published)?)?;
            }
            if self.state.next_round != marker.round {
                return Ok((None, self.feed.status()));
            }
            let algorithm = Arc::new(self.config.algorithm.clone());
            // The context window affects only the length penalty, which the page does not show.
            let window = u32::MAX;
            self.round = Some(Round::new(algorithm, self.config.seed, window, &self.targets, &self.state)?);
            self.feed.begin_round(marker.round);
            self.last = 0;
        }
        if let Some(round) = &mut self.round {
            let (feed, teller) = (&mut self.feed, &mut self.teller);
            self.last = journal.for_each_record_after(marker.round, self.last, |record| {
                for entry in record::entries(&record.payload).unwrap_or_default() {
                    teller.emit(&entry.event, &mut |told| feed.on(&told));
                    round.apply(entry.event);
                }
                Ok(())
            })?;
            self.feed.progress(round.progress());
        }
        Ok((Some(marker.stage), self.feed.status()))
    }
}
