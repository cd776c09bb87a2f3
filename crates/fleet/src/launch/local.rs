//! Workers as processes of this machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::{Job, JobId, JobState, LaunchError, Launcher, Stop};
use crate::task::{End, WorkerName};

/// Starts workers as processes of this machine, each in a process group of its own with a log file of its own.
#[derive(Debug)]
pub struct LocalLauncher {
    command: Vec<String>,
    prefix: String,
    logs: PathBuf,
    /// The devices that workers are spread over; empty if they need none.
    devices: Vec<String>,
    children: BTreeMap<JobId, (Child, Option<String>)>,
    launched: u64,
}

/// Where `{worker}` stands in a worker's command, its name is put.
pub(super) const NAME_PLACE: &str = "{worker}";

impl LocalLauncher {
    /// Workers that run `command`, in which `{worker}` becomes the worker's name: `prefix` and a number. Their output
    /// goes to `logs/NAME.log`; the folder is made if it is not there.
    ///
    /// # Errors
    /// [`LaunchError::Refused`] if the command is empty, the prefix no name, or the folder cannot be made.
    pub fn new(command: Vec<String>, prefix: &str, logs: &Path) -> Result<Self, LaunchError> {
        if command.is_empty() {
            return Err(LaunchError::Refused("the command of local workers is empty".into()));
        }
        WorkerName::new(&format!("{prefix}-0")).map_err(|e| LaunchError::Refused(e.to_string()))?;
        fs::create_dir_all(logs)
            .map_err(|e| LaunchError::Refused(format!("cannot make the folder {}: {e}", logs.display())))?;
        // Whoever changes the current folder later does not change where logs are.
        let logs =
            fs::canonicalize(logs).map_err(|e| LaunchError::Refused(format!("{}: {e}", logs.display())))?;
        Ok(Self {
            command,
            prefix: prefix.to_owned(),
            logs,
            devices: Vec::new(),
            children: BTreeMap::new(),
            launched: 0,
        })
    }

    /// Gives each worker one device of those listed, the one that fewest others have, as `CUDA_VISIBLE_DEVICES`.
    #[must_use]
    pub fn with_devices(mut self, devices: Vec<String>) -> Self {
        self.devices = devices;
        self
    }

    fn log_path(&self, worker: &WorkerName) -> PathBuf {
        self.logs.join(format!("{worker}.log"))
    }

    /// The device that fewest live workers have; the first of those.
    fn free_device(&self) -> Option<String> {
        let users =
            |device: &String| self.children.values().filter(|(_, d)| d.as_ref() == Some(device)).count();
        self.devices.iter().min_by_key(|device| users(device)).cloned()
    }

    fn start(&mut self) -> Result<Job, LaunchError> {
        let name = format!("{}-{}", self.prefix, self.launched);
        let worker = WorkerName::new(&name).map_err(|e| LaunchError::Refused(e.to_string()))?;
        self.launched += 1;
        let path = self.log_path(&worker);
        // Somebody may have tidied up since the folder was made.
        let log = fs::create_dir_all(&self.logs).and_then(|()| File::create(&path));
        let log = log.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) =
            log.map_err(|e| LaunchError::Away(format!("cannot make {}: {e}", path.display())))?;
        let mut words = self.command.iter().map(|word| word.replace(NAME_PLACE, &name));
        let mut command = Command::new(words.next().unwrap_or_default());
        // A group of its own: a key pressed at the terminal ends the coordinator first, which then winds up.
        command.args(words).stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let device = self.free_device();
        if let Some(device) = &device {
            command.env("CUDA_VISIBLE_DEVICES", device);
        }
        let child = command.spawn().map_err(|e| {
            let program = self.command.first().map_or("", String::as_str);
            LaunchError::Refused(format!("cannot start {program}: {e}"))
        })?;
        let id = JobId(child.id().to_string());
        self.children.insert(id.clone(), (child, device));
        Ok(Job { id, worker })
    }
}

