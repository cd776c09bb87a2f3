//! Compares attention over the paged cache, and sampling, with the CPU.

use std::sync::Arc;

use sgs_base::philox::uniform;
use sgs_lm::decode::SampleSpec;
use sgs_lm::device::{Device, Heads, first, first_mut};
use sgs_lm::rope::RopeTables;
use sgs_lm::testing::small_shape;
use sgs_lm::{ModelConfig, Result};
use sgs_lm_cpu::Cpu;
use sgs_lm_cpu::sample_truncated;
use sgs_lm_cuda::{Cuda, Precision};
use sgs_lm_sampler::{RequestId, SamplingParams};

use super::{On, distance, numbers, verdict};

/// Computes causal attention of packed sequences after rotation, `[Σ lengths, q_dim]`, on the CPU.
fn wanted(cpu: &Cpu, config: &ModelConfig, qkv: &[f32], lengths: &[usize]) -> Result<Vec<f32>> {
    let on = On(cpu);
    let heads = Heads::of(config);
    let rows = lengths.iter().sum::<usize>();
    let mut starts = vec![0];
    lengths.iter().for_each(|l| starts.push(starts.last().copied().unwrap_or(0) + l));
    let (wide, narrow) = (rows * heads.qkv_dim(), rows * config.q_dim());
    let positions: Vec<u32> = lengths.iter().flat_map(|l| 0..*l as u32).collect();
    let positions = on.ints(&positions)?;
    let tables = cpu.rope_tables(RopeTables::new(config, 2048))?;
    let (mut qkv, mut y, mut lse) = (on.buf(qkv)?, on.poisoned(narrow)?, cpu.stat(rows * heads.heads)?);
    cpu.run(|| {
        cpu.rope(first_mut(&mut qkv, wide), heads, first(&positions, rows), &tables, false)?;
        cpu.attention(first(&qkv, wide), &starts, heads, first_mut(&mut y, narrow), &mut lse)
    })?;
    on.read(&y, narrow)
}

/// Compares attention of prompts divided into chunks of several sizes, followed by single tokens, in caches of several
/// shapes.
pub fn attention() -> Result<bool> {
    let cpu = Cpu::new(0)?;
    let few = vec![1, 16, 33, 64, 65, 130, 300];
    // Use enough columns that the long one is divided further than would fill the GPU.
    let many = [vec![2000], vec![100; 47]].concat();
    let mut good = true;
    for (precision, allowed) in [(Precision::F32, 2e-5), (Precision::Bf16, 1e-2)] {
        let device = Arc::new(Cuda::new(0, precision)?);
        for (heads, kv_heads, head_dim, lengths) in [
            (4, 2, 64, &few),
            (2, 2, 128, &few),
            (6, 6, 32, &few),
            (3, 1, 48, &few),
            (4, 1, 24, &few),
            (2, 1, 160, &few),
            (8, 4, 64, &many),
        ] {
            let config = ModelConfig {
                vocab_size: 64,
                hidden_size: 64,
                intermediate_size: 64,
                layers: 2,
                heads,
                kv_heads,
                head_dim,
                ..small_shape()
            };
            let model = device.random_model(&config, 2048)?;
            let qkv = numbers(21, lengths.iter().sum::<usize>() * config.qkv_dim());
            let want = wanted(&cpu, &config, &qkv, lengths)?;
            let whole = device.paged_attention(&model, &qkv, lengths, 0, 512)?;
            let what = format!("{heads}/{kv_heads} heads of {head_dim}, {precision:?}");
            good &= verdict(&format!("prompts at once, {what}"), distance(&whole, &want), allowed);
            let cut = device.paged_attention(&model, &qkv, lengths, 0, 37)?;
            good &= verdict(&format!("prompts cut, {what}"), distance(&cut, &want), allowed);
            if device.has_tensor_attention(head_dim) {
                let other = cut.iter().zip(&whole).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                good &= verdict(&format!("numbers that cutting changes, {what}"), other as f64, 0.0);
            }
            let fed = device.paged_attention(&model, &qkv, lengths, 5, 64)?;
            good &= verdict(&format!("then five single tokens, {what}"), distance(&fed, &want), allowed);
        }
    }
    Ok(good)
}

