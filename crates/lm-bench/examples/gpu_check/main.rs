//! Compares the results of the GPU with those of the CPU, and measures the GPU's speed. Requires a GPU.
//!
//! Usage: `gpu_check [SECTION...]`. Sections: `kernels`, `vectors FOLDER`, `training`, `paged`, `draws`,
//! `sampling`, `layer`, `attention`, `operations`, `algorithms`, `step`, `profile LAYERS`, `decode BATCH[,LONG[,LAYERS]]`,
//! `mixed`, `rounds`, `rollouts`, `updates`. Without sections it runs most of those that need no argument.
//! Every line ends with `ok` or `FAILED`; the exit code is 1 if a check failed.

#![allow(clippy::print_stdout, missing_docs)]

#[path = "../../tests/it/check.rs"]
mod check;
mod decoding;
mod masters;
mod paged;
#[path = "../common/requests.rs"]
mod requests;
mod small;
mod steps;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use check::Tolerances;
use sgs_base::random::SeededRng;
use sgs_lm::device::{AdamUpdate, Device, Heads, Linear, LossRows, RowLoss, Write, first, first_mut};
use sgs_lm::host_buffer::HostBuffer;
use sgs_lm::layout::Layout;
use sgs_lm::loss::{LossConfig, Normaliser, Objective, TrainExample};
use sgs_lm::model::{Mode, Model, Workspace};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::pack::{LossRow, Packed};
use sgs_lm::rope::RopeTables;
use sgs_lm::shard::Shard;
use sgs_lm::testing::small_shape;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::HostWeights;
use sgs_lm::{ModelConfig, Result};
use sgs_lm_cpu::Cpu;
use sgs_lm_cuda::AttentionVariant;
use sgs_lm_cuda::{Cuda, Precision};
use sgs_lm_sampler::{
    Decode, Request, RequestId, SampledCompletion, Sampler, SamplerOptions, SamplingParams,
};

/// Peak throughput of an H100 or H200 for dense bfloat16 products, in operations per second.
const PEAK: f64 = 989e12;

fn main() -> std::process::ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        arguments = [
            "kernels",
            "training",
            "paged",
            "draws",
            "sampling",
            "layer",
            "attention",
            "operations",
            "step",
            "mixed",
        ]
        .map(str::to_owned)
        .to_vec();
    }
    let mut rest = arguments.iter().map(String::as_str);
    let mut good = true;
    while let Some(section) = rest.next() {
        println!("== {section}");
        let started = Instant::now();
        let outcome = match section {
            "kernels" => kernels(),
            "vectors" => vectors(rest.next().unwrap_or(".")),
            "training" => training(),
            "paged" => paged::attention(),
            "draws" => paged::draws(),
            "sampling" => sampling(),
            "layer" => layer(),
            "attention" => attention_speed(),
            "operations" => operations(),
            "step" => steps::step(),
            "algorithms" => algorithms(),
            "profile" => steps::profile(rest.next().and_then(|n| n.parse().ok()).unwrap_or(30)),
            "mixed" => decoding::mixed(),
            "rollouts" => small::rollouts(),
            "rounds" => small::sampling(),
            "updates" => small::updates(),
            "decode" => decoding::decode(rest.next().unwrap_or("64")),
            other => {
                println!("no section {other}: FAILED");
                Ok(false)
            }
        };
        good &= outcome.unwrap_or_else(|error| {
            println!("{section}: {error}: FAILED");
            false
        });
        println!("-- {section}: {:.1} s", started.elapsed().as_secs_f64());
    }
    std::process::ExitCode::from(u8::from(!good))
}

/// Prints a line with its verdict; returns whether the check passed.
fn verdict(name: &str, error: f64, allowed: f64) -> bool {
    let good = error <= allowed;
    println!("{name:<58} {error:>9.2e} of {allowed:.0e} {}", if good { "ok" } else { "FAILED" });
    good
}

/// Returns `‖got - want‖ / ‖want‖`; infinite if there is a NaN.
fn distance(got: &[f32], want: &[f32]) -> f64 {
    let squares = |it: &mut dyn Iterator<Item = f64>| it.map(|x| x * x).sum::<f64>();
    let error = squares(&mut got.iter().zip(want).map(|(g, w)| f64::from(*g) - f64::from(*w)));
    let whole = squares(&mut want.iter().map(|w| f64::from(*w)));
    let ratio = (error / whole.max(1e-30)).sqrt();
    if got.len() == want.len() && !ratio.is_nan() { ratio } else { f64::INFINITY }
}

/// Returns normally distributed numbers that bfloat16 represents exactly.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut rng = SeededRng::stream(seed, 0);
    (0..n).map(|_| half::bf16::from_f32(rng.normal()).to_f32()).collect()
}

/// Results of a device, by name.
type Results = Vec<(String, Vec<f32>)>;

/// Copies data between the host and a device's buffers.
struct On<'a, D: Device>(&'a D);

impl<D: Device> On<'_, D> {
    fn buf(&self, values: &[f32]) -> Result<D::Buf> {
        self.0.upload(HostBuffer::from_slice(values))
    }

    /// Creates a buffer of NaN, all of which must be overwritten.
    fn poisoned(&self, n: usize) -> Result<D::Buf> {
        self.buf(&vec![1e30; n])
    }

    fn ints(&self, values: &[u32]) -> Result<D::Ints> {
        let mut ints = self.0.ints(values.len())?;
        self.0.write_ints(values, first_mut(&mut ints, values.len()))?;
        Ok(ints)
    }

    fn stat(&self, values: &[f32]) -> Result<D::Stat> {
        let mut stat = self.0.stat(values.len())?;
        self.0.write_stat(values, first_mut(&mut stat, values.len()))?;
        Ok(stat)
    }

    fn read(&self, buf: &D::Buf, n: usize) -> Result<Vec<f32>> {
        let mut host = vec![0.0; n];
        self.0.read_buf(first(buf, n), &mut host)?;
        Ok(host)
    }

    fn read_grad(&self, grad: &D::Grad, n: usize) -> Result<Vec<f32>> {
        let mut host = vec![0.0; n];
        self.0.read_grad(first(grad, n), &mut host)?;
        Ok(host)
    }

    fn read_stat(&self, stat: &D::Stat, n: usize) -> Result<Vec<f32>> {
        let mut host = vec![0.0; n];
        self.0.read_stat(first(stat, n), &mut host)?;
        Ok(host)
    }
}

