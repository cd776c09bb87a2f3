//! The live page of a run: its figures, and what happens right now.
//!
//! Figures follow the published rounds on disk. What happens right now comes from the loop itself where the page belongs
//! to the process that works on the run ([`Page`]), and from the run's journal where it does not ([`watch`]).

mod feed;
mod watch;

pub use watch::watch;

use crate::args::PageArgs;

use crate::shown::Shown;
use anyhow::{Context, Result};
use feed::Feed;
use sgs_analysis::live::{self, LiveOptions, LiveServer, Status, WorkerStatus};
use sgs_analysis::report::ReportOptions;
use sgs_analysis::run::ReadOptions;
use sgs_fleet::board::KindStatus;
use sgs_fleet::{BoardStatus, Fleet};
use sgs_formal::FormalSystem;
use sgs_run::{Interrupt, RunEvent, folder};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the run's folder is looked at for new rounds.
const LOOK: Duration = Duration::from_secs(1);
/// How long a run that is over waits for open pages to take its last figures.
const LAST_LOOK: Duration = Duration::from_secs(5);
/// What the page of a run says that has come to its end, and of one that can go on.
const FINISHED: &str = live::FINISHED;
const STOPPED: &str = "stopped; go on with sgs resume";
/// How often what happens right now is told.
const TELL: Duration = Duration::from_millis(500);

/// The page of the run that this process works on.
pub struct Page {
    server: Arc<LiveServer>,
    feed: Feed,
    fleet: Option<Fleet>,
    message: String,
    told: Option<Instant>,
    stop: Interrupt,
    figures: Option<JoinHandle<()>>,
    run: PathBuf,
}

impl Page {
    /// Begins to serve the run in a folder; `None` without `--serve`. Says on standard error where.
    ///
    /// # Errors
    /// The address is open to others without a token, or cannot be bound.
    pub fn start(args: &PageArgs, run: &Path, system: &Arc<dyn FormalSystem>) -> Result<Option<Self>> {
        let Some(address) = args.serve else { return Ok(None) };
        let server = Arc::new(LiveServer::start(&LiveOptions { address, token: args.token() })?);
        eprintln!("live page: {}", server.url());
        let stop = Interrupt::default();
        let (shared, flag, folder) = (Arc::clone(&server), stop.flag(), run.to_owned());
        let shown = Shown::by(system);
        let follow = move || -> Result<()> {
            let read = ReadOptions { display: Some(&shown), ..ReadOptions::default() };
            Ok(live::follow(&shared, &folder, &read, &ReportOptions::default(), LOOK, &flag, |_| ())?)
        };
        let figures = std::thread::Builder::new().name("live-figures".into()).spawn(move || {
            // A page that cannot be drawn is no reason to stop a run.
            if let Err(error) = follow() {
                tracing::warn!("the live page follows the run no longer: {error:#}");
            }
        });
        Ok(Some(Self {
            server,
            feed: Feed::new(Shown::by(system)),
            fleet: None,
            message: "preparing".into(),
            told: None,
            stop,
            figures: Some(figures.context("cannot start the live page's thread")?),
            run: run.to_owned(),
        }))
    }

    /// Takes one event of the run.
    pub fn on(&mut self, event: &RunEvent<'_>) {
        self.feed.on(event);
        match event {
            RunEvent::Board(fleet) => self.fleet = Some((*fleet).clone()),
            RunEvent::Stage { stage, .. } => {
                stage.as_str().clone_into(&mut self.message);
                self.tell();
            }
            RunEvent::Progress(_) if self.told.is_none_or(|told| told.elapsed() >= TELL) => self.tell(),
            _ => {}
        }
    }

    fn tell(&mut self) {
        self.told = Some(Instant::now());
        let mut status = Status { message: self.message.clone(), ..self.feed.status() };
        if let Some(board) = self.fleet.as_ref().and_then(|fleet| fleet.status().ok()) {
            show_board(&board, &mut status);
        }
        self.server.set_status(&status);
    }
}

/// Workers and queue of a task board.
fn show_board(board: &BoardStatus, status: &mut Status) {
    let sum = |of: fn(&KindStatus) -> usize| board.kinds.iter().map(of).sum::<usize>() as u64;
    status.queue = vec![
        ("pending".into(), sum(|k| k.pending)),
        ("leased".into(), sum(|k| k.leased)),
        ("done".into(), board.counters.done),
        ("quarantined".into(), board.counters.quarantined),
    ];
    let worker = |w: &sgs_fleet::board::WorkerStatus| WorkerStatus {
        name: w.worker.to_string(),
        // Workers are named after what they do.
        kind: w.worker.to_string().split('-').next().unwrap_or_default().to_owned(),
        tasks: w.leases as u64,
        silent_s: w.silent_s,
    };
    status.workers = board.workers.iter().map(worker).collect();
}

impl Drop for Page {
    fn drop(&mut self) {
        // What stands on open pages when the run is over.
        let message = if folder::ended(&self.run).is_some() { FINISHED } else { STOPPED };
        self.server.set_status(&Status { message: message.into(), ..self.feed.status() });
        self.stop.flag().store(true, Ordering::SeqCst);
        if let Some(figures) = self.figures.take() {
            // A panic there has nothing left to harm.
            let _ = figures.join();
        }
        self.server.settle(LAST_LOOK);
    }
}
