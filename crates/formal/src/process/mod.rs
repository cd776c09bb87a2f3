//! An untrusted child process in its own process group, with non-blocking pipes, deadlines and limited output.

pub mod cgroup;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use sgs_base::excerpt;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program to start, with its arguments and environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub folder: PathBuf,
    /// Folder in which the process creates its control group, if it creates one.
    pub cgroup: Option<PathBuf>,
}

/// Limits of one exchange with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Resident memory of the process and its descendants, in bytes.
    pub memory: u64,
    /// Bytes of unread output.
    pub output: usize,
}

/// The reason why a process did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum ProcessFault {
    /// It exceeded its time limit.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("{found} bytes resident, at most {limit} are allowed")]
    Memory { found: u64, limit: u64 },
    #[error("more than {0} bytes of output")]
    Output(usize),
    /// It ended. The end of its standard error is kept.
    #[error("the process ended ({status}){}", shown(.stderr))]
    Ended { status: String, stderr: String },
    /// Its answer violates the protocol.
    #[error("protocol: {0}")]
    Protocol(String),
    /// It could not be started.
    #[error("cannot start {program}: {error}")]
    Start { program: String, error: String },
}

fn shown(stderr: &str) -> String {
    if stderr.trim().is_empty() {
        return String::new();
    }
    format!("; standard error: {}", excerpt::end_of(stderr))
}

/// Number of bytes kept from the end of standard error: more than an error message contains, which then shows that it is
/// shortened.
const STDERR_TAIL: usize = 2 * excerpt::MOST_BYTES;

/// A running process. Dropping it kills its process group and reaps the child.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    out: Vec<u8>,
    err: VecDeque<u8>,
    ended: Option<ExitStatus>,
    started: Instant,
    cgroup: Option<PathBuf>,
}

