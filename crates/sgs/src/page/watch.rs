//! The live page of a run that another process works on, or nobody: from the run's folder alone.

use super::feed::Feed;
use super::{FINISHED, LOOK, STOPPED, show_board};
use crate::args::PageArgs;
use crate::commands::status::{Activity, activity_of, fleet};
use crate::shown::Shown;
use anyhow::Result;
use sgs_analysis::live::{self, LiveOptions, LiveServer, Status, WorkerStatus};
use sgs_analysis::report::ReportOptions;
use sgs_analysis::run::ReadOptions;
use sgs_run::config::{RunConfig, SystemName};
use sgs_run::event::Teller;
use sgs_run::folder::config_of;
use sgs_run::held_out;
use sgs_run::system::{self, Opened};
use sgs_run::{Interrupt, record};
use sgs_rundir::journal::{JournalReader, Stage};
use sgs_rundir::{RunView, read_outcome};
use sgs_selfplay::{Problem, Round, RunState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Serves the report as a page that follows the run, until the user stops it.
///
/// # Errors
/// The folder is no run, or the page cannot be served.
pub fn watch(run: &Path, address: SocketAddr, args: &PageArgs) -> Result<()> {
    let stop = Interrupt::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.flag())?;
    }
    let server = LiveServer::start(&LiveOptions { address, token: args.token() })?;
    crate::output::line(server.url())?;
    let shown = Shown::of_run(run)?;
    let read = ReadOptions { display: Some(&shown), ..ReadOptions::default() };
    let mut look = Look::new(RunView::open(run)?);
    let each = |server: &LiveServer| server.set_status(&look.status());
    live::follow(&server, run, &read, &ReportOptions::default(), LOOK, &stop.flag(), each)?;
    Ok(())
}

/// What the round in progress looks like: the loop's own round, fed with the same events out of the journal.
struct Look {
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
    teller: Teller,
    round: Option<Round>,
    /// The last record that the round has seen.
    last: i64,
}

impl Look {
    fn new(view: RunView) -> Self {
        let (replica, trouble) = match Replica::new(&view) {
            Ok(replica) => (Some(replica), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        Self { journal: view.journal().ok(), view, replica, trouble }
    }

    fn status(&mut self) -> Status {
        if self.journal.is_none() {
            self.journal = self.view.journal().ok();
        }
        let mut status = Status::default();
        let mut stage = None;
        if let Some(journal) = &self.journal {
            match self.replica.as_mut().map(|replica| replica.catch_up(&self.view, journal)) {
                Some(Ok((reached, now))) => (stage, status) = (reached, now),
                // A torn moment between two stages: the next look sees it whole.
                Some(Err(error)) => status.message = format!("{error:#}"),
                None => status.message = self.trouble.clone().unwrap_or_default(),
            }
        }
        let doing = match stage {
            Some(Stage::Started) => "sampling",
            Some(Stage::Sampled) => "updating",
            Some(Stage::Updated) => "publishing",
            Some(Stage::Published) | None => "between rounds",
        };
        let published = self.view.rounds().map_or(0, |rounds| rounds.len());
        let rounds = self.replica.as_ref().map(|replica| u64::from(replica.config.rounds));
        match activity_of(self.view.path(), rounds, published, stage.is_some()) {
            Activity::Running { holder } => {
                // Workers elsewhere are known to the coordinator; others are threads of the process.
                match fleet(self.view.path(), &mut Vec::new()) {
                    (_, Some(board)) => show_board(&board, &mut status),
                    _ => {
                        let worker =
                            WorkerStatus { name: holder, kind: "run".into(), ..WorkerStatus::default() };
                        status.workers = vec![worker];
                    }
                }
                if status.message.is_empty() {
                    status.message = doing.into();
                }
            }
            Activity::Stopped => status.message = STOPPED.into(),
            Activity::Finished => status.message = FINISHED.into(),
        }
        status
    }
}

impl Replica {
    fn new(view: &RunView) -> Result<Self> {
        let config = config_of(view)?;
        let set = &config.problems.set;
        // Nothing is checked here, so no Lean is started: its texts are shown as they are.
        let (shown, mut targets) = match config.problems.system {
            SystemName::Metamath => {
                let Opened { system, targets, .. } = system::metamath(set)?;
                (Shown::by(&system), targets)
            }
            SystemName::Lean => {
                let targets = system::lean_targets(set)?;
                (Shown::of(SystemName::Lean)?, targets.into_iter().map(|t| t.problem).collect::<Vec<_>>())
            }
        };
        held_out::leave_out(&config.evaluation, &mut targets, &system::says(config.problems.system));
        let targets: Vec<Arc<Problem>> = targets.into_iter().map(Arc::new).collect();
        let (feed, teller) = (Feed::new(shown), Teller::new(&targets));
        Ok(Self { config, targets, state: RunState::default(), feed, teller, round: None, last: 0 })
    }

    /// Takes what has come in since the last call; gives the stage that the run has reached, and what to show.
    fn catch_up(&mut self, view: &RunView, journal: &JournalReader) -> Result<(Option<Stage>, Status)> {
        let marker = journal.markers()?.pop();
        let Some(marker) = marker.filter(|m| m.stage < Stage::Published) else {
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
            // The context window only matters for the length penalty, which a page does not show.
            let window = u32::MAX;
            self.round = Some(Round::new(algorithm, self.config.seed, window, &self.targets, &self.state)?);
            self.feed.begin_round(marker.round);
            self.last = 0;
        }
        if let Some(round) = &mut self.round {
            let (feed, teller) = (&mut self.feed, &mut self.teller);
            self.last = journal.for_each_record_after(marker.round, self.last, |record| {
                for entry in record::entries(&record.payload).unwrap_or_default() {
                    teller.tell(&entry.event, &mut |told| feed.on(&told));
                    round.apply(entry.event);
                }
                Ok(())
            })?;
            self.feed.progress(round.progress());
        }
        Ok((Some(marker.stage), self.feed.status()))
    }
}