fn row_kernels<D: Device>(device: &D, rows: usize, width: usize, out: &mut Results) -> Result<()> {
    let on = On(device);
    let n = rows * width;
    let mut keep = |name: &str, values: Vec<f32>| out.push((format!("{name} {rows}x{width}"), values));
    let (a, b, w) = (on.buf(&numbers(1, n))?, on.buf(&numbers(2, n))?, on.buf(&numbers(3, width))?);
    let ids: Vec<u32> = (0..rows).map(|i| ((i * i * 7) % (rows.div_ceil(3))) as u32).collect();
    let ids_on = on.ints(&ids)?;
    let mut y = on.poisoned(n)?;
    device.gather(first(&a, n), first(&ids_on, rows), width, first_mut(&mut y, n))?;
    keep("gather", on.read(&y, n)?);
    let reversed: Vec<u32> = (0..rows as u32).rev().collect();
    let reversed = on.ints(&reversed)?;
    device.scatter(first(&a, n), first(&reversed, rows), width, first_mut(&mut y, n))?;
    keep("scatter", on.read(&y, n)?);
    let mut grad = device.grad(n)?;
    for _ in 0..2 {
        device.embed_backward(first(&a, n), first(&ids_on, rows), width, first_mut(&mut grad, n))?;
    }
    keep("embed_backward", on.read_grad(&grad, n)?);
    keep("sum_of_squares", vec![device.sum_of_squares(&grad)?.sqrt() as f32]);
    device.add(first(&a, n), first(&b, n), first_mut(&mut y, n))?;
    keep("add", on.read(&y, n)?);
    device.add_bias(first_mut(&mut y, n), first(&w, width))?;
    keep("add_bias", on.read(&y, n)?);
    let mut partial = device.stat(rows.div_ceil(64) * width)?;
    let mut db = device.grad(width)?;
    device.bias_backward(first(&a, n), first_mut(&mut db, width), &mut partial)?;
    keep("bias_backward", on.read_grad(&db, width)?);

    let mut rstd = device.stat(rows)?;
    device.rmsnorm(first(&a, n), first(&w, width), 1e-5, first_mut(&mut y, n), &mut rstd)?;
    keep("rmsnorm", on.read(&y, n)?);
    keep("rmsnorm rstd", on.read_stat(&rstd, rows)?);
    let (mut dx, mut dw) = (on.buf(&numbers(4, n))?, device.grad(width)?);
    let (dy, dw_part) = (first(&b, n), first_mut(&mut dw, width));
    device.rmsnorm_backward(
        dy,
        first(&a, n),
        &rstd,
        first(&w, width),
        first_mut(&mut dx, n),
        dw_part,
        &mut partial,
    )?;
    keep("rmsnorm_backward dx", on.read(&dx, n)?);
    keep("rmsnorm_backward dw", on.read_grad(&dw, width)?);
    let mut sum = on.poisoned(n)?;
    let (x, r, w) = (first(&a, n), first(&b, n), first(&w, width));
    device.add_rmsnorm(x, r, w, 1e-5, first_mut(&mut sum, n), first_mut(&mut y, n), &mut rstd)?;
    keep("add_rmsnorm sum", on.read(&sum, n)?);
    keep("add_rmsnorm y", on.read(&y, n)?);

    let mut gate_up = on.buf(&numbers(5, 2 * n))?;
    device.swiglu(first(&gate_up, 2 * n), width, first_mut(&mut y, n))?;
    keep("swiglu", on.read(&y, n)?);
    let mut act = on.buf(&numbers(6, n))?;
    device.swiglu_backward(first_mut(&mut gate_up, 2 * n), width, first_mut(&mut act, n))?;
    keep("swiglu_backward gate_up", on.read(&gate_up, 2 * n)?);
    keep("swiglu_backward act", on.read(&act, n)?);
    Ok(())
}

fn products<D: Device>(device: &D, size: Linear, out: &mut Results) -> Result<()> {
    let on = On(device);
    let Linear { rows, input, output } = size;
    let mut keep = |name: &str, values| out.push((format!("{name} {rows}x{input}x{output}"), values));
    let (x, w) = (on.buf(&numbers(7, rows * input))?, on.buf(&numbers(8, output * input))?);
    let dy = on.buf(&numbers(9, rows * output))?;
    let (nx, nw, ny) = (rows * input, input * output, rows * output);
    let (mut y, mut dx, mut dw) = (on.poisoned(ny)?, on.poisoned(nx)?, device.grad(nw)?);
    device.linear(size, first(&x, nx), first(&w, nw), first_mut(&mut y, ny))?;
    keep("linear", on.read(&y, ny)?);
    device.linear_dx(size, first(&dy, ny), first(&w, nw), first_mut(&mut dx, nx))?;
    keep("linear_dx", on.read(&dx, nx)?);
    for _ in 0..2 {
        device.linear_dw(size, Write::Add, first(&dy, ny), first(&x, nx), first_mut(&mut dw, nw))?;
    }
    keep("linear_dw", on.read_grad(&dw, nw)?);
    device.linear_dw(size, Write::Set, first(&dy, ny), first(&x, nx), first_mut(&mut dw, nw))?;
    keep("linear_dw over what was there", on.read_grad(&dw, nw)?);
    Ok(())
}

