//! A decode step allocates nothing: everything was planned when the sampler was made and the requests
//! were admitted.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sgs_lm::Cpu;
use sgs_lm::model::Model;
use sgs_lm::sampler::{Choice, Request, RequestId, Sampler, SamplerOptions};
use sgs_lm::weights::HostWeights;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

#[test]
fn decoding_allocates_nothing() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/llama_gqa_tied");
    let model = Model::new(Arc::new(Cpu::new(2).unwrap()), HostWeights::load(&dir).unwrap(), 256).unwrap();
    let options = SamplerOptions { max_batch: 80, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(&model, &options).unwrap();
    for id in 0..80 {
        let truncated = Choice { top_p: 0.9, top_k: 50, temperature: 0.7 };
        sampler
            .submit(Request {
                id: RequestId(id),
                prompt: Arc::from([1, 2, 3, id as u32 % 5]),
                seed: id,
                max_new_tokens: 200,
                choice: if id % 2 == 0 { Choice::default() } else { truncated },
                stop: Arc::from([]),
            })
            .unwrap();
    }
    let mut finished = Vec::with_capacity(100);
    let mut per_step = Vec::with_capacity(300);
    while sampler.waiting() + sampler.running() > 0 {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        sampler.step(&model, &mut finished).unwrap();
        per_step.push(ALLOCATIONS.load(Ordering::Relaxed) - before);
    }
    assert_eq!(finished.len(), 80);
    // The thread pool's queue of calls from outside takes a new block every 63 calls; nothing else does.
    let late: usize = per_step[20..200].iter().sum();
    assert!(late <= 180 / 63 + 2, "{late} allocations in 180 steps: {per_step:?}");
}
