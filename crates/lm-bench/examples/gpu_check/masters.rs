//! Compares f32 master weights, stored as bfloat16 weights and remainders, with those of the CPU.

use std::sync::Arc;

use sgs_base::random::SeededRng;
use sgs_lm::checkpoint::{self, SaveOptions};
use sgs_lm::device::{AdamPart, AdamUpdate, Device, first, first_mut};
use sgs_lm::layout::Layout;
use sgs_lm::loss::LossConfig;
use sgs_lm::master_weights;
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::shard::{Piece, Shard};
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::FileType;
use sgs_lm::{ModelConfig, Result};
use sgs_lm_cpu::Cpu;
use sgs_lm_cuda::{Cuda, Precision};

use super::{On, distance, examples, numbers, rounded_weights, small_shape, verdict};

pub fn check() -> Result<bool> {
    let device = Cuda::new(0, Precision::Bf16)?;
    let mut good = kept(&device)?;
    good &= updated(&device)?;
    let device = Arc::new(device);
    for file_type in [FileType::Bf16, FileType::F32] {
        good &= continued(&device, file_type)?;
    }
    Ok(good)
}

/// Writes master weights of all kinds through a shard of several pieces and reads them back. The bits must be equal,
/// and the weights must be those that the CPU computes.
fn kept(device: &Cuda) -> Result<bool> {
    let mut rng = SeededRng::stream(31, 0);
    let mut values: Vec<f32> = [0, 1, 0x7f, 0x80, 0x3f80, 0x3f81, 0x7f7e, 0x7f7f, 0x8000, 0xbf81, 0xff7f]
        .iter()
        .flat_map(|high: &u32| (0..=0xffff).map(move |low| f32::from_bits(high << 16 | low)))
        .chain([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::from_bits(0x7fff_ffff)])
        .collect();
    values.extend((0..1 << 20).map(|_| f32::from_bits((rng.index(1 << 32)) as u32)));
    let n = values.len();
    let (one, two) = (1001, n / 2 + 3);
    let pieces = [(5, 0, one), (n + 12, one, two - one), (one + 7, two, n - two)];
    let pieces = pieces.map(|(from, at, len)| Piece { from, at, len }).to_vec();
    let shard = Shard { rank: 0, ranks: 2, pieces, len: n };
    let mut params = device.buf(3 * n)?;
    let mut state = device.adam(&shard)?;
    // Write in two parts, divided within a piece.
    device.write_adam(&values[..two + 11], &mut params, &mut state, AdamPart::Master, 0)?;
    device.write_adam(&values[two + 11..], &mut params, &mut state, AdamPart::Master, two + 11)?;
    let mut back = vec![0.0; n];
    let (low, high) = back.split_at_mut(777);
    device.read_adam(&params, &state, AdamPart::Master, 0, low)?;
    device.read_adam(&params, &state, AdamPart::Master, 777, high)?;
    let weights = On(device).read(&params, 3 * n)?;
    let mut wrong = [0u32; 3];
    for piece in &shard.pieces {
        for i in 0..piece.len {
            let (value, weight) = (values[piece.at + i], weights[piece.from + i]);
            let (want, remainder) = master_weights::split(value);
            let joined = master_weights::join(want, remainder);
            wrong[0] += u32::from(joined.to_bits() != back[piece.at + i].to_bits());
            wrong[1] +=
                u32::from(want.to_f32().to_bits() != weight.to_bits() && !(want.is_nan() && weight.is_nan()));
            wrong[2] += u32::from(!value.is_nan() && value.to_bits() != back[piece.at + i].to_bits());
        }
    }
    let outside: usize = weights.iter().filter(|w| **w != 0.0).count();
    let inside = shard.pieces.iter().flat_map(|p| &weights[p.flat()]).filter(|w| **w != 0.0).count();
    let mut good = true;
    for (what, wrong) in
        ["unlike the CPU's", "whose weight is unlike the CPU's", "that changed"].iter().zip(wrong)
    {
        good &= verdict(&format!("masters {what}, of {n}"), f64::from(wrong), 0.0);
    }
    Ok(verdict("weights written outside of the shard", (outside - inside) as f64, 0.0) && good)
}

/// Compares parameters after many updates (master weights on the GPU, f32 on the CPU), with aligned and
/// unaligned pieces.
fn updated(device: &Cuda) -> Result<bool> {
    let mut good = true;
    for (decay, steps, cut) in [(0.0, 300, 0), (0.1, 300, 0), (0.0, 100, 101)] {
        let (want, _) = update(&Cpu::new(0)?, decay, steps, cut)?;
        let (got, weights) = update(device, decay, steps, cut)?;
        good &= verdict(
            &format!("masters after {steps} updates, decay {decay}, cut at {cut}"),
            distance(&got, &want),
            1e-5,
        );
        let unlike =
            got.iter().zip(&weights).filter(|(g, w)| master_weights::split(**g).0.to_f32() != **w).count();
        good &= verdict("weights that are not their masters, rounded", unlike as f64, 0.0);
    }
    Ok(good)
}