fn attention<D: Device>(device: &D, heads: Heads, lengths: &[usize], out: &mut Results) -> Result<()> {
    let on = On(device);
    let mut starts = vec![0];
    lengths.iter().for_each(|l| starts.push(starts.last().copied().unwrap_or(0) + l));
    let rows = lengths.iter().sum::<usize>();
    let (wide, narrow) = (rows * heads.qkv_dim(), rows * heads.heads * heads.head_dim);
    let what = format!("{}/{} heads of {}, lengths {lengths:?}", heads.heads, heads.kv_heads, heads.head_dim);
    let mut keep = |name: &str, values| out.push((format!("{name}, {what}"), values));
    let config = ModelConfig { head_dim: heads.head_dim, ..small_shape() };
    let tables = device.rope_tables(RopeTables::new(&config, 2048))?;
    let positions: Vec<u32> = lengths.iter().flat_map(|l| 0..*l as u32).collect();
    let positions = on.ints(&positions)?;
    let mut qkv = on.buf(&numbers(10, wide))?;
    device.rope(first_mut(&mut qkv, wide), heads, first(&positions, rows), &tables, false)?;
    keep("rope", on.read(&qkv, wide)?);
    device.rope(first_mut(&mut qkv, wide), heads, first(&positions, rows), &tables, true)?;
    keep("rope backward", on.read(&qkv, wide)?);
    let n = 2 * heads.head_dim;
    let (raw, w) = (on.buf(&numbers(20, wide))?, on.buf(&numbers(21, n))?);
    let (mut normed, mut dw) = (on.poisoned(wide)?, device.grad(n)?);
    device.head_norm(first(&raw, wide), heads, first(&w, n), 1e-6, first_mut(&mut normed, wide))?;
    keep("head_norm", on.read(&normed, wide)?);
    let (mut dqkv, mut partial) = (on.buf(&numbers(22, wide))?, device.stat(rows.div_ceil(64) * n)?);
    let (from, to) = (first(&raw, wide), first_mut(&mut dqkv, wide));
    device.head_norm_backward(from, heads, first(&w, n), 1e-6, to, first_mut(&mut dw, n), &mut partial)?;
    keep("head_norm_backward dqkv", on.read(&dqkv, wide)?);
    keep("head_norm_backward dw", on.read_grad(&dw, n)?);
    // Compare attention alone, from the same inputs on every device.
    let qkv = on.buf(&numbers(10, wide))?;
    let (mut y, mut lse) = (on.poisoned(narrow)?, device.stat(rows * heads.heads)?);
    device.attention(first(&qkv, wide), &starts, heads, first_mut(&mut y, narrow), &mut lse)?;
    keep("attention", on.read(&y, narrow)?);
    keep("attention lse", on.read_stat(&lse, rows * heads.heads)?);
    let (dout, mut dqkv) = (on.buf(&numbers(11, narrow))?, on.poisoned(wide)?);
    let (dout, y) = (first(&dout, narrow), first(&y, narrow));
    device.attention_backward(
        first(&qkv, wide),
        &starts,
        heads,
        y,
        &lse,
        dout,
        first_mut(&mut dqkv, wide),
    )?;
    let whole = on.read(&dqkv, wide)?;
    let q = heads.heads * heads.head_dim;
    let kv = heads.kv_heads * heads.head_dim;
    for (name, from, to) in [("dq", 0, q), ("dk", q, q + kv), ("dv", q + kv, q + 2 * kv)] {
        let part = whole.chunks_exact(heads.qkv_dim()).flat_map(|row| row[from..to].to_vec()).collect();
        keep(&format!("attention_backward {name}"), part);
    }
    Ok(())
}

fn losses<D: Device>(device: &D, rows: usize, vocabulary: usize, out: &mut Results) -> Result<()> {
    let on = On(device);
    let mut rng = SeededRng::stream(12, 0);
    let targets: Vec<u32> = (0..rows).map(|_| rng.index(vocabulary) as u32).collect();
    let targets = on.ints(&targets)?;
    let positive = |seed| numbers(seed, rows).iter().map(|x| -x.abs() - 2.0).collect::<Vec<f32>>();
    let (weight, norm) = (on.stat(&numbers(13, rows))?, on.stat(&numbers(14, rows))?);
    let (old, reference) = (on.stat(&positive(15))?, on.stat(&positive(16))?);
    let (mut log_prob, mut entropy) = (device.stat(rows)?, device.stat(rows)?);
    let n = rows * vocabulary;
    for (name, loss) in [
        ("plain", RowLoss { ratio_bounds: None, entropy_bonus: 0.0, kl_penalty: 0.0, backward: true }),
        (
            "all",
            RowLoss { ratio_bounds: Some((0.0, 4.0)), entropy_bonus: 0.1, kl_penalty: 0.2, backward: true },
        ),
    ] {
        let mut logits = on.buf(&numbers(17, n))?;
        let parts = LossRows {
            targets: first(&targets, rows),
            weight: first(&weight, rows),
            norm: first(&norm, rows),
            old: first(&old, rows),
            reference: first(&reference, rows),
            log_prob: first_mut(&mut log_prob, rows),
            entropy: first_mut(&mut entropy, rows),
        };
        device.loss_rows(loss, vocabulary, first_mut(&mut logits, n), parts)?;
        out.push((format!("loss {name} gradient, vocabulary {vocabulary}"), on.read(&logits, n)?));
        out.push((format!("loss {name} log_prob, vocabulary {vocabulary}"), on.read_stat(&log_prob, rows)?));
        out.push((format!("loss {name} entropy, vocabulary {vocabulary}"), on.read_stat(&entropy, rows)?));
    }
    Ok(())
}

