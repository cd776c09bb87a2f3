//! Compares every CPU kernel with the f64 reference: its output, and its backward pass against central differences.

use crate::reference;
use reference::{close, dot, numbers, rounded, slope, to_f32};
use sgs_lm::device::{AdamUpdate, Heads, RowLoss};
use sgs_lm::rope::RopeTables;
use sgs_lm_cpu::gemm::{Mat, MatMut, Threads, Write, matmul};
use sgs_lm_cpu::{adam, attention, loss, norm, rope, rows, swiglu};

/// Tolerance for f32 rounding of sums of a few hundred terms.
const TOLERANCE: f64 = 2e-5;

#[test]
fn rmsnorm() {
    let (rows, width, eps) = (131, 37, 1e-5);
    let (x, w, c) =
        (rounded(&numbers(1, rows * width)), rounded(&numbers(2, width)), numbers(3, rows * width));
    let (x32, w32, c32) = (to_f32(&x), to_f32(&w), to_f32(&c));
    let (mut y, mut rstd) = (vec![0.0; rows * width], vec![0.0; rows]);
    norm::rmsnorm(&x32, &w32, eps as f32, &mut y, &mut rstd);
    let eps = f64::from(eps as f32);
    close("y", &y, &reference::rmsnorm(&x, &w, eps), TOLERANCE);

    let (mut dx, mut dw, mut partial) = (vec![1.0; rows * width], vec![2.0; width], vec![9.0; 3 * width]);
    norm::rmsnorm_backward(&c32, &x32, &rstd, &w32, &mut dx, &mut dw, &mut partial);
    let c = rounded(&c);
    let by_x = |i| 1.0 + slope(&x, i, |x| dot(&c, &reference::rmsnorm(x, &w, eps)));
    let by_w = |i| 2.0 + slope(&w, i, |w| dot(&c, &reference::rmsnorm(&x, w, eps)));
    let some: Vec<usize> = (0..x.len()).step_by(7).collect();
    let got: Vec<f32> = some.iter().map(|i| dx[*i]).collect();
    close("dx", &got, &some.iter().map(|i| by_x(*i)).collect::<Vec<_>>(), TOLERANCE);
    close("dw", &dw, &(0..width).map(by_w).collect::<Vec<_>>(), TOLERANCE);
}

#[test]
fn residual_sum_and_rmsnorm() {
    let (rows, width) = (70, 24);
    let (x, r) = (to_f32(&numbers(4, rows * width)), to_f32(&numbers(5, rows * width)));
    let w = to_f32(&numbers(6, width));
    let (mut sum, mut y, mut rstd) = (vec![0.0; rows * width], vec![0.0; rows * width], vec![0.0; rows]);
    norm::add_rmsnorm(&x, &r, &w, 1e-5, &mut sum, &mut y, &mut rstd);
    let (mut y2, mut rstd2) = (vec![0.0; rows * width], vec![0.0; rows]);
    norm::rmsnorm(&sum, &w, 1e-5, &mut y2, &mut rstd2);
    assert!(sum.iter().zip(x.iter().zip(&r)).all(|(s, (x, r))| *s == x + r));
    assert_eq!((y, rstd), (y2, rstd2));
}

#[test]
fn linear() {
    let (rows, input, output) = (9, 33, 21);
    let (x, w) = (rounded(&numbers(7, rows * input)), rounded(&numbers(8, output * input)));
    let c = rounded(&numbers(9, rows * output));
    let (x32, w32, c32) = (to_f32(&x), to_f32(&w), to_f32(&c));
    let mut y = vec![0.0; rows * output];
    let (xm, wm) = (Mat::new(&x32, rows, input), Mat::new(&w32, output, input));
    matmul(MatMut::new(&mut y, rows, output), Write::Set, 1.0, xm, wm.t(), Threads::All);
    close("y", &y, &reference::linear(&x, &w, input), TOLERANCE);
    let (mut dx, mut dw) = (vec![0.0; rows * input], vec![0.0; output * input]);
    let cm = Mat::new(&c32, rows, output);
    matmul(MatMut::new(&mut dx, rows, input), Write::Set, 1.0, cm, wm, Threads::All);
    matmul(MatMut::new(&mut dw, output, input), Write::Set, 1.0, cm.t(), xm, Threads::All);
    let by_x = |i| slope(&x, i, |x| dot(&c, &reference::linear(x, &w, input)));
    let by_w = |i| slope(&w, i, |w| dot(&c, &reference::linear(&x, w, input)));
    close("dx", &dx, &(0..x.len()).map(by_x).collect::<Vec<_>>(), TOLERANCE);
    close("dw", &dw, &(0..w.len()).map(by_w).collect::<Vec<_>>(), TOLERANCE);
}

#[test]
fn bias() {
    let (rows, width) = (130, 18);
    let (y, b, c) =
        (to_f32(&numbers(10, rows * width)), to_f32(&numbers(11, width)), numbers(12, rows * width));
    let mut moved = y.clone();
    rows::add_bias(&mut moved, &b);
    for (i, (m, y)) in moved.iter().zip(&y).enumerate() {
        assert_eq!(*m, y + b[i % width]);
    }
    let (mut db, mut partial) = (vec![0.5; width], vec![7.0; 3 * width]);
    rows::bias_backward(&to_f32(&c), &mut db, &mut partial);
    let want: Vec<f64> = (0..width).map(|j| 0.5 + (0..rows).map(|i| c[i * width + j]).sum::<f64>()).collect();
    close("db", &db, &want, TOLERANCE);
}

