//! Tests commands that request a GPU on a machine without one, and other missing requirements.

use crate::program::{command, finish};

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
fn errors_about_missing_software_repeat_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let arguments =
        ["run", "cispo", "--set", "model.device=cuda", "--set", "seed=3", "--out", out.to_str().unwrap()];
    let mut with_cuda = command(&arguments);
    with_cuda.env("CUDA_VISIBLE_DEVICES", "");
    let done = finish(with_cuda).expect(2);
    let retry = "`sgs run cispo --size metamath-quick --set model.device=cuda --set seed=3 --dry-run`";
    assert!(done.err.contains(retry), "{}", done.err);
    // Missing Slurm and a public page without a token stop the run as well.
    let slurm = ["run", "--workers", "slurm:generate=1,verify=1", "--out", out.to_str().unwrap()];
    let mut without_slurm = command(&slurm);
    without_slurm.env("PATH", dir.path());
    let done = finish(without_slurm).expect(2);
    assert!(done.err.contains("Slurm (sbatch on the PATH not found)"), "{}", done.err);
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
