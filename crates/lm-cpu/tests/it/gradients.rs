//! Compares the whole model with the f64 reference: logits, and the gradient of every tensor against central
//! differences, for packed sequences that are longer than a block of attention.

use crate::reference;
use std::sync::Arc;

use reference::slope;
use sgs_base::random::SeededRng;
use sgs_lm::config::{Family, ModelConfig};
use sgs_lm::loss::{LossConfig, Normaliser, Objective, TrainExample};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::testing::small_shape;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::HostWeights;
use sgs_lm_cpu::Cpu;

fn shape(tied: bool, bias: bool) -> ModelConfig {
    ModelConfig {
        family: if bias { Family::Qwen2 } else { Family::Llama },
        vocab_size: 23,
        hidden_size: 12,
        intermediate_size: 20,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        tied_head: tied,
        qkv_bias: bias,
        qk_norm: tied && bias,
        ..small_shape()
    }
}

/// Creates weights that are large enough for every tensor to matter.
fn weights(config: &ModelConfig) -> HostWeights {
    let mut weights = HostWeights::random(config, 5);
    let mut rng = SeededRng::stream(6, 0);
    for tensor in &weights.layout.tensors {
        for w in &mut weights.data[tensor.span.range()] {
            *w += 0.25 * rng.normal();
        }
    }
    weights
}

fn examples(vocabulary: usize) -> Vec<TrainExample> {
    let mut rng = SeededRng::stream(7, 0);
    [(70usize, 3usize, 0.7f32), (9, 1, -1.3), (2, 1, 0.4)]
        .into_iter()
        .map(|(len, prompt_len, weight)| {
            let log_prob = |rng: &mut SeededRng| -(rng.uniform() as f32) * 4.0 - 0.5;
            TrainExample {
                tokens: (0..len).map(|_| rng.index(vocabulary) as u32).collect(),
                prompt_len,
                weight,
                sampled_log_probs: (prompt_len..len).map(|_| log_prob(&mut rng)).collect(),
                reference_log_probs: (prompt_len..len).map(|_| log_prob(&mut rng)).collect(),
                ..TrainExample::default()
            }
        })
        .collect()
}

/// Computes the loss of the batch by its definition, in f64; the importance ratios are those at `at`.
fn reference_loss(
    weights: &HostWeights,
    params: &[f64],
    at: &[f64],
    examples: &[TrainExample],
    loss: &LossConfig,
) -> f64 {
    let (config, layout) = (&weights.config, &weights.layout);
    let tokens: usize = examples.iter().map(TrainExample::completion_len).sum();
    let mut total = 0.0;
    for example in examples {
        let inputs = &example.tokens[..example.tokens.len() - 1];
        let starts = [0, inputs.len()];
        let logits = reference::logits(config, layout, params, inputs, &starts);
        let fixed = reference::logits(config, layout, at, inputs, &starts);
        let norm = match loss.normaliser {
            Normaliser::Sequence => 1.0 / (examples.len() * example.completion_len()) as f64,
            Normaliser::Token => 1.0 / tokens as f64,
            Normaliser::Group => unreachable!("not used here"),
        };
        for i in 0..example.completion_len() {
            let row = example.prompt_len + i - 1;
            let log_p = |z: &[f64]| {
                reference::log_softmax(&z[row * config.vocab_size..(row + 1) * config.vocab_size])
            };
            let target = example.tokens[row + 1] as usize;
            let lp = log_p(&logits)[target];
            let ratio = match loss.objective {
                Objective::Cispo { eps_low, eps_high } => (log_p(&fixed)[target]
                    - f64::from(example.sampled_log_probs[i]))
                .exp()
                .clamp(f64::from(1.0 - eps_low), f64::from(1.0 + eps_high)),
                _ => 1.0,
            };
            let weight =
                if loss.objective == Objective::Supervised { 1.0 } else { f64::from(example.weight) };
            let ahead = f64::from(example.reference_log_probs[i]) - lp;
            total += norm
                * (-weight * ratio * lp
                    - f64::from(loss.entropy_bonus) * reference::entropy(&log_p(&logits))
                    + f64::from(loss.kl_penalty) * (ahead.exp() - ahead - 1.0));
        }
    }
    total
}

fn agrees(config: &ModelConfig, loss: &LossConfig, micro_batch: usize, mode: Mode) {
    let weights = weights(config);
    let params: Vec<f64> = weights.data.iter().map(|x| f64::from(*x)).collect();
    let examples = examples(config.vocab_size);
    let device = Arc::new(Cpu::new(2).unwrap());
    let model = Model::new(Arc::clone(&device), weights.clone(), 128).unwrap();
    let mut trainer = Trainer::new(device, config, micro_batch, mode).unwrap();
    let batch: Vec<&TrainExample> = examples.iter().collect();
    let stats = trainer.loss_and_gradient(&model, &batch, loss).unwrap();
    let want = reference_loss(&weights, &params, &params, &examples, loss);
    assert!((stats.loss - want).abs() < 1e-5 * want.abs().max(1.0), "{} for {want}", stats.loss);

    let gradient = trainer.gradient(&model).unwrap();
    for tensor in &weights.layout.tensors {
        let span = tensor.span;
        let peak = gradient[span.range()].iter().fold(1e-4f32, |m, g| m.max(g.abs()));
        for i in [0, span.len / 3, span.len - 1].map(|i| span.offset + i) {
            let want = slope(&params, i, |p| reference_loss(&weights, p, &params, &examples, loss));
            let error = (f64::from(gradient[i]) - want).abs();
            assert!(
                error < 1e-4 * f64::from(peak),
                "{} element {i}: {} for {want}",
                tensor.name,
                gradient[i]
            );
        }
    }
}