fn tables(dim: usize, positions: usize) -> RopeTables {
    let config =
        sgs_lm::ModelConfig { heads: 1, kv_heads: 1, head_dim: dim, ..sgs_lm::testing::small_shape() };
    RopeTables::new(&config, positions)
}

#[test]
fn rotary_positions() {
    let (rows, dim, heads, rotated) = (40, 8, 4, 3);
    let width = heads * dim;
    let positions: Vec<u32> = (0..rows as u32).map(|i| (i * 7) % 50).collect();
    let tables = tables(dim, 50);
    let (x, c) = (rounded(&numbers(13, rows * width)), rounded(&numbers(14, rows * width)));
    let turned = |x: &[f64]| reference::rope(x, width, rotated, dim, &positions, 10_000.0);
    let mut y = to_f32(&x);
    rope::rope(&mut y, width, rotated, &positions, &tables, rope::Turn::Forward);
    close("y", &y, &turned(&x), TOLERANCE);
    let mut dx = to_f32(&c);
    rope::rope(&mut dx, width, rotated, &positions, &tables, rope::Turn::Backward);
    let want: Vec<f64> = (0..x.len()).map(|i| slope(&x, i, |x| dot(&c, &turned(x)))).collect();
    close("dx", &dx, &want, TOLERANCE);
}

#[test]
fn causal_attention() {
    for (heads, kv_heads, dim, lengths) in
        [(2, 2, 8, vec![1, 5, 64, 65]), (4, 2, 4, vec![130, 3]), (3, 1, 16, vec![63, 129])]
    {
        let mut starts = vec![0];
        for length in &lengths {
            starts.push(starts.last().unwrap() + length);
        }
        let rows = *starts.last().unwrap();
        let shape = Heads { heads, kv_heads, head_dim: dim };
        let width = shape.qkv_dim();
        let qkv = rounded(&numbers(15, rows * width).iter().map(|x| 3.0 * x).collect::<Vec<_>>());
        let c = rounded(&numbers(16, rows * heads * dim));
        let qkv32 = to_f32(&qkv);
        let (mut out, mut lse) = (vec![f32::NAN; rows * heads * dim], vec![f32::NAN; rows * heads]);
        attention::attention(&qkv32, &starts, shape, &mut out, &mut lse);
        close("out", &out, &reference::attention(&qkv, &starts, heads, kv_heads, dim), TOLERANCE);

        let mut dqkv = vec![f32::NAN; rows * width];
        attention::attention_backward(&qkv32, &starts, shape, &out, &lse, &to_f32(&c), &mut dqkv);
        let sample: Vec<usize> = (0..rows * width).step_by(1 + rows * width / 150).collect();
        let want: Vec<f64> = sample
            .iter()
            .map(|i| {
                slope(&qkv, *i, |qkv| dot(&c, &reference::attention(qkv, &starts, heads, kv_heads, dim)))
            })
            .collect();
        let got: Vec<f32> = sample.iter().map(|i| dqkv[*i]).collect();
        close("dqkv", &got, &want, TOLERANCE);
        assert!(dqkv.iter().all(|x| x.is_finite()), "every element of the gradient is written");
    }
}

#[test]
fn gated_activation() {
    let (rows, width) = (31, 19);
    let x: Vec<f64> = rounded(&numbers(17, rows * 2 * width).iter().map(|x| 4.0 * x).collect::<Vec<_>>());
    let c = rounded(&numbers(18, rows * width));
    let mut gate_up = to_f32(&x);
    let mut act = vec![0.0; rows * width];
    swiglu::swiglu(&gate_up, &mut act, width);
    let want = reference::swiglu(&x, width);
    close("act", &act, &want, TOLERANCE);
    let mut dact = to_f32(&c);
    swiglu::swiglu_backward(&mut gate_up, &mut dact, width);
    close("act again", &dact, &want, TOLERANCE);
    let slopes: Vec<f64> =
        (0..x.len()).map(|i| slope(&x, i, |x| dot(&c, &reference::swiglu(x, width)))).collect();
    close("dgate_up", &gate_up, &slopes, TOLERANCE);
}