fn adam<D: Device>(device: &D, weight_decay: f64, out: &mut Results) -> Result<()> {
    let on = On(device);
    let config =
        ModelConfig { vocab_size: 13, hidden_size: 12, intermediate_size: 20, head_dim: 3, ..small_shape() };
    let layout = Layout::new(&config);
    let n = layout.len;
    let mut params = on.buf(&numbers(18, n))?;
    let shard = Shard::whole(n);
    let mut state = device.adam(&shard)?;
    let mut grad = device.grad(n)?;
    let ids = on.ints(&(0..n as u32).collect::<Vec<_>>())?;
    for t in 1..4 {
        let values = on.buf(&numbers(18 + t, n))?;
        // An embedding of width 1 with the identity copies numbers to a gradient.
        device.embed_backward(first(&values, n), first(&ids, n), 1, first_mut(&mut grad, n))?;
        let update = AdamUpdate {
            t,
            learning_rate: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay,
            gradient_scale: 0.7,
            zero_gradient: true,
        };
        device.adam_step(update, &layout, shard.pieces[0], &mut params, &mut grad, &mut state)?;
    }
    let host = device.adam_to_host(&params, &state)?;
    out.push((format!("adam parameters, decay {weight_decay}"), on.read(&params, n)?));
    out.push((format!("adam m, decay {weight_decay}"), host.m.to_vec()));
    out.push((format!("adam v, decay {weight_decay}"), host.v.to_vec()));
    out.push((format!("adam gradients zeroed, decay {weight_decay}"), on.read_grad(&grad, n)?));
    Ok(())
}

/// Runs attention with heads for every set of kernels, and with lengths near multiples of tiles.
fn attentions<D: Device>(device: &D) -> Result<Results> {
    let mut out = Results::new();
    for (heads, kv_heads, head_dim, lengths) in [
        (4, 2, 16, &[1, 16, 17, 127, 128, 129][..]),
        (2, 2, 64, &[300, 63, 64, 65, 1]),
        (4, 2, 64, &[1, 127, 128, 129, 1030]),
        (4, 1, 128, &[257, 40]),
        (2, 2, 128, &[512]),
        (4, 2, 128, &[1000, 1, 63, 64, 65, 127, 128, 129, 1537]),
        // This case has more tiles than multiprocessors.
        (8, 2, 128, &[129; 24]),
        (3, 3, 48, &[100, 30]),
        (2, 1, 96, &[150, 129]),
        (2, 1, 20, &[70, 33]),
        (2, 2, 160, &[90]),
    ] {
        device.run(|| attention(device, Heads { heads, kv_heads, head_dim }, lengths, &mut out))?;
    }
    Ok(out)
}

fn all_kernels<D: Device>(device: &D) -> Result<Results> {
    let mut out = Results::new();
    let results = &mut out;
    device.run(|| {
        for (rows, width) in [(131, 37), (200, 64), (70, 4096), (5, 6008), (300, 1000), (3, 16384)] {
            row_kernels(device, rows, width, results)?;
        }
        for (rows, input, output) in [(129, 64, 96), (256, 512, 384), (64, 128, 101), (17, 24, 40)] {
            products(device, Linear { rows, input, output }, results)?;
        }
        for (rows, vocabulary) in [(9, 101), (5, 4096), (3, 32_003)] {
            losses(device, rows, vocabulary, results)?;
        }
        adam(device, 0.0, results)?;
        adam(device, 0.1, results)
    })?;
    out.extend(attentions(device)?);
    Ok(out)
}

/// Compares every kernel with the CPU's, for the same inputs.
fn kernels() -> Result<bool> {
    let cpu = Cpu::new(0)?;
    let want = all_kernels(&cpu)?;
    let mut good = true;
    for (precision, allowed) in [(Precision::F32, 2e-5), (Precision::Bf16, 1e-2)] {
        let device = Cuda::new(0, precision)?;
        println!("{}", device.name());
        good &= compare(&want, allowed, || all_kernels(&device))?;
        if device.attention_variant(128) == AttentionVariant::Hopper {
            println!("attention of GPUs other than Hopper");
            device.limit_attention(AttentionVariant::Tensor);
            good &= compare(&attentions(&cpu)?, allowed, || attentions(&device))?;
        }
    }
    Ok(masters::check()? && good)
}

/// Compares results with the CPU's, and with those of a second run, because no sum may depend on the order of blocks.
fn compare(want: &Results, allowed: f64, results: impl Fn() -> Result<Results>) -> Result<bool> {
    let (mut good, mut worst) = (true, 0.0f64);
    let got = results()?;
    for ((name, got), (_, want)) in got.iter().zip(want) {
        let error = distance(got, want);
        if error > allowed {
            good &= verdict(name, error, allowed);
        }
        worst = worst.max(error);
    }
    println!("{} results", got.len());
    good &= got.len() == want.len() && verdict("worst of all kernels", worst, allowed);
    let again = results()?;
    let differ =
        again.iter().zip(&got).filter(|(a, b)| a.1.iter().zip(&b.1).any(|(a, b)| a.to_bits() != b.to_bits()));
    let names: Vec<&str> = differ.map(|(a, _)| a.0.as_str()).collect();
    names.iter().for_each(|name| println!("other bits the second time: {name}"));
    Ok(verdict("results that differ the second time", names.len() as f64, 0.0) && good)
}

/// Checks model folders with recorded numbers.
fn vectors(folder: &str) -> Result<bool> {
    let mut good = true;
    for (precision, tolerances) in
        [(Precision::F32, Tolerances::default()), (Precision::Bf16, Tolerances::bf16())]
    {
        let device = Arc::new(Cuda::new(0, precision)?);
        for name in
            ["llama_mha", "llama_gqa_tied", "llama_yarn", "qwen2_bias", "qwen3", "qwen3_tied", "mistral"]
        {
            let report = check::run(&Path::new(folder).join(name), Arc::clone(&device), tolerances)?;
            println!("{name} on {}\n{report}", device.name());
            good &= report.passes();
        }
    }
    Ok(good)
}

/// Creates weights that bfloat16 represents exactly.
fn rounded_weights(config: &ModelConfig, seed: u64) -> HostWeights {
    let mut weights = HostWeights::random(config, seed);
    let mut rng = SeededRng::stream(seed, 99);
    for w in weights.data.iter_mut() {
        *w = half::bf16::from_f32(*w + 0.03 * rng.normal()).to_f32();
    }
    weights
}

