//! Slurm: its commands, and the current job.

use super::{Area, Check, CheckState, lookup};

/// Commands that start and query jobs.
const COMMANDS: [&str; 4] = ["sbatch", "srun", "squeue", "scancel"];

/// Checks the Slurm requirements.
pub fn area() -> Area {
    let mut checks: Vec<Check> = COMMANDS
        .iter()
        .map(|name| match lookup::program(name) {
            Some(path) => {
                let version = lookup::ask(&path, &["--version"]).unwrap_or_default();
                Check::ok(*name, format!("{} {version}", path.display()).trim())
            }
            None => Check::new(*name, CheckState::Absent, "not on the PATH", ""),
        })
        .collect();
    checks.extend(controller().map(|answer| match answer {
        Ok(()) => Check::ok("controller", "answers `squeue`"),
        Err(why) => Check::new("controller", CheckState::Broken, why, ""),
    }));
    let usable = checks.iter().all(|c| c.state == CheckState::Ok);
    if let Ok(job) = std::env::var("SLURM_JOB_ID") {
        checks.push(Check::ok("job", format!("running inside job {job}")));
    }
    if !usable && let Some(last) = checks.last_mut() {
        last.advice = "log in to a submission node of the cluster, or load its Slurm module".to_owned();
    }
    Area { name: "slurm", purpose: "workers on a cluster", usable, checks }
}

/// Asks Slurm's controller for its jobs. Returns `None` if `squeue` is not on the PATH.
pub fn controller() -> Option<Result<(), String>> {
    let squeue = lookup::program("squeue")?;
    // A filter, because a pipe does not hold the list of all jobs.
    let answer = lookup::run(&squeue, &["--noheader", "--name=sgs-doctor"]);
    Some(answer.map(|_| ()).map_err(|why| format!("squeue: {why}")))
}
