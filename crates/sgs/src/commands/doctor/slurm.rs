//! Slurm: its commands, and whether this is inside of a job.

use super::{Area, Check, State, lookup};

/// Commands that starting and watching jobs takes.
const COMMANDS: [&str; 4] = ["sbatch", "srun", "squeue", "scancel"];

/// Looks for all of it.
pub fn area() -> Area {
    let mut checks: Vec<Check> = COMMANDS
        .iter()
        .map(|name| match lookup::program(name, &[]) {
            Some(path) => {
                let version = lookup::ask(&path, &["--version"]).unwrap_or_default();
                Check::ok(*name, format!("{} {version}", path.display()).trim())
            }
            None => Check::new(*name, State::Absent, "not on the PATH", ""),
        })
        .collect();
    let usable = checks.iter().all(|c| c.state == State::Ok);
    if let Ok(job) = std::env::var("SLURM_JOB_ID") {
        checks.push(Check::ok("job", format!("this is inside of job {job}")));
    }
    if !usable && let Some(last) = checks.last_mut() {
        last.advice =
            "log in to a node of the cluster that submits jobs, or load its Slurm module".to_owned();
    }
    Area { name: "slurm", purpose: "workers on a cluster", usable, checks }
}
