//! Memory allocated by training and decode steps: buffers are planned in advance, so a step allocates little or
//! nothing.
//!
//! All tests use one counting allocator, which counts only in the threads of a test's own device, so other tests do
//! not affect it. They exclude each other, because they share the counters.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sgs_base::random::SeededRng;
use sgs_lm::checkpoint::Snapshot;
use sgs_lm::decode::Decode;
use sgs_lm::loss::{LossConfig, TrainExample};
use sgs_lm::model::{MemoryPlan, Mode, Model, Workspace, adam_bytes, model_bytes};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::shard::Shard;
use sgs_lm::testing::small_shape;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::HostWeights;
use sgs_lm::{Device, ModelConfig};
use sgs_lm_cpu::Cpu;
use sgs_lm_sampler::{Request, RequestId, Sampler, SamplerOptions, SamplingParams};

struct Counting;

thread_local! {
    /// Whether this thread's allocations are counted.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// Bytes allocated minus bytes freed since counting began.
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);
/// Bytes as in [`LIVE`], but only of buffers of 32-bit numbers: whole cache lines, or vectors.
static NUMBERS: AtomicIsize = AtomicIsize::new(0);

/// Returns the number of bytes of an allocation that count as numbers.
fn numbers(layout: Layout) -> isize {
    if matches!(layout.align(), 4 | 64) { layout.size() as isize } else { 0 }
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            let size = layout.size() as isize;
            PEAK.fetch_max(LIVE.fetch_add(size, Ordering::Relaxed) + size, Ordering::Relaxed);
            NUMBERS.fetch_add(numbers(layout), Ordering::Relaxed);
        }
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if COUNTS.get() {
            LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
            NUMBERS.fetch_sub(numbers(layout), Ordering::Relaxed);
        }
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory allocated while a closure ran.
struct Allocated {
    count: usize,
    /// Bytes allocated and not freed.
    kept: isize,
    /// Maximum number of bytes live at the same time, of those allocated since counting began.
    peak: isize,
}

/// Starts to count the allocations of the calling thread and of a device's threads.
fn count_threads(device: &Cpu) {
    device.run(|| rayon::broadcast(|_| COUNTS.set(true)));
    COUNTS.set(true);
}

/// Runs `f` and counts its allocations.
fn counted(f: impl FnOnce()) -> Allocated {
    ALLOCATIONS.store(0, Ordering::Relaxed);
    LIVE.store(0, Ordering::Relaxed);
    PEAK.store(0, Ordering::Relaxed);
    f();
    Allocated {
        count: ALLOCATIONS.load(Ordering::Relaxed),
        kept: LIVE.load(Ordering::Relaxed),
        peak: PEAK.load(Ordering::Relaxed),
    }
}

/// Returns what `f` allocates and the bytes of its numbers.
fn allocated<T>(f: impl FnOnce() -> T) -> (T, u64) {
    NUMBERS.store(0, Ordering::Relaxed);
    let value = f();
    (value, NUMBERS.load(Ordering::Relaxed).cast_unsigned() as u64)
}

