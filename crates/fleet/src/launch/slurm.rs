//! Workers as Slurm jobs: one `sbatch` of an array for many workers, one `squeue` for all their states.
//!
//! Accounting may be off (`sacct` then has nothing to say): how a job ended is asked of `scontrol` first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::command::{Said, run};
use super::local::{NAME_PLACE, is_own_fault, tail};
use super::{Job, JobId, JobState, LaunchError, Launcher, Stop};
use crate::task::{End, WorkerName};

/// The batch script that is used unless the configuration names another. In double braces: `name`, `count`, `last`,
/// `logs`, `batch`, `grace_s`, `options`, `setup`, `container`, `command`.
pub const SLURM_TEMPLATE: &str = include_str!("worker.sbatch");

/// How workers are started as Slurm jobs.
#[derive(Clone, Debug)]
pub struct SlurmConfig {
    /// What a worker runs; `{worker}` becomes its name.
    pub command: Vec<String>,
    /// Beginning of the workers' names and the jobs' name; new for every run of the coordinator.
    pub prefix: String,
    /// Folder for batch scripts and logs, on a file system that the nodes share.
    pub logs: PathBuf,
    /// The batch script with its places to fill in. Default [`SLURM_TEMPLATE`].
    pub template: String,
    /// Options of `sbatch` by their long names without dashes: `partition`, `account`, `qos`, `gres`, `gpus`,
    /// `cpus-per-task`, `mem`, `time`, `constraint`, `exclude`, … An empty value stands for an option without one.
    pub options: BTreeMap<String, String>,
    /// Lines of shell before the worker starts: modules, environments.
    pub setup: String,
    /// What the worker's command is run in, as `apptainer exec --nv image.sif`.
    pub container: Vec<String>,
    /// Seconds between SIGTERM and the job's time limit. Default 90.
    pub grace_s: u32,
    /// Folder of Slurm's commands, if they are not in the `PATH`.
    pub bin: Option<PathBuf>,
    /// How often `squeue` is asked. Default 10 s.
    pub interval: Duration,
}

impl SlurmConfig {
    /// The defaults.
    #[must_use]
    pub fn new(command: Vec<String>, prefix: &str, logs: &Path) -> Self {
        Self {
            command,
            prefix: prefix.to_owned(),
            logs: logs.to_owned(),
            template: SLURM_TEMPLATE.to_owned(),
            options: BTreeMap::new(),
            setup: String::new(),
            container: Vec::new(),
            grace_s: 90,
            bin: None,
            interval: Duration::from_secs(10),
        }
    }
}

/// Starts workers as Slurm jobs.
#[derive(Debug)]
pub struct SlurmLauncher {
    config: SlurmConfig,
    batches: u64,
}

/// How long one of Slurm's commands may take.
const PATIENCE: Duration = Duration::from_secs(60);

impl SlurmLauncher {
    /// Checks the configuration, renders the script once to find its faults now, and makes the folder for logs.
    ///
    /// # Errors
    /// [`LaunchError::Refused`] in words.
    pub fn new(config: SlurmConfig) -> Result<Self, LaunchError> {
        if config.command.is_empty() {
            return Err(LaunchError::Refused("the command of Slurm workers is empty".into()));
        }
        WorkerName::new(&format!("{}-0-0", config.prefix))
            .map_err(|e| LaunchError::Refused(e.to_string()))?;
        fs::create_dir_all(&config.logs).map_err(|e| {
            LaunchError::Refused(format!("cannot make the folder {}: {e}", config.logs.display()))
        })?;
        let logs = fs::canonicalize(&config.logs)
            .map_err(|e| LaunchError::Refused(format!("{}: {e}", config.logs.display())))?;
        let launcher = Self { config: SlurmConfig { logs, ..config }, batches: 0 };
        launcher.script(1)?;
        Ok(launcher)
    }

