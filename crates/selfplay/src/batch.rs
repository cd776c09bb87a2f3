//! Which targets a round works on.

use crate::config::{BatchConfig, BatchSize, EpochOrder};
use crate::mersenne::Mersenne;
use crate::seed::{Stream, shuffle_seed};
use serde::{Deserialize, Serialize};

/// Seed of the reference's epoch shuffles; the epoch's number is added to it.
pub const REFERENCE_EPOCH_SEED: u64 = 42;

/// The batch of one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochBatch {
    /// How often the whole data set was gone through before this round.
    pub epoch: u64,
    /// Positions of the batch's targets in the data set.
    pub indices: Vec<usize>,
}

/// Selects the batch of round `round` (paper, §3.1: "sample a batch B of problems").
///
/// With [`BatchSize::All`] it is the whole data set in its own order. Otherwise each epoch is a shuffle of the data set
/// (by id, so that the file's order does not matter), cut into slices of the batch's size; the last slice of an epoch
/// may be smaller. The batch depends on nothing but the arguments: there is no cursor to lose.
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
        EpochOrder::Hashed => Stream::new(shuffle_seed(run_seed, "epoch", epoch as u64)).shuffle(&mut order),
        EpochOrder::Reference => Mersenne::new(REFERENCE_EPOCH_SEED + epoch as u64).shuffle(&mut order),
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
    fn whole_data_set_keeps_its_order() {
        let batch = select_batch(&["b", "a", "c"], &config(0, EpochOrder::Hashed), 1, 4);
        assert_eq!(batch, EpochBatch { epoch: 4, indices: vec![0, 1, 2] });
    }

    #[test]
    fn empty_data_set_gives_an_empty_batch() {
        assert!(select_batch(&[], &config(3, EpochOrder::Hashed), 1, 4).indices.is_empty());
    }

    proptest! {
        #[test]
        fn an_epoch_visits_each_target_once(n in 1usize..40, size in 1u32..50, seed: u64, reference: bool, epoch in 0u32..3) {
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
        fn order_of_the_file_does_not_matter(n in 1usize..20, size in 1u32..20, seed: u64, round in 0u32..9) {
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
