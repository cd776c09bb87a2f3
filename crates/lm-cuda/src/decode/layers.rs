//! The kernels of a step: all layers over the loaded columns, the head, and sampling.

use super::shape::{StepShape, padded};
use super::{CHOICE, CudaDecoder, Kernels};
use crate::Cuda;
use crate::attention::{self, shared_bytes};
use crate::compile::Program;
use crate::gpu::{Arg, CacheArg, int};
use sgs_lm::device::{Device, Heads, Linear, at, first, first_mut};
use sgs_lm::error::Result;
use sgs_lm::model::Model;

/// Threads per block of the attention kernel.
const THREADS: usize = 128;

impl Cuda {
    pub(super) fn decode_kernels(&self, head_dim: usize, page_len: usize) -> Result<Kernels> {
        let names = ["feed", "append", "copy_pages", "attend", "attend_short", "join"];
        let [feed, append, copy_pages, attend, attend_short, join] =
            self.program(Program::Decode { head_dim, page_len }, names, |_| Ok(()))?;
        let mut kernels = Kernels { feed, append, copy_pages, attend, attend_short, join, prompt: None };
        if self.has_tensor_attention(head_dim) {
            let [shared, _] = shared_bytes(head_dim);
            let program = Program::Prompt { head_dim, page_len };
            let [prompt] = self.program(program, ["prompt"], |k| self.gpu.allow_shared(k[0], shared))?;
            kernels.prompt = Some(prompt);
        }
        Ok(kernels)
    }

    /// Runs all layers over the loaded columns, and samples. The results of the preceding step are in `sampled`.
    pub(super) fn step(&self, c: &mut CudaDecoder, model: &Model<Self>, shape: StepShape) -> Result<()> {
        if shape.decode > 0 {
            let tokens = Arg::Ptr(c.ints.front(shape.decode)?);
            let arguments = [tokens, int(shape.decode), Arg::Ptr(c.sampled.front(shape.decode)?)];
            self.gpu.launch(c.kernels.feed, (shape.decode.div_ceil(256), 1), 256, 0, &arguments)?;
        }
        for layer in 0..model.config.layers {
            self.decode_layer(c, model, layer, shape)?;
        }
        if shape.decode == 0 {
            return Ok(());
        }
        self.decode_head(c, model, shape.decode)?;
        let (vocabulary, n) = (model.config.vocab_size, shape.decode);
        let [_, choices, ..] = shape.places();
        let choices = c.ints.at(&(choices..choices + CHOICE * n))?;
        self.draw(c.logits.front(n * vocabulary)?, vocabulary, choices, c.sampled.front(n)?, n)
    }

