//! Handles a round's requests for conjectures that no model samples: theorems that the formal system composes, and
//! parts of failed proofs.
//!
//! The conjectures depend only on the configuration, the state at the beginning of the round, and the keys of the
//! tasks. They are therefore not stored in the journal: a resumed round computes them again.

use crate::error::{Result, bail};
use rayon::prelude::*;
use sgs_formal::FormalSystem;
use sgs_selfplay::config::{ConjectureForm, ConjecturerConfig};
use sgs_selfplay::{
    Command, Event, FinishReason, OwnedCondition, ParsedConjecture, Problem, Round, SampleFacts,
};
use std::collections::HashSet;
use std::sync::Arc;

/// Creates all conjectures of a round that no model samples, if its configuration asks for them. Excludes statements of
/// held-out problems.
///
/// # Errors
/// Returns an error if the formal system cannot compose problems.
pub(crate) fn add_conjectures(
    round: &mut Round,
    config: &ConjecturerConfig,
    system: &dyn FormalSystem,
    held_out: &[Arc<Problem>],
) -> Result<()> {
    if !config.on || (config.is_sampled() && config.derived_per_target() == 0) {
        return Ok(());
    }
    let held_out: HashSet<&str> = held_out.iter().map(|problem| &*problem.statement).collect();
    let commands = round.pending();
    let answer = |command| Some((command, event(command, config, system, round.number(), &held_out)?));
    let events: Vec<(&Command, Event)> = commands.par_iter().filter_map(answer).collect();
    let is_attempt = |command: &Command| {
        matches!(command, Command::SampleConjecture { condition: OwnedCondition::Attempt { .. }, .. })
    };
    let mut composed = events.iter().filter(|(command, _)| !is_attempt(command)).peekable();
    let is_made = |(_, event): &(&Command, Event)| matches!(event, Event::Conjecture { read: Ok(_), .. });
    if config.form == ConjectureForm::Composed && composed.peek().is_some() && !composed.any(is_made) {
        bail!(
            "{} composes no problems with {} to {} steps for these targets: choose another algorithm.conjecturer.form",
            system.name(),
            config.composed_min_steps,
            config.composed_max_steps
        );
    }
    for (_, event) in events {
        // The commands that follow become pending and are submitted with the others.
        round.apply(event);
    }
    Ok(())
}

/// The defect of a request for which the formal system finds no conjecture.
const NONE_FOUND: &str = "none-found";

/// Executes a request for a conjecture. Returns `None` for other commands.
fn event(
    command: &Command,
    config: &ConjecturerConfig,
    system: &dyn FormalSystem,
    policy_version: u32,
    held_out: &HashSet<&str>,
) -> Option<Event> {
    let Command::SampleConjecture { key, seed, condition } = command else { return None };
    let made = match condition {
        OwnedCondition::Attempt { problem, proof } => {
            system.derive_from_part(problem, config.attempt_min_steps, proof).map_err(|e| e.kind)
        }
        _ if config.is_sampled() => return None,
        _ => {
            let steps = config.composed_min_steps..=config.composed_max_steps;
            let made = system.compose(condition.problem(), config.composed_kind, steps, *seed);
            made.ok_or_else(|| NONE_FOUND.to_owned())
        }
    };
    let is_new = |made: ParsedConjecture| match held_out.contains(&*made.statement) {
        true => Err("held-out".to_owned()),
        false => Ok(made),
    };
    let sample = SampleFacts {
        prompt_tokens: 0,
        generated_tokens: 0,
        finish: FinishReason::Stop,
        entropy: None,
        mean_log_prob: None,
        policy_version,
    };
    Some(Event::Conjecture { key: key.clone(), read: made.and_then(is_new), sample })
}
