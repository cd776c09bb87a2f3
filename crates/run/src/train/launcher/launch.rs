//! Ranks as local processes: starts them, watches them, and stops them together.

use super::{RankEnv, env_name};
use crate::Code;
use crate::error::{Context, Result, RunError, bail};
use sgs_base::excerpt;
use sgs_fleet::launch::read_end;
use sgs_fleet::token::fresh_secret;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Polling interval for the ranks' processes.
const LOOK: Duration = Duration::from_millis(20);
/// Time for the other ranks to exit after one has failed.
const GRACE: Duration = Duration::from_secs(20);

/// Returns the rendezvous file of the ranks with this folder.
pub(crate) fn rendezvous_file(folder: &Path) -> PathBuf {
    folder.join("rendezvous")
}

pub(crate) fn log_file(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("rank-{rank}.log"))
}

struct RankProcess {
    rank: usize,
    child: Child,
    log: PathBuf,
    status: Option<ExitStatus>,
    /// Whether this process killed it.
    killed: bool,
}

/// The processes of all ranks except rank 0, which is this process.
pub struct RankProcesses {
    started: Vec<RankProcess>,
    ranks: usize,
}

impl RankProcesses {
    /// Runs this command again as every rank except rank 0. The processes end with this one. Also returns this
    /// process's own rank environment.
    pub fn start(ranks: usize, folder: &Path, patience: Duration) -> Result<(Self, RankEnv)> {
        let token = prepare(folder)?;
        let mut others = Self { started: Vec::new(), ranks };
        for rank in 1..ranks {
            // Dropping `others` ends the processes that were already started.
            others.started.push(start(rank, ranks, folder, &token)?);
        }
        Ok((others, RankEnv::on_one_machine(0, ranks, folder, token, patience)))
    }

    /// Runs `meet`, which needs the other ranks to join, in a thread. A rank that exits early is an error.
    pub(crate) fn while_joining<T: Send + 'static>(
        &mut self,
        meet: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, result) = mpsc::channel();
        thread::Builder::new().name("meet".into()).spawn(move || done.send(meet()))?;
        loop {
            match result.recv_timeout(LOOK) {
                Ok(met) => return met,
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that connects the ranks panicked"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            look(&mut self.started);
            if let Some(lost) = culprit(&self.started) {
                return Err(RunError::Failed(describe(lost, self.ranks)));
            }
        }
    }

    /// Waits until all ranks have exited, which they do when this process leaves the group. Returns the reason of the
    /// first rank that failed by itself, if any.
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

/// Creates an empty folder for the ranks and their token.
fn prepare(folder: &Path) -> Result<String> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    match fs::remove_file(rendezvous_file(folder)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", rendezvous_file(folder).display()))
        }
        _ => Ok(fresh_secret()?),
    }
}

/// Starts a rank, whose output goes into its log.
fn start(rank: usize, ranks: usize, folder: &Path, token: &str) -> Result<RankProcess> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let log = log_file(folder, rank);
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::piped());
    command.env(env_name::RANK, rank.to_string()).env(env_name::RANKS, ranks.to_string());
    command.env(env_name::FOLDER, folder).env(env_name::TOKEN, token);
    let again = file.try_clone().with_context(|| format!("cannot write {}", log.display()))?;
    // This process ends the ranks if the user interrupts it.
    command.stdout(again).stderr(file).process_group(0);
    let child = command.spawn().with_context(|| format!("cannot start rank {rank}"))?;
    Ok(RankProcess { rank, child, log, status: None, killed: false })
}

/// Updates the exit statuses. Returns true if all ranks have exited.
fn look(started: &mut [RankProcess]) -> bool {
    for one in started.iter_mut().filter(|s| s.status.is_none()) {
        one.status = one.child.try_wait().ok().flatten();
    }
    started.iter().all(|s| s.status.is_some())
}

fn end(one: &mut RankProcess) {
    one.killed = true;
    let _ = one.child.kill();
    one.status = one.child.wait().ok();
}

/// Returns the rank that caused the failure. Prefers a rank that was killed by a signal, then a rank that failed
/// independently of the others.
fn culprit(started: &[RankProcess]) -> Option<&RankProcess> {
    let failed = || started.iter().filter(|s| !s.killed && s.status.is_some_and(|status| !status.success()));
    let signal = |s: &&RankProcess| s.status.is_some_and(|status| status.signal().is_some());
    let own = |s: &&RankProcess| !only_lost_another(s);
    failed().find(signal).or_else(|| failed().find(own)).or_else(|| failed().next())
}

/// Returns true if a rank exited because another one did.
fn only_lost_another(one: &RankProcess) -> bool {
    one.status.and_then(|status| status.code()) == Some(i32::from(Code::RankLost))
}

fn describe(lost: &RankProcess, ranks: usize) -> String {
    let how = match lost.status.map(|status| (status.signal(), status.code())) {
        Some((Some(9), _)) => "was killed by signal 9 (by a user, or because memory ran out)".to_owned(),
        Some((Some(signal), _)) => format!("was killed by signal {signal}"),
        Some((None, Some(code))) => format!("ended with code {code}"),
        _ => "ended".to_owned(),
    };
    let mut text = format!(
        "rank {} of {ranks} {how} (host {}, process {}, log {})",
        lost.rank,
        sgs_base::host::host_name(),
        lost.child.id(),
        lost.log.display()
    );
    let end = end_of_log(&lost.log);
    if !end.is_empty() {
        text.push_str("; the end of its log:");
        end.lines().for_each(|line| text.push_str(&format!("\n  | {line}")));
    }
    text
}

/// Returns the last lines of a rank's log, or an empty text if it cannot be read.
fn end_of_log(path: &Path) -> String {
    let text = read_end(path, 2 * excerpt::MOST_BYTES as u64).unwrap_or_default();
    excerpt::end_of(&text).into_owned()
}
