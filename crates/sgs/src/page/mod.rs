//! The live page of a run: its figures and its current activity.
//!
//! The figures follow the published rounds on disk. The current activity comes from the loop's events if this process
//! executes the run ([`LivePage`]), and otherwise from the run's journal ([`watch`]).

mod feed;
mod watch;

pub use watch::watch;

use crate::args::PageArgs;

use crate::display::TextDisplay;
use anyhow::{Context, Result};
use feed::Feed;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::live::{self, LiveOptions, LiveServer, LiveStatus, LiveWorker};
use sgs_fleet::board::KindStats;
use sgs_fleet::{BoardStatus, Fleet};
use sgs_formal::FormalSystem;
use sgs_run::{RunEvent, StopFlag};
use sgs_rundir::RunView;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between checks of the run's folder for new rounds.
const POLL: Duration = Duration::from_secs(1);
/// Status of a finished run, and of a stopped one.
const FINISHED: &str = live::FINISHED;
const STOPPED: &str = "stopped; to continue: sgs resume";
/// Minimum interval between status updates.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// The page of the run that this process executes.
pub struct LivePage {
    server: Arc<LiveServer>,
    feed: Feed,
    fleet: Option<Fleet>,
    message: String,
    last_update: Option<Instant>,
    stop: StopFlag,
    figures: Option<JoinHandle<()>>,
    run: RunView,
}

impl LivePage {
    /// Starts to serve a run's folder and prints the address on standard error. Returns `None` without `--serve`.
    pub fn start(args: &PageArgs, run: &Path, system: &Arc<dyn FormalSystem>) -> Result<Option<Self>> {
        let Some(address) = args.serve else { return Ok(None) };
        let view = RunView::open(run)?;
        let server = Arc::new(LiveServer::start(&LiveOptions { address, token: args.token() })?);
        eprintln!("live page: {}", server.url());
        let stop = StopFlag::default();
        let (shared, flag, folder) = (Arc::clone(&server), stop.flag(), run.to_owned());
        let shown = TextDisplay::by(system);
        let follow = move || -> Result<()> {
            Ok(live::follow(&shared, &folder, Some(&shown), &FigureOptions::default(), POLL, &flag, |_| ())?)
        };
        let figures = std::thread::Builder::new().name("live-figures".into()).spawn(move || {
            // A failure of the page does not stop the run.
            if let Err(error) = follow() {
                tracing::warn!("the live page no longer follows the run: {error:#}");
            }
        });
        Ok(Some(Self {
            server,
            feed: Feed::new(TextDisplay::by(system)),
            fleet: None,
            message: "preparing".into(),
            last_update: None,
            stop,
            figures: Some(figures.context("cannot start the live page's thread")?),
            run: view,
        }))
    }

    pub fn on(&mut self, event: &RunEvent<'_>) {
        self.feed.on(event);
        match event {
            RunEvent::Board(fleet) => self.fleet = Some((*fleet).clone()),
            RunEvent::Stage { stage, .. } => {
                stage.as_str().clone_into(&mut self.message);
                self.update_status();
            }
            RunEvent::Progress(_)
                if self.last_update.is_none_or(|last_update| last_update.elapsed() >= STATUS_INTERVAL) =>
            {
                self.update_status()
            }
            _ => {}
        }
    }

    fn update_status(&mut self) {
        self.last_update = Some(Instant::now());
        let mut status = LiveStatus { message: self.message.clone(), ..self.feed.status() };
        if let Some(board) = self.fleet.as_ref().map(Fleet::status) {
            show_board(&board, &mut status);
        }
        self.server.set_status(&status);
    }
}

/// Copies the workers and the queue of a task board into the status.
fn show_board(board: &BoardStatus, status: &mut LiveStatus) {
    let sum = |of: fn(&KindStats) -> usize| board.kinds.iter().map(of).sum::<usize>() as u64;
    status.queue = vec![
        ("pending".into(), sum(|k| k.pending)),
        ("leased".into(), sum(|k| k.leased)),
        ("done".into(), board.counters.done),
        ("quarantined".into(), board.counters.quarantined),
    ];
    let worker = |w: &sgs_fleet::board::WorkerStats| LiveWorker {
        name: w.worker.to_string(),
        // The name of a worker starts with its kind.
        kind: w.worker.to_string().split('-').next().unwrap_or_default().to_owned(),
        tasks: w.leases as u64,
        silent_s: w.silent_s,
    };
    status.workers = board.workers.iter().map(worker).collect();
}

impl Drop for LivePage {
    fn drop(&mut self) {
        // This is the last status of open pages.
        let message = if self.run.ended().is_some() { FINISHED } else { STOPPED };
        self.server.set_status(&LiveStatus { message: message.into(), ..self.feed.status() });
        self.stop.flag().store(true, Ordering::SeqCst);
        if let Some(figures) = self.figures.take() {
            // Ignore a panic of the thread, because the run is over.
            let _ = figures.join();
        }
    }
}
