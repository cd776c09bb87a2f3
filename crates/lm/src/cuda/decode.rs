//! One step of the sampler on the GPU: all planned columns, running requests and prompt tokens together,
//! through all layers; then the draws. Steps of a shape that has occurred before are started as one graph.

use std::collections::HashMap;
use std::sync::Arc;

use super::Cuda;
use super::attention::{self, shared_bytes};
use super::compile::Program;
use super::gpu::{Arg, Array, CacheArg, Element, Graph, Kernel, int};
use crate::config::ModelConfig;
use crate::device::{Device, Heads, Linear, at, first, first_mut};
use crate::error::{LmError, Result};
use crate::model::Model;
use crate::sampler::{Column, Decode, DecoderSizes, Draw, Drawn, PANEL, Plan, uniform};

/// Threads of a block of the attention kernel.
const THREADS: usize = 128;
/// Positions below which a column's attention is not split further.
const SHORTEST_SPLIT: usize = 128;
/// Blocks for every multiprocessor that splitting aims at.
const BLOCKS_EACH: usize = 4;
/// Largest vocabulary of the draw kernel.
const VOCABULARY: usize = 512 * 2048;
/// Columns of the largest step that is recorded as a graph; in larger ones starting kernels costs nothing.
const RECORDED_COLUMNS: usize = 1024;
/// Graphs that are kept.
const GRAPHS: usize = 256;
/// The position of a column that only fills its batch up, as in cache.cu.
const NOBODY: u32 = u32::MAX;
/// Numbers of 32 bits in the struct `Choice` of draw.cu.
const CHOICE: usize = 6;

/// What the draw kernel writes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct RawDrawn {
    token: u32,
    logprob: f32,
    entropy: f32,
    finite: u32,
}