#[test]
fn plans_equal_the_allocations() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Arc::new(Cpu::new(2).unwrap());
    count_threads(&device);
    let small = ModelConfig {
        vocab_size: 256,
        hidden_size: 64,
        intermediate_size: 128,
        layers: 2,
        head_dim: 16,
        ..small_shape()
    };
    let shapes = [
        small.clone(),
        ModelConfig { qk_norm: true, qkv_bias: true, kv_heads: 2, ..small.clone() },
        ModelConfig { layers: 5, tied_head: true, ..small.clone() },
        ModelConfig { hidden_size: 128, heads: 8, kv_heads: 1, intermediate_size: 192, ..small },
    ];
    for config in &shapes {
        let footprint = device.footprint();
        // Buffers of 2 MiB and more are mapped, which the allocator does not see; these shapes have none.
        for (mode, tokens, place) in [
            (Mode::Train, 64, (0, 1)),
            (Mode::TrainRecompute { kept: 0 }, 192, (0, 1)),
            (Mode::TrainRecompute { kept: 1 }, 128, (1, 2)),
            (Mode::Train, 128, (1, 2)),
            (Mode::Infer, 256, (0, 1)),
        ] {
            let plan = MemoryPlan::for_rank(footprint, config, tokens, mode, place);
            let (_workspace, bytes) =
                allocated(|| Workspace::for_rank(&*device, config, tokens, mode, place).unwrap());
            assert_eq!(bytes, plan.workspace_bytes() as u64, "{mode:?}, {tokens} tokens, rank {place:?}");
        }
        let (model, bytes) =
            allocated(|| Model::new(Arc::clone(&device), HostWeights::random(config, 1), 128).unwrap());
        assert_eq!(bytes, model_bytes(footprint, config, 128) as u64);
        let shard = Shard::of(&model.layout, 1, 2);
        let (policy, bytes) = allocated(|| Policy::of_shard(model, shard).unwrap());
        assert_eq!(bytes, adam_bytes(footprint, &policy.shard) as u64);
        let (_snapshot, bytes) = allocated(|| Snapshot::over(None, &policy).unwrap());
        assert_eq!(bytes, Snapshot::planned_bytes(footprint, config, &policy.shard) as u64);
        for max_batch in [8, 80, 256] {
            let options =
                SamplerOptions { max_batch, memory_budget_bytes: 32 << 20, ..SamplerOptions::default() };
            let (sizes, memory) = options.plan(footprint, config, 128).unwrap();
            let (_decoder, bytes) = allocated(|| device.decoder(config, &sizes).unwrap());
            assert_eq!(bytes, memory.work_bytes, "a batch of {max_batch}");
            // The cache is mapped.
            assert_eq!(memory.cache_bytes, sizes.pages as u64 * footprint.decoder_page_bytes(config, 16));
            let sampler = Sampler::new(&policy.model, &options).unwrap();
            assert_eq!(sampler.memory(), memory);
        }
    }
}

/// Held by the test that uses the counters.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn a_training_step_borrows_little_and_keeps_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let config = ModelConfig { layers: 2, ..small_shape() };
    let device = Arc::new(Cpu::new(2).unwrap());
    count_threads(&device);
    let weights = HostWeights::random(&config, 1);
    let mut policy = Policy::new(Model::new(Arc::clone(&device), weights, 256).unwrap()).unwrap();
    let mut trainer = Trainer::new(device, &config, 512, Mode::Train).unwrap();
    let mut rng = SeededRng::stream(1, 0);
    let examples: Vec<TrainExample> =
        (0..8).map(|_| TrainExample::plain((0..200).map(|_| rng.index(1024) as u32).collect())).collect();
    let batch: Vec<&TrainExample> = examples.iter().collect();
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig::default(),
        schedule: LrSchedule::Constant,
        batch_size: 8,
        shuffle_seed: None,
    };
    let mut steps = |n: usize| {
        for _ in 0..n {
            trainer.step(&mut policy, &batch, &options).unwrap();
        }
    };
    steps(2);
    let Allocated { kept, peak, .. } = counted(|| steps(3));
    assert!(kept < 4 << 10, "{kept} bytes kept");
    // The activations of this micro-batch have 17 MiB; the `gemm` crate allocates packing buffers in each
    // product.
    assert!(peak < 4 << 20, "{peak} bytes borrowed");
}

#[test]
fn a_decode_step_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/data/llama_gqa_tied");
    let device = Arc::new(Cpu::new(2).unwrap());
    count_threads(&device);
    let model = Model::new(device, HostWeights::load(&dir).unwrap(), 256).unwrap();
    let options = SamplerOptions { max_batch: 80, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(&model, &options).unwrap();
    for id in 0..80 {
        let truncated = SamplingParams { top_p: 0.9, top_k: 50, temperature: 0.7 };
        sampler
            .submit(Request {
                id: RequestId(id),
                prompt: Arc::from([1, 2, 3, id as u32 % 5]),
                seed: id,
                max_new_tokens: 200,
                params: if id % 2 == 0 { SamplingParams::default() } else { truncated },
                stop: Arc::from([]),
            })
            .unwrap();
    }
    let mut finished = Vec::with_capacity(100);
    let mut per_step = Vec::with_capacity(300);
    while sampler.waiting() + sampler.running() > 0 {
        let step = counted(|| sampler.step(&model, &mut finished).unwrap());
        per_step.push(step.count);
    }
    assert_eq!(finished.len(), 80);
    // Only the thread pool allocates: its queue of external calls takes a new block every 63 calls.
    let late: usize = per_step[20..200].iter().sum();
    assert!(late <= 180 / 63 + 2, "{late} allocations in 180 steps: {per_step:?}");
}
