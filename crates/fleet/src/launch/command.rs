//! Running a short command with a deadline.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a command said and how it ended.
#[derive(Debug)]
pub(super) struct Said {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

/// Runs a command to its end, feeding it `input`; kills it at the deadline.
///
/// # Errors
/// In words, if it could not be started or took too long.
pub(super) fn run(mut command: Command, input: &str, patience: Duration) -> Result<Said, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cannot run {name}: {e}"))?;
    let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let deadline = Instant::now() + patience;
    thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(stdin) = &mut stdin {
                // A command that does not read its input says so by its exit status.
                let _ = stdin.write_all(input.as_bytes());
            }
        });
        let out = scope.spawn(move || read(stdout));
        let err = scope.spawn(move || read(stderr));
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if Instant::now() >= deadline => {
                    // It may have ended this very moment; then there is nothing to kill.
                    let _ = child.kill();
                    let _ = child.wait();
                    break Err(format!("{name} took longer than {} s and was killed", patience.as_secs()));
                }
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Err(error) => break Err(format!("cannot wait for {name}: {error}")),
            }
        };
        let text = |thread: thread::ScopedJoinHandle<'_, String>| thread.join().unwrap_or_default();
        let (out, err) = (text(out), text(err));
        status.map(|status| Said { ok: status.success(), out, err })
    })
}

fn read(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // What was read before an error is still worth showing.
        let _ = from.read_to_end(&mut bytes);
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
    fn says_what_it_says() {
        let said = run(shell("cat; echo oh >&2; exit 3"), "hello", Duration::from_secs(10)).expect("runs");
        assert_eq!((said.ok, said.out.as_str(), said.err.as_str()), (false, "hello", "oh\n"));
    }

    #[test]
    fn what_hangs_is_killed() {
        let begun = Instant::now();
        let error = run(shell("exec sleep 60"), "", Duration::from_millis(100)).expect_err("hangs");
        assert!(error.contains("killed") && begun.elapsed() < Duration::from_secs(10), "{error}");
        assert!(run(Command::new("/nowhere/at/all"), "", Duration::from_secs(1)).is_err());
    }
}
