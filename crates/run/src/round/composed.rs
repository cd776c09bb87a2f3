//! Answers a round's requests for conjectures with theorems that the formal system composes.
//!
//! The conjectures depend only on the configuration and the keys of the tasks. They are therefore not in the journal: a
//! resumed round composes them again.

use crate::error::{Result, bail};
use rayon::prelude::*;
use sgs_formal::FormalSystem;
use sgs_selfplay::config::{ConjectureForm, ConjecturerConfig};
use sgs_selfplay::{Command, Event, FinishReason, Problem, Round, SampleFacts};
use std::collections::HashSet;
use std::sync::Arc;

/// Composes all conjectures of a round, if its configuration asks for composed ones. Statements of held-out problems are
/// left out.
///
/// # Errors
/// Returns an error if the formal system cannot compose problems.
pub(crate) fn add_conjectures(
    round: &mut Round,
    config: &ConjecturerConfig,
    system: &dyn FormalSystem,
    held_out: &[Arc<Problem>],
) -> Result<()> {
    if config.form != ConjectureForm::Composed {
        return Ok(());
    }
    let held_out: HashSet<&str> = held_out.iter().map(|problem| &*problem.statement).collect();
    let commands = round.pending();
    let events: Vec<Event> = commands
        .par_iter()
        .filter_map(|command| event(command, config, system, round.number(), &held_out))
        .collect();
    let composed = |event: &Event| matches!(event, Event::Conjecture { read: Ok(_), .. });
    if !events.is_empty() && !events.iter().any(composed) {
        bail!(
            "{} composes no problems with {} to {} steps for these targets: choose another algorithm.conjecturer.form",
            system.name(),
            config.composed_min_steps,
            config.composed_max_steps
        );
    }
    for event in events {
        // The commands that follow are pending, and are submitted with the others.
        round.apply(event);
    }
    Ok(())
}

/// Answers a request for a conjecture; `None` for other commands.
fn event(
    command: &Command,
    config: &ConjecturerConfig,
    system: &dyn FormalSystem,
    policy_version: u32,
    held_out: &HashSet<&str>,
) -> Option<Event> {
    let Command::SampleConjecture { key, seed, condition } = command else { return None };
    let steps = config.composed_min_steps..=config.composed_max_steps;
    let composed = system
        .compose(condition.problem(), steps, *seed)
        .filter(|composed| !held_out.contains(&*composed.statement));
    let sample = SampleFacts {
        prompt_tokens: 0,
        generated_tokens: 0,
        finish: FinishReason::Stop,
        entropy: None,
        mean_log_prob: None,
        policy_version,
    };
    Some(Event::Conjecture {
        key: key.clone(),
        read: composed.ok_or_else(|| "none-found".to_owned()),
        sample,
    })
}
