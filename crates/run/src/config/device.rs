//! Selects the device that a command computes on.

use crate::Usage;
use crate::error::Result;
use sgs_lm::device::Precision;

/// A device for models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The CPU. The sampler multiplies in bfloat16 if the processor can.
    Cpu,
    /// The CPU in f32 throughout.
    CpuF32,
    /// One NVIDIA GPU in bfloat16, with f32 accumulation and f32 master weights.
    Cuda,
    /// One NVIDIA GPU in f32 throughout. It is slow and meant for comparisons.
    CudaF32,
}

impl std::str::FromStr for DeviceKind {
    type Err = Usage;

    fn from_str(name: &str) -> Result<Self, Usage> {
        match name {
            "cpu" => Ok(Self::Cpu),
            "cpu-f32" => Ok(Self::CpuF32),
            "cuda" => Ok(Self::Cuda),
            "cuda-f32" => Ok(Self::CudaF32),
            other => Err(Usage(format!("unknown device `{other}`; expected cpu, cpu-f32, cuda or cuda-f32"))),
        }
    }
}

impl DeviceKind {
    /// Returns whether models run on the CPU.
    pub fn is_cpu(self) -> bool {
        matches!(self, Self::Cpu | Self::CpuF32)
    }

    /// Returns the precision of the device's products.
    pub fn precision(self) -> Precision {
        match self {
            Self::Cpu | Self::Cuda => Precision::Bf16,
            Self::CpuF32 | Self::CudaF32 => Precision::F32,
        }
    }
}

/// Parses the value of `model.device`.
pub fn kind(name: &str) -> Result<DeviceKind> {
    match name.parse() {
        Ok(DeviceKind::CudaF32) | Err(_) => {
            Err(Usage(format!("model.device is `{name}`; expected `cpu`, `cpu-f32` or `cuda`")).into())
        }
        Ok(kind) => Ok(kind),
    }
}

/// Returns the GPUs visible to this process, each as a value of `CUDA_VISIBLE_DEVICES` for a child process.
pub fn visible_gpus() -> Vec<String> {
    let outer = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    (0..sgs_lm_cuda::gpu_count().unwrap_or(0))
        .filter_map(|i| sgs_fleet::visible_device(outer.as_deref(), i))
        .collect()
}

/// Returns the number of threads to compute with: one per core.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the maximum number of processes that a run starts on this machine.
pub(crate) fn most_processes() -> usize {
    const PER_THREAD: usize = 16;
    PER_THREAD * threads()
}

/// Opens a device of the given kind and evaluates the body with it. `$threads` is the number of CPU threads; `$gpu` is
/// the index of the GPU, by default 0. The body is compiled once for each device type.
#[macro_export]
macro_rules! with_device {
    ($kind:expr, $threads:expr, $device:ident => $body:expr) => {
        $crate::with_device!($kind, $threads, 0, $device => $body)
    };
    ($kind:expr, $threads:expr, $gpu:expr, $device:ident => $body:expr) => {
        match $kind {
            kind if kind.is_cpu() => {
                let opened = $crate::lm_cpu::Cpu::with_precision($threads, kind.precision());
                let $device = std::sync::Arc::new(opened?);
                $body
            }
            kind => {
                let opened = $crate::lm_cuda::Cuda::new($gpu, kind.precision());
                let $device = std::sync::Arc::new(opened.map_err($crate::Usage::of)?);
                $body
            }
        }
    };
}