#[test]
fn supervised_in_one_micro_batch() {
    agrees(&shape(false, false), &LossConfig::supervised(), 128, Mode::Train);
}

#[test]
fn reinforce_per_sequence_in_several_micro_batches_with_tied_head() {
    let loss = LossConfig::new(Objective::Reinforce, Normaliser::Sequence);
    agrees(&shape(true, false), &loss, 69, Mode::Train);
}

#[test]
fn cispo_with_bonus_and_penalty_and_biases_recomputed() {
    let objective = Objective::Cispo { eps_low: 0.9, eps_high: 1.5 };
    let loss =
        LossConfig { entropy_bonus: 0.2, kl_penalty: 0.1, ..LossConfig::new(objective, Normaliser::Token) };
    for kept in 0..4 {
        agrees(&shape(false, true), &loss, 128, Mode::TrainRecompute { kept });
    }
}

#[test]
fn norms_of_heads() {
    for mode in [Mode::Train, Mode::TrainRecompute { kept: 0 }] {
        agrees(&shape(true, true), &LossConfig::supervised(), 69, mode);
    }
}

#[test]
fn teacher_forced_log_probs_do_not_depend_on_packing() {
    let config = shape(false, true);
    let weights = weights(&config);
    let examples = examples(config.vocab_size);
    let device = Arc::new(Cpu::new(2).unwrap());
    let model = Model::new(Arc::clone(&device), weights.clone(), 128).unwrap();
    let params: Vec<f64> = weights.data.iter().map(|x| f64::from(*x)).collect();
    for micro_batch in [70, 1000] {
        let mut trainer = Trainer::new(Arc::clone(&device), &config, micro_batch, Mode::Infer).unwrap();
        let sequences = examples.iter().map(|e| (e.tokens.as_slice(), e.prompt_len));
        let stats = trainer.log_probs(&model, sequences).unwrap();
        for (example, stats) in examples.iter().zip(stats) {
            let inputs = &example.tokens[..example.tokens.len() - 1];
            let logits = reference::logits(&config, &weights.layout, &params, inputs, &[0, inputs.len()]);
            assert_eq!(stats.log_probs.len(), example.completion_len());
            for (i, lp) in stats.log_probs.iter().enumerate() {
                let row = example.prompt_len + i - 1;
                let log_p =
                    reference::log_softmax(&logits[row * config.vocab_size..(row + 1) * config.vocab_size]);
                assert!((f64::from(*lp) - log_p[example.tokens[row + 1] as usize]).abs() < 1e-4);
                assert!((f64::from(stats.entropies[i]) - reference::entropy(&log_p)).abs() < 1e-4);
            }
        }
    }
}

#[test]
fn a_step_does_not_depend_on_the_gradients_of_the_previous_step() {
    let options = TrainOptions {
        loss: LossConfig::new(Objective::Reinforce, Normaliser::Sequence),
        adam: AdamConfig { learning_rate: 1e-2, ..AdamConfig::default() },
        schedule: LrSchedule::Constant,
        batch_size: 3,
        shuffle_seed: None,
    };
    for (tied, bias, micro_batch) in [(false, true, 128), (true, false, 69), (true, true, 69)] {
        let config = shape(tied, bias);
        let device = Arc::new(Cpu::new(2).unwrap());
        let trainer = || Trainer::new(Arc::clone(&device), &config, micro_batch, Mode::Train).unwrap();
        let policy = || Policy::new(Model::new(Arc::clone(&device), weights(&config), 128).unwrap()).unwrap();
        // The second batch contains only a few of the first batch's tokens.
        let long = examples(config.vocab_size);
        let mut short = long.clone();
        short.iter_mut().for_each(|e| e.tokens.iter_mut().for_each(|t| *t %= 4));
        let [long, short] = [&long, &short].map(|list| list.iter().collect::<Vec<_>>());
        let (mut one, mut each) = (policy(), policy());
        let mut used = trainer();
        for batch in [&long, &short, &long] {
            let got = used.step(&mut one, batch, &options).unwrap();
            let want = trainer().step(&mut each, batch, &options).unwrap();
            assert_eq!((got.gradient_norm, got.stats), (want.gradient_norm, want.stats));
        }
        assert_eq!(one.model.params[..], each.model.params[..]);
        // After a step, and after a batch without loss tokens, the gradient is zero.
        assert!(used.gradient(&one.model).unwrap().iter().all(|g| *g == 0.0));
        used.step(&mut one, &long, &options).unwrap();
        let inert: Vec<TrainExample> =
            long.iter().map(|e| TrainExample { weight: 0.0, ..(*e).clone() }).collect();
        let nothing = used.step(&mut one, &inert.iter().collect::<Vec<_>>(), &options).unwrap();
        assert_eq!((nothing.gradient_norm, nothing.tokens), (0.0, 0));
    }
}
