//! Commands that rank 0 sends to the other ranks: messages of any size, at any time, executed in the order in
//! which they are sent.
//!
//! The other ranks wait for commands as long as rank 0 is alive. Rank 0 may send commands from any thread while
//! its trainer is idle, for example while a checkpoint is written during the sampling.

use std::sync::Arc;
use std::time::Duration;

use super::process_group::{GroupLinks, ProcessGroup, kind, rank_error};
use crate::error::Result;

/// Bytes of a command that are sent at a time, so that heartbeats can pass in between.
const PART: usize = 1 << 26;

/// Sends commands from rank 0 to the other ranks. Any rank reports failures of its threads through it.
#[derive(Clone)]
pub struct CommandChannel {
    shared: Arc<GroupLinks>,
    patience: Duration,
}

impl std::fmt::Debug for CommandChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandChannel").field("members", &self.shared.members).finish_non_exhaustive()
    }
}

impl CommandChannel {
    /// Sends a command to all other ranks.
    pub fn send(&self, command: &[u8]) -> Result<()> {
        self.check()?;
        self.shared.state().answers.clear();
        let others = 1..self.shared.members.len();
        let length = (command.len() as u64).to_le_bytes();
        for part in std::iter::once(&length[..]).chain(command.chunks(PART)) {
            others.clone().try_for_each(|rank| self.shared.post(rank, kind::ORDER, part))?;
        }
        Ok(())
    }

    /// Waits until every other rank has acknowledged the last command.
    ///
    /// # Errors
    /// Returns an error, which names the rank, if a rank failed to execute the command, is lost, or did not
    /// answer within the configured time.
    pub fn wait(&self) -> Result<()> {
        let members = &self.shared.members;
        let state = self.shared.wait_unless_lost(self.patience, |s| s.answers.len() + 1 >= members.len());
        let failed = state.answers.iter().find(|(_, why)| !why.is_empty());
        let failed = failed.map(|(rank, why)| (*rank, String::from_utf8_lossy(why).into_owned()));
        let silent = (1..members.len()).find(|rank| !state.answers.contains_key(rank));
        drop(state);
        if let Some((rank, why)) = failed {
            return Err(rank_error(format!("{} failed: {why}", members[rank])));
        }
        self.check()?;
        match silent {
            None => Ok(()),
            Some(rank) => {
                let waited = self.patience.as_secs();
                Err(self.shared.lost(format!("waited {waited} s for an answer from {}", members[rank])))
            }
        }
    }

    /// Notifies all ranks that this one has failed, and why.
    pub fn fail(&self, why: &str) {
        self.shared.fail(why);
    }

    /// Checks that no rank is lost.
    pub fn check(&self) -> Result<()> {
        self.shared.check()
    }
}

impl ProcessGroup {
    /// Returns the channel through which rank 0 sends commands.
    pub fn command_channel(&self) -> CommandChannel {
        CommandChannel { shared: Arc::clone(self.shared()), patience: self.config().patience }
    }

    /// Waits for rank 0's next command without a time limit. Returns `None` if rank 0 has left after its work was done.
    ///
    /// # Errors
    /// Returns an error if a rank is lost or out of step.
    pub fn next_command(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(first) = self.message_within(kind::ORDER, Duration::MAX)? else { return Ok(None) };
        let garbled = |_| self.lost("rank 0 sent a command without a length".to_owned());
        let length = u64::from_le_bytes(first.payload.try_into().map_err(garbled)?);
        let mut command = Vec::new();
        while (command.len() as u64) < length {
            command.extend(self.message(kind::ORDER, 0)?.payload);
        }
        Ok(Some(command))
    }

    /// Reports to rank 0 that its last command was executed, or why it failed.
    pub fn acknowledge(&mut self, done: std::result::Result<(), &str>) -> Result<()> {
        let why = done.err().map_or("", |why| if why.is_empty() { "for an unknown reason" } else { why });
        self.shared().post(0, kind::ANSWER, why.as_bytes())
    }
}