#[test]
fn loss_rows() {
    let (rows, vocabulary) = (23, 41);
    let z: Vec<f64> = rounded(&numbers(19, rows * vocabulary).iter().map(|x| 3.0 * x).collect::<Vec<_>>());
    let inputs = numbers(20, rows * 4);
    let row_of = |i: usize| loss::LossRowInput {
        target: (i * 5 % vocabulary) as u32,
        weight: inputs[4 * i] as f32,
        norm: 0.03,
        old: (inputs[4 * i + 1] * 2.0 - 4.0) as f32,
        reference: (inputs[4 * i + 2] * 2.0 - 4.0) as f32,
    };
    for (ratio_bounds, entropy_bonus, kl_penalty) in [
        (None, 0.0, 0.0),
        (Some((0.0, 4.0)), 0.0, 0.0),
        (Some((0.8, 1.2)), 0.3, 0.0),
        (None, 0.7, 0.2),
        (Some((0.0, 4.0)), 0.0, 0.5),
    ] {
        let spec = RowLoss { ratio_bounds, entropy_bonus, kl_penalty, backward: true };
        // The importance ratio is constant in the gradient, so it is computed from the original logits.
        let ratio = |i: usize| match ratio_bounds {
            None => 1.0,
            Some((low, high)) => {
                let lp = reference::log_softmax(&z[i * vocabulary..(i + 1) * vocabulary]);
                (lp[row_of(i).target as usize] - f64::from(row_of(i).old))
                    .exp()
                    .clamp(f64::from(low), f64::from(high))
            }
        };
        let row_loss = |i: usize, z: &[f64]| {
            let (row, log_p) = (row_of(i), reference::log_softmax(z));
            let lp = log_p[row.target as usize];
            let ahead = f64::from(row.reference) - lp;
            let norm = f64::from(row.norm);
            -f64::from(row.weight) * ratio(i) * lp
                - norm * f64::from(entropy_bonus) * reference::entropy(&log_p)
                + norm * f64::from(kl_penalty) * (ahead.exp() - ahead - 1.0)
        };
        let mut grad = to_f32(&z);
        let (mut log_prob, mut entropy) = (vec![0.0; rows], vec![0.0; rows]);
        loss::loss_rows(spec, vocabulary, &mut grad, row_of, &mut log_prob, &mut entropy);
        let mut want = Vec::new();
        let (mut want_log_prob, mut want_entropy) = (Vec::new(), Vec::new());
        for (i, z) in z.chunks(vocabulary).enumerate() {
            want.extend((0..vocabulary).map(|j| slope(z, j, |z| row_loss(i, z))));
            let log_p = reference::log_softmax(z);
            want_log_prob.push(log_p[row_of(i).target as usize]);
            want_entropy.push(reference::entropy(&log_p));
        }
        close("dlogits", &grad, &want, TOLERANCE);
        close("log-prob", &log_prob, &want_log_prob, TOLERANCE);
        close("entropy", &entropy, &want_entropy, TOLERANCE);

        let mut kept = to_f32(&z);
        let forward = RowLoss { backward: false, ..spec };
        let (mut again, mut entropy_again) = (vec![0.0; rows], vec![0.0; rows]);
        loss::loss_rows(forward, vocabulary, &mut kept, row_of, &mut again, &mut entropy_again);
        assert_eq!(kept, to_f32(&z), "without a backward pass the logits stay");
        close("log-prob alone", &again, &want_log_prob, TOLERANCE);
        close("entropy alone", &entropy_again, &want_entropy, TOLERANCE);
    }
}

#[test]
fn embedding_gradient_sums_repeated_tokens() {
    let (width, vocabulary) = (130, 11);
    let ids: Vec<u32> = (0..200).map(|i| (i * i % vocabulary) as u32).collect();
    let dout = numbers(21, ids.len() * width);
    let mut grad = vec![0.25f32; vocabulary * width];
    rows::embed_backward(&to_f32(&dout), &ids, width, &mut grad);
    let mut want = vec![0.25f64; vocabulary * width];
    for (row, id) in dout.chunks(width).zip(&ids) {
        for (j, x) in row.iter().enumerate() {
            want[*id as usize * width + j] += x;
        }
    }
    close("embedding gradient", &grad, &want, TOLERANCE);
}

#[test]
fn adam_follows_its_formula() {
    let n = 70_000;
    let mut p: Vec<f64> = rounded(&numbers(22, n));
    let (mut m, mut v) = (vec![0.0f64; n], vec![0.0f64; n]);
    let (mut p32, mut m32, mut v32) = (to_f32(&p), vec![0.0f32; n], vec![0.0f32; n]);
    for t in 1..=3u64 {
        let g = rounded(&numbers(22 + t, n));
        let update = AdamUpdate {
            t,
            learning_rate: 1e-2,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            gradient_scale: 0.5,
            zero_gradient: true,
        };
        let mut g32 = to_f32(&g);
        let squares = adam::sum_of_squares(&g32);
        assert!((squares - dot(&g, &g)).abs() < 1e-6 * squares);
        adam::adam_step(update, &mut p32, &mut g32, &mut m32, &mut v32);
        assert!(g32.iter().all(|g| *g == 0.0));
        for i in 0..n {
            let g = 0.5 * g[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.95 * v[i] + 0.05 * g * g;
            let (mean, second) =
                (m[i] / (1.0 - 0.9f64.powi(t as i32)), v[i] / (1.0 - 0.95f64.powi(t as i32)));
            p[i] -= 1e-2 * 0.1 * p[i] + 1e-2 * mean / (second.sqrt() + 1e-8);
        }
    }
    close("parameters", &p32, &p, TOLERANCE);
    close("first moments", &m32, &m, TOLERANCE);
    close("second moments", &v32, &v, TOLERANCE);
}
