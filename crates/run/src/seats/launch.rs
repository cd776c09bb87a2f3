//! Ranks as processes of this machine: started, watched, and ended together.

use super::{Seat, variable};
use crate::machine;
use crate::{Code, Outcome};
use anyhow::{Context, Result, bail};
use sgs_fleet::token::fresh_secret;
use sgs_lm::ranks::Rendezvous;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
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
    let token = prepare(folder)?;
    let mut started: Vec<Started> = Vec::new();
    let mut echo = None;
    for rank in 0..ranks {
        match start(rank, ranks, folder, &token, rank == 0) {
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
        Some(lost) => {
            let text = describe(lost, ranks);
            bail!("{text}\nThe other ranks were ended; the same command goes on from the last checkpoint.")
        }
    }
}

/// All ranks but the first, which is this process.
pub struct Others {
    started: Vec<Started>,
    ranks: usize,
}

impl Others {
    /// Runs this program's command again as every rank but the first; they end with this process. What this one needs
    /// to meet them comes along.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn start(ranks: usize, folder: &Path, patience: Duration) -> Result<(Self, Seat)> {
        let token = prepare(folder)?;
        let mut others = Self { started: Vec::new(), ranks };
        for rank in 1..ranks {
            // Those that were started before end with `others`.
            others.started.push(start(rank, ranks, folder, &token, false)?);
        }
        let seat = Seat {
            rank: 0,
            ranks,
            local: 0,
            local_ranks: ranks,
            rendezvous: Rendezvous::File(meeting_file(folder)),
            token,
            log: None,
            patience,
        };
        Ok((others, seat))
    }

    /// Does what needs the others to come, in a thread of its own: one that ends before is the error.
    ///
    /// # Errors
    /// Those of `meet`; or a rank ended.
    pub fn while_they_come<T: Send + 'static>(
        &mut self,
        meet: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, result) = mpsc::channel();
        thread::Builder::new().name("meet".into()).spawn(move || done.send(meet()))?;
        loop {
            match result.recv_timeout(LOOK) {
                Ok(met) => return met,
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that meets the ranks panicked"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            look(&mut self.started);
            if let Some(lost) = culprit(&self.started) {
                bail!(describe(lost, self.ranks));
            }
        }
    }

    /// What a rank was lost by, once all have ended, which they do when this process leaves the meeting; nothing if
    /// none of them failed for a reason of its own.
    pub fn reason(mut self) -> Option<String> {
        let deadline = Instant::now() + GRACE;
        while !look(&mut self.started) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        self.started.iter_mut().filter(|s| s.status.is_none()).for_each(end);
        let lost = culprit(&self.started).filter(|lost| !only_lost_another(lost))?;
        Some(describe(lost, self.ranks))
    }
}

/// Makes the folder of the ranks, as it is before they meet, and their token.
fn prepare(folder: &Path) -> Result<String> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    match fs::remove_file(meeting_file(folder)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", meeting_file(folder).display()))
        }
        _ => Ok(fresh_secret()?),
    }
}

/// Starts a rank. One that is heard says what it says here, too, and hears the terminal's signals; others are left to
/// those who are.
fn start(rank: usize, ranks: usize, folder: &Path, token: &str, heard: bool) -> Result<Started> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let log = log_file(folder, rank);
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::piped());
    command.env(variable::RANK, rank.to_string()).env(variable::RANKS, ranks.to_string());
    command.env(variable::FOLDER, folder).env(variable::TOKEN, token);
    if heard {
        // What it says goes to the terminal and into its log.
        command.stderr(Stdio::piped());
    } else {
        let again = file.try_clone().with_context(|| format!("cannot write {}", log.display()))?;
        command.stdout(again).stderr(file).process_group(0);
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
    while !look(started) {
        if started.iter().any(|s| s.status.is_some_and(|status| !status.success())) {
            deadline.get_or_insert_with(|| Instant::now() + GRACE);
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            started.iter_mut().filter(|s| s.status.is_none()).for_each(end);
        }
        thread::sleep(LOOK);
    }
}

/// Notes who has ended; returns whether all have.
fn look(started: &mut [Started]) -> bool {
    for one in started.iter_mut().filter(|s| s.status.is_none()) {
        one.status = one.child.try_wait().ok().flatten();
    }
    started.iter().all(|s| s.status.is_some())
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
    let own = |s: &&Started| !only_lost_another(s);
    failed().find(signal).or_else(|| failed().find(own)).or_else(|| failed().next())
}

/// Whether a rank ended because another did.
fn only_lost_another(one: &Started) -> bool {
    one.status.and_then(|status| status.code()) == Some(i32::from(Code::RankLost))
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
