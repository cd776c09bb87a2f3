//! `sgs pretrain` and `sgs sft`: supervised training on corpora, from scratch or from a model.

use super::explain;
use crate::args::{PretrainArgs, SftArgs};
use crate::exit::Outcome;
use crate::output;
use crate::signals::{self, SignalGuard};
use crate::terminal::bar_style;
use anyhow::Result;
use indicatif::{HumanDuration, ProgressBar};
use sgs_data::base::config::PretrainConfig;
use sgs_data::base::pretrain::{TrainingEnd, TrainingEvent, TrainingObserver, train};
use sgs_keys::{KeyFile, KeySpec, KeyTable as _};
use sgs_run::config::machine;
use sgs_run::train::launcher;
use sgs_run::train::ranks::rank_group::RankGroup;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

/// Returns the keys of the file of `sgs sft`, which has no shape of a new model.
pub fn sft_keys() -> Vec<KeySpec> {
    let mut keys = PretrainConfig::keys("");
    keys.retain(|key| !key.key.starts_with("model."));
    keys
}

/// Runs `sgs pretrain`: trains a new model.
pub fn pretrain(args: &PretrainArgs) -> Result<Outcome> {
    run("sgs pretrain", &PretrainConfig::keys(""), args, None)
}

/// Runs `sgs sft`: trains an existing model.
pub fn sft(args: &SftArgs) -> Result<Outcome> {
    run("sgs sft", &sft_keys(), &args.train, args.model.as_deref())
}

/// Trains a model according to the configuration file; continues from the last checkpoint in the output folder if there is one.
fn run(command: &str, keys: &[KeySpec], args: &PretrainArgs, base: Option<&Path>) -> Result<Outcome> {
    let (Some(path), Some(out), false) = (&args.config, &args.out, args.explain) else {
        return explain::file(command, keys);
    };
    let file = KeyFile::read(path)?;
    let config = PretrainConfig::of(&file)?;
    match (&config.model, base) {
        (None, None) => {
            let told = "a new model needs its shape, [model]; `sgs sft` trains an existing one";
            return Err(file.error("model", told).into());
        }
        (Some(_), Some(_)) => {
            let told = "[model] applies only to `sgs pretrain`; `sgs sft` trains a model that has a shape";
            return Err(file.error("model", told).into());
        }
        _ => {}
    }
    if !config.data.is_dir() {
        let data = config.data.display();
        let told = format!(
            "`data` is {data}, which is not a folder; make it with `sgs data build --out {data}` (Metamath), \
             `sgs data compose --out {data}` (Lean) or your own script (docs/external.md)"
        );
        return Err(file.error("data", told).into());
    }
    let job = format!("{}\n{}\n{base:?}\n{:?}", file.text, out.display(), args.device);
    let options = args.ranks.rank_options();
    let plan = launcher::plan(&options, args.token_file.as_deref())?;
    let mut ranks = RankGroup::of_job(plan, options.patience, job, launcher::UNWIND)?;
    ranks.start(out)?;
    eprintln!("reading the corpora in {}", config.data.display());
    let mut view = TrainingView::default();
    let done = train(&config, out, base, args.device, &mut ranks, &mut view);
    let end = ranks.end(done, "The same command continues from the last checkpoint.")?;
    if let Some(summary) = summary(&end) {
        output::line(summary)?;
    }
    Ok(if end == TrainingEnd::Interrupted { Outcome::Interrupted } else { Outcome::Done })
}

/// Returns the final line about a training; `None` if it was interrupted or another process reports it.
pub fn summary(end: &TrainingEnd) -> Option<String> {
    match end {
        TrainingEnd::Done { steps, loss, model } => {
            Some(format!("trained {steps} steps, last loss {loss:.4}: {}", model.display()))
        }
        TrainingEnd::AlreadyDone { steps, model } => {
            Some(format!("already done: {steps} steps, {}", model.display()))
        }
        TrainingEnd::DoneElsewhere | TrainingEnd::Interrupted => None,
    }
}

