//! Starts NVIDIA's Multi-Process Service (MPS) for runs that share a GPU.
//!
//! Without it, the driver switches between the processes on a GPU, and their kernels never overlap.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The variable that names the folder of a daemon's sockets.
const PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Interval between checks of a process.
const POLL: Duration = Duration::from_millis(20);

/// A command that changes nothing and that every daemon answers.
const QUERY: &str = "get_default_active_thread_percentage";

/// Starts a daemon and ends it when standard input closes. The system closes it even if the sweep is killed. `$0` is the
/// control program.
const KEEPER: &str = r#"
"$0" -d </dev/null >output 2>&1 || exit
cat
echo quit | "$0"
cd / && rm -rf "$CUDA_MPS_PIPE_DIRECTORY"
"#;

/// The control program and its environment.
pub struct MpsControl {
    program: OsString,
    /// The value of `CUDA_MPS_PIPE_DIRECTORY`.
    outer: Option<OsString>,
    /// Maximum time for a start, an answer or an end.
    limit: Duration,
}

/// A daemon that ends with this value.
pub struct MpsDaemon {
    keeper: Child,
    folder: TempDir,
    gpus: Vec<String>,
    limit: Duration,
}

impl MpsControl {
    /// Finds the control program in `PATH`.
    pub fn of_machine() -> Self {
        Self {
            program: "nvidia-cuda-mps-control".into(),
            outer: std::env::var_os(PIPES).filter(|folder| !folder.is_empty()),
            limit: Duration::from_secs(10),
        }
    }

    /// Starts a daemon if `runs` concurrent runs share fewer GPUs and no daemon exists. Also returns a line for the user,
    /// empty if no daemon is needed.
    pub fn start(&self, gpus: &[String], runs: usize) -> (Option<MpsDaemon>, String) {
        if gpus.is_empty() || runs <= gpus.len() {
            return (None, String::new());
        }
        let text = if self.outer.is_some() {
            format!("MPS: the runs use the daemon of {PIPES}")
        } else {
            match self.is_answered(None) {
                Ok(true) => "MPS: the runs use the daemon of this machine".to_owned(),
                Ok(false) => match self.start_daemon(gpus) {
                    Ok(daemon) => {
                        return (
                            Some(daemon),
                            format!("MPS: started; {runs} runs share {} GPUs", gpus.len()),
                        );
                    }
                    Err(error) => {
                        format!("warning: MPS did not start ({error}), so runs on one GPU take turns")
                    }
                },
                Err(error) => {
                    format!(
                        "MPS: cannot execute {} ({error}), so runs on one GPU take turns",
                        self.program.display()
                    )
                }
            }
        };
        (None, text)
    }

    /// Returns whether a daemon answers, at the default place unless a folder is given.
    fn is_answered(&self, folder: Option<&Path>) -> io::Result<bool> {
        let mut query = Command::new(&self.program);
        query.envs(folder.map(|folder| (PIPES, folder)));
        query.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut query = query.process_group(0).spawn()?;
        if let Some(mut stdin) = query.stdin.take() {
            // Without a daemon, the program may end before it reads.
            let _ = writeln!(stdin, "{QUERY}");
        }
        let status = wait(&mut query, self.limit)?;
        if status.is_none() {
            end_group(&mut query);
        }
        Ok(status.is_some_and(|status| status.success()))
    }

