//! Trains the base model of a run whose configuration has `model.base=made:RECIPE`.

use super::pretrain::{TrainingView, summary};
use anyhow::Result;
use sgs_data::base::made::{self, MadeBase, MakeEvent, MakeObserver};
use sgs_data::base::pretrain::{TrainingEvent, TrainingObserver};
use sgs_run::config::RunConfig;
use std::error::Error;

/// Trains the base model that a configuration needs, unless it is in the cache. The user can interrupt it.
pub fn ensure(config: &RunConfig) -> Result<MadeBase> {
    Ok(made::ensure(config, &mut MakeView::default())?)
}

/// Shows the progress of the training on standard error.
#[derive(Default)]
struct MakeView {
    training: TrainingView,
}

impl TrainingObserver for MakeView {
    fn on_event(&mut self, event: TrainingEvent) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.training.on_event(event)
    }

    fn should_stop(&self) -> bool {
        self.training.should_stop()
    }
}

impl MakeObserver for MakeView {
    fn on_make(&mut self, event: MakeEvent<'_>) {
        match event {
            MakeEvent::Waiting { holder, recipe } => {
                eprintln!("{holder} makes the base model made:{recipe}: waiting");
            }
            MakeEvent::Begun { recipe, home } => {
                eprintln!("the base model made:{recipe} is missing: it is made once, in {}", home.display());
            }
            MakeEvent::Corpora { composed } => eprintln!("  corpora: {composed} composed theorems"),
            MakeEvent::Training { number, of, elapsed } => {
                eprintln!("  training {number} of {of} ({:.0} s so far)", elapsed.as_secs_f64());
            }
            MakeEvent::Trained(end) => summary(end).iter().for_each(|summary| eprintln!("  {summary}")),
            MakeEvent::Made { elapsed, model } => {
                eprintln!("the base model is made, in {:.0} s: {}", elapsed.as_secs_f64(), model.display());
            }
        }
    }
}
