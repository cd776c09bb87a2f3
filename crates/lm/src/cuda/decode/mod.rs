//! One step of the sampler on the GPU: all planned columns, running requests and prompt tokens together,
//! through all layers; then the draws. Steps of a shape that has occurred before are started as one graph.

mod graphs;
mod layers;
mod probe;
mod shape;

use std::sync::Arc;

use super::Cuda;
use super::gemm::WORKSPACE;
use super::gpu::{Arg, Array, CacheArg, Element, Kernel, Lane, Pinned};
use crate::config::ModelConfig;
use crate::device::Device;
use crate::error::{LmError, Result};
use crate::model::Model;
use crate::sampler::{Column, Decode, DecoderSizes, Draw, Drawn, Plan, uniform};
use graphs::Graphs;
use shape::{BLOCKS_EACH, Shape, most_columns, padded, tiles};

/// Largest vocabulary of the draw kernel.
const VOCABULARY: usize = 512 * 2048;
/// The position of a column that only fills its batch up, as in cache.cu.
const NOBODY: u32 = u32::MAX;
/// Numbers of 32 bits in the struct `Choice` of draw.cu.
const CHOICE: usize = 6;

/// What the draw kernel writes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct RawDrawn {
    token: u32,
    log_prob: f32,
    entropy: f32,
    finite: u32,
}

impl From<RawDrawn> for Drawn {
    fn from(raw: RawDrawn) -> Self {
        let RawDrawn { token, log_prob, entropy, finite } = raw;
        Self { token, log_prob, entropy, finite: finite != 0 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Kernels {
    append: Kernel,
    copy_pages: Kernel,
    attend: Kernel,
    attend_short: Kernel,
    join: Kernel,
    /// Prompts on tensor cores, where there are such for the model's heads.
    prompt: Option<Kernel>,
}

/// The paged cache and the buffers of a step.
#[derive(Debug)]
pub struct CudaDecoder {
    /// Where steps run, beside training and other decoders. The first field: it is dropped, and so waited for, before the
    /// buffers are freed.
    lane: Arc<Lane>,
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
    qkv: Array<Element>,
    attn: Array<Element>,
    gate_up: Array<Element>,
    act: Array<Element>,
    logits: Array<Element>,
    rstd: Array<f32>,
    parts: Array<f32>,
    /// Tokens, positions and first pages of the columns, choices of the draws, tiles of prompts, page tables.
    ints: Array<u32>,
    host_ints: Vec<u32>,
    pinned_ints: Pinned<u32>,
    drawn: Array<RawDrawn>,
    host_drawn: Pinned<RawDrawn>,
    graphs: Graphs,
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

/// The struct `Choice` of draw.cu.
fn choice(draw: &Draw) -> [u32; CHOICE] {
    let choice = draw.choice;
    let u = uniform(draw.seed, draw.index).to_bits();
    let top_k = if choice.truncates() { choice.top_k } else { 0 };
    [choice.temperature.to_bits(), choice.top_p.to_bits(), top_k, 0, u as u32, (u >> 32) as u32]
}

/// Bytes of the largest model whose steps take the processor as long as the GPU.
const SMALL_MODEL: usize = 128 << 20;

impl Decode for Cuda {
    type Decoder = CudaDecoder;

    fn samplers(&self, config: &ModelConfig) -> usize {
        if config.parameters() * self.width() <= SMALL_MODEL { 2 } else { 1 }
    }

    fn decoder_work_bytes(&self, config: &ModelConfig, sizes: &DecoderSizes) -> u64 {
        let [elements, floats, ints] = work(config, sizes, self.gpu.processors);
        (elements * self.width() + 4 * (floats + ints) + WORKSPACE) as u64
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
            lane: Arc::new(Lane::new(&self.gpu, WORKSPACE)?),
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
            pinned_ints: Pinned::filled(&self.gpu, tables(sizes), 0)?,
            drawn: Array::zeros(&self.gpu, padded(sizes.max_batch), size_of::<RawDrawn>())?,
            host_drawn: Pinned::filled(&self.gpu, sizes.max_batch, RawDrawn::default())?,
            graphs: Graphs::default(),
        })
    }

    fn prefill_tokens(&self) -> usize {
        // A step costs the GPU the same time for a few tokens as for some thousands of a small model.
        8192
    }

    fn panel(&self, prefill_tokens: usize) -> usize {
        prefill_tokens
    }

    fn decode(
        &self,
        decoder: &mut CudaDecoder,
        model: &Model<Self>,
        plan: &Plan,
        _drawn: &mut [Drawn],
    ) -> Result<()> {
        let lane = Arc::clone(&decoder.lane);
        lane.start(|| self.start_step(decoder, model, plan))
    }

    fn is_done(&self, decoder: &CudaDecoder) -> Result<bool> {
        decoder.lane.is_done()
    }

    fn collect(&self, decoder: &mut CudaDecoder, drawn: &mut [Drawn]) -> Result<()> {
        decoder.lane.wait()?;
        drawn.iter_mut().zip(&*decoder.host_drawn).for_each(|(to, from)| *to = (*from).into());
        Ok(())
    }
}

impl Cuda {
    /// Starts a planned step, and the copy of its draws to the host.
    fn start_step(&self, decoder: &mut CudaDecoder, model: &Model<Self>, plan: &Plan) -> Result<()> {
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
        decoder.drawn.fetch(&mut decoder.host_drawn, plan.draws.len())
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
    fn load(&mut self, device: &Cuda, plan: &Plan, shape: Shape) -> Result<()> {
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
            self.graphs.clear();
            let len = host.len().next_power_of_two();
            self.ints = device.ints(len)?;
            self.pinned_ints = Pinned::filled(&device.gpu, len, 0)?;
        }
        // Nobody copies from there any more: a step is collected before the next is started.
        let pinned = &mut self.pinned_ints[..host.len()];
        pinned.copy_from_slice(host);
        self.ints.write(pinned, 0)
    }
}