impl Process {
    /// Starts a process as the leader of a new group.
    pub fn start(launch: &Launch) -> Result<Self, ProcessFault> {
        let fail =
            |error: String| ProcessFault::Start { program: launch.program.display().to_string(), error };
        let mut child = Command::new(&launch.program)
            .args(&launch.args)
            .env_clear()
            .envs(launch.env.iter().map(|(k, v)| (k, v)))
            .current_dir(&launch.folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| fail(e.to_string()))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self {
            child,
            stdin,
            stdout,
            stderr,
            out: Vec::new(),
            err: VecDeque::new(),
            ended: None,
            started: Instant::now(),
            cgroup: launch.cgroup.clone(),
        };
        let set = |fd: Option<rustix::fd::BorrowedFd<'_>>| {
            fd.map_or(Ok(()), |fd| rustix::io::ioctl_fionbio(fd, true))
        };
        set(process.stdin.as_ref().map(AsFd::as_fd))
            .and_then(|()| set(process.stdout.as_ref().map(AsFd::as_fd)))
            .and_then(|()| set(process.stderr.as_ref().map(AsFd::as_fd)))
            .map_err(|e| fail(e.to_string()))?;
        Ok(process)
    }

    /// Returns the process id, which is also the id of the group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the time since the start.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Closes standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Returns the number of unread bytes on standard output. A well-behaved process has none between requests.
    pub fn pending(&mut self) -> usize {
        self.read_streams();
        self.out.len()
    }

    /// Returns whether the process is running and has written nothing since its last answer.
    pub fn is_quiet(&mut self) -> bool {
        !self.read_streams() && self.out.is_empty()
    }

    /// Returns the resident memory of the process and its descendants in bytes, or 0 if it is unknown.
    pub fn resident(&self) -> u64 {
        if self.ended.is_some() { 0 } else { resident(self.child.id(), 0) }
    }

    /// Writes `input`, then reads until `done` returns the length of the answer, and returns the answer.
    ///
    /// `done` is called with the complete output so far, and with whether it has ended, whenever bytes have arrived.
    /// `deadline` is called in every iteration, so that progress can extend it.
    pub fn exchange(
        &mut self,
        input: &[u8],
        quota: Quota,
        deadline: &mut dyn FnMut() -> (Instant, Duration),
        done: &mut dyn FnMut(&[u8], bool) -> Option<usize>,
    ) -> Result<Vec<u8>, ProcessFault> {
        let mut written = 0;
        let mut memory_at = Instant::now() + Duration::from_millis(50);
        let mut memory_every = Duration::from_millis(50);
        loop {
            if written < input.len() {
                written += self.write_some(input.get(written..).unwrap_or_default());
            }
            let ended = self.read_streams();
            if let Some(length) = done(&self.out, ended) {
                let rest = self.out.split_off(length.min(self.out.len()));
                return Ok(std::mem::replace(&mut self.out, rest));
            }
            if self.out.len() > quota.output {
                return Err(ProcessFault::Output(quota.output));
            }
            if ended {
                return Err(self.fault_of_end());
            }
            let now = Instant::now();
            let (until, allowed) = deadline();
            if now >= until {
                return Err(ProcessFault::Timeout(allowed));
            }
            if now >= memory_at {
                let found = self.resident();
                if found > quota.memory {
                    return Err(ProcessFault::Memory { found, limit: quota.memory });
                }
                // Check frequently at first, to detect an early increase, then once per second, which is cheap.
                memory_every = (memory_every * 2).min(Duration::from_secs(1));
                memory_at = now + memory_every;
            }
            self.wait(written < input.len(), until.min(memory_at).saturating_duration_since(now));
        }
    }

    fn write_some(&mut self, input: &[u8]) -> usize {
        let Some(stdin) = &mut self.stdin else { return 0 };
        match stdin.write(input) {
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(_) => {
                // The reader is gone. The end of its output will report the reason.
                self.stdin = None;
                0
            }
        }
    }

    /// Reads the available bytes. Returns whether standard output has ended.
    fn read_streams(&mut self) -> bool {
        let mut chunk = [0_u8; 16 * 1024];
        if let Some(stderr) = &mut self.stderr {
            loop {
                match stderr.read(&mut chunk) {
                    Ok(0) => {
                        self.stderr = None;
                        break;
                    }
                    Ok(n) => {
                        self.err.extend(chunk.iter().take(n));
                        let excess = self.err.len().saturating_sub(STDERR_TAIL);
                        self.err.drain(..excess);
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
        // Read at most 1 MiB per call, so that the caller can enforce its limits on a process that writes continuously.
        let mut budget = 64;
        while let Some(stdout) = &mut self.stdout {
            match stdout.read(&mut chunk) {
                Ok(0) => self.stdout = None,
                Ok(n) => {
                    self.out.extend(chunk.iter().take(n));
                    budget -= 1;
                    if budget == 0 {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.stdout.is_none()
    }

    fn wait(&self, wants_to_write: bool, at_most: Duration) {
        let mut fds = Vec::with_capacity(3);
        if let Some(stdout) = &self.stdout {
            fds.push(PollFd::new(stdout, PollFlags::IN));
        }
        if let Some(stderr) = &self.stderr {
            fds.push(PollFd::new(stderr, PollFlags::IN));
        }
        if let Some(stdin) = self.stdin.as_ref().filter(|_| wants_to_write) {
            fds.push(PollFd::new(stdin, PollFlags::OUT));
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(at_most.subsec_nanos()).max(100_000) as _,
        };
        // If the poll fails or is interrupted, the loop iterates once more. It has its own deadline.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Returns how the process ended: its status and the end of its standard error.
    pub fn fault_of_end(&mut self) -> ProcessFault {
        let status = self.kill();
        self.read_streams();
        let stderr: Vec<u8> = self.err.iter().copied().collect();
        ProcessFault::Ended {
            status: status.map_or_else(|| "status unknown".into(), |s| s.to_string()),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    /// Waits briefly for a regular exit if standard output has ended, then kills the group and reaps the child.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        if self.ended.is_some() {
            return self.ended;
        }
        if self.stdout.is_none() {
            let until = Instant::now() + Duration::from_secs(5);
            while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let Some(base) = &self.cgroup {
            cgroup::kill_group(base, self.child.id());
        }
        // Kill the rest of the group. The id is valid as long as the leader is not reaped, and is not reused while a
        // member of the group lives.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        self.ended = self.child.wait().ok();
        if let Some(base) = &self.cgroup {
            cgroup::remove_group(base, self.child.id());
        }
        self.ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the resident bytes of a process and its descendants, from `/proc`.
///
/// Between `fork` and `exec`, a child shows our memory as its own, for a considerable time on a busy machine. As long
/// as its program is ours, its memory is not counted. The program is read first, because if it changes between the two
/// reads, the memory is already that of the new program.
fn resident(pid: u32, depth: u32) -> u64 {
    if let (Ok(own), Ok(program)) =
        (std::fs::read_link("/proc/self/exe"), std::fs::read_link(format!("/proc/{pid}/exe")))
        && own == program
    {
        return 0;
    }
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm"))
        .ok()
        .and_then(|text| text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()))
        .unwrap_or(0);
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let below: u64 = if depth < 8 {
        children.split_whitespace().filter_map(|id| id.parse().ok()).map(|id| resident(id, depth + 1)).sum()
    } else {
        0
    };
    pages * rustix::param::page_size() as u64 + below
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_standard_error_is_reported() {
        let launch = Launch {
            program: "/bin/sh".into(),
            args: vec![
                "-c".into(),
                "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo line $i >&2; done".into(),
            ],
            env: Vec::new(),
            folder: "/".into(),
            cgroup: None,
        };
        let mut process = Process::start(&launch).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let quota = Quota { memory: u64::MAX, output: 100 };
        let deadline = &mut || (until, Duration::from_secs(60));
        let fault = process.exchange(b"", quota, deadline, &mut |_, _| None).unwrap_err().to_string();
        assert!(
            fault.contains("standard error: …\nline 4981\n") && fault.ends_with("\nline 5000"),
            "{fault}"
        );
    }

    #[test]
    fn memory_before_exec_is_not_counted() {
        assert_eq!(resident(std::process::id(), 0), 0, "our own memory is not a child's");
        let launch = Launch {
            program: "/bin/sleep".into(),
            args: vec!["60".into()],
            env: Vec::new(),
            folder: "/".into(),
            cgroup: None,
        };
        let process = Process::start(&launch).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while process.resident() == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(process.resident() > 0);
    }
}
