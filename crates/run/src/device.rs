//! Which device a command computes on.

use crate::Usage;
use crate::seats::Seat;
use anyhow::{Result, bail};

/// The devices that a model can compute on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The processor.
    Cpu,
    /// One NVIDIA GPU in bfloat16, with f32 sums and f32 master weights.
    Cuda,
    /// One NVIDIA GPU in f32 throughout: for comparing, not for speed.
    CudaF32,
}

impl std::str::FromStr for DeviceKind {
    type Err = Usage;

    fn from_str(name: &str) -> Result<Self, Usage> {
        match name {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda),
            "cuda-f32" => Ok(Self::CudaF32),
            other => Err(Usage(format!("there is no device `{other}`; there are cpu, cuda, cuda-f32"))),
        }
    }
}

/// The device that a configuration names.
pub fn kind(name: &str) -> Result<DeviceKind> {
    match name {
        "cpu" => Ok(DeviceKind::Cpu),
        "cuda" => Ok(DeviceKind::Cuda),
        other => Err(Usage(format!("model.device is `{other}`: give `cpu` or `cuda`")).into()),
    }
}

/// The GPUs that this process sees, as values of `CUDA_VISIBLE_DEVICES` for its children.
pub fn visible_gpus() -> Vec<String> {
    let outer = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    (0..sgs_lm::cuda::gpu_count().unwrap_or(0))
        .filter_map(|i| sgs_fleet::visible_device(outer.as_deref(), i))
        .collect()
}

/// Threads to compute with: one per core.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The GPU that a rank takes: the one of its number among those of its machine; if it sees a single one, that.
pub fn gpu_of(device: DeviceKind, seat: Option<&Seat>) -> Result<usize> {
    let Some(seat) = seat.filter(|_| device != DeviceKind::Cpu) else { return Ok(0) };
    match sgs_lm::cuda::gpu_count()? {
        1 => Ok(0),
        gpus if seat.local < gpus => Ok(seat.local),
        gpus => bail!("rank {} is number {} of its machine, which shows {gpus} GPUs", seat.rank, seat.local),
    }
}

/// Opens the device of a kind, `$threads` threads where it is the processor, GPU number `$gpu` (the first if left out)
/// where it is one, and evaluates the body with it: once compiled for each type of device.
#[macro_export]
macro_rules! with_device {
    ($kind:expr, $threads:expr, $device:ident => $body:expr) => {
        $crate::with_device!($kind, $threads, 0, $device => $body)
    };
    ($kind:expr, $threads:expr, $gpu:expr, $device:ident => $body:expr) => {
        match $kind {
            $crate::device::DeviceKind::Cpu => {
                let $device = std::sync::Arc::new($crate::lm::Cpu::new($threads)?);
                $body
            }
            kind => {
                let precision = match kind {
                    $crate::device::DeviceKind::CudaF32 => $crate::lm::Precision::F32,
                    _ => $crate::lm::Precision::Bf16,
                };
                let $device = std::sync::Arc::new($crate::lm::Cuda::new($gpu, precision)?);
                $body
            }
        }
    };
}
