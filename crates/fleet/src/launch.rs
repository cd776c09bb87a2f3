//! Starting workers and keeping the wanted number of them alive.
//!
//! A [`Launcher`] starts, watches and stops workers somewhere: as processes of this machine ([`LocalLauncher`]) or as
//! Slurm jobs ([`SlurmLauncher`]). A [`Supervisor`] is a thread of its own that replaces the dead, waits longer after
//! every crash, and gives up on crash loops with the last lines of a worker's log. It never holds a lock that others
//! need while it starts or asks anything.

mod command;
mod keep_alive;
mod local;
mod slurm;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use keep_alive::{CrashRules, KeepAlive};
pub use local::{LocalLauncher, visible_device};
pub use slurm::{SLURM_TEMPLATE, SlurmConfig, SlurmLauncher, quote};

use crate::fleet::Fleet;
use crate::task::{End, Time, WorkerName};
use crate::wait::SteadyClock;

/// Names one started worker for its launcher: a process id or a Slurm job id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub String);

/// A worker that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// For the launcher.
    pub id: JobId,
    /// For the coordinator: the name that the worker was told to use. New for every job.
    pub worker: WorkerName,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// In a queue.
    Waiting,
    /// At work.
    Running,
    /// Over.
    Ended {
        /// What that says of its tasks.
        end: End,
        /// In words: exit status, signal, Slurm's state.
        how: String,
    },
}

/// How to end a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Ask it to finish and leave (SIGTERM).
    Gently,
    /// End it (SIGKILL, `scancel`).
    Now,
}

/// A launcher's trouble.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Nothing can be asked or started now; later it may work (a Slurm controller that is away).
    #[error("{0}")]
    Away(String),
    /// It was refused, and will be again.
    #[error("{0}")]
    Refused(String),
}

/// Starts workers, watches and stops them.
pub trait Launcher: Send {
    /// Starts so many workers, with as few calls as possible.
    ///
    /// # Errors
    /// [`LaunchError`]; then none was started.
    fn launch(&mut self, number: usize) -> Result<Vec<Job>, LaunchError>;

    /// The states of jobs, in their order.
    ///
    /// # Errors
    /// [`LaunchError::Away`] if nobody can tell; that says nothing about the jobs.
    fn poll(&mut self, jobs: &[Job]) -> Result<Vec<JobState>, LaunchError>;

    /// Ends jobs; those that are over already are ignored.
    ///
    /// # Errors
    /// [`LaunchError`] if they could not be told.
    fn stop(&mut self, jobs: &[Job], how: Stop) -> Result<(), LaunchError>;

    /// The last lines of a worker's log, or why there are none.
    fn last_lines(&self, job: &Job, lines: usize) -> String;

    /// How often to ask for states.
    fn interval(&self) -> Duration;
}

/// A supervisor in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupervisorStatus {
    /// Workers that there should be.
    pub wanted: usize,
    /// In a queue.
    pub waiting: usize,
    pub running: usize,
    /// Started since the beginning.
    pub launched: u64,
    /// Ended that nobody asked to end.
    pub lost: u64,
    /// The last trouble, in words.
    pub trouble: Option<String>,
    /// Why the supervisor has given up, if it has.
    pub given_up: Option<String>,
}

/// A crash loop, in words for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GivenUp(pub String);

struct Shared {
    state: Mutex<Shop>,
    bell: Condvar,
}

#[derive(Default)]
struct Shop {
    status: SupervisorStatus,
    closing: Option<Duration>,
}

/// Keeps workers alive from a thread of its own, until it is stopped or dropped (which kills them).
pub struct Supervisor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Hears of all jobs under a supervisor's care.
pub type OnChange = Box<dyn Fn(&[Job]) + Send>;

/// Lines of a log that an error shows.
const SHOWN_LINES: usize = 15;