fn examples(vocabulary: usize, count: usize, longest: usize, seed: u64) -> Vec<TrainExample> {
    let mut rng = SeededRng::stream(seed, 0);
    (0..count)
        .map(|i| {
            let len = 2 + (i * 37 + 11) % longest;
            // Use a random walk with few choices, so that there is something to learn.
            let mut token = rng.index(vocabulary);
            let tokens = (0..len)
                .map(|_| {
                    token = (token * 5 + 1 + rng.index(3)) % vocabulary;
                    token as u32
                })
                .collect();
            TrainExample {
                tokens,
                prompt_len: 1,
                weight: rng.normal(),
                sampled_log_probs: (1..len).map(|_| -4.0 - rng.uniform() as f32 * 4.0).collect(),
                reference_log_probs: (1..len).map(|_| -4.0 - rng.uniform() as f32 * 4.0).collect(),
                ..TrainExample::default()
            }
        })
        .collect()
}

fn gradient<D: Device>(device: Arc<D>, config: &ModelConfig, mode: Mode) -> Result<(f64, Vec<f32>)> {
    let model = Model::new(Arc::clone(&device), rounded_weights(config, 5), 2048)?;
    let mut trainer = Trainer::new(device, config, 700, mode)?;
    let examples = examples(config.vocab_size, 12, 300, 3);
    let batch: Vec<&TrainExample> = examples.iter().collect();
    let mut loss = LossConfig::new(Objective::Cispo { eps_low: 1.0, eps_high: 3.0 }, Normaliser::Sequence);
    loss.entropy_bonus = 0.05;
    loss.kl_penalty = 0.1;
    let stats = trainer.loss_and_gradient(&model, &batch, &loss)?;
    Ok((stats.loss, trainer.gradient(&model)?.to_vec()))
}

fn curve<D: Device>(device: Arc<D>, config: &ModelConfig, steps: usize) -> Result<Vec<f64>> {
    let model = Model::new(Arc::clone(&device), HostWeights::random(config, 5), 2048)?;
    let mut policy = Policy::new(model)?;
    let mut trainer = Trainer::new(device, config, 1024, Mode::Train)?;
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig { learning_rate: 2e-3, ..AdamConfig::default() },
        schedule: LrSchedule::Warmup { steps: 20 },
        batch_size: 16,
        shuffle_seed: None,
    };
    (0..steps)
        .map(|step| {
            let examples = examples(config.vocab_size, 16, 100, 100 + step as u64);
            let batch: Vec<&TrainExample> = examples.iter().collect();
            Ok(trainer.step(&mut policy, &batch, &options)?.stats.loss)
        })
        .collect()
}

