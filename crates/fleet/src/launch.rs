//! Starts worker processes and replaces those that end.
//!
//! A [`Launcher`] starts, monitors and stops workers: as processes of this machine ([`LocalLauncher`]) or as Slurm jobs
//! ([`SlurmLauncher`]). A [`Supervisor`] is a thread that replaces workers that end. It backs off after crashes, and gives
//! up after too many, with the last lines of a worker's log. It holds no shared lock while it calls a launcher.

mod local;
mod restart;
mod slurm;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use local::{LocalLauncher, read_end, visible_device};
pub use restart::RestartPolicy;
use restart::RestartTracker;
use sgs_base::excerpt;
pub use slurm::{SLURM_TEMPLATE, SlurmConfig, SlurmLauncher, quote};

use crate::fleet::Fleet;
use crate::task::{Time, WorkerExit, WorkerName};
use crate::wait::SteadyClock;

/// Identifies a started worker for its launcher: a process id or a Slurm job id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub String);

/// A worker that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerJob {
    /// The launcher's id.
    pub id: JobId,
    /// The worker's name, as known to the coordinator. New for every job.
    pub worker: WorkerName,
}

/// State of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits in a queue.
    Waiting,
    /// It runs.
    Running,
    /// It has ended.
    Ended {
        /// How it ended.
        end: WorkerExit,
        /// Description: exit status, signal, or Slurm's state.
        how: String,
    },
}

/// How to end a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Ask it to finish and leave (SIGTERM).
    Gently,
    /// Kill it (SIGKILL, `scancel`).
    Now,
}

/// Why a call to a launcher failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// The launcher is unavailable, for example because the Slurm controller is down. A retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The call was rejected. A retry does not help.
    #[error("{0}")]
    Refused(String),
}

/// Starts, monitors and stops workers.
pub trait Launcher: Send {
    /// Starts `number` workers, with as few system calls or commands as possible.
    ///
    /// # Errors
    /// Returns an error if no worker was started.
    fn launch(&mut self, number: usize) -> Result<Vec<WorkerJob>, LaunchError>;

    /// Returns the states of jobs, in their order.
    ///
    /// # Errors
    /// Returns [`LaunchError::Unavailable`] if the states are unknown.
    fn poll(&mut self, jobs: &[WorkerJob]) -> Result<Vec<JobState>, LaunchError>;

    /// Stops jobs. Jobs that have ended are ignored.
    fn stop(&mut self, jobs: &[WorkerJob], how: StopMode) -> Result<(), LaunchError>;

    /// Returns at most `lines` last lines of a worker's log, or a note why there are none.
    fn last_lines(&self, job: &WorkerJob, lines: usize) -> String;

    /// Returns the interval at which to poll the states.
    fn interval(&self) -> Duration;
}

/// Statistics of a supervisor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupervisorStatus {
    /// Number of workers that should run.
    pub wanted: usize,
    /// Number of workers in a queue.
    pub waiting: usize,
    /// Number of workers that run.
    pub running: usize,
    /// Number of workers started so far.
    pub launched: u64,
    /// Number of workers that ended without being asked to.
    pub lost: u64,
    /// The last error of the launcher.
    pub trouble: Option<String>,
    /// Why the supervisor has given up, if it has.
    pub given_up: Option<String>,
}

/// The supervisor has given up because workers keep crashing. Contains a message for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CrashLoop(pub String);

#[derive(Default)]
struct SupervisorShared {
    state: Mutex<SupervisorState>,
    wakeup: Condvar,
}

#[derive(Default)]
struct SupervisorState {
    status: SupervisorStatus,
    closing: Option<Duration>,
}

/// Keeps workers running, from its own thread. Dropping it kills the workers.
pub struct Supervisor {
    shared: Arc<SupervisorShared>,
    thread: Option<JoinHandle<()>>,
}

/// Called with the current jobs of a supervisor.
pub type OnChange = Box<dyn Fn(&[WorkerJob]) + Send>;

