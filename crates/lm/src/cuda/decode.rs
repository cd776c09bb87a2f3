//! One step of the sampler on the GPU: all planned columns, running requests and prompt tokens together,
//! through all layers; then the draws.

use super::Cuda;
use super::compile::Program;
use super::gpu::{Arg, Array, CacheArg, Element, Kernel, int};
use crate::config::ModelConfig;
use crate::device::{Device, Heads, Linear, at, first, first_mut};
use crate::error::{LmError, Result};
use crate::model::Model;
use crate::sampler::{Decode, DecoderSizes, Drawn, Plan, draw_truncated, uniform};

/// Threads of a block of the attention kernel.
const THREADS: usize = 128;
/// Positions below which a column's attention is not split further.
const SHORTEST_SPLIT: usize = 128;
/// Blocks for every multiprocessor that splitting aims at.
const BLOCKS_EACH: usize = 4;
/// Largest vocabulary of the draw kernel.
const VOCABULARY: usize = 512 * 2048;

/// What the draw kernel writes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct RawDrawn {
    token: u32,
    logprob: f32,
    entropy: f32,
    finite: u32,
}

/// The paged cache and the buffers of a step.
#[derive(Debug)]
pub struct CudaDecoder {
    sizes: DecoderSizes,
    /// Elements of a page: for every layer, keys and then values of its positions, head by head.
    page: usize,
    cache: Array<Element>,
    kernels: [Kernel; 3],
    /// Residual stream before and after attention, `[columns, d]`.
    x: Array<Element>,
    x_mid: Array<Element>,
    h: Array<Element>,
    branch: Array<Element>,
    qkv: Array<Element>,
    attn: Array<Element>,
    gate_up: Array<Element>,
    act: Array<Element>,
    logits: Array<Element>,
    rstd: Array<f32>,
    parts: Array<f32>,
    /// Tokens, positions and first pages of the columns, then all page tables.
    ints: Array<u32>,
    host_ints: Vec<u32>,
    temperatures: Array<f32>,
    uniforms: Array<f64>,
    drawn: Array<RawDrawn>,
    host_drawn: Vec<RawDrawn>,
    candidates: Vec<(f32, u32)>,
    row: Vec<f32>,
}

/// Columns of products are rounded up to this many, so that few shapes occur; the surplus is never read.
fn padded(columns: usize) -> usize {
    columns.next_multiple_of(if columns <= 64 { 8 } else { 64 })
}

/// Elements of the buffers of a step and numbers of other kinds: of elements, f32 and u32.
fn work(config: &ModelConfig, sizes: &DecoderSizes, processors: usize) -> [usize; 3] {
    let columns = padded(sizes.max_batch + sizes.prefill_tokens);
    let (d, f) = (config.hidden_size, config.intermediate_size);
    let elements = columns * (4 * d + config.qkv_dim() + config.q_dim() + 3 * f)
        + padded(sizes.max_batch) * config.vocab_size;
    let floats = columns + parts(config, processors) + sizes.max_batch * 7;
    [elements, floats, tables(sizes)]
}

/// Numbers that split attention leaves behind.
fn parts(config: &ModelConfig, processors: usize) -> usize {
    BLOCKS_EACH * processors * (2 + config.head_dim)
}

/// Numbers of the columns and page tables of a step.
fn tables(sizes: &DecoderSizes) -> usize {
    let columns = sizes.max_batch + sizes.prefill_tokens;
    3 * columns
        + (sizes.max_batch + sizes.prefill_tokens.div_ceil(16)) * sizes.context.div_ceil(sizes.page_len)
}

fn page_elements(config: &ModelConfig, page_len: usize) -> usize {
    config.layers * 2 * config.kv_dim() * page_len
}

/// How many parts each column's attention is split into, so that all multiprocessors have work.
fn splits(columns: usize, heads: usize, longest: usize, processors: usize) -> usize {
    let wanted = (BLOCKS_EACH * processors / (columns * heads).max(1)).max(1);
    wanted.min(longest.div_ceil(SHORTEST_SPLIT)).max(1)
}

impl Decode for Cuda {
    type Decoder = CudaDecoder;

