//! A simple f64 implementation of the decoder and its losses, the reference for the kernels. It shares no code
//! with them, except for the layout of the parameter buffer.

#![allow(dead_code)]

use sgs_lm::ModelConfig;
use sgs_lm::layout::{Layout, Span};

/// Returns the central difference of `f` at `x[i]`.
pub fn slope(x: &[f64], i: usize, f: impl Fn(&[f64]) -> f64) -> f64 {
    let h = 1e-5;
    let mut moved = x.to_vec();
    moved[i] = x[i] + h;
    let up = f(&moved);
    moved[i] = x[i] - h;
    (up - f(&moved)) / (2.0 * h)
}

/// Returns reproducible numbers in `[-1, 1)`.
pub fn numbers(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(3_037_000_493);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

pub fn to_f32(x: &[f64]) -> Vec<f32> {
    x.iter().map(|x| *x as f32).collect()
}

/// Rounds numbers to f32 and converts them back.
pub fn rounded(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x as f32)).collect()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Asserts that `got` equals `want` up to `tolerance` times the largest element of `want`.
pub fn close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let peak = want.iter().fold(1e-6f64, |m, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*g) - w).abs();
        assert!(error <= tolerance * peak, "{what}[{i}]: {g} for {w}, largest {peak}");
    }
}

pub fn rmsnorm(x: &[f64], w: &[f64], eps: f64) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x.chunks(w.len()) {
        let r = 1.0 / (dot(row, row) / w.len() as f64 + eps).sqrt();
        y.extend(row.iter().zip(w).map(|(x, w)| x * r * w));
    }
    y
}

/// Computes `x wᵀ` with `w` `[output, input]`.
pub fn linear(x: &[f64], w: &[f64], input: usize) -> Vec<f64> {
    x.chunks(input).flat_map(|row| w.chunks(input).map(move |w| dot(row, w))).collect()
}

/// Rotates the first `rotated` heads of every row by its position, with the unscaled frequencies.
pub fn rope(x: &[f64], width: usize, rotated: usize, dim: usize, positions: &[u32], theta: f64) -> Vec<f64> {
    let mut y = x.to_vec();
    for (row, position) in y.chunks_mut(width).zip(positions) {
        for head in row.chunks_mut(dim).take(rotated) {
            for i in 0..dim / 2 {
                let angle = f64::from(*position) * theta.powf(-2.0 * i as f64 / dim as f64);
                let (a, b) = (head[i], head[i + dim / 2]);
                head[i] = a * angle.cos() - b * angle.sin();
                head[i + dim / 2] = b * angle.cos() + a * angle.sin();
            }
        }
    }
    y
}

pub fn attention(qkv: &[f64], starts: &[usize], heads: usize, kv_heads: usize, dim: usize) -> Vec<f64> {
    let width = (heads + 2 * kv_heads) * dim;
    let head_of = |row: usize, head: usize| &qkv[row * width + head * dim..row * width + (head + 1) * dim];
    let mut out = Vec::new();
    for span in starts.windows(2) {
        for i in span[0]..span[1] {
            for h in 0..heads {
                let kv = h / (heads / kv_heads);
                let scores: Vec<f64> = (span[0]..=i)
                    .map(|j| dot(head_of(i, h), head_of(j, heads + kv)) / (dim as f64).sqrt())
                    .collect();
                let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - peak).exp()).sum();
                for c in 0..dim {
                    let terms = scores.iter().enumerate();
                    let sum: f64 = terms
                        .map(|(j, s)| (s - peak).exp() * head_of(span[0] + j, heads + kv_heads + kv)[c])
                        .sum();
                    out.push(sum / total);
                }
            }
        }
    }
    out
}

pub fn swiglu(gate_up: &[f64], width: usize) -> Vec<f64> {
    let mut act = Vec::new();
    for row in gate_up.chunks(2 * width) {
        for i in 0..width {
            act.push(row[i] / (1.0 + (-row[i]).exp()) * row[width + i]);
        }
    }
    act
}

/// Returns the log-probabilities of all outcomes.
pub fn log_softmax(z: &[f64]) -> Vec<f64> {
    let peak = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let lse = peak + z.iter().map(|z| (z - peak).exp()).sum::<f64>().ln();
    z.iter().map(|z| z - lse).collect()
}

pub fn entropy(log_p: &[f64]) -> f64 {
    -log_p.iter().map(|l| l.exp() * l).sum::<f64>()
}

/// Computes the logits `[tokens, vocabulary]` of packed sequences, with unscaled rotary frequencies.
pub fn logits(
    config: &ModelConfig,
    layout: &Layout,
    params: &[f64],
    tokens: &[u32],
    starts: &[usize],
) -> Vec<f64> {
    let (d, f, eps) = (config.hidden_size, config.intermediate_size, f64::from(config.norm_eps));
    let p = |span: Span| &params[span.range()];
    let positions: Vec<u32> = starts.windows(2).flat_map(|w| 0..(w[1] - w[0]) as u32).collect();
    let mut x: Vec<f64> = Vec::new();
    for token in tokens {
        x.extend_from_slice(&p(layout.embed)[*token as usize * d..(*token as usize + 1) * d]);
    }
    for layer in &layout.layers {
        let mut qkv = linear(&rmsnorm(&x, p(layer.input_norm), eps), p(layer.qkv), d);
        if let Some(bias) = layer.qkv_bias {
            for row in qkv.chunks_mut(config.qkv_dim()) {
                row.iter_mut().zip(p(bias)).for_each(|(y, b)| *y += b);
            }
        }
        let rotated = config.heads + config.kv_heads;
        if let Some(norm) = layer.qk_norm {
            for row in qkv.chunks_mut(config.qkv_dim()) {
                for (h, head) in row.chunks_mut(config.head_dim).take(rotated).enumerate() {
                    let (query, key) = p(norm).split_at(config.head_dim);
                    head.copy_from_slice(&rmsnorm(head, if h < config.heads { query } else { key }, eps));
                }
            }
        }
        let qkv = rope(&qkv, config.qkv_dim(), rotated, config.head_dim, &positions, config.rope_theta);
        let heads = attention(&qkv, starts, config.heads, config.kv_heads, config.head_dim);
        let branch = linear(&heads, p(layer.o), config.q_dim());
        x.iter_mut().zip(&branch).for_each(|(x, b)| *x += b);
        let gate_up = linear(&rmsnorm(&x, p(layer.post_norm), eps), p(layer.gate_up), d);
        let branch = linear(&swiglu(&gate_up, f), p(layer.down), f);
        x.iter_mut().zip(&branch).for_each(|(x, b)| *x += b);
    }
    linear(&rmsnorm(&x, p(layout.final_norm), eps), p(layout.head), d)
}
