//! Starts workers as processes of this machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use sgs_base::excerpt;

use super::{JobId, JobState, LaunchError, Launcher, StopMode, WorkerJob};
use crate::task::{WorkerExit, WorkerName};

/// Starts workers as processes of this machine. Each has its own process group and log file.
#[derive(Debug)]
pub struct LocalLauncher {
    command: Vec<String>,
    prefix: String,
    logs: PathBuf,
    /// Devices to distribute over the workers. May be empty.
    devices: Vec<String>,
    children: BTreeMap<JobId, (Child, Option<String>)>,
    launched: u64,
}

/// Placeholder for the worker's name in a command.
pub(super) const NAME_PLACEHOLDER: &str = "{worker}";

impl LocalLauncher {
    /// Creates a launcher of workers that run `command`, with `{worker}` replaced by the worker's name: `prefix` and a
    /// number. Their output goes to `logs/NAME.log`; the folder is created if necessary.
    ///
    /// # Errors
    /// Returns an error if the command is empty, the prefix is not a valid name, or the folder cannot be created.
    pub fn new(command: Vec<String>, prefix: &str, logs: &Path) -> Result<Self, LaunchError> {
        let logs = prepare(&command, &format!("{prefix}-0"), logs)?;
        let prefix = prefix.to_owned();
        Ok(Self { command, prefix, logs, devices: Vec::new(), children: BTreeMap::new(), launched: 0 })
    }

    /// Assigns one of these devices to each worker, through `CUDA_VISIBLE_DEVICES`. The least used device comes first.
    #[must_use]
    pub fn with_devices(mut self, devices: Vec<String>) -> Self {
        self.devices = devices;
        self
    }

    fn log_path(&self, worker: &WorkerName) -> PathBuf {
        self.logs.join(format!("{worker}.log"))
    }

    /// Returns the device with the fewest live workers.
    fn least_used_device(&self) -> Option<String> {
        let users =
            |device: &String| self.children.values().filter(|(_, d)| d.as_ref() == Some(device)).count();
        self.devices.iter().min_by_key(|device| users(device)).cloned()
    }

    fn start(&mut self) -> Result<WorkerJob, LaunchError> {
        let name = format!("{}-{}", self.prefix, self.launched);
        let worker = WorkerName::new(&name).map_err(|e| LaunchError::Refused(e.to_string()))?;
        self.launched += 1;
        let path = self.log_path(&worker);
        // The folder may have been deleted since.
        let log = fs::create_dir_all(&self.logs).and_then(|()| File::create(&path));
        let log = log.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) =
            log.map_err(|e| LaunchError::Unavailable(format!("cannot create {}: {e}", path.display())))?;
        let mut words = self.command.iter().map(|word| word.replace(NAME_PLACEHOLDER, &name));
        let program = words.next();
        let program =
            program.ok_or_else(|| LaunchError::Refused("the workers' command is empty".to_owned()))?;
        let mut command = Command::new(&program);
        // In its own process group, so that Ctrl-C reaches only the coordinator, which then stops its workers.
        command.args(words).stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let device = self.least_used_device();
        if let Some(device) = &device {
            command.env("CUDA_VISIBLE_DEVICES", device);
        }
        let child =
            command.spawn().map_err(|e| LaunchError::Refused(format!("cannot start {program}: {e}")))?;
        let id = JobId(child.id().to_string());
        self.children.insert(id.clone(), (child, device));
        Ok(WorkerJob { id, worker })
    }
}

/// Checks the workers' command and the form of their names, and creates the folder for their logs. Returns the absolute
/// path of the folder, which does not depend on the current folder.
pub(super) fn prepare(command: &[String], name: &str, logs: &Path) -> Result<PathBuf, LaunchError> {
    if command.is_empty() {
        return Err(LaunchError::Refused("the workers' command is empty".into()));
    }
    WorkerName::new(name).map_err(|e| LaunchError::Refused(e.to_string()))?;
    let made = fs::create_dir_all(logs).and_then(|()| fs::canonicalize(logs));
    made.map_err(|e| LaunchError::Refused(format!("cannot create the folder {}: {e}", logs.display())))
}

/// Stops the process group of a child, unless the child has ended.
fn stop_group(child: &mut Child, how: StopMode) {
    // After a child is reaped, its process id may belong to another process.
    if let Ok(None) = child.try_wait()
        && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
    {
        let signal = match how {
            StopMode::Gently => Signal::TERM,
            StopMode::Now => Signal::KILL,
        };
        // Fails if the process has just ended.
        let _ = kill_process_group(pid, signal);
        if how == StopMode::Now {
            // A killed process ends at once. Waiting for it avoids a zombie.
            let _ = child.wait();
        }
    }
}

