//! One pass over a role's examples: the loss and the optimizer settings that follow from the configuration.

use crate::config::RunConfig;
use crate::error::Result;
use sgs_lm::Device;
use sgs_lm::loss::{LossConfig, Normaliser, Objective as LmObjective, TrainExample};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::trainer::{Policy, TrainOptions, TrainReport, Trainer};
use sgs_selfplay::Role;
use sgs_selfplay::config::{LossNormalisation, Objective};

const NOT_TRAINED: &str = "invariant: the Guide is never trained";

/// Trains a policy on examples once. All ranks call it with the same examples. `pass` counts the passes over a round.
///
/// # Errors
/// Returns an error as [`update`](super::update::update) does.
pub(crate) fn train_once<D: Device>(
    config: &RunConfig,
    role: Role,
    pass: u32,
    policy: &mut Policy<D>,
    examples: &[TrainExample],
    trainer: &mut Trainer<D>,
) -> Result<TrainReport> {
    if pass == 0 && config.algorithm.optimizer.reset_each_round {
        policy.reset_optimizer()?;
    }
    Ok(trainer.train(policy, examples, &options(config, role), |_| ())?)
}

fn normaliser(choice: LossNormalisation) -> Normaliser {
    match choice {
        LossNormalisation::Sequence => Normaliser::Sequence,
        LossNormalisation::Token => Normaliser::Token,
    }
}

fn solver_loss(config: &RunConfig) -> LossConfig {
    let s = &config.algorithm.solver;
    let mut loss = match s.objective {
        Objective::Cispo => {
            let (eps_low, eps_high) = (s.clip_low as f32, s.clip_high as f32);
            LossConfig::new(LmObjective::Cispo { eps_low, eps_high }, Normaliser::Group)
        }
        _ => LossConfig::new(LmObjective::Reinforce, normaliser(s.loss_normalisation)),
    };
    loss.entropy_bonus = s.entropy_bonus as f32;
    loss.kl_penalty = s.kl_coefficient as f32;
    loss
}

/// Returns the training options of a role. They follow from the configuration alone, so that all ranks agree.
fn options(config: &RunConfig, role: Role) -> TrainOptions {
    let o = &config.algorithm.optimizer;
    let loss = match role {
        Role::Conjecturer => {
            let normaliser = normaliser(config.algorithm.conjecturer.loss_normalisation);
            LossConfig::new(LmObjective::Reinforce, normaliser)
        }
        Role::Solver => solver_loss(config),
        Role::Guide => unreachable!("{NOT_TRAINED}"),
    };
    TrainOptions {
        loss,
        adam: AdamConfig {
            learning_rate: learning_rate(config, role),
            beta1: o.beta1,
            beta2: o.beta2,
            eps: o.epsilon,
            weight_decay: o.weight_decay,
            clip_norm: if o.clip_norm > 0.0 { o.clip_norm } else { f64::INFINITY },
        },
        schedule: LrSchedule::Constant,
        batch_size: o.batch_size as usize,
        shuffle_seed: None,
    }
}

/// Returns the learning rate of a role.
///
/// # Panics
/// Panics for the Guide, which is never trained.
pub(crate) fn learning_rate(config: &RunConfig, role: Role) -> f64 {
    match role {
        Role::Solver => config.algorithm.solver.learning_rate,
        Role::Conjecturer => config.algorithm.conjecturer.learning_rate,
        Role::Guide => unreachable!("{NOT_TRAINED}"),
    }
}
