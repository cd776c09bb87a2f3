//! Pretraining learns, evaluates, writes checkpoints, stops when asked and resumes exactly.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use sgs_lm::checkpoint;
use sgs_lm::config::ModelConfig;
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::AdamConfig;
use sgs_lm::pretrain::{self, Corpus, CurveRow, Hooks, PretrainConfig};
use sgs_lm::rng::Rng;
use sgs_lm::trainer::{Policy, Trainer};
use sgs_lm::weights::{FileType, HostWeights};
use sgs_lm::{Cpu, Result, bench};

fn shape() -> ModelConfig {
    ModelConfig {
        vocab_size: 16,
        hidden_size: 32,
        intermediate_size: 64,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        ..bench::small_shape()
    }
}

/// Documents whose every token is the sum of the two before it, modulo 13.
fn sums(documents: usize, seed: u64) -> Corpus {
    let mut rng = Rng::new(seed, 0);
    let mut corpus = Corpus::new("sums", 2.0);
    for _ in 0..documents {
        let mut tokens = vec![rng.below(13) as u32, rng.below(13) as u32];
        for i in 2..12 {
            tokens.push((tokens[i - 1] + tokens[i - 2]) % 13);
        }
        corpus.push(&tokens, 2, 64);
    }
    corpus
}

fn counts() -> Corpus {
    let mut corpus = Corpus::new("counts", 1.0);
    for start in 0..13u32 {
        corpus.push(&(0..14).map(|i| (start + i) % 13).chain([15]).collect::<Vec<_>>(), 3, 64);
    }
    corpus
}

struct Watch {
    rows: Vec<CurveRow>,
    stop_at: u64,
    held_out: Corpus,
}

impl Hooks<Cpu> for Watch {
    fn on_step(&mut self, row: &CurveRow) {
        self.rows.push(row.clone());
    }

    fn evaluate(&mut self, trainer: &mut Trainer<Cpu>, model: &Model<Cpu>) -> Result<Vec<(String, f64)>> {
        Ok(vec![("held-out loss".to_owned(), pretrain::mean_loss(trainer, model, &self.held_out)?)])
    }

    fn stop(&mut self) -> bool {
        self.rows.len() as u64 + 1 == self.stop_at
    }
}

#[test]
fn pretraining_learns_and_resumes_exactly() {
    let device = Arc::new(Cpu::new(2).unwrap());
    let corpora = [sums(100, 1), counts()];
    let dir = tempfile::tempdir().unwrap();
    let config = |name: &str| PretrainConfig {
        steps: 400,
        tokens_per_step: 300,
        adam: AdamConfig { learning_rate: 5e-3, ..AdamConfig::default() },
        warmup: 10,
        floor: 0.1,
        seed: 9,
        evaluate_every: 100,
        checkpoint_every: 150,
        checkpoint_dir: Some(dir.path().join(name)),
        file_type: FileType::Bf16,
        companions: Vec::new(),
    };
    let mut trainer = Trainer::new(Arc::clone(&device), &shape(), 128, Mode::Train).unwrap();
    let fresh = || {
        let weights = HostWeights::random(&shape(), 2);
        Policy::new(Model::new(Arc::clone(&device), weights, 64).unwrap()).unwrap()
    };
    let watch = |stop_at| Watch { rows: Vec::new(), stop_at, held_out: sums(30, 77) };

    let (mut whole, mut seen) = (fresh(), watch(u64::MAX));
    assert!(pretrain::run(&mut trainer, &mut whole, &corpora, &config("whole"), None, &mut seen).unwrap());
    let (first, last) = (&seen.rows[0], seen.rows.last().unwrap());
    assert!(first.loss > 2.4 && last.loss < 0.5, "{} -> {}", first.loss, last.loss);
    assert_eq!(last.evaluation.len(), 1);
    // Guessing costs ln 13 = 2.56; about half of the first pairs were never seen.
    assert!(last.evaluation[0].1 < 1.8, "unseen sums: {:?}", last.evaluation);
    assert_eq!(seen.rows.iter().filter(|r| !r.evaluation.is_empty()).count(), 4);

    let (mut part, mut before) = (fresh(), watch(170));
    assert!(!pretrain::run(&mut trainer, &mut part, &corpora, &config("part"), None, &mut before).unwrap());
    assert_eq!(part.step, 170);
    drop(part);
    let (mut resumed, state) = checkpoint::load(&dir.path().join("part"), Arc::clone(&device), 64).unwrap();
    let mut after = watch(u64::MAX);
    assert!(
        pretrain::run(&mut trainer, &mut resumed, &corpora, &config("part"), Some(state), &mut after)
            .unwrap()
    );
    let numbers = |rows: &[CurveRow]| -> Vec<(u64, f64, f64)> {
        rows.iter().map(|r| (r.tokens, r.loss, r.gradient_norm)).collect()
    };
    before.rows.extend(after.rows);
    assert_eq!(numbers(&before.rows), numbers(&seen.rows));
    assert_eq!(resumed.model.params[..], whole.model.params[..]);
}
