//! The CPU's best matrix product, the reference for other speeds.

use std::time::Instant;

use sgs_lm::device::{Device, Write};
use sgs_lm_cpu::Cpu;
use sgs_lm_cpu::gemm::{Mat, MatMut, Threads, matmul};

/// Measures products of 1,024 x 1,024 matrices; returns the best of eight, in GFLOP/s.
pub fn gemm_peak(device: &Cpu) -> f64 {
    const N: usize = 1024;
    let a: Vec<f32> = (0..N * N).map(|i| (i % 17) as f32 * 0.1).collect();
    let b: Vec<f32> = (0..N * N).map(|i| (i % 13) as f32 * 0.1).collect();
    let mut c = vec![0.0f32; N * N];
    let best = (0..8)
        .map(|_| {
            let started = Instant::now();
            device.run(|| {
                let (lhs, rhs) = (Mat::new(&a, N, N), Mat::new(&b, N, N));
                matmul(MatMut::new(&mut c, N, N), Write::Set, 1.0, lhs, rhs, Threads::All);
            });
            started.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    2.0 * (N as f64).powi(3) / best / 1e9
}
