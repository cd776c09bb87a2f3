//! The inputs that the tasks of one policy version depend on: configuration, formal system, tokenizer, context window.

use crate::config::RunConfig;
use sgs_formal::{Condition, FormalSystem};
use sgs_lm::tokenizer::Tokenizer;
use sgs_selfplay::{Command, OwnedCondition, Role};

#[derive(Clone, Copy)]
pub struct SamplingContext<'a> {
    pub config: &'a RunConfig,
    pub system: &'a dyn FormalSystem,
    pub tokenizer: &'a Tokenizer,
    /// Number of rounds whose updates the weights have seen.
    pub policy_version: u32,
    /// Context window: a prompt and its completion together, in tokens.
    pub window: usize,
    /// Id of the weights, if remote workers sample with copies of them.
    pub policy_id: Option<&'a str>,
}

impl SamplingContext<'_> {
    /// Returns the maximum length of a command's completion, in tokens.
    pub(crate) fn limit(&self, command: &Command) -> usize {
        role(command).map_or(0, |role| self.config.sampling.tokens(role))
    }

    /// Returns true if an inference server samples the command.
    pub(crate) fn is_served(&self, command: &Command) -> bool {
        role(command).is_some_and(|role| self.config.sampling.endpoint.plays(role))
    }
}

/// Returns the role that a command samples with, or `None` for a verification.
pub(crate) fn role(command: &Command) -> Option<Role> {
    command.key().kind.role()
}

/// Returns true if the system verifies one proof at a time, so that this process can repeat every check.
pub(crate) fn verifies_one_by_one(system: &dyn FormalSystem) -> bool {
    system.parallel_verifications() <= 1
}

/// Converts a condition into the form that the formal system takes.
pub(crate) fn condition_of(condition: &OwnedCondition) -> Condition<'_> {
    match condition {
        OwnedCondition::Target(problem) | OwnedCondition::Attempt { problem, .. } => {
            Condition::Target(problem)
        }
        OwnedCondition::Solved { problem, proof } => Condition::Solved { problem, proof },
        OwnedCondition::Nothing(problem) => Condition::Nothing(problem),
    }
}