    fn decoder_work_bytes(&self, config: &ModelConfig, sizes: &DecoderSizes) -> u64 {
        let [elements, floats, ints] = work(config, sizes, self.gpu.processors);
        (elements * self.width() + 4 * (floats + ints)) as u64
    }

    fn decoder_page_bytes(&self, config: &ModelConfig, page_len: usize) -> u64 {
        (page_elements(config, page_len) * self.width()) as u64
    }

    fn decoder(&self, config: &ModelConfig, sizes: &DecoderSizes) -> Result<CudaDecoder> {
        if config.vocab_size > VOCABULARY || config.head_dim > 256 {
            return Err(LmError::Input(format!(
                "a vocabulary of {} and heads of width {}: the GPU samples up to {VOCABULARY} and 256",
                config.vocab_size, config.head_dim
            )));
        }
        let program = Program::Decode { head_dim: config.head_dim };
        let kernels = self.program(program, ["append", "attend", "join"], |_| Ok(()))?;
        let columns = padded(sizes.max_batch + sizes.prefill_tokens);
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let page = page_elements(config, sizes.page_len);
        Ok(CudaDecoder {
            sizes: *sizes,
            page,
            cache: self.buf(page * sizes.pages)?,
            kernels,
            x: self.buf(columns * d)?,
            x_mid: self.buf(columns * d)?,
            h: self.buf(columns * d)?,
            branch: self.buf(columns * d)?,
            qkv: self.buf(columns * config.qkv_dim())?,
            attn: self.buf(columns * config.q_dim())?,
            gate_up: self.buf(columns * 2 * f)?,
            act: self.buf(columns * f)?,
            logits: self.buf(padded(sizes.max_batch) * config.vocab_size)?,
            rstd: self.stat(columns)?,
            parts: self.stat(parts(config, self.gpu.processors))?,
            ints: self.ints(tables(sizes))?,
            host_ints: Vec::with_capacity(tables(sizes)),
            temperatures: self.stat(sizes.max_batch)?,
            uniforms: Array::zeros(&self.gpu, sizes.max_batch, 8)?,
            drawn: Array::zeros(&self.gpu, sizes.max_batch, size_of::<RawDrawn>())?,
            host_drawn: vec![RawDrawn::default(); sizes.max_batch],
            candidates: Vec::new(),
            row: Vec::new(),
        })
    }

    fn decode(
        &self,
        decoder: &mut CudaDecoder,
        model: &Model<Self>,
        plan: &Plan,
        drawn: &mut [Drawn],
    ) -> Result<()> {
        for (from, to) in &plan.copies {
            decoder.cache.copy_within(
                *from as usize * decoder.page,
                *to as usize * decoder.page,
                decoder.page,
            )?;
        }
        let columns = plan.decode.len() + plan.prefill.len();
        let longest = decoder.load(self, plan)?;
        for layer in 0..model.config.layers {
            self.decode_layer(decoder, model, layer, columns, longest)?;
        }
        if plan.decode.is_empty() {
            return Ok(());
        }
        self.decode_head(decoder, model, plan.decode.len())?;
        self.draw(decoder, model.config.vocab_size, plan, drawn)
    }
}

impl CudaDecoder {
    /// Puts the columns of a step on the GPU; returns the longest sequence.
    fn load(&mut self, device: &Cuda, plan: &Plan) -> Result<usize> {
        let columns = || plan.decode.iter().chain(&plan.prefill);
        let host = &mut self.host_ints;
        host.clear();
        host.extend(columns().map(|c| c.token));
        host.extend(columns().map(|c| c.position));
        host.extend(columns().map(|c| c.table.0));
        host.extend_from_slice(&plan.tables);
        if host.len() > self.ints.len {
            self.ints = device.ints(host.len().next_power_of_two())?;
        }
        self.ints.write(host, 0)?;
        Ok(columns().map(|c| c.position as usize + 1).max().unwrap_or(0))
    }
}