/// Returns the master weights (or f32 parameters) and the parameters after updates with the same gradients.
fn update<D: Device>(device: &D, weight_decay: f64, steps: u64, cut: usize) -> Result<(Vec<f32>, Vec<f32>)> {
    let on = On(device);
    let config =
        ModelConfig { vocab_size: 13, hidden_size: 12, intermediate_size: 20, head_dim: 3, ..small_shape() };
    let layout = Layout::new(&config);
    let n = layout.len;
    let mut params = on.buf(&numbers(18, n))?;
    let mut shard = Shard::whole(n);
    if cut > 0 {
        shard.pieces = vec![Piece { from: 0, at: 0, len: cut }, Piece { from: cut, at: cut, len: n - cut }];
    }
    let mut state = device.adam(&shard)?;
    let mut grad = device.grad(n)?;
    let ids = on.ints(&(0..n as u32).collect::<Vec<_>>())?;
    for t in 1..=steps {
        let values = on.buf(&numbers(18 + t, n))?;
        device.embed_backward(first(&values, n), first(&ids, n), 1, first_mut(&mut grad, n))?;
        let update = AdamUpdate {
            t,
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay,
            gradient_scale: 0.7,
            zero_gradient: true,
        };
        for piece in &shard.pieces {
            device.adam_step(update, &layout, *piece, &mut params, &mut grad, &mut state)?;
        }
    }
    let weights = on.read(&params, n)?;
    let masters =
        device.adam_to_host(&params, &state)?.master.map_or_else(|| weights.clone(), |m| m.to_vec());
    Ok((masters, weights))
}

/// Runs training steps; returns the losses, the parameters and the master weights.
fn train(policy: &mut Policy<Cuda>, steps: u64) -> Result<(Vec<f64>, Vec<f32>, Vec<f32>)> {
    let (device, config) = (Arc::clone(&policy.model.device), policy.model.config.clone());
    let mut trainer = Trainer::new(Arc::clone(&device), &config, 600, Mode::Train)?;
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig { learning_rate: 1e-3, ..AdamConfig::default() },
        schedule: LrSchedule::Constant,
        batch_size: 16,
        shuffle_seed: None,
    };
    let mut losses = Vec::new();
    for _ in 0..steps {
        let examples = examples(config.vocab_size, 16, 100, 100 + policy.step);
        let batch: Vec<_> = examples.iter().collect();
        losses.push(trainer.step(policy, &batch, &options)?.stats.loss);
    }
    let mut weights = vec![0.0; policy.model.layout.len];
    policy.model.read(0, &mut weights)?;
    let mut masters = vec![0.0; policy.model.layout.len];
    device.read_adam(&policy.model.params, &policy.adam, AdamPart::Master, 0, &mut masters)?;
    Ok((losses, weights, masters))
}

/// Resumes training from a checkpoint, as a whole and as the first of two ranks; the results must be identical bit for
/// bit.
fn continued(device: &Arc<Cuda>, file_type: FileType) -> Result<bool> {
    let config = ModelConfig { layers: 2, ..small_shape() };
    let model = Model::new(Arc::clone(device), rounded_weights(&config, 7), 512)?;
    let mut policy = Policy::new(model)?;
    let (_, weights, masters) = train(&mut policy, 6)?;
    let dir = std::env::temp_dir().join(format!("gpu-check-{}-{file_type:?}", std::process::id()));
    checkpoint::save(&dir, &policy, &SaveOptions { file_type, ..SaveOptions::default() })?;
    let want = train(&mut policy, 4)?;
    let (mut read, _) = checkpoint::load(&dir, Arc::clone(device), 512)?;
    let same = train(&mut read, 0)? == (Vec::new(), weights, masters.clone());
    let mut good =
        verdict(&format!("what a checkpoint of {file_type:?} changes"), f64::from(u8::from(!same)), 0.0);
    let same = train(&mut read, 4)? == want;
    good &= verdict("what going on from it changes", f64::from(u8::from(!same)), 0.0);
    let (half, _) = checkpoint::load_for_rank(&dir, Arc::clone(device), 512, (1, 2))?;
    let mut shard = vec![0.0; half.shard.len];
    device.read_adam(&half.model.params, &half.adam, AdamPart::Master, 0, &mut shard)?;
    let unlike =
        (0..shard.len()).filter(|i| half.shard.flat(*i).is_none_or(|at| shard[*i] != masters[at])).count();
    good &= verdict("masters of the second of two ranks that differ", unlike as f64, 0.0);
    let _ = std::fs::remove_dir_all(&dir);
    Ok(good)
}
