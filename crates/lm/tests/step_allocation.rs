//! A training step keeps no memory, and borrows no more than the packing buffers of the matrix products
//! (which the `gemm` crate takes and returns in each): activations and gradients are planned ahead.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sgs_lm::loss::{Example, LossConfig};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, Schedule};
use sgs_lm::rng::Rng;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::HostWeights;
use sgs_lm::{Cpu, ModelConfig, bench};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_step_borrows_little_and_keeps_nothing() {
    let config = ModelConfig { layers: 2, ..bench::small_shape() };
    let device = Arc::new(Cpu::new(2).unwrap());
    let weights = HostWeights::random(&config, 1);
    let mut policy = Policy::new(Model::new(Arc::clone(&device), weights, 256).unwrap()).unwrap();
    let mut trainer = Trainer::new(device, &config, 512, Mode::Train).unwrap();
    let mut rng = Rng::new(1, 0);
    let examples: Vec<Example> =
        (0..8).map(|_| Example::plain((0..200).map(|_| rng.below(1024) as u32).collect())).collect();
    let batch: Vec<&Example> = examples.iter().collect();
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig::default(),
        schedule: Schedule::Constant,
        batch_size: 8,
        shuffle_seed: None,
    };
    for _ in 0..2 {
        trainer.step(&mut policy, &batch, &options).unwrap();
    }
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    for _ in 0..3 {
        trainer.step(&mut policy, &batch, &options).unwrap();
    }
    let kept = LIVE.load(Ordering::Relaxed).saturating_sub(before);
    let borrowed = PEAK.load(Ordering::Relaxed) - before;
    assert!(kept < 4 << 10, "{kept} bytes kept");
    // The activations of this micro-batch are 17 MiB.
    assert!(borrowed < 4 << 20, "{borrowed} bytes borrowed");
}
