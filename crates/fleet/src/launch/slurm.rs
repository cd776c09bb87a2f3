//! Starts workers as Slurm jobs: one `sbatch` of a job array for many workers, one `squeue` for all their states.
//!
//! To find out how a job ended, `scontrol` is asked first, because accounting (`sacct`) may be disabled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sgs_base::command::{self, CommandOutput};
use sgs_base::excerpt;

use super::local::{NAME_PLACEHOLDER, is_crash_signal, prepare, tail};
use super::{JobId, JobState, LaunchError, Launcher, StopMode, WorkerJob};
use crate::task::{WorkerExit, WorkerName};

/// The default batch script. Its placeholders, in double braces, are `name`, `count`, `last`, `logs`, `batch`, `grace_s`,
/// `options`, `setup`, `container` and `command`.
pub const SLURM_TEMPLATE: &str = include_str!("worker.sbatch");

/// Configuration of a [`SlurmLauncher`].
#[derive(Clone, Debug)]
pub struct SlurmConfig {
    /// The worker's command, with `{worker}` as the placeholder of its name.
    pub command: Vec<String>,
    /// Prefix of the workers' names, and name of the jobs. New for every process of the coordinator.
    pub prefix: String,
    /// Folder for logs, on a file system shared by the nodes.
    pub logs: PathBuf,
    /// Template of the batch script. Default [`SLURM_TEMPLATE`].
    pub template: String,
    /// Options of `sbatch`, by their long names without dashes: `partition`, `account`, `qos`, `gres`, `gpus`,
    /// `cpus-per-task`, `mem`, `time`, `constraint`, `exclude`, … An empty value means an option without a value.
    pub options: BTreeMap<String, String>,
    /// Shell lines to run before the worker starts, for example to load modules.
    pub setup: String,
    /// Command prefix that runs the worker in a container, such as `apptainer exec --nv image.sif`.
    pub container: Vec<String>,
    /// Seconds between SIGTERM and the job's time limit. Default 90.
    pub grace_s: u32,
    /// Folder of Slurm's commands, if they are not on the `PATH`.
    pub bin: Option<PathBuf>,
    /// Interval at which `squeue` is run. Default 10 s.
    pub interval: Duration,
}

impl SlurmConfig {
    /// Returns the default configuration.
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

const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

impl SlurmLauncher {
    /// Creates a launcher and the folder for logs. Renders the script once, to find errors early.
    pub fn new(config: SlurmConfig) -> Result<Self, LaunchError> {
        let logs = prepare(&config.command, &format!("{}-0-0", config.prefix), &config.logs)?;
        let launcher = Self { config: SlurmConfig { logs, ..config }, batches: 0 };
        launcher.script(1)?;
        Ok(launcher)
    }

    /// Renders the batch script for `count` workers.
    ///
    /// # Errors
    /// Returns an error if the template has an unknown placeholder or an option is not a single line.
    pub fn script(&self, count: usize) -> Result<String, LaunchError> {
        let config = &self.config;
        let option = |(key, value): (&String, &String)| match value.as_str() {
            "" => format!("#SBATCH --{key}"),
            value => format!("#SBATCH --{key}={value}"),
        };
        let options: Vec<String> = config.options.iter().map(option).collect();
        if let Some(bad) = options.iter().find(|line| line.contains(char::is_control)) {
            return Err(LaunchError::Refused(format!(
                "Slurm option {bad:?}: an option must be a single line"
            )));
        }
        let batch = self.batch();
        // The shell expands the index of the array task, which is part of the name.
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

    fn run_command(
        &self,
        program: &str,
        arguments: &[String],
        input: &str,
    ) -> Result<CommandOutput, LaunchError> {
        let path = self.config.bin.as_ref().map_or_else(|| PathBuf::from(program), |bin| bin.join(program));
        let mut call = Command::new(path);
        call.args(arguments);
        command::run(call, input, COMMAND_TIMEOUT).map_err(LaunchError::Unavailable)
    }

    fn cancel(&self, arguments: &[String]) -> Result<(), LaunchError> {
        let output = self.run_command("scancel", arguments, "")?;
        // A job that has already ended is not an error.
        let over = |line: &str| {
            line.contains("Invalid job id") || line.contains("already") || line.trim().is_empty()
        };
        if output.status.success() || output.err.lines().all(over) {
            Ok(())
        } else {
            Err(LaunchError::Unavailable(format!("scancel: {}", excerpt::end_of(&output.err))))
        }
    }

    /// Finds out how jobs ended that have left the queue.
    fn endings(&self, gone: &BTreeSet<&str>) -> BTreeMap<String, (WorkerExit, String)> {
        let mut endings = BTreeMap::new();
        let arrays: BTreeSet<&str> = gone.iter().map(|id| id.split('_').next().unwrap_or(id)).collect();
        for array in arrays {
            let arguments = ["show", "job", array, "--oneliner"].map(str::to_owned);
            if let Ok(output) = self.run_command("scontrol", &arguments, "")
                && output.status.success()
            {
                endings.extend(output.out.lines().filter_map(read_scontrol));
            }
        }
        if gone.iter().any(|id| !endings.contains_key(*id)) {
            // The controller forgets jobs sooner than accounting does, if accounting is enabled.
            let list = gone.iter().copied().collect::<Vec<_>>().join(",");
            let jobs = format!("--jobs={list}");
            let arguments =
                ["--noheader", "--parsable2", "--allocations", "--format=JobID,State,ExitCode", &jobs];
            if let Ok(output) = self.run_command("sacct", &arguments.map(str::to_owned), "")
                && output.status.success()
            {
                for (id, ending) in output.out.lines().filter_map(read_sacct) {
                    endings.entry(id).or_insert(ending);
                }
            }
        }
        endings
    }
}

impl Launcher for SlurmLauncher {
    fn launch(&mut self, number: usize) -> Result<Vec<WorkerJob>, LaunchError> {
        if number == 0 {
            return Ok(Vec::new());
        }
        let script = self.script(number)?;
        let batch = self.batch();
        let output = self.run_command("sbatch", &["--parsable".to_owned()], &script)?;
        if !output.status.success() {
            let why = format!("sbatch rejects the workers' script: {}", excerpt::end_of(&output.err));
            let away = output.err.contains("Unable to contact") || output.err.contains("Socket timed out");
            return Err(if away { LaunchError::Unavailable(why) } else { LaunchError::Refused(why) });
        }
        let array = output.out.trim().split(';').next().unwrap_or("").to_owned();
        if array.is_empty() || !array.bytes().all(|b| b.is_ascii_digit()) {
            let printed = excerpt::end_of(&output.out);
            return Err(LaunchError::Refused(format!("sbatch printed {printed:?} instead of a job id")));
        }
        self.batches += 1;
        let job = |index: usize| {
            let worker = WorkerName::new(&format!("{batch}-{index}"));
            let worker = worker.map_err(|e| LaunchError::Refused(e.to_string()))?;
            Ok(WorkerJob { id: JobId(format!("{array}_{index}")), worker })
        };
        (0..number).map(job).collect()
    }

