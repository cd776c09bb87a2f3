//! Workers as jobs of a real Slurm, started by the test itself: one controller, one node, all on loopback.
//!
//! Needs `munged`, `slurmctld`, `slurmd` and root (Debian: `slurm-wlm`, `munge`); says so and passes where they are
//! missing, unless `SGS_NEED_SLURM` is set.
#![cfg(feature = "http")]
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod worker_process;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use sgs_fleet::launch::{JobState, Stop};
use sgs_fleet::{CrashRules, Ending, Fleet, Launcher, SlurmConfig, SlurmLauncher, Supervisor};
use worker_process::{board, command, process_of, square, start_service, task, wait_for};

const LONG: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the worker process of the other tests"]
fn worker_process() {
    worker_process::obey_orders();
}

/// A cluster of one node in a temporary folder; its daemons end with it.
struct Cluster {
    daemons: Vec<Child>,
    folder: tempfile::TempDir,
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
    /// Starts it, or says what is missing.
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
        for name in ["sbatch", "squeue", "scontrol", "sacct", "scancel", "sinfo"] {
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

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn config(&self, command: Vec<String>, prefix: &str) -> SlurmConfig {
        let mut config = SlurmConfig::new(command, prefix, &self.folder.path().join("logs"));
        config.bin = Some(self.bin());
        config.interval = Duration::from_millis(300);
        config.options.insert("partition".into(), "main".into());
        config.options.insert("time".into(), "00:10:00".into());
        config
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
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

fn cluster() -> Option<Cluster> {
    match Cluster::start() {
        Ok(cluster) => Some(cluster),
        Err(why) => {
            assert!(std::env::var_os("SGS_NEED_SLURM").is_none(), "Slurm does not start: {why}");
            eprintln!("skipped: Slurm does not start here: {why}");
            None
        }
    }
}

fn running(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.run("squeue", &["--array", "--noheader", "--states=RUNNING", "--format=%i"]);
    listed.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn jobs_that_are_cancelled_or_killed_are_replaced_and_every_task_is_done_once() {
    let Some(cluster) = cluster() else { return };
    const TASKS: u64 = 400;
    let fleet = Fleet::in_memory(board());
    let service = start_service(&fleet);
    fleet.submit((0..TASKS).map(|id| task(id, 60))).unwrap();
    let config = cluster.config(command(&service.url("127.0.0.1"), 1), "ver");
    let launcher = SlurmLauncher::new(config).unwrap();
    let rules = CrashRules { shortest_life: Duration::ZERO, ..CrashRules::default() };
    let supervisor = Supervisor::start(Box::new(launcher), 3, rules, Some(fleet.clone())).unwrap();
    wait_for("three jobs at work", LONG, || {
        supervisor.check().unwrap();
        fleet.status().unwrap().workers.iter().filter(|w| w.done > 0).count() >= 3
    });
    let mut jobs = running(&cluster);
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    assert!(jobs.iter().all(|job| job.contains('_')), "one array: {jobs:?}");
    // One job is cancelled by somebody, one is killed as by the kernel.
    println!("{}", cluster.run("scancel", &[&jobs.remove(0)]));
    let victim = format!("ver-0-{}", jobs.remove(0).rsplit('_').next().unwrap());
    kill_process(process_of(&victim).expect("it lives"), Signal::KILL).unwrap();
    let mut ended = BTreeSet::new();
    let deadline = Instant::now() + LONG;
    while (ended.len() as u64) < TASKS {
        assert!(Instant::now() < deadline, "{} of {TASKS}: {:?}", ended.len(), supervisor.status());
        supervisor.check().unwrap();
        for finished in fleet.take_finished(None, 100, Duration::from_secs(1)).unwrap() {
            let id = finished.task.0;
            let Ending::Done { outcome, .. } = finished.ending else { panic!("task {id} is quarantined") };
            assert_eq!(outcome, square(id), "whole results");
            assert!(ended.insert(id), "task {id} ended twice");
        }
    }
    wait_for("the dead to be replaced", LONG, || {
        supervisor.status().launched == 5 && running(&cluster).len() == 3
    });
    assert_eq!(supervisor.status().lost, 2);
    supervisor.stop(Duration::from_secs(20));
    wait_for("an empty queue", LONG, || running(&cluster).is_empty());
    let counters = fleet.status().unwrap().counters;
    println!(
        "leases {}, died {}, returned {}, late {}",
        counters.leases, counters.died, counters.returned, counters.late
    );
}

#[test]
fn slurm_tells_how_jobs_ended() {
    let Some(cluster) = cluster() else { return };
    let script = "case {worker} in *-0) exit 0;; *-1) echo 'no model here' >&2; exit 7;; *) sleep 100;; esac";
    let command = vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let mut launcher = SlurmLauncher::new(cluster.config(command, "end")).unwrap();
    let jobs = launcher.launch(3).unwrap();
    let mut states = Vec::new();
    wait_for("two ends", LONG, || {
        states = launcher.poll(&jobs).unwrap();
        states[..2].iter().all(|s| matches!(s, JobState::Ended { .. })) && states[2] == JobState::Running
    });
    assert_eq!(states[0], JobState::Ended { ok: true, how: "completed".into() });
    assert_eq!(states[1], JobState::Ended { ok: false, how: "Slurm says FAILED, exit code 7:0".into() });
    assert!(launcher.last_lines(&jobs[1], 5).contains("no model here"));
    launcher.stop(&jobs, Stop::Now).unwrap();
    wait_for("the third to end", LONG, || {
        states = launcher.poll(&jobs).unwrap();
        matches!(states[2], JobState::Ended { .. })
    });
    assert!(
        matches!(&states[2], JobState::Ended { ok: false, how } if how.contains("CANCELLED")),
        "{:?}",
        states[2]
    );
    // What Slurm refuses is refused in its words.
    let mut config = cluster.config(vec!["true".into()], "bad");
    config.options.insert("partition".into(), "nowhere".into());
    let error = SlurmLauncher::new(config).unwrap().launch(1).unwrap_err();
    assert!(error.to_string().contains("nowhere") || error.to_string().contains("partition"), "{error}");
}
