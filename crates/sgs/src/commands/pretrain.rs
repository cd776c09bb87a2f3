//! `sgs pretrain` and `sgs sft`: supervised training on corpora, from scratch or from a model.

use super::explain;
use crate::args::{PretrainArgs, SftArgs};
use crate::exit::Outcome;
use crate::output;
use crate::signals::{self, SignalGuard};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use sgs_data::base::config::PretrainConfig;
use sgs_data::base::pretrain::{TrainingEnd, TrainingEvent, TrainingObserver, train};
use sgs_keys::{KeyFile, KeySpec, KeyTable as _};
use sgs_run::config::machine;
use sgs_run::train::launcher::{self, LaunchMode};
use std::error::Error;
use std::path::Path;

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
            "`data` is {data}, and there is no such folder; make it with `sgs data build --out {data}` (Metamath), \
             `sgs data compose --out {data}` (Lean) or your own script (docs/external.md)"
        );
        return Err(file.error("data", told).into());
    }
    let rank_env = match launcher::launch_mode(&args.ranks.rank_options(), args.token_file.as_deref(), out)? {
        LaunchMode::Launched(outcome) => return Ok(outcome),
        LaunchMode::Single => None,
        LaunchMode::Rank(rank_env) => Some(rank_env),
    };
    let job = format!("{}\n{}\n{base:?}\n{:?}", file.text, out.display(), args.device);
    let mut view = TrainingView::default();
    let end = train(&config, out, base, args.device, rank_env.as_ref(), &job, &mut view)?;
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

/// Shows the progress of a training on standard error, and stops it if the user interrupts.
#[derive(Default)]
pub struct TrainingView {
    bar: Option<ProgressBar>,
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
                self.bar = Some(progress_bar(steps, done));
                // A single rank cannot be stopped alone, so signals end it.
                self.signal_guard =
                    (ranks == 1).then(signals::guard).transpose()?.map(|(_, signal_guard)| signal_guard);
            }
            TrainingEvent::Step { step, loss } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(step);
                    bar.set_message(format!("loss {loss:.4}"));
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
    let bar = ProgressBar::new(steps).with_position(from);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {per_sec} ETA {eta}") {
        bar.set_style(style);
    }
    bar.reset_eta();
    bar
}