    /// Starts a daemon for these GPUs and waits until it answers.
    fn start_daemon(&self, gpus: &[String]) -> io::Result<MpsDaemon> {
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("sgs-mps-").permissions(private).tempdir()?;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(&self.program).current_dir(folder.path());
        keeper.env("CUDA_VISIBLE_DEVICES", gpus.join(","));
        keeper.env(PIPES, folder.path()).env("CUDA_MPS_LOG_DIRECTORY", folder.path());
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C must reach only the sweep, because the runs need the daemon until they have stopped.
        let keeper = keeper.process_group(0).spawn()?;
        let mut daemon = MpsDaemon { keeper, folder, gpus: gpus.to_vec(), limit: self.limit };
        let start = Instant::now();
        while !self.is_answered(Some(daemon.folder.path()))? {
            if daemon.keeper.try_wait()?.is_some() {
                let output = std::fs::read_to_string(daemon.folder.path().join("output"))?;
                return Err(io::Error::other(output.lines().next().unwrap_or("no message").to_owned()));
            }
            if start.elapsed() >= self.limit {
                daemon.kill();
                return Err(io::Error::other(format!("no answer in {:.0} s", self.limit.as_secs_f64())));
            }
            std::thread::sleep(POLL);
        }
        Ok(daemon)
    }
}

impl MpsDaemon {
    /// Returns the environment of a run on one of the daemon's GPUs. The daemon numbers its GPUs from 0.
    #[allow(clippy::expect_used, reason = "the daemon was started for the GPUs of all slots")]
    pub fn environment(&self, gpu: &str) -> Vec<(&'static str, OsString)> {
        let index = self.gpus.iter().position(|own| own == gpu);
        let index = index.expect("invariant: the GPU is one of the daemon's");
        vec![
            ("CUDA_VISIBLE_DEVICES", index.to_string().into()),
            (PIPES, self.folder.path().as_os_str().to_owned()),
        ]
    }

    /// Ends a daemon that does not answer.
    fn kill(&mut self) {
        end_group(&mut self.keeper);
        // The daemon has left the keeper's process group.
        if let Some(pid) = daemon_pid(self.folder.path()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for MpsDaemon {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        if !matches!(wait(&mut self.keeper, self.limit), Ok(Some(_))) {
            self.kill();
        }
    }
}

/// Reads the process id that a daemon writes to its folder.
fn daemon_pid(folder: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(folder.join("nvidia-cuda-mps-control.pid")).ok()?;
    Pid::from_raw(text.trim().parse().ok().filter(|pid| *pid > 1)?)
}

/// Waits until a process ends, at most for the given time.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        match child.try_wait()? {
            None if start.elapsed() < limit => std::thread::sleep(POLL),
            status => return Ok(status),
        }
    }
}