/// Returns χ² of samples from one row compared with its truncated distribution, and its degrees of freedom; infinite if
/// an excluded token was sampled.
fn chi_square(row: &[f32], params: SamplingParams, counts: &[f64]) -> (f64, f64) {
    let weight = |x: f32| f64::from(x / params.temperature).exp();
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
    if params.top_k > 0 {
        order.truncate(params.top_k as usize);
    }
    let total: f64 = order.iter().map(|t| weight(row[*t])).sum();
    let (mut kept, mut sum) = (Vec::new(), 0.0);
    for token in order {
        if sum < f64::from(params.top_p) * total {
            kept.push(token);
            sum += weight(row[token]);
        }
    }
    let draws: f64 = counts.iter().sum();
    if (kept.iter().map(|t| counts[*t]).sum::<f64>() - draws).abs() > 0.5 {
        return (f64::INFINITY, 1.0);
    }
    let (mut chi2, mut bins, mut rest) = (0.0, 0.0, (0.0, 0.0));
    for token in kept {
        let (n, expected) = (counts[token], weight(row[token]) / sum * draws);
        if expected > 10.0 {
            chi2 += (n - expected).powi(2) / expected;
            bins += 1.0;
        } else {
            rest = (rest.0 + n, rest.1 + expected);
        }
    }
    if rest.1 > 10.0 {
        chi2 += (rest.0 - rest.1).powi(2) / rest.1;
        bins += 1.0;
    }
    (chi2, f64::max(bins - 1.0, 1.0))
}

fn draws_of(params: SamplingParams, first: u64, count: usize) -> Vec<SampleSpec> {
    (0..count as u64)
        .map(|i| SampleSpec { id: RequestId(i), seed: first + i, index: (i % 7) as u32, params })
        .collect()
}

/// Compares truncated samples one by one with the CPU's, and checks their distribution.
pub fn draws() -> Result<bool> {
    let all_params = [
        SamplingParams { temperature: 1.0, top_p: 0.9, top_k: 0 },
        SamplingParams { temperature: 0.7, top_p: 1.0, top_k: 20 },
        SamplingParams { temperature: 1.3, top_p: 0.8, top_k: 100 },
        SamplingParams { temperature: 1.0, top_p: 1e-6, top_k: 0 },
        SamplingParams { temperature: 2.0, top_p: 0.999, top_k: 50_000 },
    ];
    let mut good = true;
    for precision in [Precision::F32, Precision::Bf16] {
        let device = Cuda::new(0, precision)?;
        let on = On(&device);
        for (vocabulary, rows) in [(1003, 512), (102_400, 64)] {
            let row = numbers(31, vocabulary);
            let row: Vec<f32> = row.iter().map(|x| half::bf16::from_f32(2.0 * x).to_f32()).collect();
            let logits = on.buf(&row.repeat(rows))?;
            for params in all_params {
                let draws = draws_of(params, 5, rows);
                let got = device.draw_rows(&logits, vocabulary, &draws)?;
                let unlike = draws.iter().zip(&got).filter(|(draw, got)| {
                    let mut all: Vec<(f32, u32)> = row.iter().copied().zip(0..).collect();
                    !got.finite
                        || sample_truncated(&mut all, params, uniform(draw.seed, draw.index)) != got.token
                });
                let what =
                    format!("top_p {} top_k {}, {vocabulary}, {precision:?}", params.top_p, params.top_k);
                let allowed = rows as f64 / 50.0;
                good &= verdict(&format!("draws unlike the CPU's, {what}"), unlike.count() as f64, allowed);
                if vocabulary > 2000 {
                    continue;
                }
                let mut counts = vec![0.0; vocabulary];
                for turn in 0..200u64 {
                    let draws = draws_of(params, 1000 + turn * rows as u64, rows);
                    device
                        .draw_rows(&logits, vocabulary, &draws)?
                        .iter()
                        .for_each(|d| counts[d.token as usize] += 1.0);
                }
                let (chi2, df) = chi_square(&row, params, &counts);
                let name = format!("χ² of 102,400 draws, {df} degrees of freedom, {what}");
                good &= verdict(&name, chi2, df + 5.0 * (2.0 * df).sqrt() + 5.0);
            }
        }
    }
    Ok(good)
}