    fn poll(&mut self, jobs: &[WorkerJob]) -> Result<Vec<JobState>, LaunchError> {
        let arguments = ["--me", "--array", "--noheader", "--format=%i|%T"].map(str::to_owned);
        let output = self.run_command("squeue", &arguments, "")?;
        if !output.status.success() {
            return Err(LaunchError::Unavailable(format!("squeue: {}", excerpt::end_of(&output.err))));
        }
        let queue: BTreeMap<&str, &str> =
            output.out.lines().filter_map(|line| line.trim().split_once('|')).collect();
        let gone: BTreeSet<&str> =
            jobs.iter().map(|j| j.id.0.as_str()).filter(|id| !queue.contains_key(id)).collect();
        let endings = if gone.is_empty() { BTreeMap::new() } else { self.endings(&gone) };
        let state = |job: &WorkerJob| match queue.get(job.id.0.as_str()) {
            Some(&("PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD")) => {
                JobState::Waiting
            }
            Some(_) => JobState::Running,
            None => {
                let unknown = || (WorkerExit::Gone, "left Slurm's queue for an unknown reason".to_owned());
                let (end, how) = endings.get(&job.id.0).cloned().unwrap_or_else(unknown);
                JobState::Ended { end, how }
            }
        };
        Ok(jobs.iter().map(state).collect())
    }

    fn stop(&mut self, jobs: &[WorkerJob], how: StopMode) -> Result<(), LaunchError> {
        // Far below the length limit of a command line.
        for some in jobs.chunks(500) {
            let mut arguments: Vec<String> = some.iter().map(|job| job.id.0.clone()).collect();
            if how == StopMode::Gently {
                arguments.splice(0..0, ["--batch", "--signal=TERM"].map(str::to_owned));
                // Pending jobs do not receive the signal, so cancel them.
                let waiting = [vec!["--state=PENDING".to_owned()], arguments[2..].to_vec()].concat();
                self.cancel(&waiting)?;
            }
            self.cancel(&arguments)?;
        }
        Ok(())
    }

    fn last_lines(&self, job: &WorkerJob, lines: usize) -> String {
        tail(&self.config.logs.join(format!("{}.log", job.worker)), lines)
    }

