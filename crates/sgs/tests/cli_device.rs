//! Commands that are told to compute on a GPU where there is none.
#![allow(clippy::unwrap_used)] // tests say so by panicking

mod program;

use program::{command, finish};

#[test]
fn without_a_gpu_commands_that_ask_for_one_say_what_is_missing() {
    for args in [
        &["prove", "|- ( ph -> ph )", "-n", "1"][..],
        &["eval", "--problems", "quick", "--limit", "1", "-k", "1"],
        &["bench", "sample", "--runs", "1"],
    ] {
        for device in ["cuda", "cuda-f32"] {
            let mut command = command(&[args, &["--device", device]].concat());
            // Hides the GPUs of a machine that has some.
            let done = finish({
                command.env("CUDA_VISIBLE_DEVICES", "");
                command
            })
            .expect(1);
            let says = ["libcuda.so.1", "CUDA_VISIBLE_DEVICES"].iter().any(|what| done.err.contains(what));
            assert!(done.err.contains("cuda:0") && says, "{args:?}: {}", done.err);
            assert!(done.out.is_empty(), "{args:?}: {}", done.out);
        }
    }
}

#[test]
fn a_run_that_lacks_something_is_told_with_the_words_it_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let asked =
        ["run", "cispo", "--set", "model.device=cuda", "--set", "seed=3", "--out", out.to_str().unwrap()];
    let mut with_cuda = command(&asked);
    with_cuda.env("CUDA_VISIBLE_DEVICES", "");
    let done = finish(with_cuda).expect(1);
    let said = "`sgs run cispo --size metamath-quick --set model.device=cuda --set seed=3 --dry-run`";
    assert!(done.err.contains(said), "{}", done.err);
    // Slurm that is not there stops the run as well, and so does a page that anybody could open.
    let slurm = ["run", "--workers", "slurm:generate=1,verify=1", "--out", out.to_str().unwrap()];
    let mut without_slurm = command(&slurm);
    without_slurm.env("PATH", dir.path());
    let done = finish(without_slurm).expect(1);
    assert!(done.err.contains("Slurm (there is no sbatch on the PATH)"), "{}", done.err);
    let page = ["run", "--serve", "0.0.0.0:0", "--out", out.to_str().unwrap()];
    let mut open = command(&page);
    open.env_remove("SGS_PAGE_TOKEN");
    let done = finish(open).expect(2);
    assert!(done.err.contains("give --token"), "{}", done.err);
    assert!(!out.exists(), "nothing is begun");
}