    /// The batch script for so many workers.
    ///
    /// # Errors
    /// If the template has a place that nothing fills.
    pub fn script(&self, count: usize) -> Result<String, LaunchError> {
        let config = &self.config;
        let option = |(key, value): (&String, &String)| match value.as_str() {
            "" => format!("#SBATCH --{key}"),
            value => format!("#SBATCH --{key}={value}"),
        };
        let options: Vec<String> = config.options.iter().map(option).collect();
        if let Some(bad) = options.iter().find(|line| line.contains(char::is_control)) {
            return Err(LaunchError::Refused(format!("Slurm option {bad:?}: an option is one line")));
        }
        let batch = self.batch();
        // The shell puts the number of the array's task where the name has its own.
        let name = format!("\"{batch}-${{SLURM_ARRAY_TASK_ID}}\"");
        let command: Vec<String> = config.command.iter().map(|word| quote_around(word, &name)).collect();
        let container: Vec<String> = config.container.iter().map(|word| quote(word)).collect();
        let values = [
            ("name", config.prefix.clone()),
            ("count", count.to_string()),
            ("last", count.saturating_sub(1).to_string()),
            ("logs", config.logs.display().to_string()),
            ("batch", batch),
            ("grace_s", config.grace_s.to_string()),
            ("options", options.join("\n")),
            ("setup", config.setup.clone()),
            ("container", container.join(" ")),
            ("command", command.join(" ")),
        ];
        fill(&config.template, &values).map_err(LaunchError::Refused)
    }

    fn batch(&self) -> String {
        format!("{}-{}", self.config.prefix, self.batches)
    }

    fn ask(&self, program: &str, arguments: &[String], input: &str) -> Result<Said, LaunchError> {
        let path = self.config.bin.as_ref().map_or_else(|| PathBuf::from(program), |bin| bin.join(program));
        let mut command = Command::new(path);
        command.args(arguments);
        run(command, input, PATIENCE).map_err(LaunchError::Away)
    }

    /// How jobs ended that are no longer in the queue.
    fn endings(&self, gone: &BTreeSet<&str>) -> BTreeMap<String, (End, String)> {
        let mut endings = BTreeMap::new();
        let arrays: BTreeSet<&str> = gone.iter().map(|id| id.split('_').next().unwrap_or(id)).collect();
        for array in arrays {
            let arguments = ["show", "job", array, "--oneliner"].map(str::to_owned);
            if let Ok(said) = self.ask("scontrol", &arguments, "")
                && said.ok
            {
                endings.extend(said.out.lines().filter_map(read_scontrol));
            }
        }
        if gone.iter().any(|id| !endings.contains_key(*id)) {
            // Forgotten by the controller; the accounting, if there is any, remembers for longer.
            let list = gone.iter().copied().collect::<Vec<_>>().join(",");
            let jobs = format!("--jobs={list}");
            let arguments =
                ["--noheader", "--parsable2", "--allocations", "--format=JobID,State,ExitCode", &jobs];
            if let Ok(said) = self.ask("sacct", &arguments.map(str::to_owned), "")
                && said.ok
            {
                for (id, ending) in said.out.lines().filter_map(read_sacct) {
                    endings.entry(id).or_insert(ending);
                }
            }
        }
        endings
    }
}

impl Launcher for SlurmLauncher {
    fn launch(&mut self, number: usize) -> Result<Vec<Job>, LaunchError> {
        if number == 0 {
            return Ok(Vec::new());
        }
        let script = self.script(number)?;
        let batch = self.batch();
        let said = self.ask("sbatch", &["--parsable".to_owned()], &script)?;
        if !said.ok {
            let why = format!("sbatch does not take the workers' script: {}", said.err.trim());
            let away = said.err.contains("Unable to contact") || said.err.contains("Socket timed out");
            return Err(if away { LaunchError::Away(why) } else { LaunchError::Refused(why) });
        }
        let array = said.out.trim().split(';').next().unwrap_or("").to_owned();
        if array.is_empty() || !array.bytes().all(|b| b.is_ascii_digit()) {
            return Err(LaunchError::Refused(format!("sbatch answered {:?}, which is no job id", said.out)));
        }
        self.batches += 1;
        let job = |index: usize| {
            let worker = WorkerName::new(&format!("{batch}-{index}"));
            let worker = worker.map_err(|e| LaunchError::Refused(e.to_string()))?;
            Ok(Job { id: JobId(format!("{array}_{index}")), worker })
        };
        (0..number).map(job).collect()
    }

