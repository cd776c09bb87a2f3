//! Memory plans of models and workspaces.

use sgs_lm::ModelConfig;
use sgs_lm::device::Device;
use sgs_lm::model::{MemoryPlan, Mode};
use sgs_lm::testing::small_shape;
use sgs_lm_cpu::Cpu;

#[test]
fn the_error_of_a_plan_that_does_not_fit_says_how_much_and_what_to_reduce() {
    let device = Cpu::new(1).unwrap();
    let plan = MemoryPlan::new(device.footprint(), &small_shape(), 4096, Mode::Train);
    let needed = plan.workspace_bytes();
    assert!(plan.fits_into("cuda:0", needed).is_ok());
    let error = plan.fits_into("cuda:0", needed - 1).unwrap_err().to_string();
    for part in ["cuda:0", &format!("({needed} bytes)"), &format!("({} bytes)", needed - 1), "4096 tokens"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert!(error.contains("micro_batch_tokens") && error.contains("recompute = true"), "{error}");
    let recomputed =
        MemoryPlan::new(device.footprint(), &small_shape(), 4096, Mode::TrainRecompute { kept: 0 });
    assert!(recomputed.activation_bytes < plan.activation_bytes);
    let error = recomputed.fits_into("cuda:0", 0).unwrap_err().to_string();
    assert!(!error.contains("recompute = true") && error.contains("0 bytes is free"), "{error}");
}

#[test]
fn as_many_layers_are_kept_as_fit_into_memory() {
    let device = Cpu::new(1).unwrap();
    let config = ModelConfig { layers: 6, ..small_shape() };
    let bytes = |mode| MemoryPlan::new(device.footprint(), &config, 512, mode).workspace_bytes();
    let within = |free| Mode::recompute_within(free, device.footprint(), &config, 512, (0, 1));
    assert_eq!(within(0), Mode::TrainRecompute { kept: 0 });
    assert_eq!(within(usize::MAX), Mode::TrainRecompute { kept: 5 });
    for kept in 1..6 {
        let mode = Mode::TrainRecompute { kept };
        assert_eq!(within(bytes(mode)), mode);
        assert_eq!(within(bytes(mode) - 1), Mode::TrainRecompute { kept: kept - 1 });
    }
    // If only the first layer is recomputed, nothing is recomputed, so the buffers are those of `Mode::Train`.
    assert_eq!(bytes(Mode::TrainRecompute { kept: 5 }), bytes(Mode::Train));
}

#[test]
fn ranks_share_gradients_and_optimizer_state() {
    let device = Cpu::new(1).unwrap();
    let config = ModelConfig { layers: 16, ..small_shape() };
    let one = MemoryPlan::new(device.footprint(), &config, 64, Mode::Train);
    let four = MemoryPlan::for_rank(device.footprint(), &config, 64, Mode::Train, (1, 4));
    assert_eq!(one.activation_bytes, four.activation_bytes);
    assert!(four.gradient_bytes < one.gradient_bytes / 2);
}
