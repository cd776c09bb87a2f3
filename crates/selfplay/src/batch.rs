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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    fn config(size: u32, order: EpochOrder) -> BatchConfig {
        BatchConfig {
            size: NonZeroU32::new(size).map_or(BatchSize::All, BatchSize::Count),
            order,
            ..BatchConfig::default()
        }
    }

    #[test]
    fn the_whole_data_set_keeps_its_order() {
        let batch = select_batch(&["b", "a", "c"], &config(0, EpochOrder::Hashed), 1, 4);
        assert_eq!(batch, EpochBatch { epoch: 4, indices: vec![0, 1, 2] });
    }

    #[test]
    fn an_empty_data_set_has_an_empty_batch() {
        assert!(select_batch(&[], &config(3, EpochOrder::Hashed), 1, 4).indices.is_empty());
    }

    proptest! {
        #[test]
        fn an_epoch_contains_each_target_once(n in 1usize..40, size in 1u32..50, seed: u64, reference: bool, epoch in 0u32..3) {
            let names: Vec<String> = (0..n).map(|i| format!("p{i:03}")).collect();
            let ids: Vec<&str> = names.iter().map(String::as_str).collect();
            let order = if reference { EpochOrder::Reference } else { EpochOrder::Hashed };
            let slices = (n.div_ceil((size as usize).min(n))) as u32;
            let mut seen: Vec<usize> = Vec::new();
            for round in epoch * slices..(epoch + 1) * slices {
                let batch = select_batch(&ids, &config(size, order), seed, round);
                prop_assert_eq!(batch.epoch, u64::from(epoch));
                prop_assert!(!batch.indices.is_empty() && batch.indices.len() <= size as usize);
                seen.extend(batch.indices);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }

        #[test]
        fn the_order_of_the_file_does_not_matter(n in 1usize..20, size in 1u32..20, seed: u64, round in 0u32..9) {
            let names: Vec<String> = (0..n).map(|i| format!("p{i:03}")).collect();
            let ids: Vec<&str> = names.iter().map(String::as_str).collect();
            let reversed: Vec<&str> = ids.iter().rev().copied().collect();
            let config = config(size, EpochOrder::Hashed);
            let chosen = |ids: &[&str]| -> Vec<String> {
                select_batch(ids, &config, seed, round).indices.iter().map(|&i| ids[i].to_owned()).collect()
            };
            prop_assert_eq!(chosen(&ids), chosen(&reversed));
        }
    }
}
