//! Which device a command computes on.

use crate::args::DeviceKind;
use crate::exit::Usage;
use anyhow::Result;

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

/// Opens the device of a kind, `$threads` threads where it is the processor, GPU number `$gpu` (the first if left out)
/// where it is one, and evaluates the body with it: once compiled for each type of device.
macro_rules! with_device {
    ($kind:expr, $threads:expr, $device:ident => $body:expr) => {
        $crate::device::with_device!($kind, $threads, 0, $device => $body)
    };
    ($kind:expr, $threads:expr, $gpu:expr, $device:ident => $body:expr) => {
        match $kind {
            $crate::args::DeviceKind::Cpu => {
                let $device = std::sync::Arc::new(sgs_lm::Cpu::new($threads)?);
                $body
            }
            kind => {
                let precision = match kind {
                    $crate::args::DeviceKind::CudaF32 => sgs_lm::Precision::F32,
                    _ => sgs_lm::Precision::Bf16,
                };
                let $device = std::sync::Arc::new(sgs_lm::Cuda::new($gpu, precision)?);
                $body
            }
        }
    };
}
pub(crate) use with_device;