impl From<RawDrawn> for Drawn {
    fn from(raw: RawDrawn) -> Self {
        let RawDrawn { token, logprob, entropy, finite } = raw;
        Self { token, logprob, entropy, finite: finite != 0 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Kernels {
    append: Kernel,
    copy_pages: Kernel,
    attend: Kernel,
    join: Kernel,
    /// Prompts on tensor cores, where there are such for the model's heads.
    prompt: Option<Kernel>,
}

/// The paged cache and the buffers of a step.
#[derive(Debug)]
pub struct CudaDecoder {
    sizes: DecoderSizes,
    /// Elements of a page in one layer: keys and then values of its positions, head by head.
    page: usize,
    /// Layer by layer.
    cache: Array<Element>,
    /// Pages to be copied: from, to.
    pairs: Array<u32>,
    kernels: Kernels,
    /// Residual stream before and after attention, `[columns, d]`.
    x: Array<Element>,
    x_mid: Array<Element>,
    h: Array<Element>,
    branch: Array<Element>,
    pub(super) qkv: Array<Element>,
    pub(super) attn: Array<Element>,
    gate_up: Array<Element>,
    act: Array<Element>,
    logits: Array<Element>,
    rstd: Array<f32>,
    parts: Array<f32>,
    /// Tokens, positions and first pages of the columns, choices of the draws, tiles of prompts, page tables.
    ints: Array<u32>,
    host_ints: Vec<u32>,
    drawn: Array<RawDrawn>,
    host_drawn: Vec<RawDrawn>,
    graphs: Graphs,
}

/// Sizes of a step, rounded up so that few occur: the surplus columns, tiles and draws belong to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// Columns of running requests, which come first.
    decode: usize,
    /// Columns of prompt tokens.
    prompt: usize,
    /// Tiles of prompt tokens that tensor cores work on.
    tiles: usize,
    /// Parts into which attention of one column is split.
    splits: usize,
}

/// Rows of products are rounded up to this many; the surplus is never read.
fn padded(columns: usize) -> usize {
    columns.next_multiple_of(if columns <= 64 { 8 } else { 64 })
}

/// Prompt tokens are rounded up to this many.
fn padded_prompt(columns: usize) -> usize {
    match columns {
        0 => 0,
        1..=256 => columns.next_power_of_two().max(PANEL),
        _ => columns.next_multiple_of(256),
    }
}

/// Most columns of a step.
fn most_columns(sizes: &DecoderSizes) -> usize {
    padded(padded(sizes.max_batch) + padded_prompt(sizes.prefill_tokens))
}

impl Shape {
    fn columns(self) -> usize {
        self.decode + self.prompt
    }

    /// Where the numbers of a step lie: the first of starts, choices, tiles and page tables.
    fn places(self) -> [usize; 4] {
        let n = self.columns();
        let choices = 3 * n;
        let tiles = choices + CHOICE * self.decode;
        [2 * n, choices, tiles, tiles + 4 * self.tiles]
    }

    /// The sizes for these columns; `heads` are the model's query heads.
    pub(super) fn new(
        decode: &[Column],
        prompt: &[Column],
        by_tiles: bool,
        heads: usize,
        processors: usize,
    ) -> Self {
        let longest = |columns: &[Column]| columns.iter().map(|c| c.position as usize + 1).max().unwrap_or(0);
        let tiles = if by_tiles && !prompt.is_empty() { tiles(prompt, 0).len() } else { 0 };
        let mut shape = Self {
            decode: padded(decode.len()),
            prompt: padded_prompt(prompt.len()),
            tiles: if tiles == 0 { 0 } else { tiles.next_power_of_two().max(8) },
            splits: 1,
        };
        let (alone, longest) = if by_tiles {
            (shape.decode, longest(decode))
        } else {
            (shape.columns(), longest(decode).max(longest(prompt)))
        };
        shape.splits = splits(alone, heads, longest, processors);
        shape
    }
}

/// Prompt tokens that follow each other in one sequence, up to [`attention::ROWS`] a tile, as prompt.cu reads
/// them; those with the most keys first. `offset` is the first token's column.
fn tiles(prompt: &[Column], offset: usize) -> Vec<[u32; 4]> {
    let mut tiles: Vec<[u32; 4]> = Vec::new();
    for (i, column) in prompt.iter().enumerate() {
        match tiles.last_mut() {
            Some([_, count, position, table])
                if *table == column.table.0
                    && *position + *count == column.position
                    && (*count as usize) < attention::ROWS =>
            {
                *count += 1;
            }
            _ => tiles.push([(offset + i) as u32, 1, column.position, column.table.0]),
        }
    }
    tiles.sort_by_key(|[_, count, position, _]| std::cmp::Reverse(position + count));
    tiles
}

/// Steps as graphs, by their shape. One that has occurred once, and was run as it came, has no graph yet.
#[derive(Debug, Default)]
struct Graphs {
    known: HashMap<Shape, Option<Graph>>,
    /// Addresses of the weights and rotary tables that they read.
    weights: [u64; 2],
    /// Recording has failed, and is not tried again.
    off: bool,
}

/// Elements of the buffers of a step and numbers of other kinds: of elements, f32 and u32.
fn work(config: &ModelConfig, sizes: &DecoderSizes, processors: usize) -> [usize; 3] {
    let columns = most_columns(sizes);
    let (d, f) = (config.hidden_size, config.intermediate_size);
    let elements = columns * (4 * d + config.qkv_dim() + config.q_dim() + 3 * f)
        + padded(sizes.max_batch) * config.vocab_size;
    let floats = columns + parts(config, processors) + sizes.max_batch * 4;
    [elements, floats, tables(sizes)]
}

/// Numbers that split attention leaves behind.
fn parts(config: &ModelConfig, processors: usize) -> usize {
    BLOCKS_EACH * processors * (2 + config.head_dim)
}

/// Numbers of the columns, choices, tiles and page tables of a step.
fn tables(sizes: &DecoderSizes) -> usize {
    let pages =
        (sizes.max_batch + sizes.prefill_tokens.div_ceil(16)) * sizes.context.div_ceil(sizes.page_len);
    3 * most_columns(sizes)
        + CHOICE * padded(sizes.max_batch)
        + 4 * sizes.prefill_tokens.next_power_of_two()
        + pages
}

/// Elements of a page in one layer.
fn page_elements(config: &ModelConfig, page_len: usize) -> usize {
    2 * config.kv_dim() * page_len
}

/// How many parts each column's attention is split into, so that all multiprocessors have work.
fn splits(columns: usize, heads: usize, longest: usize, processors: usize) -> usize {
    let wanted = (BLOCKS_EACH * processors / (columns * heads).max(1)).max(1);
    wanted.min(longest.div_ceil(SHORTEST_SPLIT)).max(1)
}

/// The struct `Choice` of draw.cu.
pub(super) fn choice(draw: &Draw) -> [u32; CHOICE] {
    let choice = draw.choice;
    let u = uniform(draw.seed, draw.index).to_bits();
    let top_k = if choice.truncates() { choice.top_k } else { 0 };
    [choice.temperature.to_bits(), choice.top_p.to_bits(), top_k, 0, u as u32, (u >> 32) as u32]
}

impl Decode for Cuda {
    type Decoder = CudaDecoder;

    fn decoder_work_bytes(&self, config: &ModelConfig, sizes: &DecoderSizes) -> u64 {
        let [elements, floats, ints] = work(config, sizes, self.gpu.processors);
        (elements * self.width() + 4 * (floats + ints)) as u64
    }

    fn decoder_page_bytes(&self, config: &ModelConfig, page_len: usize) -> u64 {
        (config.layers * page_elements(config, page_len) * self.width()) as u64
    }

    fn decoder(&self, config: &ModelConfig, sizes: &DecoderSizes) -> Result<CudaDecoder> {
        if config.vocab_size > VOCABULARY || config.head_dim > 256 {
            return Err(LmError::Input(format!(
                "a vocabulary of {} and heads of width {}: the GPU samples up to {VOCABULARY} and 256",
                config.vocab_size, config.head_dim
            )));
        }
        let columns = most_columns(sizes);
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let page = page_elements(config, sizes.page_len);
        Ok(CudaDecoder {
            sizes: *sizes,
            page,
            cache: self.buf(config.layers * page * sizes.pages)?,
            pairs: self.ints(2 * sizes.max_batch)?,
            kernels: self.decode_kernels(config.head_dim, sizes.page_len)?,
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
            drawn: Array::zeros(&self.gpu, padded(sizes.max_batch), size_of::<RawDrawn>())?,
            host_drawn: vec![RawDrawn::default(); sizes.max_batch],
            graphs: Graphs::default(),
        })
    }

    fn panel(&self, prefill_tokens: usize) -> usize {
        prefill_tokens
    }

    fn decode(
        &self,
        decoder: &mut CudaDecoder,
        model: &Model<Self>,
        plan: &Plan,
        drawn: &mut [Drawn],
    ) -> Result<()> {
        decoder.copy_pages(self, &model.config, &plan.copies)?;
        let by_tiles = decoder.kernels.prompt.is_some();
        let (heads, processors) = (model.config.heads, self.gpu.processors);
        let shape = Shape::new(&plan.decode, &plan.prefill, by_tiles, heads, processors);
        decoder.load(self, plan, shape)?;
        // The steps need the buffers, the graphs hold no borrow of them.
        let mut graphs = std::mem::take(&mut decoder.graphs);
        let outcome = graphs.step(self, decoder, model, shape);
        decoder.graphs = graphs;
        outcome?;
        let n = plan.draws.len();
        decoder.drawn.read(0, &mut decoder.host_drawn[..n])?;
        drawn.iter_mut().zip(&decoder.host_drawn[..n]).for_each(|(to, from)| *to = (*from).into());
        Ok(())
    }
}

impl Graphs {
    /// Runs a step: as a graph if one of its kind has run before.
    fn step(
        &mut self,
        device: &Cuda,
        decoder: &mut CudaDecoder,
        model: &Model<Cuda>,
        shape: Shape,
    ) -> Result<()> {
        if self.off || shape.columns() > RECORDED_COLUMNS {
            return device.step(decoder, model, shape);
        }
        let weights = [model.params.front(0)?, model.rope.cos.front(0)?];
        if self.known.len() >= GRAPHS || self.weights != weights {
            device.gpu.wait()?;
            self.known.clear();
            self.weights = weights;
        }
        match self.known.get_mut(&shape) {
            None => {
                self.known.insert(shape, None);
                device.step(decoder, model, shape)
            }
            Some(Some(graph)) => graph.launch(),
            Some(place) => match device.gpu.record(|| device.step(decoder, model, shape)) {
                Ok(graph) => place.insert(graph).launch(),
                Err(_) => {
                    // A driver that cannot record runs the same kernels one by one.
                    self.off = true;
                    device.step(decoder, model, shape)
                }
            },
        }
    }
}

impl CudaDecoder {
    /// Copies pages: from, to.
    fn copy_pages(&mut self, device: &Cuda, config: &ModelConfig, copies: &[(u32, u32)]) -> Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let pairs: Vec<u32> = copies.iter().flat_map(|(from, to)| [*from, *to]).collect();
        self.pairs.write(&pairs, 0)?;
        let len = self.page * self.sizes.pages;
        let pages = self.cache.front(config.layers * len)?;
        let cache = Arg::Cache(CacheArg { pages, kv_heads: config.kv_heads as i32 });
        let arguments = [cache, Arg::Long(len as u64), Arg::Ptr(self.pairs.front(pairs.len())?)];
        device.gpu.launch(self.kernels.copy_pages, (config.layers, copies.len()), 256, 0, &arguments)
    }

    /// Puts the columns of a step on the GPU.
    pub(super) fn load(&mut self, device: &Cuda, plan: &Plan, shape: Shape) -> Result<()> {
        let nobody = Column { token: 0, position: NOBODY, table: (0, 0) };
        let fill = |columns: &[Column], len: usize| std::iter::repeat_n(nobody, len - columns.len());
        let columns = || {
            let decode = plan.decode.iter().copied().chain(fill(&plan.decode, shape.decode));
            decode.chain(plan.prefill.iter().copied()).chain(fill(&plan.prefill, shape.prompt))
        };
        let host = &mut self.host_ints;
        host.clear();
        host.extend(columns().map(|c| c.token));
        host.extend(columns().map(|c| c.position));
        host.extend(columns().map(|c| c.table.0));
        host.extend(plan.draws.iter().flat_map(choice));
        // Whoever is not there draws at temperature 1.
        let idle = [1f32.to_bits(), 1f32.to_bits(), 0, 0, 0, 0];
        host.extend(std::iter::repeat_n(idle, shape.decode - plan.draws.len()).flatten());
        if shape.tiles > 0 {
            let tiles = tiles(&plan.prefill, shape.decode);
            host.extend(tiles.iter().flatten());
            host.extend(std::iter::repeat_n(0, 4 * (shape.tiles - tiles.len())));
        }
        host.extend_from_slice(&plan.tables);
        if host.len() > self.ints.len {
            // Recorded steps read from the old place.
            device.gpu.wait()?;
            self.graphs.known.clear();
            self.ints = device.ints(host.len().next_power_of_two())?;
        }
        self.ints.write(host, 0)
    }
}

impl Cuda {
    fn decode_kernels(&self, head_dim: usize, page_len: usize) -> Result<Kernels> {
        let names = ["append", "copy_pages", "attend", "join"];
        let [append, copy_pages, attend, join] =
            self.program(Program::Decode { head_dim, page_len }, names, |_| Ok(()))?;
        let mut kernels = Kernels { append, copy_pages, attend, join, prompt: None };
        if self.has_tensor_attention(head_dim) {
            let [shared, _] = shared_bytes(head_dim);
            let program = Program::Prompt { head_dim, page_len };
            let [prompt] = self.program(program, ["prompt"], |k| self.gpu.allow_shared(k[0], shared))?;
            kernels.prompt = Some(prompt);
        }
        Ok(kernels)
    }

