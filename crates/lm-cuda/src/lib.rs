//! The CUDA back end of the language model: an NVIDIA GPU through the driver, NVRTC and cuBLASLt. All libraries are
//! loaded at run time, so building does not require CUDA.
//!
//! With [`Precision::Bf16`], parameters and activations are bfloat16; sums, statistics and gradients of parameters are
//! f32; and the optimizer stores the remainders of the f32 master weights ([`sgs_lm::master_weights`]). With
//! [`Precision::F32`], everything is f32, which is for comparisons with the CPU, not for speed.
//!
//! Every sum is computed in a fixed order, so a step gives the same bits each time with the same GPU and
//! libraries.

#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod attention;
mod attention_hopper;
mod attention_variant;
mod compile;
mod decode;
mod device;
mod gemm;
mod gpu;
mod nccl;
mod passes;
mod profile;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use attention::AttentionLists;
use compile::Program;
use gemm::Blas;
use sgs_lm::device::{Device, Linear, first, first_mut};
use sgs_lm::error::Result;
use work::LinearProduct;

pub use attention_variant::AttentionVariant;
pub use decode::CudaDecoder;
pub use device::CudaAdam;
pub use gpu::{Array, Element, Gpu, gpu_count};
pub use nccl::{Nccl, nccl_version};
pub use passes::Passes;
pub use profile::ProfileLine;
pub use sgs_lm::device::Precision;
pub use work::CudaKernel;

/// Sizes of a GPU's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaFootprint {
    /// Element type of parameters and activations.
    pub precision: Precision,
    /// Number of streaming multiprocessors.
    pub processors: usize,
}

impl CudaFootprint {
    /// Returns the number of bytes per element.
    fn width(&self) -> usize {
        match self.precision {
            Precision::Bf16 => 2,
            Precision::F32 => 4,
        }
    }
}

/// An NVIDIA GPU for training and sampling.
#[derive(Debug)]
pub struct Cuda {
    gpu: Arc<Gpu>,
    footprint: CudaFootprint,
    kernels: Kernels,
    blas: Blas,
    attention: Mutex<AttentionLists>,
    programs: Mutex<HashMap<Program, Vec<CudaKernel>>>,
    /// Partial sums of squares, which are copied to the host.
    squares: Mutex<Array<f64>>,
}

/// Number of partial sums of squares.
const SQUARES: usize = 1024;

/// Defines the struct of the base program's kernels and the list of their names.
macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug, Clone, Copy)]
        struct Kernels { $($name: CudaKernel),* }

        impl Kernels {
            const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Creates the struct from kernels in the order of the names.
            fn new(mut loaded: impl Iterator<Item = CudaKernel>) -> Option<Self> {
                Some(Self { $($name: loaded.next()?),* })
            }
        }
    };
}

kernels! {
    gather, scatter, embed_backward, add_bias, add, rmsnorm, rmsnorm_backward, rmsnorm_backward_wide,
    rmsnorm_backward_widest, bias_partial, sum_partials, head_norm, head_norm_backward, rope, swiglu, swiglu_backward, noise,
    narrow, widen, loss_rows, sum_of_squares, accumulate, split_masters, join_masters, adam, adam_wide, draw,
}

impl Cuda {
    /// Opens a GPU by its index, compiles its kernels (or reads them from the cache) and initialises cuBLASLt.
    ///
    /// # Errors
    /// Returns an error if the driver, NVRTC or cuBLASLt is missing or too old, or if there is no such GPU. The
    /// message says which, and where to get it.
    pub fn new(ordinal: usize, precision: Precision) -> Result<Self> {
        let gpu = Arc::new(Gpu::open(ordinal)?);
        let bf16 = precision == Precision::Bf16;
        let code = Program::Base.cubin(&gpu, bf16)?;
        let loaded = gpu.load(&code, Kernels::NAMES)?;
        let kernels = Kernels::new(loaded.into_iter())
            .ok_or_else(|| compile::missing(&gpu, "the compiled program does not have all kernels"))?;
        let blas = Blas::new(&gpu, bf16)?;
        let attention = Mutex::new(AttentionLists::new(&gpu)?);
        let squares = Mutex::new(Array::zeros(&gpu, SQUARES, 8)?);
        let footprint = CudaFootprint { precision, processors: gpu.processors };
        Ok(Self { gpu, footprint, kernels, blas, attention, programs: Mutex::default(), squares })
    }

    /// Returns the underlying GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Returns the element type of parameters and activations.
    pub fn precision(&self) -> Precision {
        self.footprint.precision
    }

    /// Returns the number of bytes per element.
    fn width(&self) -> usize {
        self.footprint.width()
    }

    /// Measures matrix products of 8,192 x 8,192 random matrices; returns the best of 16, in GFLOP/s.
    ///
    /// # Errors
    /// Returns an error if the GPU runs out of memory or fails.
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

    /// Measures `y = x wᵀ` with each algorithm that cuBLASLt proposes, its first choice first; returns seconds.
    /// There are `copies` weight matrices, which are used in turn, so that they are not in the cache.
    ///
    /// # Errors
    /// Returns an error if the GPU runs out of memory or fails.
    pub fn compare_algorithms(&self, size: Linear, copies: usize) -> Result<Vec<f64>> {
        let x = self.noise(size.rows * size.input, 1)?;
        let w: Vec<_> = (0..copies.max(1) as u64)
            .map(|i| self.noise(size.input * size.output, 2 + i))
            .collect::<Result<_>>()?;
        let y = self.buf(size.rows * size.output)?;
        let w = w.iter().map(|w| w.front(0)).collect::<Result<Vec<u64>>>()?;
        self.blas.compare(LinearProduct::Forward, size, [&[x.front(0)?], &w, &[y.front(0)?]])
    }

    /// Returns the kernels of a program that depends on the model; compiles it on first use.
    fn program<const N: usize>(
        &self,
        program: Program,
        names: [&str; N],
        prepare: impl FnOnce(&[CudaKernel; N]) -> Result<()>,
    ) -> Result<[CudaKernel; N]> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let found = programs.get(&program).and_then(|k| <[CudaKernel; N]>::try_from(k.as_slice()).ok());
        if let Some(kernels) = found {
            return Ok(kernels);
        }
        let code = program.cubin(&self.gpu, self.footprint.precision == Precision::Bf16)?;
        let loaded = self.gpu.load(&code, &names)?;
        let kernels = <[CudaKernel; N]>::try_from(loaded.as_slice())
            .map_err(|_| compile::missing(&self.gpu, "the compiled program does not have all kernels"))?;
        prepare(&kernels)?;
        programs.insert(program, loaded);
        Ok(kernels)
    }
}
