//! Selection of the targets of a round.

use crate::config::{BatchConfig, BatchSize, EpochOrder};
use crate::seed::{SeededRng, shuffle_seed};
use serde::{Deserialize, Serialize};
use sgs_base::mersenne::MersenneTwister;

/// Seed of the epoch shuffles in the paper's code, to which the epoch's number is added.
pub const REFERENCE_EPOCH_SEED: u64 = 42;

/// The batch of one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochBatch {
    /// Number of complete passes over the data set before this round.
    pub epoch: u64,
    /// Positions of the targets in the data set.
    pub indices: Vec<usize>,
}

/// Selects the batch of a round (paper, §3.1: "sample a batch B of problems").
///
/// With [`BatchSize::All`], the batch is the whole data set in its own order. Otherwise each epoch shuffles the data set
/// (sorted by id, so that the order of the file does not matter) and cuts it into slices of the batch size; the last
/// slice of an epoch may be smaller. The batch depends only on the arguments, so no cursor must be stored.
pub fn select_batch(ids: &[&str], config: &BatchConfig, run_seed: u64, round: u32) -> EpochBatch {
    let size = match config.size {
        BatchSize::All => return EpochBatch { epoch: u64::from(round), indices: (0..ids.len()).collect() },
        BatchSize::Count(size) => (size.get() as usize).min(ids.len()),
    };
    if size == 0 {
        return EpochBatch { epoch: u64::from(round), indices: Vec::new() };
    }
    let slices = ids.len().div_ceil(size);
    let epoch = round as usize / slices;
    let start = round as usize % slices * size;

    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|&i| ids[i]);
    match config.order {
        EpochOrder::Hashed => {
            SeededRng::new(shuffle_seed(run_seed, "epoch", epoch as u64)).shuffle(&mut order)
        }
        EpochOrder::Reference => {
            MersenneTwister::new(REFERENCE_EPOCH_SEED + epoch as u64).shuffle(&mut order)
        }
    }
    order.truncate((start + size).min(ids.len()));
    EpochBatch { epoch: epoch as u64, indices: order.split_off(start) }
}
