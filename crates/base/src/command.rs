//! Runs short commands with a deadline.

use rustix::process::{Pid, Signal};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a command left behind.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// Largest output that is returned, in bytes. The rest is dropped.
const MAX_OUTPUT: u64 = 16 << 20;

/// Runs a command with `input` on its standard input. Kills it and the processes that it has started when `timeout` has
/// passed.
///
/// # Errors
/// Returns the reason if the command cannot be started or takes too long.
pub fn run(mut command: Command, input: &str, timeout: Duration) -> Result<CommandOutput, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // A group of its own, because a process that the command has started may keep the pipes open after it.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|e| format!("cannot run {name}: {e}"))?;
    let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (group, deadline) = (Pid::from_child(&child), Instant::now() + timeout);
    thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(stdin) = &mut stdin {
                // If the command ignores its input, its exit status shows whether that matters.
                let _ = stdin.write_all(input.as_bytes());
            }
        });
        let out = scope.spawn(move || read(stdout));
        let err = scope.spawn(move || read(stderr));
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) if out.is_finished() && err.is_finished() => break Ok(status),
                Ok(_) if Instant::now() >= deadline => {
                    // Fails if the processes have just ended.
                    let _ = rustix::process::kill_process_group(group, Signal::KILL);
                    let _ = child.wait();
                    break Err(format!("{name} took longer than {} s and was killed", timeout.as_secs()));
                }
                Ok(_) => thread::sleep(Duration::from_millis(10)),
                Err(error) => break Err(format!("cannot wait for {name}: {error}")),
            }
        };
        #[allow(clippy::expect_used, reason = "a panic of the reader is a bug")]
        let text = |reader: thread::ScopedJoinHandle<'_, String>| {
            reader.join().expect("invariant: reading cannot panic")
        };
        let (out, err) = (text(out), text(err));
        status.map(|status| CommandOutput { status, out, err })
    })
}

fn read(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // Output that precedes an error is still useful.
        let _ = from.by_ref().take(MAX_OUTPUT).read_to_end(&mut bytes);
        // A command that cannot write would not end.
        let _ = io::copy(&mut from, &mut io::sink());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_are_returned() {
        let output = run(shell("cat; echo oh >&2; exit 3"), "hello", Duration::from_secs(10)).expect("runs");
        assert_eq!((output.status.code(), &*output.out, &*output.err), (Some(3), "hello", "oh\n"));
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let begun = Instant::now();
        let error = run(shell("exec sleep 60"), "", Duration::from_millis(100)).expect_err("hangs");
        assert!(error.contains("killed") && begun.elapsed() < Duration::from_secs(10), "{error}");
        // The pipes stay open in a process that the command leaves behind, or waits for.
        for script in ["sleep 60 & exit 0", "sleep 60; true"] {
            let error = run(shell(script), "", Duration::from_millis(100)).expect_err("hangs");
            assert!(error.contains("killed") && begun.elapsed() < Duration::from_secs(10), "{error}");
        }
        assert!(run(Command::new("/nowhere/at/all"), "", Duration::from_secs(1)).is_err());
    }
}