    fn interval(&self) -> Duration {
        self.config.interval
    }
}

/// Parses a line of `scontrol show job --oneliner`. Returns the id and the end of the job, or `None` if it has not ended.
fn read_scontrol(line: &str) -> Option<(String, (WorkerExit, String))> {
    let field =
        |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let id = match (field("ArrayJobId"), field("ArrayTaskId")) {
        (Some(array), Some(index)) => format!("{array}_{index}"),
        _ => field("JobId")?.to_owned(),
    };
    Some((id, ending(field("JobState")?, field("ExitCode").unwrap_or("?"))?))
}

/// Parses a line of `sacct --parsable2 --format=JobID,State,ExitCode` in the same way.
fn read_sacct(line: &str) -> Option<(String, (WorkerExit, String))> {
    let mut fields = line.trim().split('|');
    let (id, state, exit) = (fields.next()?, fields.next()?, fields.next()?);
    // The state may be "CANCELLED by 1000".
    let state = state.split(' ').next().unwrap_or(state);
    Some((id.to_owned(), ending(state, exit)?))
}

fn ending(state: &str, exit: &str) -> Option<(WorkerExit, String)> {
    match state {
        "PENDING" | "CONFIGURING" | "RUNNING" | "COMPLETING" | "SUSPENDED" => None,
        "COMPLETED" => Some((WorkerExit::Well, "completed".into())),
        other => {
            // CODE:SIGNAL of the batch script. The shell reports a signal of the worker as a code above 128.
            let (code, signal) = exit.split_once(':').unwrap_or((exit, "0"));
            // An unreadable code is not evidence of a crash.
            let is_crash = |text: &str, above: i32| {
                text.parse::<i32>().is_ok_and(|number| is_crash_signal(number.saturating_sub(above)))
            };
            let own_fault = is_crash(signal, 0) || is_crash(code, 128);
            let end =
                if other == "OUT_OF_MEMORY" || own_fault { WorkerExit::Crashed } else { WorkerExit::Gone };
            Some((end, format!("Slurm says {other}, exit code {exit}")))
        }
    }
}

/// Fills in the placeholders of a template.
fn fill(template: &str, values: &[(&str, String)]) -> Result<String, String> {
    let mut text = String::with_capacity(template.len() + 512);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let (name, after) = after.split_once("}}").ok_or("the Slurm template has `{{` without `}}`")?;
        let known = || values.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
        let value = values.iter().find(|(n, _)| *n == name.trim());
        let (_, value) = value.ok_or_else(|| {
            format!("the Slurm template has the unknown placeholder {{{{{name}}}}}; known are {}", known())
        })?;
        text.push_str(value);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// Quotes a word for the shell.
pub fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Quotes a word for the shell, except that `{worker}` becomes an expression.
fn quote_around(word: &str, expression: &str) -> String {
    let parts: Vec<String> = word
        .split(NAME_PLACEHOLDER)
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
    fn the_script_has_the_options_and_the_quoted_command() {
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
    fn a_long_error_of_sbatch_is_shortened() {
        use std::os::unix::fs::PermissionsExt;
        let bin = tempfile::tempdir().expect("a folder");
        let sbatch = bin.path().join("sbatch");
        let script = "#!/bin/sh\ncat >/dev/null\ni=0; while [ $i -lt 100 ]; do i=$((i+1)); echo why $i >&2; done; exit 1\n";
        std::fs::write(&sbatch, script).expect("writes");
        std::fs::set_permissions(&sbatch, std::fs::Permissions::from_mode(0o755)).expect("sets");
        let mut launcher = launcher(|config| config.bin = Some(bin.path().to_owned())).expect("fits");
        let error = launcher.launch(1).expect_err("sbatch fails").to_string();
        assert!(
            error.contains("why 81\n") && error.ends_with("why 100") && !error.contains("why 80\n"),
            "{error}"
        );
    }

    #[test]
    fn errors_of_a_template_are_found_early() {
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
    fn ends_are_parsed_from_the_output_of_slurm() {
        let line = "JobId=7 ArrayJobId=5 ArrayTaskId=2 JobName=gen UserId=root(0) GroupId=root(0) MCS_label=N/A \
                    Priority=1 Nice=0 JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=3:0 RunTime=00:00:01";
        let (id, (end, how)) = read_scontrol(line).expect("ended");
        assert_eq!(
            (id.as_str(), end, how.as_str()),
            ("5_2", WorkerExit::Gone, "Slurm says FAILED, exit code 3:0")
        );
        let line = "JobId=5 ArrayJobId=5 ArrayTaskId=0 JobState=RUNNING Reason=None ExitCode=0:0";
        assert_eq!(read_scontrol(line), None);
        assert_eq!(
            read_scontrol("JobId=9 JobState=COMPLETED ExitCode=0:0").expect("ended").1.0,
            WorkerExit::Well
        );
        for (state, exit, end) in [
            ("FAILED", "139:0", WorkerExit::Crashed),
            ("FAILED", "0:11", WorkerExit::Crashed),
            ("OUT_OF_MEMORY", "0:125", WorkerExit::Crashed),
            ("FAILED", "1:0", WorkerExit::Gone),
            ("NODE_FAIL", "0:0", WorkerExit::Gone),
            ("PREEMPTED", "0:15", WorkerExit::Gone),
        ] {
            assert_eq!(ending(state, exit).expect("ended").0, end, "{state} {exit}");
        }
        let (id, (end, _)) = read_sacct("5_1|CANCELLED by 1000|0:15").expect("ended");
        assert_eq!((id.as_str(), end), ("5_1", WorkerExit::Gone));
        assert_eq!(read_sacct("5_1|RUNNING|0:0"), None);
        assert_eq!(read_sacct("Slurm accounting storage is disabled"), None);
    }
}