/// Interval between the lines about the progress, which replace the bar if standard error is not a terminal.
const INTERVAL: Duration = Duration::from_secs(10);

/// The lines about the progress of a training.
struct StepLines {
    begun: Instant,
    /// When the last line was printed.
    last: Instant,
    /// Number of steps at the beginning, and in all.
    from: u64,
    steps: u64,
}

impl StepLines {
    /// Returns the line about a step, if it is time for one.
    fn line(&mut self, now: Instant, step: u64, loss: f64) -> Option<String> {
        if now < self.last + INTERVAL {
            return None;
        }
        self.last = now;
        let (done, left) = (step.saturating_sub(self.from).max(1), self.steps.saturating_sub(step));
        let left = now.duration_since(self.begun).mul_f64(left as f64 / done as f64);
        Some(format!("step {step} of {}, loss {loss:.4}, {} left", self.steps, HumanDuration(left)))
    }
}

/// Shows the progress of a training on standard error, and stops it if the user interrupts.
#[derive(Default)]
pub struct TrainingView {
    bar: Option<ProgressBar>,
    lines: Option<StepLines>,
    /// While held, a signal stops the training at the next step. Otherwise a signal ends the process.
    signal_guard: Option<SignalGuard>,
}

impl TrainingObserver for TrainingView {
    fn on_event(&mut self, event: TrainingEvent) -> Result<(), Box<dyn Error + Send + Sync>> {
        match event {
            TrainingEvent::Started { parameters, examples, too_long, steps, done, ranks } => {
                let on = if ranks > 1 { format!(", on {ranks} ranks") } else { String::new() };
                eprintln!(
                    "{parameters} parameters; {examples} examples in {steps} steps, {too_long} too long; from step {done}{on}"
                );
                let bar = progress_bar(steps, done);
                let now = Instant::now();
                self.lines =
                    bar.is_hidden().then_some(StepLines { begun: now, last: now, from: done, steps });
                self.bar = Some(bar);
                // A single rank cannot be stopped alone, so signals end it.
                self.signal_guard =
                    (ranks == 1).then(signals::guard).transpose()?.map(|(_, signal_guard)| signal_guard);
            }
            TrainingEvent::Step { step, loss } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(step);
                    bar.set_message(format!("loss {loss:.4}"));
                }
                if let Some(line) =
                    self.lines.as_mut().and_then(|lines| lines.line(Instant::now(), step, loss))
                {
                    eprintln!("{line}");
                }
            }
            TrainingEvent::Checkpoint { step, steps, loss, held_out } => {
                let held_out = held_out.map_or_else(String::new, |loss| format!(", held-out loss {loss:.4}"));
                eprintln!("step {step} of {steps}, loss {loss:.4}{held_out}");
            }
            TrainingEvent::Stopped { step, steps } => {
                eprintln!("stopped after step {step} of {steps}; the same command continues");
                self.signal_guard = None;
            }
            TrainingEvent::Finished { peak_memory } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
                if let Some((device, bytes)) = peak_memory {
                    eprintln!("peak memory of {device}: {}", machine::bytes(bytes));
                }
                self.signal_guard = None;
            }
        }
        Ok(())
    }

    fn should_stop(&self) -> bool {
        signals::is_interrupted()
    }
}

fn progress_bar(steps: u64, from: u64) -> ProgressBar {
    let style = bar_style("{bar:40} {pos}/{len} {msg} {per_sec} ETA {eta}");
    let bar = ProgressBar::new(steps).with_position(from).with_style(style);
    bar.reset_eta();
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_printed_every_ten_seconds() {
        let begun = Instant::now();
        let mut lines = StepLines { begun, last: begun, from: 100, steps: 700 };
        let mut at = |seconds, step| lines.line(begun + Duration::from_secs(seconds), step, 2.5);
        assert_eq!(at(9, 150), None);
        assert_eq!(at(10, 200).unwrap(), "step 200 of 700, loss 2.5000, 50 seconds left");
        assert_eq!(at(19, 210), None);
        assert_eq!(at(120, 300).unwrap(), "step 300 of 700, loss 2.5000, 4 minutes left");
    }
}