impl Supervisor {
    /// Keeps `wanted` workers alive; `fleet`, if there is one, hears at once of those that die.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        launcher: Box<dyn Launcher>,
        wanted: usize,
        rules: CrashRules,
        fleet: Option<Fleet>,
    ) -> std::io::Result<Self> {
        Self::take_over(launcher, wanted, rules, fleet, Vec::new(), Box::new(|_| ()))
    }

    /// As [`Supervisor::start`], with jobs that a coordinator before this one has started: those that still live count,
    /// those that do not are replaced. `changed` hears of all jobs under care whenever they change, from the
    /// supervisor's thread, so that the next coordinator can be told.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn take_over(
        launcher: Box<dyn Launcher>,
        wanted: usize,
        rules: CrashRules,
        fleet: Option<Fleet>,
        jobs: Vec<Job>,
        changed: OnChange,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::new(Shop::default()), bell: Condvar::new() });
        shared.lock().status.wanted = wanted;
        let next = jobs.len() as u64;
        let inherited = |job| Kept { job, running: false, since: None, leaving: false, inherited: true };
        let keeper = Keeper {
            launcher,
            fleet,
            shared: Arc::clone(&shared),
            jobs: (0..).zip(jobs.into_iter().map(inherited)).collect(),
            told: Vec::new(),
            changed,
            next,
            keep: KeepAlive::new(rules),
            clock: SteadyClock::start(),
            last_crash: None,
        };
        let thread = thread::Builder::new().name("fleet-supervisor".into()).spawn(move || keeper.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Changes the wanted number; those too many are asked to leave.
    pub fn set_wanted(&self, wanted: usize) {
        self.shared.lock().status.wanted = wanted;
        self.shared.bell.notify_all();
    }

    /// The numbers now.
    #[must_use]
    pub fn status(&self) -> SupervisorStatus {
        self.shared.lock().status.clone()
    }

    /// An error once the supervisor has given up. To be asked wherever a run waits for workers.
    ///
    /// # Errors
    /// [`GivenUp`], with the last lines of a worker's log.
    pub fn check(&self) -> Result<(), GivenUp> {
        self.shared.lock().status.given_up.clone().map_or(Ok(()), |why| Err(GivenUp(why)))
    }

    /// Asks every worker to leave, waits up to `grace`, and ends the rest.
    pub fn stop(mut self, grace: Duration) {
        self.close(grace);
    }

    fn close(&mut self, grace: Duration) {
        self.shared.lock().closing = Some(grace);
        self.shared.bell.notify_all();
        if let Some(thread) = self.thread.take() {
            // A supervisor that panicked has no workers under its care any more.
            let _ = thread.join();
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Shop> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job under care.
struct Kept {
    job: Job,
    running: bool,
    /// When it was first seen running.
    since: Option<Time>,
    /// Asked to leave: its end is no loss.
    leaving: bool,
    /// Started by a coordinator before this one: how long it lived is not known.
    inherited: bool,
}

struct Keeper {
    launcher: Box<dyn Launcher>,
    fleet: Option<Fleet>,
    shared: Arc<Shared>,
    /// In order of launch.
    jobs: BTreeMap<u64, Kept>,
    /// The jobs that `changed` was last told of.
    told: Vec<Job>,
    changed: OnChange,
    next: u64,
    keep: KeepAlive,
    clock: SteadyClock,
    last_crash: Option<String>,
}

impl Keeper {
    fn run(mut self) {
        loop {
            self.look();
            let wanted = self.shared.lock().status.wanted;
            self.dismiss(wanted);
            self.replace(wanted);
            self.publish();
            let interval = self.launcher.interval();
            let shop = self.shared.lock();
            let before = shop.status.wanted;
            let idle = |shop: &mut Shop| shop.closing.is_none() && shop.status.wanted == before;
            let waited = self.shared.bell.wait_timeout_while(shop, interval, idle);
            let closing = waited.unwrap_or_else(PoisonError::into_inner).0.closing;
            if let Some(grace) = closing {
                self.wind_up(grace);
                self.publish();
                return;
            }
        }
    }

    /// Asks for the states and draws the consequences.
    fn look(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let numbers: Vec<u64> = self.jobs.keys().copied().collect();
        let jobs: Vec<Job> = self.jobs.values().map(|kept| kept.job.clone()).collect();
        let states = match self.launcher.poll(&jobs) {
            Ok(states) => states,
            Err(error) => return self.note(error.to_string()),
        };
        let now = self.clock.now();
        for (number, state) in numbers.into_iter().zip(states) {
            match state {
                JobState::Waiting => {}
                JobState::Running => {
                    if let Some(kept) = self.jobs.get_mut(&number) {
                        kept.running = true;
                        kept.since.get_or_insert(now);
                    }
                }
                JobState::Ended { end, how } => self.mourn(now, number, end, &how),
            }
        }
    }

    fn mourn(&mut self, now: Time, number: u64, end: End, how: &str) {
        let Some(kept) = self.jobs.remove(&number) else { return };
        let worker = &kept.job.worker;
        if let Some(fleet) = &self.fleet {
            let told = fleet.worker_ended(worker, end, &format!("{worker} ended: {how}"));
            if let Err(error) = told {
                tracing::error!("{error}");
            }
        }
        if kept.leaving {
            return;
        }
        self.shared.lock().status.lost += 1;
        let lived = kept.since.map_or(Duration::ZERO, |since| now.since(since));
        if !kept.inherited && self.keep.ended(now, lived) {
            let log = self.launcher.last_lines(&kept.job, SHOWN_LINES);
            let crash = format!("worker {worker} ended after {:.1} s: {how}\n{log}", lived.as_secs_f64());
            self.note(crash.clone());
            self.last_crash = Some(crash);
        } else {
            tracing::info!(%worker, how, lived_s = lived.as_secs(), "a worker ended and is replaced");
        }
    }

    /// Asks the newest to leave if there are too many.
    fn dismiss(&mut self, wanted: usize) {
        let staying: Vec<u64> = self.jobs.iter().filter(|(_, kept)| !kept.leaving).map(|(n, _)| *n).collect();
        let too_many: Vec<u64> = staying.into_iter().skip(wanted).collect();
        let jobs: Vec<Job> =
            too_many.iter().filter_map(|n| self.jobs.get(n)).map(|k| k.job.clone()).collect();
        if jobs.is_empty() {
            return;
        }
        match self.launcher.stop(&jobs, Stop::Gently) {
            Ok(()) => {
                for number in too_many {
                    if let Some(kept) = self.jobs.get_mut(&number) {
                        kept.leaving = true;
                    }
                }
            }
            Err(error) => self.note(error.to_string()),
        }
    }

    /// Starts as many as are missing, if it is time for that.
    fn replace(&mut self, wanted: usize) {
        let now = self.clock.now();
        let staying = self.jobs.values().filter(|kept| !kept.leaving).count();
        if self.keep.has_given_up(now, wanted) {
            let crash = self.last_crash.as_deref().unwrap_or("no worker could be started");
            let why = format!("workers crash again and again; the last: {crash}");
            self.shared.lock().status.given_up.get_or_insert(why);
            return;
        }
        let missing = wanted.saturating_sub(staying);
        if missing == 0 || !self.keep.may_launch(now) {
            return;
        }
        match self.launcher.launch(missing) {
            Ok(jobs) => {
                self.shared.lock().status.launched += jobs.len() as u64;
                for job in jobs {
                    let kept = Kept { job, running: false, since: None, leaving: false, inherited: false };
                    self.jobs.insert(self.next, kept);
                    self.next += 1;
                }
            }
            Err(LaunchError::Away(why)) => {
                self.keep.postpone(now);
                self.note(why);
            }
            Err(LaunchError::Refused(why)) => {
                for _ in 0..missing {
                    self.keep.crashed(now);
                }
                self.note(why.clone());
                self.last_crash = Some(why);
            }
        }
    }

    fn note(&self, trouble: String) {
        tracing::warn!("{trouble}");
        self.shared.lock().status.trouble = Some(trouble);
    }

    fn publish(&mut self) {
        let jobs: Vec<Job> = self.jobs.values().map(|kept| kept.job.clone()).collect();
        if jobs != self.told {
            (self.changed)(&jobs);
            self.told = jobs;
        }
        let running = self.jobs.values().filter(|kept| kept.running).count();
        let mut shop = self.shared.lock();
        shop.status.running = running;
        shop.status.waiting = self.jobs.len() - running;
    }

    fn wind_up(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        let jobs = |keeper: &Self| keeper.jobs.values().map(|kept| kept.job.clone()).collect::<Vec<_>>();
        self.jobs.values_mut().for_each(|kept| kept.leaving = true);
        if !grace.is_zero() && !self.jobs.is_empty() {
            if let Err(error) = self.launcher.stop(&jobs(self), Stop::Gently) {
                self.note(error.to_string());
            }
            while !self.jobs.is_empty() && Instant::now() < deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                thread::sleep(self.launcher.interval().min(left));
                self.look();
            }
        }
        if !self.jobs.is_empty() {
            if let Err(error) = self.launcher.stop(&jobs(self), Stop::Now) {
                self.note(error.to_string());
            }
            self.look();
        }
    }
}