/// Returns the device with index `slot` among those visible to this process. `outer` is the value of
/// `CUDA_VISIBLE_DEVICES`, if set. A worker never gets a device that is hidden from its parent.
pub fn visible_device(outer: Option<&str>, slot: usize) -> Option<String> {
    match outer {
        None => Some(slot.to_string()),
        Some(list) => list.split(',').map(str::trim).filter(|d| !d.is_empty()).nth(slot).map(str::to_owned),
    }
}

impl Launcher for LocalLauncher {
    fn launch(&mut self, number: usize) -> Result<Vec<WorkerJob>, LaunchError> {
        let mut jobs = Vec::with_capacity(number);
        for _ in 0..number {
            match self.start() {
                Ok(job) => jobs.push(job),
                // Keep those that started. The supervisor retries the others.
                Err(LaunchError::Unavailable(_)) if !jobs.is_empty() => break,
                Err(error) => {
                    self.stop(&jobs, StopMode::Now)?;
                    return Err(error);
                }
            }
        }
        Ok(jobs)
    }

    fn poll(&mut self, jobs: &[WorkerJob]) -> Result<Vec<JobState>, LaunchError> {
        let mut states = Vec::with_capacity(jobs.len());
        for job in jobs {
            let state = match self.children.get_mut(&job.id).map(|(child, _)| child.try_wait()) {
                Some(Ok(None)) => JobState::Running,
                Some(Ok(Some(status))) => {
                    self.children.remove(&job.id);
                    JobState::Ended { end: end(status), how: describe(status) }
                }
                Some(Err(error)) => {
                    return Err(LaunchError::Unavailable(format!(
                        "cannot get the state of {}: {error}",
                        job.worker
                    )));
                }
                None => {
                    JobState::Ended { end: WorkerExit::Gone, how: "not a process of this launcher".into() }
                }
            };
            states.push(state);
        }
        Ok(states)
    }

    fn stop(&mut self, jobs: &[WorkerJob], how: StopMode) -> Result<(), LaunchError> {
        for job in jobs {
            if let Some((child, _)) = self.children.get_mut(&job.id) {
                stop_group(child, how);
            }
        }
        Ok(())
    }

    fn last_lines(&self, job: &WorkerJob, lines: usize) -> String {
        tail(&self.log_path(&job.worker), lines)
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(200)
    }
}

impl Drop for LocalLauncher {
    fn drop(&mut self) {
        self.children.values_mut().for_each(|(child, _)| stop_group(child, StopMode::Now));
    }
}

fn end(status: ExitStatus) -> WorkerExit {
    // A shell or container that runs the worker reports its signal as an exit code above 128.
    let signal = status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128));
    match signal {
        _ if status.success() => WorkerExit::Well,
        Some(signal) if is_crash_signal(signal) => WorkerExit::Crashed,
        _ => WorkerExit::Gone,
    }
}

/// Returns true if a program raises this signal by a fault in its own code.
pub(super) fn is_crash_signal(signal: i32) -> bool {
    use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP].contains(&signal)
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// Reads the end of a text file, at most `max_bytes`.
pub fn read_end(path: &Path, max_bytes: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max_bytes)))?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the last lines of a log file, or a note why there are none. Reads only the end of the file.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    match read_end(path, 16 << 10) {
        Ok(text) if text.trim().is_empty() => format!("(its log {} is empty)", path.display()),
        Ok(text) => {
            format!("the end of its log {}:\n{}", path.display(), excerpt::last_lines(&text, lines))
        }
        Err(error) => format!("(no log: {}: {error})", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_log_is_limited() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        fs::write(&log, (1..=9).map(|i| format!("{i}{}\n", "x".repeat(1000))).collect::<String>())
            .expect("writes");
        let end = tail(&log, 20);
        assert!(end.contains("\n9x") && !end.contains("\n5x"), "{end}");
        assert!(end.len() < excerpt::MOST_BYTES + 200 && tail(&log, 1).len() < 1200, "{end}");
    }

    #[test]
    fn devices_are_taken_from_the_visible_ones() {
        assert_eq!(visible_device(None, 3).as_deref(), Some("3"));
        assert_eq!(visible_device(Some("4,6"), 0).as_deref(), Some("4"));
        assert_eq!(visible_device(Some("4, GPU-abc"), 1).as_deref(), Some("GPU-abc"));
        assert_eq!(visible_device(Some("4,6"), 2), None);
        assert_eq!(visible_device(Some(""), 0), None);
    }
}