    /// Runs one layer over all columns, from `x` to `x_mid` and the feed-forward output in `branch`.
    fn decode_layer(
        &self,
        decoder: &mut CudaDecoder,
        model: &Model<Self>,
        layer: usize,
        shape: StepShape,
    ) -> Result<()> {
        let (config, params) = (&model.config, &model.params);
        let (spans, eps) = (&model.layout.layers[layer], config.norm_eps);
        let (d, q, qkv, f) = (config.hidden_size, config.q_dim(), config.qkv_dim(), config.intermediate_size);
        let n = shape.columns();
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
        if let Some(norm) = spans.qk_norm {
            let in_place = [Arg::Ptr(c.qkv.front(n * qkv)?); 2];
            self.normalise_heads(in_place, n, Heads::of(config), &at(params, norm), eps)?;
        }
        self.attend(c, model, layer, shape)?;
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

    /// Rotates queries and keys, appends keys and values to the cache, and computes attention over it.
    pub(super) fn attend(
        &self,
        c: &mut CudaDecoder,
        model: &Model<Self>,
        layer: usize,
        shape: StepShape,
    ) -> Result<()> {
        let config = &model.config;
        let Heads { heads, kv_heads, head_dim } = Heads::of(config);
        let Kernels { append, attend, attend_short, join, prompt, .. } = c.kernels;
        let n = shape.columns();
        let [starts, _, tiles, tables] = shape.places();
        let qkv = Arg::Ptr(c.qkv.front(n * config.qkv_dim())?);
        let out = Arg::Ptr(c.attn.front(n * config.q_dim())?);
        let positions = Arg::Ptr(c.ints.at(&(n..2 * n))?);
        let starts = Arg::Ptr(c.ints.at(&(starts..starts + n))?);
        let tables = Arg::Ptr(c.ints.at(&(tables..c.host_ints.len()))?);
        let len = c.page * c.sizes.pages;
        let pages = c.cache.at(&(layer * len..(layer + 1) * len))?;
        let cache = Arg::Cache(CacheArg { pages, kv_heads: kv_heads as i32 });
        let [a, b, d, e, f, g] = [qkv, int(heads), positions, starts, tables, cache];
        let (cos, sin) = (model.rope.cos.front(0)?, model.rope.sin.front(0)?);
        let pieces = (heads + 2 * kv_heads) * head_dim.div_ceil(16);
        let arguments = [a, b, d, e, f, g, Arg::Ptr(cos), Arg::Ptr(sin)];
        self.gpu.launch(append, (n, 1), pieces.next_multiple_of(32).min(512), 0, &arguments)?;

        let scale = Arg::Float(1.0 / (head_dim as f32).sqrt());
        let alone = if prompt.is_some() { shape.decode } else { n };
        let (most_parts, shortest) = (shape.most_parts, int(shape.shortest_part));
        let partials = Arg::Ptr(c.partials.front(if most_parts > 1 {
            alone * heads * most_parts * (2 + head_dim)
        } else {
            0
        })?);
        if shape.short {
            let arguments = [a, int(alone), b, d, e, f, g, scale, out];
            self.gpu.launch(
                attend_short,
                ((alone * heads).div_ceil(THREADS / 32), 1),
                THREADS,
                0,
                &arguments,
            )?;
        } else {
            let arguments = [a, b, d, e, f, g, scale, int(most_parts), shortest, out, partials];
            self.gpu.launch(attend, (alone, heads * most_parts), THREADS, 0, &arguments)?;
        }
        if most_parts > 1 {
            let arguments = [partials, b, d, int(most_parts), shortest, out];
            let threads = head_dim.next_multiple_of(32).min(128);
            self.gpu.launch(join, (alone * heads, 1), threads, 0, &arguments)?;
        }
        if let Some(prompt) = prompt {
            let tiles = Arg::Ptr(c.ints.at(&(tiles..tiles + 4 * shape.tiles))?);
            let [shared, _] = shared_bytes(head_dim);
            let arguments = [a, tiles, f, g, b, scale, out];
            self.gpu.launch(prompt, (heads, shape.tiles), attention::THREADS, shared, &arguments)?;
        }
        Ok(())
    }

    /// Computes the logits of the first `n` columns.
    fn decode_head(&self, c: &mut CudaDecoder, model: &Model<Self>, n: usize) -> Result<()> {
        let (config, params, layout) = (&model.config, &model.params, &model.layout);
        let (d, v, rows) = (config.hidden_size, config.vocab_size, padded(n));
        let (x, r) = (first(&c.x_mid, n * d), first(&c.branch, n * d));
        let (sum, h) = (first_mut(&mut c.x, n * d), first_mut(&mut c.h, n * d));
        self.add_rmsnorm(x, r, at(params, layout.final_norm), config.norm_eps, sum, h, &mut c.rstd)?;
        let size = Linear { rows, input: d, output: v };
        self.linear(size, first(&c.h, rows * d), at(params, layout.head), first_mut(&mut c.logits, rows * v))
    }

    /// Samples a token from each of `n` rows of logits, at addresses that the caller has checked.
    pub(super) fn draw(
        &self,
        logits: u64,
        vocabulary: usize,
        choices: u64,
        sampled: u64,
        n: usize,
    ) -> Result<()> {
        let arguments = [Arg::Ptr(logits), int(vocabulary), Arg::Ptr(choices), Arg::Ptr(sampled)];
        self.gpu.launch(self.kernels.draw, (n, 1), 256, 0, &arguments)
    }
}
