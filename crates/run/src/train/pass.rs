//! One pass over a role's examples: the loss and the optimizer settings that follow from the configuration.

use crate::config::RunConfig;
use crate::error::Result;
use serde::{Deserialize, Serialize};
use sgs_lm::Device;
use sgs_lm::loss::{LossConfig, Normaliser, Objective as LmObjective, TrainExample};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::trainer::{Policy, TrainOptions, TrainReport, Trainer};
use sgs_selfplay::Role;
use sgs_selfplay::config::{LossNormalisation, Objective};

const NOT_TRAINED: &str = "invariant: the Guide is never trained";

/// A pass over a role's examples of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingPass {
    pub role: Role,
    /// Number of the pass, from 0 in each round.
    pub number: u32,
    pub learning_rate: f64,
}

/// Trains a policy on examples once. All ranks call it with the same pass and examples.
pub(crate) fn train_once<D: Device>(
    config: &RunConfig,
    pass: TrainingPass,
    policy: &mut Policy<D>,
    examples: &[TrainExample],
    trainer: &mut Trainer<D>,
) -> Result<TrainReport> {
    if pass.number == 0 && config.algorithm.optimizer.reset_each_round {
        policy.reset_optimizer()?;
    }
    Ok(trainer.train(policy, examples, &options(config, pass), |_| ())?)
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
        Objective::Reinforce | Objective::ReinforceHalf | Objective::ExpertIteration => {
            LossConfig::new(LmObjective::Reinforce, normaliser(s.loss_normalisation))
        }
    };
    loss.entropy_bonus = s.entropy_bonus as f32;
    loss.kl_penalty = s.kl_coefficient as f32;
    loss
}

/// Returns the options of a pass. They follow from the arguments alone, so that all ranks agree.
fn options(config: &RunConfig, pass: TrainingPass) -> TrainOptions {
    let o = &config.algorithm.optimizer;
    let loss = match pass.role {
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
            learning_rate: pass.learning_rate,
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

/// Returns the learning rate of a role in a round that begins after `generations` generations of the Solver.
///
/// # Panics
/// Panics for the Guide, which is never trained.
pub(crate) fn learning_rate(config: &RunConfig, role: Role, generations: u64) -> f64 {
    match role {
        Role::Solver => {
            let solver = &config.algorithm.solver;
            let decay = solver.decay_share * config.generations as f64;
            let left = config.generations.saturating_sub(generations) as f64;
            solver.learning_rate * if left < decay { left / decay } else { 1.0 }
        }
        Role::Conjecturer => config.algorithm.conjecturer.learning_rate,
        Role::Guide => unreachable!("{NOT_TRAINED}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{Layers, resolve};

    #[test]
    fn the_learning_rate_falls_at_the_end_of_the_limit() {
        let rates = |set: &[&str]| {
            let set = [&["algorithm.solver.learning_rate=1e-4", "generations=1000"], set].concat();
            let set = set.into_iter().map(str::to_owned).collect();
            let config = resolve(&Layers { set, ..Layers::default() }, std::iter::empty()).unwrap().config;
            [0, 500, 750, 999, 1000].map(|generations| {
                // The Conjecturer's rate is constant.
                let conjecturer = learning_rate(&config, Role::Conjecturer, generations);
                assert_eq!(conjecturer, config.algorithm.conjecturer.learning_rate);
                learning_rate(&config, Role::Solver, generations)
            })
        };
        assert_eq!(rates(&[]), [1e-4; 5]);
        let halved = rates(&["algorithm.solver.decay_share=0.5"]);
        assert_eq!(halved.map(|rate| (rate * 1e7).round()), [1000.0, 1000.0, 500.0, 2.0, 0.0]);
        assert_eq!(rates(&["algorithm.solver.decay_share=1"])[1], 0.5e-4);
        // Without a limit, the end of the run is unknown.
        assert_eq!(rates(&["algorithm.solver.decay_share=1", "generations=0"]), [1e-4; 5]);
    }
}
