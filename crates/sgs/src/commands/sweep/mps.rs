//! Starts NVIDIA's Multi-Process Service (MPS) for runs that share a GPU.
//!
//! Without it, the driver switches between the processes on a GPU, and their kernels never overlap.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The variable that names the folder of a daemon's sockets.
const PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Starts a daemon, prints its folder, and ends it when standard input closes, which the system does even if the sweep
/// is killed. Prints a message instead if no daemon is started. The arguments are the control program, the maximum
/// time for a start, an answer or an end in seconds, and the GPUs.
const KEEPER: &str = r#"
program=$0 limit=$1
# The sweep may be killed before it reads.
trap '' PIPE
# Every daemon answers this command, which changes nothing.
answers() { echo get_default_active_thread_percentage | timeout "$limit" "$program" >/dev/null 2>&1; }
end() {
    echo quit | timeout "$limit" "$program" >/dev/null 2>&1 ||
        kill -9 "$(cat nvidia-cuda-mps-control.pid)" 2>/dev/null
}
fail() { echo "warning: MPS did not start ($1), so runs on one GPU take turns"; }

command -v "$program" >/dev/null ||
    { echo "MPS: cannot execute $program, so runs on one GPU take turns"; exit; }
answers && { echo "MPS: the runs use the daemon of this machine"; exit; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/sgs-mps-XXXXXX") && cd "$folder" && folder=$PWD || { fail "no folder"; exit; }
trap 'cd / && rm -rf "$folder"' EXIT
export CUDA_VISIBLE_DEVICES="$2" CUDA_MPS_PIPE_DIRECTORY="$folder" CUDA_MPS_LOG_DIRECTORY="$folder"
timeout "$limit" "$program" -d </dev/null >output 2>&1 || { fail "$(head -n 1 output)"; exit; }
last=$(($(date +%s) + limit))
until answers; do
    [ "$(date +%s)" -lt "$last" ] || { fail "no answer in $limit s"; end; exit; }
    sleep 0.02
done
echo "$folder"
cat
end
"#;

/// The control program and its environment.
pub struct MpsControl {
    program: OsString,
    /// The value of `CUDA_MPS_PIPE_DIRECTORY`.
    outer: Option<OsString>,
    /// Maximum time for a start, an answer or an end, in seconds.
    limit: u32,
}

/// A daemon that ends with this value.
pub struct MpsDaemon {
    keeper: Child,
    folder: String,
    gpus: Vec<String>,
}

impl MpsControl {
    /// Finds the control program in `PATH`.
    pub fn of_machine() -> Self {
        Self {
            program: "nvidia-cuda-mps-control".into(),
            outer: std::env::var_os(PIPES).filter(|folder| !folder.is_empty()),
            limit: 10,
        }
    }

    /// Starts a daemon if `runs` concurrent runs share fewer GPUs and no daemon exists. Also returns a line for the user,
    /// empty if no daemon is needed.
    pub fn start(&self, gpus: &[String], runs: usize) -> (Option<MpsDaemon>, String) {
        if gpus.is_empty() || runs <= gpus.len() {
            return (None, String::new());
        }
        if self.outer.is_some() {
            return (None, format!("MPS: the runs use the daemon of {PIPES}"));
        }
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(&self.program).args([self.limit.to_string(), gpus.join(",")]);
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Ctrl-C must reach only the sweep, because the runs need the daemon until they have stopped.
        let Ok(mut keeper) = keeper.process_group(0).spawn() else {
            return (None, "warning: MPS did not start (no shell)".to_owned());
        };
        let mut told = String::new();
        if let Some(output) = keeper.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut told);
        }
        let told = told.trim_end();
        if !told.starts_with('/') {
            let _ = keeper.wait();
            return (None, told.to_owned());
        }
        let daemon = MpsDaemon { keeper, folder: told.to_owned(), gpus: gpus.to_vec() };
        (Some(daemon), format!("MPS: started; {runs} runs share {} GPUs", gpus.len()))
    }
}

impl MpsDaemon {
    /// Returns the environment of a run on one of the daemon's GPUs. The daemon numbers its GPUs from 0.
    #[allow(clippy::expect_used, reason = "the daemon was started for the GPUs of all slots")]
    pub fn environment(&self, gpu: &str) -> [(&'static str, String); 2] {
        let index = self.gpus.iter().position(|own| own == gpu);
        let index = index.expect("invariant: the GPU is one of the daemon's");
        [("CUDA_VISIBLE_DEVICES", index.to_string()), (PIPES, self.folder.clone())]
    }
}

impl Drop for MpsDaemon {
    fn drop(&mut self) {
        // Closes the keeper's standard input.
        let _ = self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::SlotPool;
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};
    use tempfile::TempDir;

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

        /// Returns the words of the log.
        fn log(&self) -> Vec<String> {
            let text = fs::read_to_string(self.path("log")).unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect()
        }
    }

    fn control_at(program: PathBuf) -> MpsControl {
        MpsControl { program: program.into(), outer: None, limit: 10 }
    }

    fn gpus() -> Vec<String> {
        vec!["3".to_owned(), "5".to_owned()]
    }

    fn until(what: &str, mut is_true: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_true() {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(20));
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
        let control = MpsControl { limit: 1, ..fake.control() };
        let (daemon, text) = control.start(&gpus(), 3);
        assert!(
            daemon.is_none() && text.starts_with("warning: MPS did not start (no answer in 1 s)"),
            "{text}"
        );
        assert_ended(&fake.log());
    }
}