/// Compares the gradients of a whole model and the losses of 200 steps with the CPU's.
fn training() -> Result<bool> {
    let cpu = Arc::new(Cpu::new(0)?);
    let shapes = [
        ModelConfig { layers: 3, kv_heads: 2, ..small_shape() },
        ModelConfig {
            layers: 2,
            hidden_size: 384,
            heads: 3,
            kv_heads: 3,
            head_dim: 128,
            tied_head: true,
            ..small_shape()
        },
        ModelConfig {
            layers: 2,
            hidden_size: 96,
            heads: 4,
            kv_heads: 2,
            head_dim: 24,
            qkv_bias: true,
            ..small_shape()
        },
        ModelConfig { layers: 2, kv_heads: 2, head_dim: 128, qk_norm: true, ..small_shape() },
    ];
    let mut good = true;
    let small = ModelConfig {
        layers: 2,
        hidden_size: 128,
        heads: 2,
        kv_heads: 2,
        intermediate_size: 384,
        ..small_shape()
    };
    let want = curve(Arc::clone(&cpu), &small, 200)?;
    for (precision, allowed) in [(Precision::F32, 1e-4), (Precision::Bf16, 3e-2)] {
        let device = Arc::new(Cuda::new(0, precision)?);
        println!("{}", device.name());
        for config in &shapes {
            let (want_loss, want) = gradient(Arc::clone(&cpu), config, Mode::Train)?;
            for mode in [Mode::Train, Mode::TrainRecompute { kept: 0 }, Mode::TrainRecompute { kept: 1 }] {
                let (loss, got) = gradient(Arc::clone(&device), config, mode)?;
                let what = format!("{mode:?}, {} heads of {}", config.heads, config.head_dim);
                good &= verdict(
                    &format!("loss, {what}"),
                    (loss - want_loss).abs() / want_loss.abs().max(1.0),
                    allowed,
                );
                good &= verdict(&format!("gradient, {what}"), distance(&got, &want), allowed);
                let layout = Layout::new(config);
                let errors = layout
                    .tensors
                    .iter()
                    .map(|t| (distance(&got[t.span.range()], &want[t.span.range()]), t.name.as_str()));
                let worst = errors.fold((0.0, ""), |a, b| if b.0 > a.0 { b } else { a });
                good &= verdict(&format!("worst tensor, {what}: {}", worst.1), worst.0, 3.0 * allowed);
            }
        }
        let got = curve(Arc::clone(&device), &small, 200)?;
        let gaps = got.iter().zip(&want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
        let at = |i: usize| format!("{:.4}/{:.4}", got[i], want[i]);
        println!("losses GPU/CPU at steps 0, 50, 100, 199: {} {} {} {}", at(0), at(50), at(100), at(199));
        good &=
            verdict("largest gap of 200 losses", gaps, if precision == Precision::F32 { 2e-2 } else { 5e-2 });
    }
    Ok(good)
}

fn requests(vocabulary: usize, temperature: f32) -> Vec<Request> {
    let lengths = [1, 2, 15, 16, 17, 18, 33, 63, 64, 65, 66, 70, 7, 200];
    (0..3 * lengths.len())
        .map(|id| Request {
            id: RequestId(id as u64),
            prompt: (0..lengths[id / 3]).map(|t| ((t * 7 + id / 3 * 3) % vocabulary) as u32).collect(),
            seed: 1000 + id as u64,
            max_new_tokens: 5 + (id * 5) % 40,
            params: SamplingParams {
                temperature,
                top_k: if id % 7 == 6 { 20 } else { 0 },
                ..SamplingParams::default()
            },
            stop: Arc::from([3]),
        })
        .collect()
}

fn completions<D: Decode>(
    model: &Model<D>,
    batch: usize,
    temperature: f32,
) -> Result<Vec<SampledCompletion>> {
    let options =
        SamplerOptions { memory_budget_bytes: 512 << 20, max_batch: batch, ..SamplerOptions::default() };
    let fail = |e: sgs_lm_sampler::SamplerError| sgs_lm::LmError::Input(e.to_string());
    let mut sampler = Sampler::new(model, &options).map_err(fail)?;
    let mut done = Vec::new();
    sampler
        .run(model, requests(model.config.vocab_size, temperature), |_, completion| done.push(completion))
        .map_err(fail)?;
    done.sort_by_key(|c| c.id);
    Ok(done)
}

/// Compares completions with the CPU's, and their log-probabilities with the trainer's.
fn sampling() -> Result<bool> {
    let mut good = true;
    let cpu = Arc::new(Cpu::new(0)?);
    for config in [
        ModelConfig { layers: 2, kv_heads: 2, ..small_shape() },
        ModelConfig { layers: 2, hidden_size: 512, heads: 4, kv_heads: 4, head_dim: 128, ..small_shape() },
        ModelConfig {
            layers: 2,
            hidden_size: 96,
            heads: 4,
            kv_heads: 1,
            head_dim: 24,
            qkv_bias: true,
            ..small_shape()
        },
        ModelConfig { layers: 2, kv_heads: 2, head_dim: 128, qk_norm: true, ..small_shape() },
    ] {
        let on_cpu = Model::new(Arc::clone(&cpu), rounded_weights(&config, 8), 2048)?;
        for precision in [Precision::F32, Precision::Bf16] {
            let device = Arc::new(Cuda::new(0, precision)?);
            let model = Model::new(Arc::clone(&device), rounded_weights(&config, 8), 2048)?;
            let what = format!("{} heads of {}, {precision:?}", config.heads, config.head_dim);
            for temperature in [0.0, 1.0] {
                let want = completions(&on_cpu, 16, temperature)?;
                let got = completions(&model, 16, temperature)?;
                let same = got.iter().zip(&want).filter(|(g, w)| g.tokens == w.tokens).count();
                // A sample near a boundary can be rounded to the other side; with bfloat16, the rest of the
                // completion then differs.
                let least = if precision == Precision::F32 { got.len() * 9 / 10 } else { 0 };
                let name = format!("completions unlike the CPU's, T={temperature}, {what}");
                good &= verdict(&name, (got.len() - same) as f64, (got.len() - least) as f64);
                let mut trainer = Trainer::new(Arc::clone(&device), &config, 1024, Mode::Infer)?;
                let asked = requests(config.vocab_size, temperature);
                let whole: Vec<Vec<u32>> =
                    asked.iter().zip(&got).map(|(r, c)| [&r.prompt[..], &c.tokens[..]].concat()).collect();
                let pairs = whole.iter().zip(&asked).map(|(tokens, r)| (&tokens[..], r.prompt.len()));
                let forced = trainer.log_probs(&model, pairs)?;
                let (mut gap, mut entropy_gap) = (0.0f64, 0.0f64);
                for (c, f) in got.iter().zip(&forced) {
                    for (a, b) in c.log_probs.iter().zip(&f.log_probs) {
                        gap = gap.max(f64::from((a - b).abs()));
                    }
                    for (a, b) in c.entropies.iter().zip(&f.entropies) {
                        entropy_gap = entropy_gap.max(f64::from((a - b).abs()));
                    }
                }
                let allowed = if precision == Precision::F32 { 1e-4 } else { 1e-1 };
                good &= verdict(
                    &format!("log-probs of sampler and trainer, T={temperature}, {what}"),
                    gap,
                    allowed,
                );
                good &= verdict(&format!("entropies of sampler and trainer, {what}"), entropy_gap, allowed);
                let alone = completions(&model, 3, temperature)?;
                let same = alone.iter().zip(&got).filter(|(a, b)| a.tokens == b.tokens).count();
                println!(
                    "completions that a batch of 3 changes, {what}: {} of {}",
                    got.len() - same,
                    got.len()
                );
            }
        }
    }
    Ok(good)
}

/// Returns the shape of DeepSeek-Prover-V2-7B with this number of layers.
fn shape_7b(layers: usize, vocabulary: usize) -> ModelConfig {
    ModelConfig {
        vocab_size: vocabulary,
        hidden_size: 4096,
        intermediate_size: 11_008,
        layers,
        heads: 32,
        kv_heads: 32,
        head_dim: 128,
        max_positions: 8192,
        ..small_shape()
    }
}

/// Measures one layer of the 7B shape, forward and backward.
fn layer() -> Result<bool> {
    let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
    let config = shape_7b(1, 64);
    let model = device.random_model(&config, 8192)?;
    let mut good = true;
    // With a loss only on the last token, most gradients are zero, and products of zeros need less power.
    for (sequences, length, losses) in
        [(1, 2048, 2048), (2, 2048, 2048), (4, 2048, 2048), (4, 2048, 1), (8, 2048, 2048), (2, 8192, 8192)]
    {
        let tokens = sequences * length;
        let mut workspace = Workspace::for_rank(&*device, &config, tokens, Mode::Train, (0, 1))?;
        let mut packed = Packed::with_capacity(tokens);
        for s in 0..sequences {
            let inputs: Vec<u32> = (0..length).map(|i| ((i * 7 + s) % 64) as u32).collect();
            let row = |index| LossRow { index, target: 5, weight: 1.0, norm: 1.0, ..LossRow::default() };
            packed.push(&inputs, (length - losses..length).map(row));
        }
        let loss = RowLoss { ratio_bounds: None, entropy_bonus: 0.0, kl_penalty: 0.0, backward: true };
        let mut times = Vec::new();
        for _ in 0..23 {
            let started = Instant::now();
            workspace.forward_backward(&model, &packed, loss, None)?;
            device.gpu().wait()?;
            times.push(started.elapsed().as_secs_f64());
        }
        let mut measured = times.split_off(3);
        measured.sort_by(f64::total_cmp);
        let median = measured[measured.len() / 2];
        let (d, f) = (4096.0, 11_008.0);
        let products = 6.0 * (4.0 * d * d + 3.0 * d * f) * tokens as f64;
        let attention = 6.0 * d * length as f64 * tokens as f64;
        let mfu = (products + attention) / median / PEAK;
        println!(
            "layer, {sequences} x {length}, {losses} losses each: {:.2} ms (best {:.2}), {:.0} TFLOP/s, MFU {mfu:.3}",
            1e3 * median,
            1e3 * measured[0],
            (products + attention) / median / 1e12
        );
        if (sequences, length, losses) == (4, 2048, 2048) {
            good &= verdict("MFU short of 0.45 at 4 x 2048", (0.45 - mfu).max(0.0), 0.0);
        }
    }
    Ok(good)
}

/// Returns the median time of a call in seconds, measured in groups of ten.
fn timed(device: &Cuda, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    let mut times = Vec::new();
    for _ in 0..7 {
        device.gpu().wait()?;
        let started = Instant::now();
        for _ in 0..10 {
            call()?;
        }
        device.gpu().wait()?;
        times.push(started.elapsed().as_secs_f64() / 10.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[3])
}

/// Returns the seconds of attention forward and backward, for `rows` rows in sequences of `length`.
fn attention_times(device: &Cuda, heads: Heads, rows: usize, length: usize) -> Result<[f64; 2]> {
    let (wide, narrow) = (rows * heads.qkv_dim(), rows * heads.heads * heads.head_dim);
    let starts: Vec<usize> = (0..=rows / length).map(|i| i * length).collect();
    let (qkv, mut dqkv) = (device.noise(wide, 1)?, device.noise(wide, 2)?);
    let (mut out, dout) = (device.noise(narrow, 3)?, device.noise(narrow, 4)?);
    let mut lse = device.stat(rows * heads.heads)?;
    let forward = timed(device, || {
        device.attention(first(&qkv, wide), &starts, heads, first_mut(&mut out, narrow), &mut lse)
    })?;
    let backward = timed(device, || {
        let (out, dout) = (first(&out, narrow), first(&dout, narrow));
        let (qkv, dqkv) = (first(&qkv, wide), first_mut(&mut dqkv, wide));
        device.attention_backward(qkv, &starts, heads, out, &lse, dout, dqkv)
    })?;
    Ok([forward, backward])
}

/// Measures attention with every set of tensor-core kernels that the GPU supports. Only operations that the
/// mask keeps are counted, and the backward pass counts two and a half times the forward pass.
fn attention_speed() -> Result<bool> {
    let device = Cuda::new(0, Precision::Bf16)?;
    let (rows, width) = (8192, 4096);
    for head_dim in [128, 64] {
        let heads = Heads { heads: width / head_dim, kv_heads: width / head_dim, head_dim };
        for limit in [AttentionVariant::Tensor, AttentionVariant::Hopper] {
            device.limit_attention(limit);
            if device.attention_variant(head_dim) != limit {
                continue;
            }
            for length in [512, 1024, 2048, 8192] {
                let [forward, backward] = attention_times(&device, heads, rows, length)?;
                let flops = 2.0 * (rows * length * width) as f64;
                println!(
                    "{limit:?}, heads of {head_dim}, {} x {length}: forward {:.0} us, {:.0} TFLOP/s; backward {:.0} us, \
                     {:.0} TFLOP/s",
                    rows / length,
                    1e6 * forward,
                    flops / forward / 1e12,
                    1e6 * backward,
                    2.5 * flops / backward / 1e12
                );
            }
        }
    }
    Ok(true)
}

/// Measures every kernel of the 7B layer alone, with 4 sequences of 2,048 tokens.
fn operations() -> Result<bool> {
    let device = Cuda::new(0, Precision::Bf16)?;
    let (rows, d, f) = (8192usize, 4096usize, 11_008usize);
    let noise = |n: usize| device.noise(n, n as u64);
    let report = |name: &str, seconds: f64, flops: f64, bytes: f64| {
        println!(
            "{name:<28} {:>8.1} us {:>7.0} TFLOP/s {:>6.2} TB/s",
            1e6 * seconds,
            flops / seconds / 1e12,
            bytes / seconds / 1e12
        );
    };
    let x = noise(rows * d)?;
    let mut y = noise(rows * d)?;
    for (name, input, output) in [("qkv", d, 3 * d), ("o", d, d), ("gate_up", d, 2 * f), ("down", f, d)] {
        let size = Linear { rows, input, output };
        let (nx, nw, ny) = (rows * input, input * output, rows * output);
        let (mut x, w, mut y) = (noise(nx)?, noise(nw)?, noise(ny)?);
        let mut dw = device.grad(nw)?;
        let flops = 2.0 * rows as f64 * input as f64 * output as f64;
        let t = timed(&device, || device.linear(size, first(&x, nx), first(&w, nw), first_mut(&mut y, ny)))?;
        report(&format!("{name} forward"), t, flops, 0.0);
        let t =
            timed(&device, || device.linear_dx(size, first(&y, ny), first(&w, nw), first_mut(&mut x, nx)))?;
        report(&format!("{name} dx"), t, flops, 0.0);
        let t = timed(&device, || {
            device.linear_dw(size, Write::Add, first(&y, ny), first(&x, nx), first_mut(&mut dw, nw))
        })?;
        report(&format!("{name} dw added"), t, flops, 0.0);
        let t = timed(&device, || {
            device.linear_dw(size, Write::Set, first(&y, ny), first(&x, nx), first_mut(&mut dw, nw))
        })?;
        report(&format!("{name} dw set"), t, flops, 0.0);
    }
    let heads = Heads { heads: 32, kv_heads: 32, head_dim: 128 };
    for length in [512, 1024, 2048, 8192] {
        let [forward, backward] = attention_times(&device, heads, rows, length)?;
        let flops = 2.0 * (rows * length * d) as f64;
        report(&format!("attention {length}"), forward, flops, 0.0);
        report(&format!("attention backward {length}"), backward, 2.5 * flops, 0.0);
    }
    let elements = (rows * d * 2) as f64;
    let w = noise(d)?;
    let mut rstd = device.stat(rows)?;
    let (b, mut sum) = (noise(rows * d)?, noise(rows * d)?);
    let n = rows * d;
    let t =
        timed(&device, || device.rmsnorm(first(&x, n), first(&w, d), 1e-5, first_mut(&mut y, n), &mut rstd))?;
    report("rmsnorm", t, 0.0, 2.0 * elements);
    let t = timed(&device, || {
        let (sum, y) = (first_mut(&mut sum, n), first_mut(&mut y, n));
        device.add_rmsnorm(first(&x, n), first(&b, n), first(&w, d), 1e-5, sum, y, &mut rstd)
    })?;
    report("add_rmsnorm", t, 0.0, 4.0 * elements);
    let (mut dw, mut partial) = (device.grad(d)?, device.stat(rows / 64 * d)?);
    let t = timed(&device, || {
        let (dx, dw) = (first_mut(&mut sum, n), first_mut(&mut dw, d));
        device.rmsnorm_backward(first(&b, n), first(&x, n), &rstd, first(&w, d), dx, dw, &mut partial)
    })?;
    report("rmsnorm_backward", t, 0.0, 4.0 * elements);
    let t = timed(&device, || device.add(first(&x, n), first(&b, n), first_mut(&mut y, n)))?;
    report("add", t, 0.0, 3.0 * elements);
    let n = rows * f;
    let (mut gate_up, mut act) = (noise(2 * n)?, noise(n)?);
    let t = timed(&device, || device.swiglu(first(&gate_up, 2 * n), f, first_mut(&mut act, n)))?;
    report("swiglu", t, 0.0, 6.0 * n as f64);
    let t =
        timed(&device, || device.swiglu_backward(first_mut(&mut gate_up, 2 * n), f, first_mut(&mut act, n)))?;
    report("swiglu_backward", t, 0.0, 12.0 * n as f64);
    let n = rows * heads.qkv_dim();
    let mut qkv = noise(n)?;
    let tables = device.rope_tables(RopeTables::new(&shape_7b(1, 64), 2048))?;
    let positions = On(&device).ints(&(0..rows as u32).map(|i| i % 2048).collect::<Vec<_>>())?;
    let t = timed(&device, || {
        device.rope(first_mut(&mut qkv, n), heads, first(&positions, rows), &tables, false)
    })?;
    report("rope", t, 0.0, 4.0 * 2.0 / 3.0 * n as f64);
    let v = 32_000;
    let n = rows * v;
    let mut logits = noise(n)?;
    let targets = On(&device).ints(&(0..rows as u32).collect::<Vec<_>>())?;
    let stat = On(&device).stat(&vec![0.1; rows])?;
    let (mut log_prob, mut entropy) = (device.stat(rows)?, device.stat(rows)?);
    let loss = RowLoss { ratio_bounds: None, entropy_bonus: 0.0, kl_penalty: 0.0, backward: true };
    let t = timed(&device, || {
        let part = || first(&stat, rows);
        let parts = LossRows {
            targets: first(&targets, rows),
            weight: part(),
            norm: part(),
            old: part(),
            reference: part(),
            log_prob: first_mut(&mut log_prob, rows),
            entropy: first_mut(&mut entropy, rows),
        };
        device.loss_rows(loss, v, first_mut(&mut logits, n), parts)
    })?;
    report("loss_rows 32000", t, 0.0, 4.0 * n as f64);
    let (x, ids) = (
        noise(rows * 2048)?,
        On(&device).ints(&(0..rows as u32).map(|i| i * 7919 % 32_000).collect::<Vec<_>>())?,
    );
    let mut grad = device.grad(v * 2048)?;
    let t = timed(&device, || {
        device.embed_backward(first(&x, rows * 2048), first(&ids, rows), 2048, first_mut(&mut grad, v * 2048))
    })?;
    report("embed_backward", t, 0.0, 10.0 * (rows * 2048) as f64);
    let config = ModelConfig { layers: 2, ..shape_7b(2, 1024) };
    let layout = Layout::new(&config);
    let (mut params, mut grad) = (device.buf(layout.len)?, device.grad(layout.len)?);
    let shard = Shard::whole(layout.len);
    let mut state = device.adam(&shard)?;
    let update = AdamUpdate {
        t: 1,
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.0,
        gradient_scale: 1.0,
        zero_gradient: false,
    };
    let t = timed(&device, || {
        device.adam_step(update, &layout, shard.pieces[0], &mut params, &mut grad, &mut state)
    })?;
    report("adam", t, 0.0, 28.0 * layout.len as f64);
    let t = timed(&device, || device.sum_of_squares(&grad).map(|_| ()))?;
    report("sum_of_squares", t, 0.0, 4.0 * layout.len as f64);
    Ok(true)
}

/// Measures the products of the 7B shape with every algorithm that cuBLASLt proposes.
fn algorithms() -> Result<bool> {
    let device = Cuda::new(0, Precision::Bf16)?;
    let (d, f) = (4096, 11_008);
    for rows in [64, 256, 8192] {
        for (name, input, output) in
            [("qkv", d, 3 * d), ("o", d, d), ("gate_up", d, 2 * f), ("down", f, d), ("head", d, 102_400)]
        {
            let times =
                device.compare_algorithms(Linear { rows, input, output }, if rows < 1000 { 6 } else { 1 })?;
            let microseconds: Vec<String> = times.iter().map(|t| format!("{:.1}", 1e6 * t)).collect();
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            println!(
                "{rows:>5} {name:<8} {} us; best {:.0} TFLOP/s, {:.2} TB/s",
                microseconds.join(" "),
                2e-12 * (rows * input * output) as f64 / best,
                2e-12 * (input * output) as f64 / best
            );
        }
    }
    Ok(true)
}