fn end_group(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::SlotPool;
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// Creates a control program with the daemon's protocol. It appends its actions to `log`. The files `refuses`,
    /// `mute` and `default` next to it change its behaviour.
    const CONTROL: &str = r#"#!/bin/sh
here=$(dirname "$0")
pid=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid
if [ "$1" = -d ]; then
    [ -e "$here/refuses" ] && { echo 'no permission'; exit 1; }
    setsid sleep 100 &
    echo $! >"$pid"
    echo "start $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY $!" >>"$here/log"
    exit 0
fi
read -r command
[ "$command" = quit ] && { kill "$(cat "$pid")"; echo quit >>"$here/log"; exit 0; }
[ -z "$CUDA_MPS_PIPE_DIRECTORY" ] && exec test -e "$here/default"
[ -e "$pid" ] && [ ! -e "$here/mute" ]
"#;

    struct FakeControl(TempDir);

    impl FakeControl {
        fn new() -> Self {
            let fake = Self(tempfile::tempdir().unwrap());
            fs::write(fake.path("control"), CONTROL).unwrap();
            fs::set_permissions(fake.path("control"), Permissions::from_mode(0o700)).unwrap();
            fake
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn control(&self) -> MpsControl {
            control_at(self.path("control"))
        }

        fn log(&self) -> Vec<String> {
            let text = fs::read_to_string(self.path("log")).unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect()
        }
    }

    fn control_at(program: PathBuf) -> MpsControl {
        MpsControl { program: program.into(), outer: None, limit: Duration::from_secs(10) }
    }

    fn gpus() -> Vec<String> {
        vec!["3".to_owned(), "5".to_owned()]
    }

    fn until(what: &str, mut is_true: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_true() {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(POLL);
        }
    }

    /// Asserts that the daemon of a log's first line has ended and its folder is gone.
    fn assert_ended(log: &[String]) {
        until("the folder remains", || !Path::new(&log[2]).exists());
        // A process that has ended may wait for its parent.
        let status = || fs::read_to_string(format!("/proc/{}/status", log[4])).unwrap_or_default();
        until("the daemon runs", || !status().contains("sleep") || status().contains("State:\tZ"));
    }

    #[test]
    fn a_daemon_serves_the_runs_and_ends_with_the_slots() {
        let fake = FakeControl::new();
        let mut slots = SlotPool::share(Some(3), gpus(), (0..512).collect());
        assert_eq!(slots.start_mps(&fake.control(), 7), "MPS: started; 3 runs share 2 GPUs");
        let folder = fake.log()[2].clone();
        assert_eq!(fake.log()[..4], ["start", "3,5", &folder, &folder]);
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for gpu in ["0", "1", "0"] {
            let mut run = Command::new("sh");
            run.args(["-c", r#"[ "$CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY" = "$0" ]"#]);
            run.arg(format!("{gpu} {folder}"));
            assert!(slots.free().unwrap().spawn(&mut run).unwrap().wait().unwrap().success(), "{gpu}");
        }
        drop(slots);
        assert_eq!(fake.log()[5..], ["quit"]);
        assert_ended(&fake.log());
    }

    #[test]
    fn a_daemon_ends_if_the_sweep_is_killed() {
        const PROGRAM: &str = "SGS_TEST_MPS_CONTROL";
        if let Some(program) = std::env::var_os(PROGRAM) {
            // This process is the sweep.
            let _daemon = control_at(program.into()).start(&gpus(), 3);
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let fake = FakeControl::new();
        let (_, module) = module_path!().split_once("::").unwrap();
        let mut sweep = Command::new(std::env::current_exe().unwrap());
        sweep.args(["--exact", &format!("{module}::a_daemon_ends_if_the_sweep_is_killed")]);
        let mut sweep = sweep.env(PROGRAM, fake.path("control")).stdout(Stdio::null()).spawn().unwrap();
        until("no daemon", || fake.log().len() == 5);
        sweep.kill().unwrap();
        sweep.wait().unwrap();
        until("the daemon was not ended", || fake.log().len() == 6);
        assert_ended(&fake.log());
    }

    #[test]
    fn no_daemon_is_started_where_none_helps_or_one_exists() {
        let fake = FakeControl::new();
        let told = |control: &MpsControl, gpus: &[String], runs| {
            let (daemon, text) = control.start(gpus, runs);
            assert!(daemon.is_none() && fake.log().is_empty(), "{text}");
            text
        };
        let control = fake.control();
        assert_eq!(told(&control, &[], 9), "");
        assert_eq!(told(&control, &gpus(), 2), "");
        let outer = MpsControl { outer: Some("/pipes".into()), ..fake.control() };
        assert!(told(&outer, &gpus(), 3).contains("of CUDA_MPS_PIPE_DIRECTORY"));
        let missing = control_at(fake.path("missing"));
        assert!(told(&missing, &gpus(), 3).contains("cannot execute"));
        fs::write(fake.path("refuses"), "").unwrap();
        assert!(told(&control, &gpus(), 3).starts_with("warning: MPS did not start (no permission)"));
        fs::write(fake.path("default"), "").unwrap();
        assert_eq!(told(&control, &gpus(), 3), "MPS: the runs use the daemon of this machine");
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_ended() {
        let fake = FakeControl::new();
        fs::write(fake.path("mute"), "").unwrap();
        let control = MpsControl { limit: Duration::from_secs(1), ..fake.control() };
        let (daemon, text) = control.start(&gpus(), 3);
        assert!(
            daemon.is_none() && text.starts_with("warning: MPS did not start (no answer in 1 s)"),
            "{text}"
        );
        assert_ended(&fake.log());
    }
}
