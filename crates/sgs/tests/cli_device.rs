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
