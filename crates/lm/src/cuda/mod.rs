//! The GPU device: an NVIDIA GPU through the driver, NVRTC and cuBLASLt, all found at run time; nothing of
//! CUDA is needed to build.
//!
//! In [`Precision::Bf16`] parameters and activations are bfloat16, sums, statistics and gradients of
//! parameters f32, and the optimiser keeps what the parameters lack of their f32 masters ([`crate::master`]). [`Precision::F32`] keeps everything in f32; it is for
//! comparing with the CPU, not for speed.
//!
//! Every sum has one order, so a step gives the same bits each time on the same GPU and libraries.

mod attention;
mod attention_hopper;
mod compile;
mod decode;
mod device;
mod gemm;
mod gpu;
mod nccl;
mod passes;
mod profile;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::device::{Device, Linear, first, first_mut};
use crate::error::Result;
use attention::Attention;
use compile::Program;
use gemm::{Blas, Product};

pub use attention::Variant as AttentionVariant;
pub use decode::CudaDecoder;
pub use device::CudaAdam;
pub use gpu::{Array, Element, Gpu, Kernel, gpu_count};
pub use nccl::{Nccl, nccl_version};
pub use passes::Passes;
pub use profile::ProfileLine;

/// Element type of parameters and activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// bfloat16, with f32 sums and f32 masters in the optimiser.
    Bf16,
    /// f32 throughout.
    F32,
}

/// An NVIDIA GPU that trains and samples.
#[derive(Debug)]
pub struct Cuda {
    gpu: Arc<Gpu>,
    precision: Precision,
    kernels: Kernels,
    blas: Blas,
    attention: Mutex<Attention>,
    programs: Mutex<HashMap<Program, Vec<Kernel>>>,
    /// Partial sums of squares on their way to the host.
    squares: Mutex<Array<f64>>,
}

/// Blocks of the sum of squares.
const SQUARES: usize = 1024;

/// Makes the struct of the base program's kernels and the list of their names from one list.
macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug, Clone, Copy)]
        struct Kernels { $($name: Kernel),* }

        impl Kernels {
            const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// From kernels in the order of the names.
            fn new(mut loaded: impl Iterator<Item = Kernel>) -> Option<Self> {
                Some(Self { $($name: loaded.next()?),* })
            }
        }
    };
}

kernels! {
    gather, scatter, embed_backward, add_bias, add, rmsnorm, rmsnorm_backward, rmsnorm_backward_wide,
    rmsnorm_backward_widest, bias_partial, sum_partials, rope, swiglu, swiglu_backward, noise, narrow, widen, loss_rows,
    sum_of_squares, accumulate, split_masters, join_masters, adam, adam_wide, draw,
}

impl Cuda {
    /// Opens a GPU by its number, compiles its kernels (or reads them from the cache) and starts cuBLASLt.
    ///
    /// # Errors
    /// The driver, NVRTC or cuBLASLt is missing or too old, or there is no such GPU; the message says which
    /// and where to get it.
    pub fn new(ordinal: usize, precision: Precision) -> Result<Self> {
        let gpu = Arc::new(Gpu::open(ordinal)?);
        let bf16 = precision == Precision::Bf16;
        let code = Program::Base.cubin(&gpu, bf16)?;
        let loaded = gpu.load(&code, Kernels::NAMES)?;
        let kernels = Kernels::new(loaded.into_iter())
            .ok_or_else(|| compile::missing(&gpu, "the compiled program lacks kernels"))?;
        let blas = Blas::new(&gpu, bf16)?;
        let attention = Mutex::new(Attention::new(&gpu)?);
        let squares = Mutex::new(Array::zeros(&gpu, SQUARES, 8)?);
        Ok(Self { gpu, precision, kernels, blas, attention, programs: Mutex::default(), squares })
    }

    /// The GPU behind it.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Element type of parameters and activations.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes of an element.
    fn width(&self) -> usize {
        match self.precision {
            Precision::Bf16 => 2,
            Precision::F32 => 4,
        }
    }

    /// The best of 16 products of 8,192 x 8,192 matrices of noise, in 10^9 operations per second.
    ///
    /// # Errors
    /// The GPU has no room or fails.
    pub fn gemm_peak(&self) -> Result<f64> {
        const N: usize = 8192;
        let size = Linear { rows: N, input: N, output: N };
        let (x, w, mut y) = (self.noise(N * N, 1)?, self.noise(N * N, 2)?, self.buf(N * N)?);
        let mut best = f64::INFINITY;
        for _ in 0..16 {
            self.gpu.wait()?;
            let started = Instant::now();
            self.linear(size, first(&x, N * N), first(&w, N * N), first_mut(&mut y, N * N))?;
            self.gpu.wait()?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        Ok(2.0 * (N as f64).powi(3) / best / 1e9)
    }

    /// Seconds of `y = x wᵀ` with each algorithm that cuBLASLt offers, its own choice first; weights come from
    /// `copies` matrices in turn, so that they are not found in the cache.
    ///
    /// # Errors
    /// The GPU has no room or fails.
    pub fn compare_algorithms(&self, size: Linear, copies: usize) -> Result<Vec<f64>> {
        let x = self.noise(size.rows * size.input, 1)?;
        let w: Vec<_> = (0..copies.max(1) as u64)
            .map(|i| self.noise(size.input * size.output, 2 + i))
            .collect::<Result<_>>()?;
        let y = self.buf(size.rows * size.output)?;
        let w = w.iter().map(|w| w.front(0)).collect::<Result<Vec<u64>>>()?;
        self.blas.compare(Product::Forward, size, [&[x.front(0)?], &w, &[y.front(0)?]])
    }

    /// The kernels of a program that depends on the model, compiled when first needed.
    fn program<const N: usize>(
        &self,
        program: Program,
        names: [&str; N],
        prepare: impl FnOnce(&[Kernel; N]) -> Result<()>,
    ) -> Result<[Kernel; N]> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let found = programs.get(&program).and_then(|k| <[Kernel; N]>::try_from(k.as_slice()).ok());
        if let Some(kernels) = found {
            return Ok(kernels);
        }
        let code = program.cubin(&self.gpu, self.precision == Precision::Bf16)?;
        let loaded = self.gpu.load(&code, &names)?;
        let kernels = <[Kernel; N]>::try_from(loaded.as_slice())
            .map_err(|_| compile::missing(&self.gpu, "the compiled program lacks kernels"))?;
        prepare(&kernels)?;
        programs.insert(program, loaded);
        Ok(kernels)
    }
}
