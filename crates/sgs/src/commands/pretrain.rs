//! `sgs pretrain` and `sgs sft`: supervised training on corpora, from scratch or from a model.

use crate::args::PretrainArgs;
use crate::exit::{Outcome, Usage};
use crate::output;
use crate::signals::{self, SignalGuard};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use sgs_data::base::config::PretrainConfig;
use sgs_data::base::pretrain::{TrainingEnd, TrainingEvent, TrainingObserver, train};
use sgs_run::config::machine;
use sgs_run::train::launcher::{self, LaunchMode};
use std::error::Error;
use std::fs;
use std::path::Path;

/// Trains a model according to the configuration file; continues from the last checkpoint in the output folder if there is one.
pub fn run(args: &PretrainArgs, base: Option<&Path>) -> Result<Outcome> {
    let text = fs::read_to_string(&args.config)
        .with_context(|| format!("cannot read the configuration {}", args.config.display()))?;
    let config = PretrainConfig::parse(&text, &args.config.display().to_string())?;
    if !config.data.is_dir() {
        let (file, data) = (args.config.display(), config.data.display());
        return Err(Usage(format!(
            "{file}: `data` is {data}, and there is no such folder; make it with `sgs data build --out {data}` (Metamath) or \
             `sgs data compose --out {data}` (Lean)"
        ))
        .into());
    }
    let seat = match launcher::launch_mode(&args.ranks.rank_options(), args.token_file.as_deref(), &args.out)?
    {
        LaunchMode::Launched(outcome) => return Ok(outcome),
        LaunchMode::Single => None,
        LaunchMode::Rank(seat) => Some(seat),
    };
    let job = format!("{text}\n{}\n{base:?}\n{:?}", args.out.display(), args.device);
    let mut view = TrainingView::default();
    let end = train(&config, &args.out, base, args.device, seat.as_ref(), &job, &mut view)?;
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
                // A rank cannot be stopped alone: signals end it.
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
                eprintln!("stopped after step {step} of {steps}; the same command goes on from there");
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