impl Supervisor {
    /// Starts a supervisor that keeps `wanted` workers running. `fleet`, if any, is notified when one of them ends. Takes
    /// over `jobs` that an earlier coordinator started, and replaces those that have ended. `changed` is called from the
    /// supervisor's thread with all current jobs whenever they change, so that a later coordinator can take them over in
    /// turn.
    pub fn start(
        launcher: Box<dyn Launcher>,
        wanted: usize,
        policy: RestartPolicy,
        fleet: Option<Fleet>,
        jobs: Vec<WorkerJob>,
        changed: OnChange,
    ) -> std::io::Result<Self> {
        let shared = Arc::<SupervisorShared>::default();
        shared.lock().status.wanted = wanted;
        let next = jobs.len() as u64;
        let inherited =
            |job| SupervisedJob { job, running: false, since: None, leaving: false, inherited: true };
        let supervisor = SupervisorLoop {
            launcher,
            fleet,
            shared: Arc::clone(&shared),
            jobs: (0..).zip(jobs.into_iter().map(inherited)).collect(),
            reported: Vec::new(),
            changed,
            next,
            restarts: RestartTracker::new(policy),
            clock: SteadyClock::start(),
            last_crash: None,
        };
        let thread =
            thread::Builder::new().name("fleet-supervisor".into()).spawn(move || supervisor.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the supervisor's statistics.
    pub fn status(&self) -> SupervisorStatus {
        self.shared.lock().status.clone()
    }

    /// Checks that the supervisor has not given up. A run calls this while it waits for workers.
    ///
    /// # Errors
    /// Returns an error, with the last lines of a worker's log, if the supervisor has given up.
    pub fn check(&self) -> Result<(), CrashLoop> {
        self.shared.lock().status.given_up.clone().map_or(Ok(()), |why| Err(CrashLoop(why)))
    }

    /// Asks all workers to leave, waits up to `grace`, and kills the rest.
    pub fn stop(mut self, grace: Duration) {
        self.close(grace);
    }

    fn close(&mut self, grace: Duration) {
        self.shared.lock().closing = Some(grace);
        self.shared.wakeup.notify_all();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its launcher has already been dropped.
            let _ = thread.join();
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

impl SupervisorShared {
    fn lock(&self) -> MutexGuard<'_, SupervisorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker job under supervision.
struct SupervisedJob {
    job: WorkerJob,
    running: bool,
    /// When the job was first seen running.
    since: Option<Time>,
    /// Whether the worker was asked to leave, so that its end is not a loss.
    leaving: bool,
    /// Whether an earlier coordinator started the job, so that its lifetime is unknown.
    inherited: bool,
}

struct SupervisorLoop {
    launcher: Box<dyn Launcher>,
    fleet: Option<Fleet>,
    shared: Arc<SupervisorShared>,
    /// In the order of launch.
    jobs: BTreeMap<u64, SupervisedJob>,
    /// The jobs at the last call of `changed`.
    reported: Vec<WorkerJob>,
    changed: OnChange,
    next: u64,
    restarts: RestartTracker,
    clock: SteadyClock,
    last_crash: Option<String>,
}

impl SupervisorLoop {
    fn run(mut self) {
        let wanted = self.shared.lock().status.wanted;
        loop {
            self.poll_jobs();
            self.retire_surplus(wanted);
            self.launch_missing(wanted);
            self.publish();
            let interval = self.launcher.interval();
            let state = self.shared.lock();
            let idle = |state: &mut SupervisorState| state.closing.is_none();
            let waited = self.shared.wakeup.wait_timeout_while(state, interval, idle);
            let closing = waited.unwrap_or_else(PoisonError::into_inner).0.closing;
            if let Some(grace) = closing {
                self.shut_down(grace);
                self.publish();
                return;
            }
        }
    }

    /// Polls the states and handles the jobs that have ended.
    fn poll_jobs(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let numbers: Vec<u64> = self.jobs.keys().copied().collect();
        let jobs = self.current_jobs();
        let states = match self.launcher.poll(&jobs) {
            Ok(states) => states,
            Err(error) => return self.note_trouble(error.to_string()),
        };
        let now = self.clock.now();
        for (number, state) in numbers.into_iter().zip(states) {
            match state {
                JobState::Waiting => {}
                JobState::Running => {
                    if let Some(job) = self.jobs.get_mut(&number) {
                        job.running = true;
                        job.since.get_or_insert(now);
                    }
                }
                JobState::Ended { end, how } => self.handle_end(now, number, end, &how),
            }
        }
    }

    fn handle_end(&mut self, now: Time, number: u64, end: WorkerExit, how: &str) {
        let Some(job) = self.jobs.remove(&number) else { return };
        let worker = &job.job.worker;
        if let Some(fleet) = &self.fleet {
            fleet.worker_ended(worker, end, &format!("{worker} ended: {how}"));
        }
        if job.leaving {
            return;
        }
        self.shared.lock().status.lost += 1;
        let lifetime = job.since.map_or(Duration::ZERO, |since| now.since(since));
        if !job.inherited && self.restarts.worker_ended(now, lifetime) {
            let log = self.launcher.last_lines(&job.job, excerpt::MOST_LINES);
            let crash = format!("worker {worker} ended after {:.1} s: {how}\n{log}", lifetime.as_secs_f64());
            self.note_trouble(crash.clone());
            self.last_crash = Some(crash);
        } else {
            tracing::info!(%worker, how, lifetime_s = lifetime.as_secs(), "a worker ended and is replaced");
        }
    }

    /// Asks the newest workers to leave if there are too many.
    fn retire_surplus(&mut self, wanted: usize) {
        let staying = self.jobs.values_mut().filter(|job| !job.leaving);
        let surplus: Vec<&mut SupervisedJob> = staying.skip(wanted).collect();
        let jobs: Vec<WorkerJob> = surplus.iter().map(|job| job.job.clone()).collect();
        if jobs.is_empty() {
            return;
        }
        match self.launcher.stop(&jobs, StopMode::Gently) {
            Ok(()) => surplus.into_iter().for_each(|job| job.leaving = true),
            Err(error) => self.note_trouble(error.to_string()),
        }
    }

    /// Starts the missing workers, unless the back-off forbids it.
    fn launch_missing(&mut self, wanted: usize) {
        let now = self.clock.now();
        let staying = self.jobs.values().filter(|job| !job.leaving).count();
        if self.restarts.is_over_budget(now, wanted) {
            let crash = self.last_crash.as_deref().unwrap_or("no worker could be started");
            let why = format!("workers keep crashing; the last: {crash}");
            self.shared.lock().status.given_up.get_or_insert(why);
            return;
        }
        let missing = wanted.saturating_sub(staying);
        if missing == 0 || !self.restarts.may_launch(now) {
            return;
        }
        match self.launcher.launch(missing) {
            Ok(jobs) => {
                self.shared.lock().status.launched += jobs.len() as u64;
                for job in jobs {
                    let job =
                        SupervisedJob { job, running: false, since: None, leaving: false, inherited: false };
                    self.jobs.insert(self.next, job);
                    self.next += 1;
                }
            }
            Err(LaunchError::Unavailable(why)) => {
                self.restarts.postpone(now);
                self.note_trouble(why);
            }
            Err(LaunchError::Refused(why)) => {
                for _ in 0..missing {
                    self.restarts.crashed(now);
                }
                self.note_trouble(why.clone());
                self.last_crash = Some(why);
            }
        }
    }

    fn current_jobs(&self) -> Vec<WorkerJob> {
        self.jobs.values().map(|job| job.job.clone()).collect()
    }

    fn note_trouble(&self, trouble: String) {
        tracing::warn!("{trouble}");
        self.shared.lock().status.trouble = Some(trouble);
    }

    fn publish(&mut self) {
        let jobs = self.current_jobs();
        if jobs != self.reported {
            (self.changed)(&jobs);
            self.reported = jobs;
        }
        let running = self.jobs.values().filter(|job| job.running).count();
        let mut state = self.shared.lock();
        state.status.running = running;
        state.status.waiting = self.jobs.len() - running;
    }

    fn shut_down(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        self.jobs.values_mut().for_each(|job| job.leaving = true);
        if !grace.is_zero() && !self.jobs.is_empty() {
            if let Err(error) = self.launcher.stop(&self.current_jobs(), StopMode::Gently) {
                self.note_trouble(error.to_string());
            }
            while !self.jobs.is_empty() && Instant::now() < deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                thread::sleep(self.launcher.interval().min(left));
                self.poll_jobs();
            }
        }
        if !self.jobs.is_empty() {
            if let Err(error) = self.launcher.stop(&self.current_jobs(), StopMode::Now) {
                self.note_trouble(error.to_string());
            }
            self.poll_jobs();
        }
    }
}
