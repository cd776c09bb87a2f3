//! The batches of rounds.

use proptest::prelude::*;
use sgs_selfplay::batch::{EpochBatch, select_batch};
use sgs_selfplay::config::{BatchConfig, BatchSize, EpochOrder};
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