impl Cuda {
    /// One layer over all columns: from `x` to `x_mid` and the feed-forward output in `branch`.
    fn decode_layer(
        &self,
        decoder: &mut CudaDecoder,
        model: &Model<Self>,
        layer: usize,
        n: usize,
        longest: usize,
    ) -> Result<()> {
        let (config, params) = (&model.config, &model.params);
        let (spans, eps) = (&model.layout.layers[layer], config.norm_eps);
        let (d, q, qkv, f) = (config.hidden_size, config.q_dim(), config.qkv_dim(), config.intermediate_size);
        let rows = padded(n);
        let norm = at(params, spans.input_norm);
        let c = &mut *decoder;
        let h = first_mut(&mut c.h, n * d);
        if layer == 0 {
            let table = at(params, model.layout.embed);
            self.gather(table, first(&c.ints, n), d, first_mut(&mut c.x, n * d))?;
            self.rmsnorm(first(&c.x, n * d), norm, eps, h, &mut c.rstd)?;
        } else {
            let (x, r) = (first(&c.x_mid, n * d), first(&c.branch, n * d));
            self.add_rmsnorm(x, r, norm, eps, first_mut(&mut c.x, n * d), h, &mut c.rstd)?;
        }
        let size = Linear { rows, input: d, output: qkv };
        self.linear(size, first(&c.h, rows * d), at(params, spans.qkv), first_mut(&mut c.qkv, rows * qkv))?;
        if let Some(bias) = spans.qkv_bias {
            self.add_bias(first_mut(&mut c.qkv, n * qkv), at(params, bias))?;
        }
        self.attend(c, model, layer, n, longest)?;
        let size = Linear { rows, input: q, output: d };
        self.linear(size, first(&c.attn, rows * q), at(params, spans.o), first_mut(&mut c.branch, rows * d))?;

        let (x, r) = (first(&c.x, n * d), first(&c.branch, n * d));
        let (sum, h) = (first_mut(&mut c.x_mid, n * d), first_mut(&mut c.h, n * d));
        self.add_rmsnorm(x, r, at(params, spans.post_norm), eps, sum, h, &mut c.rstd)?;
        let size = Linear { rows, input: d, output: 2 * f };
        let gate_up = first_mut(&mut c.gate_up, rows * 2 * f);
        self.linear(size, first(&c.h, rows * d), at(params, spans.gate_up), gate_up)?;
        self.swiglu(first(&c.gate_up, n * 2 * f), f, first_mut(&mut c.act, n * f))?;
        let size = Linear { rows, input: f, output: d };
        self.linear(size, first(&c.act, rows * f), at(params, spans.down), first_mut(&mut c.branch, rows * d))
    }

    /// Rotates, appends keys and values to the cache, and attends over it.
    fn attend(
        &self,
        c: &mut CudaDecoder,
        model: &Model<Self>,
        layer: usize,
        n: usize,
        longest: usize,
    ) -> Result<()> {
        let config = &model.config;
        let Heads { heads, kv_heads, head_dim } = Heads::of(config);
        let [append, attend, join] = c.kernels;
        let qkv = Arg::Ptr(c.qkv.front(n * config.qkv_dim())?);
        let out = Arg::Ptr(c.attn.front(n * config.q_dim())?);
        let positions = Arg::Ptr(c.ints.at(&(n..2 * n))?);
        let starts = Arg::Ptr(c.ints.at(&(2 * n..3 * n))?);
        let tables = Arg::Ptr(c.ints.at(&(3 * n..c.host_ints.len()))?);
        let cache = Arg::Cache(CacheArg {
            pages: c.cache.front(c.page * c.sizes.pages)?,
            sizes: [c.sizes.page_len, config.layers, kv_heads, layer].map(|x| x as i32),
        });
        let shape = [qkv, int(heads), positions, starts, tables, cache];
        let [a, b, d, e, f, g] = shape;
        let (cos, sin) = (model.rope.cos.front(0)?, model.rope.sin.front(0)?);
        let pieces = (heads + 2 * kv_heads) * head_dim.div_ceil(16);
        let arguments = [a, b, d, e, f, g, Arg::Ptr(cos), Arg::Ptr(sin)];
        self.gpu.launch(append, (n, 1), pieces.next_multiple_of(32).min(512), 0, &arguments)?;
        let splits = splits(n, heads, longest, self.gpu.processors);
        let parts =
            Arg::Ptr(c.parts.front(if splits > 1 { n * heads * splits * (2 + head_dim) } else { 0 })?);
        let scale = Arg::Float(1.0 / (head_dim as f32).sqrt());
        let arguments = [a, b, d, e, f, g, scale, int(splits), out, parts];
        self.gpu.launch(attend, (n, heads * splits), THREADS, 0, &arguments)?;
        if splits > 1 {
            let arguments = [parts, int(splits), out];
            self.gpu.launch(join, (n * heads, 1), head_dim.next_multiple_of(32).min(128), 0, &arguments)?;
        }
        Ok(())
    }

