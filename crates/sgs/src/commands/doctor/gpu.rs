//! NVIDIA GPUs: driver, devices, and the libraries that are loaded at run time.

use super::{Area, Check, CheckState, lookup};
use sgs_lm_cuda::{Cuda, Precision};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// Libraries: name, file names in order of preference, and where to get it.
const LIBRARIES: [(&str, &[&str], &str); 4] = [
    ("driver library", &["libcuda.so.1", "libcuda.so"], "comes with the NVIDIA driver, version 580 or newer"),
    ("cuBLASLt", &["libcublasLt.so.13"], "comes with the CUDA toolkit 13"),
    ("NVRTC", &["libnvrtc.so.13"], "comes with the CUDA toolkit 13"),
    ("NCCL", &["libnccl.so.2", "libnccl.so"], "only for several GPUs: the package libnccl2"),
];

/// Checks the GPU requirements.
pub fn area() -> Area {
    let folders = lookup::library_folders();
    let mut checks = vec![driver(), devices()];
    checks.extend(LIBRARIES.iter().map(|(name, files, source)| match lookup::library(files, &folders) {
        Some(path) => Check::ok(*name, path.display().to_string()),
        None => Check::new(*name, CheckState::Absent, format!("not found: {}", files.join(", ")), *source),
    }));
    // A GPU can only be opened with a driver; the checks above report a missing one.
    if checks.iter().any(|c| c.name == "driver library" && c.state == CheckState::Ok) {
        checks.push(engine());
    }
    let required = checks.iter().filter(|c| c.name != "NCCL");
    let usable = required.clone().all(|c| c.state == CheckState::Ok);
    if !usable {
        let places: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        let advice = "LD_LIBRARY_PATH, CUDA_HOME or /etc/ld.so.conf.d can name other folders";
        checks.push(Check::new("searched", CheckState::Absent, places.join(" "), advice));
    }
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
        Err(error) => Check::new("engine", CheckState::Broken, error.to_string(), "see the libraries above"),
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
    let listed = lookup::program("nvidia-smi", &[])
        .and_then(|smi| lookup::ask(&smi, &["--query-gpu=name,memory.total", "--format=csv,noheader"]));
    if let Some(list) = listed {
        return Check::ok("devices", list.lines().map(str::trim).collect::<Vec<_>>().join("; "));
    }
    let nodes: Vec<PathBuf> =
        (0..64).map(|i| PathBuf::from(format!("/dev/nvidia{i}"))).filter(|p| p.exists()).collect();
    if nodes.is_empty() {
        return Check::new("devices", CheckState::Absent, "no /dev/nvidia0", "");
    }
    Check::ok("devices", format!("{} (nvidia-smi does not name them)", nodes.len()))
}