    fn poll(&mut self, jobs: &[Job]) -> Result<Vec<JobState>, LaunchError> {
        let arguments = ["--me", "--array", "--noheader", "--format=%i|%T"].map(str::to_owned);
        let said = self.ask("squeue", &arguments, "")?;
        if !said.ok {
            return Err(LaunchError::Away(format!("squeue: {}", said.err.trim())));
        }
        let queue: BTreeMap<&str, &str> =
            said.out.lines().filter_map(|line| line.trim().split_once('|')).collect();
        let gone: BTreeSet<&str> =
            jobs.iter().map(|j| j.id.0.as_str()).filter(|id| !queue.contains_key(id)).collect();
        let endings = if gone.is_empty() { BTreeMap::new() } else { self.endings(&gone) };
        let state = |job: &Job| match queue.get(job.id.0.as_str()) {
            Some(&("PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD")) => {
                JobState::Waiting
            }
            Some(_) => JobState::Running,
            None => {
                let unknown = || (End::Gone, "left Slurm's queue; nobody knows how".to_owned());
                let (end, how) = endings.get(&job.id.0).cloned().unwrap_or_else(unknown);
                JobState::Ended { end, how }
            }
        };
        Ok(jobs.iter().map(state).collect())
    }

    fn stop(&mut self, jobs: &[Job], how: Stop) -> Result<(), LaunchError> {
        // Far below the longest command line that systems take.
        for some in jobs.chunks(500) {
            let mut arguments: Vec<String> = some.iter().map(|job| job.id.0.clone()).collect();
            if how == Stop::Gently {
                arguments.splice(0..0, ["--batch", "--signal=TERM"].map(str::to_owned));
                // Those still in the queue cannot be asked to finish; the signal would pass them by.
                let waiting = [vec!["--state=PENDING".to_owned()], arguments[2..].to_vec()].concat();
                self.cancel(&waiting)?;
            }
            self.cancel(&arguments)?;
        }
        Ok(())
    }

    fn last_lines(&self, job: &Job, lines: usize) -> String {
        tail(&self.config.logs.join(format!("{}.log", job.worker)), lines)
    }

    fn interval(&self) -> Duration {
        self.config.interval
    }
}

impl SlurmLauncher {
    fn cancel(&self, arguments: &[String]) -> Result<(), LaunchError> {
        let said = self.ask("scancel", arguments, "")?;
        // Jobs that are over already are no error here.
        let over = |line: &str| {
            line.contains("Invalid job id") || line.contains("already") || line.trim().is_empty()
        };
        if said.ok || said.err.lines().all(over) {
            Ok(())
        } else {
            Err(LaunchError::Away(format!("scancel: {}", said.err.trim())))
        }
    }
}

/// Id and ending of a job, out of a line of `scontrol show job --oneliner`; nothing if it has not ended.
fn read_scontrol(line: &str) -> Option<(String, (End, String))> {
    let field =
        |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let id = match (field("ArrayJobId"), field("ArrayTaskId")) {
        (Some(array), Some(index)) => format!("{array}_{index}"),
        _ => field("JobId")?.to_owned(),
    };
    Some((id, ending(field("JobState")?, field("ExitCode").unwrap_or("?"))?))
}

/// Id and ending of a job, out of a line of `sacct --parsable2 --format=JobID,State,ExitCode`.
fn read_sacct(line: &str) -> Option<(String, (End, String))> {
    let mut fields = line.trim().split('|');
    let (id, state, exit) = (fields.next()?, fields.next()?, fields.next()?);
    // "CANCELLED by 1000"
    let state = state.split(' ').next().unwrap_or(state);
    Some((id.to_owned(), ending(state, exit)?))
}

fn ending(state: &str, exit: &str) -> Option<(End, String)> {
    match state {
        "PENDING" | "CONFIGURING" | "RUNNING" | "COMPLETING" | "SUSPENDED" => None,
        "COMPLETED" => Some((End::Well, "completed".into())),
        other => {
            // CODE:SIGNAL, of the batch script; a shell passes a signal of its worker on as 128 and more.
            let (code, signal) = exit.split_once(':').unwrap_or((exit, "0"));
            let number = |text: &str| text.parse::<i32>().unwrap_or(0);
            let own_fault = is_own_fault(number(signal)) || is_own_fault(number(code) - 128);
            let end = if other == "OUT_OF_MEMORY" || own_fault { End::Crashed } else { End::Gone };
            Some((end, format!("Slurm says {other}, exit code {exit}")))
        }
    }
}