    /// Logits of the first `n` columns.
    fn decode_head(&self, c: &mut CudaDecoder, model: &Model<Self>, n: usize) -> Result<()> {
        let (config, params, layout) = (&model.config, &model.params, &model.layout);
        let (d, v, rows) = (config.hidden_size, config.vocab_size, padded(n));
        let (x, r) = (first(&c.x_mid, n * d), first(&c.branch, n * d));
        let (sum, h) = (first_mut(&mut c.x, n * d), first_mut(&mut c.h, n * d));
        self.add_rmsnorm(x, r, at(params, layout.final_norm), config.norm_eps, sum, h, &mut c.rstd)?;
        let size = Linear { rows, input: d, output: v };
        self.linear(size, first(&c.h, rows * d), at(params, layout.head), first_mut(&mut c.logits, rows * v))
    }

    /// Draws a token for each of the plan's draws; those from truncated distributions on the host.
    fn draw(&self, c: &mut CudaDecoder, vocabulary: usize, plan: &Plan, drawn: &mut [Drawn]) -> Result<()> {
        let n = plan.draws.len();
        let temperatures: Vec<f32> = plan.draws.iter().map(|d| d.choice.temperature).collect();
        let uniforms: Vec<f64> = plan.draws.iter().map(|d| uniform(d.seed, d.index)).collect();
        c.temperatures.write(&temperatures, 0)?;
        c.uniforms.write(&uniforms, 0)?;
        let arguments = [
            Arg::Ptr(c.logits.front(n * vocabulary)?),
            int(vocabulary),
            Arg::Ptr(c.temperatures.front(n)?),
            Arg::Ptr(c.uniforms.front(n)?),
            Arg::Ptr(c.drawn.front(n)?),
        ];
        self.gpu.launch(self.kernels.draw, (n, 1), 256, 0, &arguments)?;
        c.drawn.read(0, &mut c.host_drawn[..n])?;
        for (to, from) in drawn.iter_mut().zip(&c.host_drawn[..n]) {
            let RawDrawn { token, logprob, entropy, finite } = *from;
            *to = Drawn { token, logprob, entropy, finite: finite != 0 };
        }
        for (i, draw) in plan.draws.iter().enumerate() {
            if !draw.choice.truncates() || !drawn[i].finite {
                continue;
            }
            c.row.resize(vocabulary, 0.0);
            let range = i * vocabulary..(i + 1) * vocabulary;
            self.read_buf(crate::device::Part { buf: &c.logits, range }, &mut c.row)?;
            c.candidates.clear();
            c.candidates.extend(c.row.iter().zip(0..).map(|(logit, token)| (*logit, token)));
            let token = draw_truncated(&mut c.candidates, draw.choice, uniforms[i]);
            // Log-probs differ as logits do.
            drawn[i].logprob += c.row[token as usize] - c.row[drawn[i].token as usize];
            drawn[i].token = token;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_fill_the_gpu_and_fit_the_scratch() {
        for (columns, heads, longest) in
            [(1, 32, 8000), (1, 1, 100), (64, 32, 4000), (3, 4, 129), (1, 2, 100_000)]
        {
            let splits = splits(columns, heads, longest, 132);
            assert!(splits >= 1 && splits <= longest.div_ceil(SHORTEST_SPLIT));
            assert!(splits == 1 || columns * heads * splits <= BLOCKS_EACH * 132);
        }
        assert_eq!(splits(1, 32, 8000, 132), 16);
        assert_eq!(splits(64, 32, 8000, 132), 1);
    }

    #[test]
    fn padding_keeps_shapes_few() {
        assert_eq!([1, 8, 9, 64, 65, 500].map(padded), [8, 8, 16, 64, 128, 512]);
    }
}