/// The device of number `slot`, out of those that the surrounding system lets this process see (the value of
/// `CUDA_VISIBLE_DEVICES`, if set): a worker never gets a device that was withheld from its parent.
#[must_use]
pub fn visible_device(outer: Option<&str>, slot: usize) -> Option<String> {
    match outer {
        None => Some(slot.to_string()),
        Some(list) => list.split(',').map(str::trim).filter(|d| !d.is_empty()).nth(slot).map(str::to_owned),
    }
}

impl Launcher for LocalLauncher {
    fn launch(&mut self, number: usize) -> Result<Vec<Job>, LaunchError> {
        let mut jobs = Vec::with_capacity(number);
        for _ in 0..number {
            match self.start() {
                Ok(job) => jobs.push(job),
                // Some are better than none; the rest is tried again.
                Err(LaunchError::Away(_)) if !jobs.is_empty() => break,
                Err(error) => {
                    self.stop(&jobs, Stop::Now)?;
                    return Err(error);
                }
            }
        }
        Ok(jobs)
    }

    fn poll(&mut self, jobs: &[Job]) -> Result<Vec<JobState>, LaunchError> {
        let mut states = Vec::with_capacity(jobs.len());
        for job in jobs {
            let state = match self.children.get_mut(&job.id).map(|(child, _)| child.try_wait()) {
                Some(Ok(None)) => JobState::Running,
                Some(Ok(Some(status))) => {
                    self.children.remove(&job.id);
                    JobState::Ended { end: end(status), how: describe(status) }
                }
                Some(Err(error)) => {
                    return Err(LaunchError::Away(format!("cannot ask for {}: {error}", job.worker)));
                }
                None => JobState::Ended { end: End::Gone, how: "not a process of this launcher".into() },
            };
            states.push(state);
        }
        Ok(states)
    }

    fn stop(&mut self, jobs: &[Job], how: Stop) -> Result<(), LaunchError> {
        for job in jobs {
            let Some((child, _)) = self.children.get_mut(&job.id) else { continue };
            // Reaped children give their number back to the system, so only those that are not may be signalled.
            if let Ok(None) = child.try_wait()
                && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
            {
                let signal = match how {
                    Stop::Gently => Signal::TERM,
                    Stop::Now => Signal::KILL,
                };
                // It may be gone already.
                let _ = kill_process_group(pid, signal);
                if how == Stop::Now {
                    // A killed process ends at once; waiting for it leaves no zombie.
                    let _ = child.wait();
                }
            }
        }
        Ok(())
    }

    fn last_lines(&self, job: &Job, lines: usize) -> String {
        tail(&self.log_path(&job.worker), lines)
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(200)
    }
}

impl Drop for LocalLauncher {
    fn drop(&mut self) {
        for (child, _) in self.children.values_mut() {
            if let (Ok(None), Some(pid)) =
                (child.try_wait(), i32::try_from(child.id()).ok().and_then(Pid::from_raw))
            {
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = child.wait();
            }
        }
    }
}

fn end(status: ExitStatus) -> End {
    // A shell or a container that ran the worker passes its signal on as 128 and more.
    let signal = status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128));
    match signal {
        _ if status.success() => End::Well,
        Some(signal) if is_own_fault(signal) => End::Crashed,
        _ => End::Gone,
    }
}

/// Whether a program raises that signal against itself, by a fault in its code.
pub(super) fn is_own_fault(signal: i32) -> bool {
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

/// The last lines of a file, without reading more than its end.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    const MOST: u64 = 16 << 10;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) if text.trim().is_empty() => format!("(its log {} is empty)", path.display()),
        Ok(text) => {
            let all: Vec<&str> = text.lines().collect();
            let shown = all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n");
            format!("the end of its log {}:\n{shown}", path.display())
        }
        Err(error) => format!("(no log: {}: {error})", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_come_out_of_those_that_are_visible() {
        assert_eq!(visible_device(None, 3).as_deref(), Some("3"));
        assert_eq!(visible_device(Some("4,6"), 0).as_deref(), Some("4"));
        assert_eq!(visible_device(Some("4, GPU-abc"), 1).as_deref(), Some("GPU-abc"));
        assert_eq!(visible_device(Some("4,6"), 2), None);
        assert_eq!(visible_device(Some(""), 0), None);
    }
}
