//! Tests commands that request a GPU on a machine without one, and other missing requirements.

use crate::program::{command, file, finish, path, project, sgs};
use std::path::Path;

#[test]
fn commands_that_need_a_missing_gpu_say_what_is_missing() {
    for args in [
        &["prove", "|- ( ph -> ph )", "-n", "1"][..],
        &["eval", "--problems", "quick", "--limit", "1", "-k", "1"],
        &["bench", "sample", "--runs", "1"],
    ] {
        for device in ["cuda", "cuda-f32"] {
            let mut command = command(&[args, &["--device", device]].concat());
            // Hide the GPUs of the machine, if it has any.
            let done = finish({
                command.env("CUDA_VISIBLE_DEVICES", "");
                command
            })
            .expect(2);
            let names_cause =
                ["libcuda.so.1", "CUDA_VISIBLE_DEVICES"].iter().any(|what| done.err.contains(what));
            assert!(done.err.contains("cuda:0") && names_cause, "{args:?}: {}", done.err);
            assert!(done.out.is_empty(), "{args:?}: {}", done.out);
        }
    }
}

#[test]
fn runs_and_sweeps_without_a_gpu_say_how_to_use_the_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let out = path(dir.path(), "out");
    let sweep = file(dir.path(), "sweep.toml", "size = \"metamath-congruence\"\n");
    let error = |args: &[&str], folder: &Path| {
        let mut command = command(&[args, &["--out", &out]].concat());
        command.env("CUDA_VISIBLE_DEVICES", "").current_dir(folder);
        finish(command).expect(2).err
    };
    let clone = project("");
    let (device, base) = ("--device cpu", " --set model.base=data/metamath/deep");
    let congruence: &[&str] = &["run", "--size", "metamath-congruence"];
    for (args, folder, expected) in [
        (congruence, clone.as_path(), format!("{device}{base}")),
        (&["sweep", sweep.as_str()], clone.as_path(), format!("{device}{base}")),
        // The finished model exists in a clone only, and another size has another model.
        (congruence, dir.path(), format!("{device}` (making the base model takes hours)")),
        (&["run", "--device", "cuda"], clone.as_path(), device.to_owned()),
    ] {
        let error = error(args, folder);
        let end = if expected.ends_with(')') { "" } else { "`" };
        let told = format!(
            "To run on the CPU: `{expected}{end}; in a sweep, `model.device` (and `model.base`) in [set]."
        );
        for part in ["needs an NVIDIA GPU (", &told, "`sgs doctor` shows what is missing."] {
            assert!(error.contains(part), "{args:?}, {part}: {error}");
        }
    }
    assert!(!Path::new(&out).exists(), "a run folder was created");
    let gpu = sgs(&["run", "--device", "gpu"]).expect(2);
    assert!(gpu.err.contains("'cuda'") && !gpu.err.contains("'cpu'\n"), "{}", gpu.err);
}

#[test]
fn errors_about_missing_software_repeat_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    // Missing Slurm and a public page without a token stop the run.
    let slurm = ["run", "--workers", "slurm:generate=1,verify=1", "--out", out.to_str().unwrap()];
    let mut without_slurm = command(&slurm);
    without_slurm.args(["cispo", "--set", "seed=3"]).env("PATH", dir.path());
    let done = finish(without_slurm).expect(2);
    assert!(done.err.contains("Slurm (sbatch on the PATH not found)"), "{}", done.err);
    let retry = "`sgs run cispo --size metamath-quick --set seed=3 --dry-run`";
    assert!(done.err.contains(retry), "{}", done.err);
    // Slurm without a controller.
    let mut without_controller = command(&slurm);
    without_controller.env("SLURM_CONF", dir.path().join("none"));
    if std::process::Command::new("squeue").arg("--version").output().is_ok() {
        let done = finish(without_controller).expect(2);
        assert!(done.err.contains("Slurm (squeue: "), "{}", done.err);
    } else {
        println!("Slurm is not installed: a missing controller is not tested");
    }
    let page = ["run", "--serve", "0.0.0.0:0", "--out", out.to_str().unwrap()];
    let mut open = command(&page);
    open.env_remove("SGS_PAGE_TOKEN");
    let done = finish(open).expect(2);
    assert!(done.err.contains("give --token"), "{}", done.err);
    assert!(!out.exists(), "a run folder was created");
}
