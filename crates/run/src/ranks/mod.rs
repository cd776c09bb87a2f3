//! Several ranks that train what a run trains: one holds the loop and gives orders, the others follow them.
//!
//! Rank 0 is the process of `sgs run`. The others sit idle while it samples; for an update they are given the examples
//! and train their part of each batch with it, for a checkpoint they write the part of the optimiser's state that they
//! keep.

pub mod crew;
pub mod follow;

use super::config::RunConfig;
use super::update;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sgs_lm::Device;
use sgs_lm::loss::Example;
use sgs_lm::ranks::Orders;
use sgs_lm::trainer::{Policy, TrainReport, Trainer};
use sgs_selfplay::Role;
use std::borrow::Cow;
use std::path::PathBuf;

/// What rank 0 asks of the others.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Order<'a> {
    /// Load what is trained, and connect. The first order, once.
    Load {
        /// The run's configuration as TOML.
        config: String,
        /// Folder of the base model.
        base: PathBuf,
        /// Checkpoint to go on from; none at the beginning.
        at: Option<PathBuf>,
    },
    /// Train with the others on examples.
    Train {
        role: Role,
        /// Which pass over the round's examples.
        pass: u32,
        /// All examples, of which every rank takes its part.
        examples: Cow<'a, [Example]>,
    },
    /// Write your part of the optimiser's state into the checkpoint in this folder, and answer.
    Save {
        /// The checkpoint, not yet published.
        folder: PathBuf,
    },
}

impl Order<'_> {
    /// As bytes.
    ///
    /// # Errors
    /// A path is not UTF-8.
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).context("an order to the ranks that train")
    }

    /// From bytes.
    ///
    /// # Errors
    /// They are no order.
    pub fn decode(bytes: &[u8]) -> Result<Order<'static>> {
        postcard::from_bytes(bytes).context("an order of rank 0 cannot be read: is it the same program?")
    }
}

/// The trainer of a process, with the ranks that follow its orders if there are any.
pub struct Team<D: Device> {
    trainer: Trainer<D>,
    orders: Option<Orders>,
}

impl<D: Device> Team<D> {
    /// A process whose other ranks, if it has any, need no orders.
    pub fn new(trainer: Trainer<D>) -> Self {
        Self { trainer, orders: None }
    }

    /// Rank 0 of a run, or the only one.
    pub fn lead(mut trainer: Trainer<D>) -> Self {
        let orders = trainer.meeting().map(|meeting| meeting.orders());
        Self { trainer, orders }
    }

    /// The trainer.
    pub fn trainer(&mut self) -> &mut Trainer<D> {
        &mut self.trainer
    }

    /// How other ranks are told what to do.
    pub fn orders(&self) -> Option<&Orders> {
        self.orders.as_ref()
    }

    /// Trains a policy on examples once, on all ranks.
    ///
    /// # Errors
    /// As [`update::train_once`].
    pub fn train_once(
        &mut self,
        config: &RunConfig,
        role: Role,
        pass: u32,
        policy: &mut Policy<D>,
        examples: &[Example],
    ) -> Result<TrainReport> {
        if let Some(orders) = &self.orders {
            orders.give(&Order::Train { role, pass, examples: Cow::Borrowed(examples) }.encode()?)?;
        }
        update::train_once(config, role, pass, policy, examples, &mut self.trainer)
    }

    /// Tells the other ranks how this one's work has ended, and gives the end again; what a lost rank has brought about
    /// has that as its reason.
    ///
    /// # Errors
    /// Those of the work, or a rank was lost.
    pub fn end<T>(&mut self, done: Result<T>) -> Result<T> {
        let Some(meeting) = self.trainer.meeting() else { return done };
        match (done, meeting.orders().check()) {
            (Ok(done), Ok(())) => {
                meeting.finish();
                Ok(done)
            }
            (Err(error), Ok(())) => {
                meeting.fail(&format!("{error:#}"));
                Err(error)
            }
            (Ok(_), Err(lost)) => Err(lost.into()),
            (Err(consequence), Err(lost)) => {
                tracing::debug!("what the loss of a rank has brought about: {consequence:#}");
                Err(lost.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_as_they_were_given() {
        let examples = vec![
            Example {
                tokens: vec![3, 70_000, 1],
                prompt_len: 1,
                weight: -0.1,
                sampled_log_probs: vec![f32::NEG_INFINITY, -1e-30],
                group: 7,
                ..Example::default()
            },
            Example::plain(vec![5, 6]),
        ];
        for order in [
            Order::Load { config: "seed = 1".into(), base: "/base".into(), at: None },
            Order::Train { role: Role::Conjecturer, pass: 2, examples: Cow::Owned(examples) },
            Order::Save { folder: "/run/checkpoints/.tmp".into() },
        ] {
            let bytes = order.encode().unwrap();
            assert_eq!(Order::decode(&bytes).unwrap(), order);
            assert!(Order::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }
}
