//! Ranks as processes of this machine: started, watched, and ended together.

use super::{LOST, variable};
use crate::exit::Outcome;
use crate::machine;
use anyhow::{Context, Result, bail};
use sgs_fleet::token::fresh_secret;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between looks at the ranks.
const LOOK: Duration = Duration::from_millis(20);
/// Time that ranks have to end by themselves once one has failed.
const GRACE: Duration = Duration::from_secs(20);
/// Lines of a log that an error shows.
const LAST_LINES: usize = 12;

/// Where the ranks of this folder meet.
pub fn meeting_file(folder: &Path) -> PathBuf {
    folder.join("meeting")
}

/// A rank's log.
pub fn log_file(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("rank-{rank}.log"))
}

/// A rank's process.
struct Started {
    rank: usize,
    child: Child,
    log: PathBuf,
    status: Option<ExitStatus>,
    /// Whether it was ended from here.
    killed: bool,
}

/// Runs this program's command again as so many ranks, and waits for all of them.
pub fn launch(ranks: usize, folder: &Path) -> Result<Outcome> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    match fs::remove_file(meeting_file(folder)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_context(|| format!("cannot remove {}", meeting_file(folder).display()));
        }
        _ => {}
    }
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let token = fresh_secret()?;
    let mut started: Vec<Started> = Vec::new();
    let mut echo = None;
    for rank in 0..ranks {
        match start(&program, rank, ranks, folder, &token) {
            Ok(mut one) => {
                if let Some(errors) = one.child.stderr.take() {
                    echo = Some(copy(errors, &one.log)?);
                }
                started.push(one);
            }
            Err(error) => {
                started.iter_mut().for_each(end);
                return Err(error);
            }
        }
    }
    watch(&mut started);
    if let Some(echo) = echo {
        let _ = echo.join();
    }
    match culprit(&started) {
        None => Ok(Outcome::Done),
        Some(lost) => bail!(describe(lost, ranks)),
    }
}

fn start(program: &Path, rank: usize, ranks: usize, folder: &Path, token: &str) -> Result<Started> {
    let log = log_file(folder, rank);
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::piped());
    command.env(variable::RANK, rank.to_string()).env(variable::RANKS, ranks.to_string());
    command.env(variable::FOLDER, folder).env(variable::TOKEN, token);
    if rank == 0 {
        // What it says goes to the terminal and into its log.
        command.stderr(Stdio::piped());
    } else {
        let again = file.try_clone().with_context(|| format!("cannot write {}", log.display()))?;
        command.stdout(again).stderr(file);
    }
    let child = command.spawn().with_context(|| format!("cannot start rank {rank}"))?;
    Ok(Started { rank, child, log, status: None, killed: false })
}

/// Copies what rank 0 says into its log.
fn copy(errors: impl Read + Send + 'static, log: &Path) -> Result<JoinHandle<()>> {
    let mut file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let echo = thread::Builder::new().name("rank-0".into());
    echo.spawn(move || {
        let mut errors = BufReader::new(errors);
        let mut line = Vec::new();
        while errors.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let _ = file.write_all(&line);
            let _ = std::io::stderr().write_all(&line);
            line.clear();
        }
    })
    .context("cannot start a thread")
}

/// Waits until all have ended; once one has failed the others have a moment to end by themselves.
fn watch(started: &mut [Started]) {
    let mut deadline: Option<Instant> = None;
    loop {
        for one in started.iter_mut().filter(|s| s.status.is_none()) {
            if let Ok(Some(status)) = one.child.try_wait() {
                one.status = Some(status);
                if !status.success() {
                    deadline.get_or_insert_with(|| Instant::now() + GRACE);
                }
            }
        }
        if started.iter().all(|s| s.status.is_some()) {
            return;
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            started.iter_mut().filter(|s| s.status.is_none()).for_each(end);
        }
        thread::sleep(LOOK);
    }
}

fn end(one: &mut Started) {
    one.killed = true;
    let _ = one.child.kill();
    one.status = one.child.wait().ok();
}

/// The rank whose end is the others' reason: one that was killed by a signal, else one that failed for a reason of its
/// own, else any that failed.
fn culprit(started: &[Started]) -> Option<&Started> {
    let failed = || started.iter().filter(|s| !s.killed && s.status.is_some_and(|status| !status.success()));
    let signal = |s: &&Started| s.status.is_some_and(|status| status.signal().is_some());
    let own = |s: &&Started| s.status.and_then(|status| status.code()) != Some(i32::from(LOST));
    failed().find(signal).or_else(|| failed().find(own)).or_else(|| failed().next())
}

fn describe(lost: &Started, ranks: usize) -> String {
    let how = match lost.status {
        Some(status) => match (status.signal(), status.code()) {
            (Some(9), _) => "was killed by signal 9 (by hand, or because memory ran out)".to_owned(),
            (Some(signal), _) => format!("was killed by signal {signal}"),
            (None, Some(code)) => format!("ended with code {code}"),
            (None, None) => "ended".to_owned(),
        },
        None => "ended".to_owned(),
    };
    let mut text = format!(
        "rank {} of {ranks} {how} (host {}, process {}, log {})",
        lost.rank,
        machine::host_name(),
        lost.child.id(),
        lost.log.display()
    );
    let lines = last_lines(&lost.log);
    if !lines.is_empty() {
        text.push_str("; the end of its log:");
        lines.iter().for_each(|line| text.push_str(&format!("\n  | {line}")));
    }
    text.push_str("\nThe other ranks were ended; the same command goes on from the last checkpoint.");
    text
}

/// The last lines of a file, of at most 64 KiB.
fn last_lines(path: &Path) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(1 << 16)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let mut lines = VecDeque::new();
    for line in String::from_utf8_lossy(&bytes).lines() {
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }
    lines.into()
}
