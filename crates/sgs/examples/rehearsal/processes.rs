//! The processes of a run, and counters of the system.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Interval at which files and processes are polled.
pub const LOOK: Duration = Duration::from_millis(50);

/// A coordinator. It is killed if the rehearsal fails.
pub struct Coordinator {
    child: Child,
}

impl Coordinator {
    /// Starts `sgs` with its output appended to a log.
    pub fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(program);
        command.args(arguments).env("RUST_LOG", "info").stdin(Stdio::null());
        let child = command.stdout(log.try_clone()?).stderr(log).spawn();
        Ok(Self { child: child.with_context(|| program.display().to_string())? })
    }

    /// Waits until `holds` returns a value.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Self) -> Result<Option<T>>,
    ) -> Result<T> {
        loop {
            let ended = self.child.try_wait()?;
            if let Some(value) = holds(self)? {
                return Ok(value);
            }
            if let Some(status) = ended {
                bail!("the run ended ({status}) before: {what}");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the end and returns the status with the seconds that it took.
    pub fn end(&mut self) -> Result<(ExitStatus, f64)> {
        let started = Instant::now();
        Ok((self.child.wait()?, started.elapsed().as_secs_f64()))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the other ranks of this machine: children that execute the same command.
    pub fn ranks(&self) -> Vec<u32> {
        let own = arguments(self.pid());
        self.children(|pid| arguments(pid) == own)
    }

    /// Returns the REPLs that check proofs.
    pub fn checkers(&self) -> Vec<u32> {
        self.children(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("repl")))
    }

    /// Returns the local workers that sample.
    pub fn workers(&self) -> Vec<u32> {
        self.children(|pid| arguments(pid).iter().any(|argument| argument == b"worker"))
    }

    fn children(&self, is_wanted: impl Fn(u32) -> bool) -> Vec<u32> {
        let own = format!(" {} ", self.pid());
        let is_child = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // The state and the parent follow the name, which is in parentheses.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest[1..].starts_with(&own))
        };
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| is_child(*pid) && is_wanted(*pid)).collect()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the arguments of a process, without its name.
fn arguments(pid: u32) -> Vec<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).skip(1).map(<[u8]>::to_vec).collect()
}

pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Kills a process, as `kill -9` does.
pub fn kill(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("not a process id")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

/// Returns the bytes that all network interfaces of this machine have received, the local one included.
pub fn network_bytes() -> u64 {
    let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let received = |line: &str| line.split_once(':')?.1.split_whitespace().next()?.parse::<u64>().ok();
    text.lines().filter_map(received).sum()
}

/// A sample of a GPU.
#[derive(Clone, Copy)]
pub struct GpuSample {
    /// When it was taken, in seconds since 1970.
    at: f64,
    gpu: usize,
    used_bytes: u64,
    /// Share of the last interval in which a kernel was running, in percent.
    busy: f64,
}

/// Returns the largest memory of a GPU, and its mean use during a round: an interval in seconds since 1970. The use is null
/// without samples of the round.
pub fn summary(samples: &[GpuSample], gpu: usize, round: Range<f64>) -> Option<Value> {
    let own = || samples.iter().filter(|sample| sample.gpu == gpu);
    let of_round: Vec<f64> = own().filter(|s| round.contains(&s.at)).map(|s| s.busy / 100.0).collect();
    let used = own().map(|sample| sample.used_bytes).max()?;
    let busy = (!of_round.is_empty()).then(|| of_round.iter().sum::<f64>() / of_round.len() as f64);
    Some(json!({"gpu": gpu, "used_bytes": used, "busy_share": busy}))
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(f64::NAN, |time| time.as_secs_f64())
}

/// Samples all GPUs with `nvidia-smi`, if the machine has it.
#[derive(Default)]
pub struct GpuSampler {
    samples: Arc<Mutex<Vec<GpuSample>>>,
    child: Option<Child>,
}

impl GpuSampler {
    pub fn start() -> Self {
        // CUDA numbers the visible GPUs; nvidia-smi knows only the numbers of the machine.
        let visible: Vec<usize> = std::env::var("CUDA_VISIBLE_DEVICES")
            .map(|list| list.split(',').filter_map(|number| number.trim().parse().ok()).collect())
            .unwrap_or_default();
        let number_of = move |gpu: usize| match visible.is_empty() {
            true => Some(gpu),
            false => visible.iter().position(|of_machine| *of_machine == gpu),
        };
        let mut command = Command::new("nvidia-smi");
        command.args([
            "--query-gpu=index,memory.used,utilization.gpu",
            "--format=csv,noheader,nounits",
            "-lms",
            "500",
        ]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn();
        let mut sampler = Self { samples: Arc::default(), child: child.ok() };
        if let Some(lines) = sampler.child.as_mut().and_then(|child| child.stdout.take()) {
            let samples = Arc::clone(&sampler.samples);
            std::thread::spawn(move || {
                for line in BufReader::new(lines).lines().map_while(Result::ok) {
                    let fields: Vec<f64> =
                        line.split(',').filter_map(|field| field.trim().parse().ok()).collect();
                    let [gpu, mib, busy] = fields[..] else { continue };
                    let Some(gpu) = number_of(gpu as usize) else { continue };
                    let sample = GpuSample {
                        at: unix_seconds(),
                        gpu,
                        used_bytes: (mib * f64::from(1 << 20)) as u64,
                        busy,
                    };
                    samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
                }
            });
        }
        sampler
    }

    /// Takes the samples since the last call.
    pub fn take(&self) -> Vec<GpuSample> {
        std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for GpuSampler {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