/// Fills in the places of a template.
fn fill(template: &str, values: &[(&str, String)]) -> Result<String, String> {
    let mut text = String::with_capacity(template.len() + 512);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let (name, after) = after.split_once("}}").ok_or("the Slurm template has `{{` without `}}`")?;
        let known = || values.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
        let value = values.iter().find(|(n, _)| *n == name.trim());
        let (_, value) =
            value.ok_or_else(|| format!("the Slurm template has {{{{{name}}}}}; known are {}", known()))?;
        text.push_str(value);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// A word for the shell, taken literally.
pub fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A word for the shell, taken literally except that `{worker}` becomes an expression.
fn quote_around(word: &str, expression: &str) -> String {
    let parts: Vec<String> = word
        .split(NAME_PLACE)
        .map(|part| if part.is_empty() { String::new() } else { quote(part) })
        .collect();
    if parts.iter().all(String::is_empty) && parts.len() == 1 { quote("") } else { parts.join(expression) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(change: impl FnOnce(&mut SlurmConfig)) -> Result<SlurmLauncher, LaunchError> {
        let folder = tempfile::tempdir().expect("a folder");
        let words = ["/opt/sgs", "worker", "--name", "{worker}", "--note", "it's $HOME"];
        let mut config = SlurmConfig::new(words.map(str::to_owned).to_vec(), "gen-a1", folder.path());
        change(&mut config);
        SlurmLauncher::new(config)
    }

    #[test]
    fn the_script_has_what_was_asked_for_and_nothing_to_expand() {
        let launcher = launcher(|config| {
            config.options.insert("gres".into(), "gpu:1".into());
            config.options.insert("exclusive".into(), String::new());
            config.setup = "module load cuda".into();
            config.container = vec!["apptainer".into(), "exec".into(), "--nv".into(), "my image.sif".into()];
        });
        let script = launcher.expect("fits").script(64).expect("renders");
        for line in
            ["#SBATCH --array=0-63", "#SBATCH --gres=gpu:1", "#SBATCH --exclusive", "module load cuda"]
        {
            assert!(script.lines().any(|l| l == line), "{line} in\n{script}");
        }
        let command = script.lines().last().expect("a last line");
        assert_eq!(
            command,
            "exec apptainer exec --nv 'my image.sif' /opt/sgs worker --name \"gen-a1-0-${SLURM_ARRAY_TASK_ID}\" \
             --note 'it'\\''s $HOME'"
        );
        assert!(script.starts_with("#!/bin/bash\n"));
    }

    #[test]
    fn faults_of_a_template_are_found_before_anything_starts() {
        let unknown =
            launcher(|config| config.template = "#!/bin/sh\n{{comand}}".into()).expect_err("no such place");
        assert!(
            unknown.to_string().contains("{{comand}}") && unknown.to_string().contains("command"),
            "{unknown}"
        );
        assert!(launcher(|config| config.template = "{{command".into()).is_err());
        assert!(launcher(|config| _ = config.options.insert("mem".into(), "1\nrm -rf".into())).is_err());
        assert!(launcher(|config| config.prefix = "a b".into()).is_err());
    }

    #[test]
    fn endings_are_read_from_slurms_own_words() {
        let line = "JobId=7 ArrayJobId=5 ArrayTaskId=2 JobName=gen UserId=root(0) GroupId=root(0) MCS_label=N/A \
                    Priority=1 Nice=0 JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=3:0 RunTime=00:00:01";
        let (id, (end, how)) = read_scontrol(line).expect("ended");
        assert_eq!((id.as_str(), end, how.as_str()), ("5_2", End::Gone, "Slurm says FAILED, exit code 3:0"));
        let line = "JobId=5 ArrayJobId=5 ArrayTaskId=0 JobState=RUNNING Reason=None ExitCode=0:0";
        assert_eq!(read_scontrol(line), None);
        assert_eq!(read_scontrol("JobId=9 JobState=COMPLETED ExitCode=0:0").expect("ended").1.0, End::Well);
        for (state, exit, end) in [
            ("FAILED", "139:0", End::Crashed),
            ("FAILED", "0:11", End::Crashed),
            ("OUT_OF_MEMORY", "0:125", End::Crashed),
            ("FAILED", "1:0", End::Gone),
            ("NODE_FAIL", "0:0", End::Gone),
            ("PREEMPTED", "0:15", End::Gone),
        ] {
            assert_eq!(ending(state, exit).expect("ended").0, end, "{state} {exit}");
        }
        let (id, (end, _)) = read_sacct("5_1|CANCELLED by 1000|0:15").expect("ended");
        assert_eq!((id.as_str(), end), ("5_1", End::Gone));
        assert_eq!(read_sacct("5_1|RUNNING|0:0"), None);
        assert_eq!(read_sacct("Slurm accounting storage is disabled"), None);
    }
}