    /// All layers over the columns that were loaded, and the draws.
    fn step(&self, c: &mut CudaDecoder, model: &Model<Self>, shape: Shape) -> Result<()> {
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
        self.draw(c.logits.front(n * vocabulary)?, vocabulary, choices, c.drawn.front(n)?, n)
    }

    /// One layer over all columns: from `x` to `x_mid` and the feed-forward output in `branch`.
    fn decode_layer(
        &self,
        decoder: &mut CudaDecoder,
        model: &Model<Self>,
        layer: usize,
        shape: Shape,
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

    /// Rotates, appends keys and values to the cache, and attends over it.
    pub(super) fn attend(
        &self,
        c: &mut CudaDecoder,
        model: &Model<Self>,
        layer: usize,
        shape: Shape,
    ) -> Result<()> {
        let config = &model.config;
        let Heads { heads, kv_heads, head_dim } = Heads::of(config);
        let Kernels { append, attend, join, prompt, .. } = c.kernels;
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
        let splits = shape.splits;
        let parts =
            Arg::Ptr(c.parts.front(if splits > 1 { alone * heads * splits * (2 + head_dim) } else { 0 })?);
        let arguments = [a, b, d, e, f, g, scale, int(splits), out, parts];
        self.gpu.launch(attend, (alone, heads * splits), THREADS, 0, &arguments)?;
        if splits > 1 {
            let arguments = [parts, int(splits), out];
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

    /// Draws a token from each of `n` rows of logits; over addresses that the caller has checked.
    fn draw(&self, logits: u64, vocabulary: usize, choices: u64, drawn: u64, n: usize) -> Result<()> {
        let arguments = [Arg::Ptr(logits), int(vocabulary), Arg::Ptr(choices), Arg::Ptr(drawn)];
        self.gpu.launch(self.kernels.draw, (n, 1), 256, 0, &arguments)
    }

    /// Draws from rows of logits, `[draws, vocabulary]`: for checking the kernel.
    ///
    /// # Errors
    /// The rows are not as many as the draws, or the GPU has no room.
    pub fn draw_rows(
        &self,
        logits: &Array<Element>,
        vocabulary: usize,
        draws: &[Draw],
    ) -> Result<Vec<Drawn>> {
        let n = draws.len();
        let choices: Vec<u32> = draws.iter().flat_map(choice).collect();
        let mut on = self.ints(choices.len())?;
        on.write(&choices, 0)?;
        let drawn = Array::<RawDrawn>::zeros(&self.gpu, n, size_of::<RawDrawn>())?;
        self.draw(logits.front(n * vocabulary)?, vocabulary, on.front(0)?, drawn.front(0)?, n)?;
        let mut host = vec![RawDrawn::default(); n];
        drawn.read(0, &mut host)?;
        Ok(host.into_iter().map(Drawn::from).collect())
    }

    /// Attention of sequences over a paged cache whose pages lie in no order: for checking the kernels. `qkv` are
    /// the rows of all sequences before rotation, `[Σ lengths, qkv_dim]`, in one layer of a model's shape; the
    /// first `length - fed` tokens of each sequence go into the cache as prompts, the rest one token a step.
    /// Returns the rows of all sequences, `[Σ lengths, q_dim]`.
    ///
    /// # Errors
    /// The sizes do not fit, or the GPU has no room.
    pub fn paged_attention(
        self: &Arc<Self>,
        model: &Model<Self>,
        qkv: &[f32],
        lengths: &[usize],
        fed: usize,
        chunk: usize,
    ) -> Result<Vec<f32>> {
        let (config, page_len) = (&model.config, 16);
        let (wide, narrow) = (config.qkv_dim(), config.q_dim());
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let each = longest.div_ceil(page_len);
        let sizes = DecoderSizes {
            max_batch: lengths.len(),
            prefill_tokens: (lengths.len() * chunk).next_multiple_of(PANEL),
            context: longest,
            page_len,
            pages: lengths.len() * each,
        };
        let mut c = self.decoder(config, &sizes)?;
        let by_tiles = c.kernels.prompt.is_some();
        let starts: Vec<usize> = lengths
            .iter()
            .scan(0, |at, l| {
                *at += l;
                Some(*at - l)
            })
            .collect();
        let mut out = vec![0.0; lengths.iter().sum::<usize>() * narrow];
        let mut done = vec![0; lengths.len()];
        while done.iter().zip(lengths).any(|(d, l)| d < l) {
            let mut plan = Plan::default();
            let mut rows = [Vec::new(), Vec::new()];
            for (i, (done, length)) in done.iter_mut().zip(lengths).enumerate() {
                let table = (plan.tables.len() as u32, each as u32);
                plan.tables.extend((0..each).map(|p| (p * lengths.len() + i) as u32));
                let is_prompt = *done + fed < *length;
                let count = if is_prompt { chunk.min(length - fed - *done) } else { 1.min(length - *done) };
                let columns = (*done..*done + count).map(|p| Column { token: 0, position: p as u32, table });
                if is_prompt { &mut plan.prefill } else { &mut plan.decode }.extend(columns);
                rows[usize::from(is_prompt)].extend((*done..*done + count).map(|p| starts[i] + p));
                *done += count;
            }
            let shape = Shape::new(&plan.decode, &plan.prefill, by_tiles, config.heads, self.gpu.processors);
            c.load(self, &plan, shape)?;
            let mut host = vec![0.0f32; shape.columns() * wide];
            let columns = (0..rows[0].len()).chain(shape.decode..shape.decode + rows[1].len());
            for (column, row) in columns.clone().zip(rows.iter().flatten()) {
                host[column * wide..][..wide].copy_from_slice(&qkv[row * wide..][..wide]);
            }
            c.qkv = self.adopt(crate::cpu::Floats::from_slice(&host))?;
            self.attend(&mut c, model, 0, shape)?;
            let mut host = vec![0.0f32; shape.columns() * narrow];
            self.read_buf(first(&c.attn, host.len()), &mut host)?;
            for (column, row) in columns.zip(rows.iter().flatten()) {
                out[row * narrow..][..narrow].copy_from_slice(&host[column * narrow..][..narrow]);
            }
        }
        Ok(out)
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

    fn prompt(pieces: &[(u32, u32, u32)]) -> Vec<Column> {
        let columns = |&(table, first, count): &(u32, u32, u32)| {
            (first..first + count).map(move |position| Column { token: 7, position, table: (table, 9) })
        };
        pieces.iter().flat_map(columns).collect()
    }

    #[test]
    fn tiles_cover_every_prompt_token_once_and_stay_within_a_sequence() {
        let columns = prompt(&[(0, 0, 130), (9, 64, 1), (18, 3, 64), (27, 67, 2)]);
        let tiles = tiles(&columns, 8);
        let mut covered = vec![0; columns.len()];
        for [column, count, position, table] in &tiles {
            assert!((1..=attention::ROWS as u32).contains(count));
            for i in 0..*count {
                let at = (*column + i) as usize - 8;
                covered[at] += 1;
                assert_eq!((columns[at].position, columns[at].table.0), (position + i, *table));
            }
        }
        assert!(covered.iter().all(|n| *n == 1));
        assert_eq!(tiles.len(), 6);
        assert!(tiles.is_sorted_by_key(|[_, count, position, _]| std::cmp::Reverse(position + count)));
    }

    #[test]
    fn numbers_of_a_step_lie_where_the_kernels_can_read_them() {
        let decode = prompt(&[(0, 5, 1), (1, 300, 1), (2, 7, 1)]);
        for (decode, prompt) in [(&decode[..], prompt(&[(9, 0, 70)])), (&[][..], prompt(&[(9, 0, 1)]))] {
            let shape = Shape::new(decode, &prompt, true, 4, 132);
            let [starts, choices, tiles, tables] = shape.places();
            // Choices hold an f64, tiles are read 16 bytes at a time.
            assert!(choices.is_multiple_of(2) && tiles.is_multiple_of(4));
            assert!(starts < choices && choices <= tiles && tiles < tables);
            assert!(shape.decode.is_multiple_of(8) && shape.prompt.is_multiple_of(PANEL));
        }
        let alone = Shape::new(&decode, &[], true, 4, 132);
        assert_eq!((alone.tiles, alone.prompt, alone.splits), (0, 0, 3));
    }
}
