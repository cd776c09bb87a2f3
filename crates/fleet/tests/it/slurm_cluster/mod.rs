//! A Slurm cluster of one controller and one node, on loopback and in a temporary folder.
//!
//! Needs `munged`, `slurmctld`, `slurmd` and root (Debian: `slurm-wlm`, `munge`).
// Used by test binaries of two crates, in parts.
#![allow(dead_code)]

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A cluster of one node. Dropping it ends its daemons.
pub struct Cluster {
    daemons: Vec<Child>,
    pub folder: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn daemon_path(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin"].iter().map(|d| Path::new(d).join(name)).find(|p| p.exists())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

impl Cluster {
    /// Starts a cluster, or returns what is missing.
    fn start() -> Result<Self, String> {
        let find = |name: &str| daemon_path(name).ok_or(format!("{name} is not installed"));
        let (munged, slurmctld, slurmd) = (find("munged")?, find("slurmctld")?, find("slurmd")?);
        let root = Command::new("id").arg("-u").output().map_err(|e| e.to_string())?.stdout;
        if root.trim_ascii() != b"0" {
            return Err("only root can start Slurm's daemons".into());
        }
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let at = |name: &str| folder.path().join(name);
        mode(folder.path(), 0o755);
        let mut key = vec![0u8; 1024];
        File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut key)).map_err(|e| e.to_string())?;
        fs::write(at("munge.key"), key).unwrap();
        mode(&at("munge.key"), 0o400);
        for name in ["state", "spool", "bin"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("slurm.conf"), configuration(folder.path())?).unwrap();
        for name in ["sbatch", "srun", "squeue", "scontrol", "sacct", "scancel", "sinfo"] {
            let real = daemon_path(name).ok_or(format!("{name} is not installed"))?;
            let script = format!(
                "#!/bin/sh\nSLURM_CONF={} exec {} \"$@\"\n",
                at("slurm.conf").display(),
                real.display()
            );
            fs::write(at("bin").join(name), script).unwrap();
            mode(&at("bin").join(name), 0o755);
        }
        let mut cluster = Self { daemons: Vec::new(), folder };
        let path = |name: &str| cluster.folder.path().join(name).display().to_string();
        let munge = [
            "--foreground".into(),
            "--force".into(),
            format!("--socket={}", path("munge.socket")),
            format!("--key-file={}", path("munge.key")),
            format!("--pid-file={}", path("munged.pid")),
            format!("--log-file={}", path("munged.log")),
            format!("--seed-file={}", path("munged.seed")),
        ];
        let conf = path("slurm.conf");
        cluster.spawn(&munged, &munge.map(|s: String| s), "munged")?;
        let socket = cluster.folder.path().join("munge.socket");
        cluster.wait("munged's socket", || socket.exists())?;
        cluster.spawn(&slurmctld, &["-D".into(), "-c".into(), "-f".into(), conf.clone()], "slurmctld")?;
        cluster.spawn(&slurmd, &["-D".into(), "-c".into(), "-f".into(), conf], "slurmd")?;
        let sinfo = cluster.bin().join("sinfo");
        cluster.wait("an idle node", || {
            let said = Command::new(&sinfo).args(["--noheader", "--format=%T"]).output();
            said.is_ok_and(|said| said.stdout.trim_ascii() == b"idle")
        })?;
        Ok(cluster)
    }

    fn spawn(&mut self, program: &Path, arguments: &[String], name: &str) -> Result<(), String> {
        let log = File::create(self.folder.path().join(format!("{name}.out"))).map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(command.spawn().map_err(|e| format!("{name}: {e}"))?);
        Ok(())
    }

    fn wait(&mut self, what: &str, so: impl Fn() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !so() {
            if Instant::now() > deadline {
                let mut logs = String::new();
                for name in ["munged.out", "slurmctld.out", "slurmd.out"] {
                    let text = fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
                    let lines: Vec<&str> = text.lines().rev().take(8).collect();
                    logs +=
                        &format!("\n{name}: {}", lines.into_iter().rev().collect::<Vec<_>>().join("\n  "));
                }
                return Err(format!("no {what} within 30 s{logs}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Returns the folder of Slurm's commands, configured for this cluster.
    pub fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// Runs one of Slurm's commands and returns its output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let said = Command::new(self.bin().join(program)).args(arguments).output().unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr)
    }
}

fn configuration(folder: &Path) -> Result<String, String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").map_err(|e| e.to_string())?;
    let host = host.trim().split('.').next().unwrap_or("localhost").to_owned();
    let (controller, node) = (free_port(), free_port());
    let at = folder.display();
    Ok(format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\nSlurmdPort={node}\n\
         AuthType=auth/munge\nAuthInfo=socket={at}/munge.socket\nCryptoType=crypto/munge\n\
         SlurmUser=root\nSlurmdUser=root\nStateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool\n\
         SlurmctldPidFile={at}/slurmctld.pid\nSlurmdPidFile={at}/slurmd.pid\n\
         SlurmctldLogFile={at}/slurmctld.log\nSlurmdLogFile={at}/slurmd.log\n\
         ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\nSwitchType=switch/none\n\
         MpiDefault=none\nKillWait=5\nSchedulerParameters=batch_sched_delay=0,sched_interval=1\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 State=UNKNOWN\n\
         SlurmdParameters=config_overrides\n\
         PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8\n"
    ))
}

/// Starts a cluster. If that is impossible, prints why and returns `None`, or panics if `SGS_NEED_SLURM` is set.
pub fn cluster() -> Option<Cluster> {
    // Ports are picked before they are bound, so another process may take one. Then retry.
    let started = Cluster::start().or_else(|why| if is_missing(&why) { Err(why) } else { Cluster::start() });
    match started {
        Ok(cluster) => Some(cluster),
        Err(why) => {
            assert!(std::env::var_os("SGS_NEED_SLURM").is_none(), "Slurm does not start: {why}");
            eprintln!("skipped: Slurm does not start here: {why}");
            None
        }
    }
}

/// Returns the ids of the running jobs.
pub fn running(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.run("squeue", &["--array", "--noheader", "--states=RUNNING", "--format=%i"]);
    listed.lines().map(|line| line.trim().to_owned()).collect()
}

/// Returns true if a program or permission is missing, so that a retry does not help.
fn is_missing(why: &str) -> bool {
    why.contains("not installed") || why.contains("only root")
}
