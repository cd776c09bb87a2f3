//! NVIDIA GPUs: driver, devices, and the libraries, which are loaded at run time.

use super::{Area, Check, CheckState, lookup};
use sgs_lm_cuda::{Cuda, Precision, nccl_version};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Checks the GPU requirements.
pub fn area() -> Area {
    let mut checks = vec![driver(), devices()];
    // A GPU can only be opened with a driver.
    if checks.iter().any(|c| c.state == CheckState::Ok) {
        checks.push(engine());
    }
    let usable = checks.iter().all(|c| c.state == CheckState::Ok);
    checks.push(match nccl_version() {
        Ok(version) => Check::ok("NCCL", version.to_string()),
        Err(error) => Check::new("NCCL", CheckState::Absent, error, "only for several GPUs"),
    });
    Area { name: "gpu", purpose: "training and sampling on NVIDIA GPUs", usable, checks }
}

/// Opens the first GPU and compiles the kernels, as training and sampling do.
fn engine() -> Check {
    let started = Instant::now();
    match Cuda::new(0, Precision::Bf16) {
        Ok(device) => {
            let gpu = device.gpu();
            let found = format!(
                "{}, compute capability {}.{}, CUDA {}.{}, {:.0} GiB: kernels ready in {:.1} s",
                gpu.name,
                gpu.arch.0,
                gpu.arch.1,
                gpu.driver / 1000,
                gpu.driver % 1000 / 10,
                gpu.memory as f64 / f64::from(1 << 30),
                started.elapsed().as_secs_f64()
            );
            Check::ok("engine", found)
        }
        Err(error) => Check::new(
            "engine",
            CheckState::Broken,
            error.to_string(),
            "driver 580 or newer, cuBLASLt and NVRTC of CUDA 13",
        ),
    }
}

fn driver() -> Check {
    match fs::read_to_string("/proc/driver/nvidia/version") {
        Ok(text) => Check::ok("driver", text.lines().next().unwrap_or("").trim()),
        Err(_) => Check::new(
            "driver",
            CheckState::Absent,
            "no /proc/driver/nvidia/version",
            "install the NVIDIA driver (in a container: start it with its GPUs)",
        ),
    }
}

fn devices() -> Check {
    let listed = lookup::program("nvidia-smi")
        .and_then(|smi| lookup::ask(&smi, &["--query-gpu=name,memory.total", "--format=csv,noheader"]));
    if let Some(list) = listed {
        return Check::ok("devices", list.lines().map(str::trim).collect::<Vec<_>>().join("; "));
    }
    match (0..64).filter(|i| Path::new(&format!("/dev/nvidia{i}")).exists()).count() {
        0 => Check::new("devices", CheckState::Absent, "no /dev/nvidia0", ""),
        nodes => Check::ok("devices", format!("{nodes} (nvidia-smi does not name them)")),
    }
}
