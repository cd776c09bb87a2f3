//! One step of the sampler on the GPU: runs all planned tokens (of running requests and of prompts) through all
//! layers together, and then samples. Steps of a shape that has run before are started as one CUDA graph.

mod graphs;
mod layers;
mod probe;
mod shape;

use std::sync::Arc;

use super::device::PIECE;
use super::gemm::WORKSPACE;
use super::gpu::{Arg, Array, CacheArg, Element, Lane, Pinned};
use super::work::CudaKernel;
use super::{Cuda, CudaFootprint, Precision};
use graphs::Graphs;
use sgs_base::philox::uniform;
use sgs_lm::config::ModelConfig;
use sgs_lm::decode::{Decode, DecoderSizes, InputToken, NextToken, SampleSpec, SampledToken, StepPlan};
use sgs_lm::device::Device;
use sgs_lm::error::{LmError, Result};
use sgs_lm::footprint::Footprint;
use sgs_lm::model::Model;
use shape::{MOST_BLOCKS_EACH, StepShape, most_columns, padded, tiles};

/// Maximum vocabulary size of the sampling kernel.
const VOCABULARY: usize = 512 * 2048;
/// The position of padding columns, as in cache.cu.
const PADDING: u32 = u32::MAX;
/// Marks the index of a result of the preceding step in the place of a token, as in decode.cu.
const SAMPLED: u32 = 1 << 31;
/// Size of the struct `Choice` of draw.cu, in 32-bit words.
const CHOICE: usize = 6;

/// Output of the sampling kernel.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct RawSampledToken {
    token: u32,
    log_prob: f32,
    entropy: f32,
    finite: u32,
}

impl From<RawSampledToken> for SampledToken {
    fn from(raw: RawSampledToken) -> Self {
        let RawSampledToken { token, log_prob, entropy, finite } = raw;
        Self { token, log_prob, entropy, finite: finite != 0 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Kernels {
    feed: CudaKernel,
    append: CudaKernel,
    copy_pages: CudaKernel,
    attend: CudaKernel,
    attend_short: CudaKernel,
    join: CudaKernel,
    /// Prompt attention on tensor cores, if they support the model's heads.
    prompt: Option<CudaKernel>,
}

/// The paged cache and the buffers of a step.
#[derive(Debug)]
pub struct CudaDecoder {
    /// The stream of the steps, concurrent with training and other decoders. It is the first field, so that dropping
    /// it, which waits for the work, precedes dropping the buffers.
    lane: Arc<Lane>,
    sizes: DecoderSizes,
    /// Elements of a page in one layer: the keys and then the values of its positions, head by head.
    page: usize,
    /// The pages, layer by layer.
    cache: Array<Element>,
    /// Pages to copy: source and destination.
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
    partials: Array<f32>,
    /// Tokens, positions and first pages of the columns, sampling parameters, tiles of prompts, page tables.
    ints: Array<u32>,
    host_ints: Vec<u32>,
    /// Copies of `ints` for the steps with even and with odd numbers.
    pinned_ints: [Pinned<u32>; 2],
    sampled: Array<RawSampledToken>,
    /// Results of the steps with even and with odd numbers.
    host_sampled: [Pinned<RawSampledToken>; 2],
    /// Number of steps that were started.
    started: usize,
    /// Number of steps whose results were collected.
    collected: usize,
    graphs: Graphs,
}

/// Lengths of the buffers of a step.
struct BufferLengths {
    /// Elements of `x`, `x_mid`, `h`, `branch`, `qkv`, `attn`, `gate_up`, `act` and `logits`.
    elements: [usize; 9],
    /// f32 numbers of `rstd` and `partials`.
    floats: [usize; 2],
    /// u32 numbers of `pairs` and `ints`.
    ints: [usize; 2],
    /// Items of `sampled`.
    sampled: usize,
}

impl BufferLengths {
    fn new(config: &ModelConfig, sizes: &DecoderSizes, processors: usize) -> Self {
        let (columns, samples) = (most_columns(sizes), padded(sizes.max_batch));
        let (x, f) = (columns * config.hidden_size, columns * config.intermediate_size);
        let (qkv, attn) = (columns * config.qkv_dim(), columns * config.q_dim());
        Self {
            elements: [x, x, x, x, qkv, attn, 2 * f, f, samples * config.vocab_size],
            floats: [columns, partials(config, processors)],
            ints: [2 * sizes.max_batch, tables(sizes)],
            sampled: samples,
        }
    }
}

/// Returns the size of the partial results of split attention, in f32 numbers.
fn partials(config: &ModelConfig, processors: usize) -> usize {
    MOST_BLOCKS_EACH * processors * (2 + config.head_dim)
}

/// Returns the size of the columns, sampling parameters, tiles and page tables of a step, in u32 numbers.
fn tables(sizes: &DecoderSizes) -> usize {
    let pages =
        (sizes.max_batch + sizes.prefill_tokens.div_ceil(16)) * sizes.context.div_ceil(sizes.page_len);
    3 * most_columns(sizes)
        + CHOICE * padded(sizes.max_batch)
        + 4 * sizes.prefill_tokens.next_power_of_two()
        + pages
}

/// Returns the number of elements of a page in one layer.
fn page_elements(config: &ModelConfig, page_len: usize) -> usize {
    2 * config.kv_dim() * page_len
}

/// Returns the struct `Choice` of draw.cu.
fn choice(draw: &SampleSpec) -> [u32; CHOICE] {
    let choice = draw.params;
    let u = uniform(draw.seed, draw.index).to_bits();
    let top_k = if choice.truncates() { choice.top_k } else { 0 };
    [choice.temperature.to_bits(), choice.top_p.to_bits(), top_k, 0, u as u32, (u >> 32) as u32]
}

/// Allocates host memory for `len` integers of two steps.
fn pinned_ints(device: &Cuda, len: usize) -> Result<[Pinned<u32>; 2]> {
    let new = || Pinned::filled(&device.gpu, len, 0);
    Ok([new()?, new()?])
}

/// Maximum size in bytes of a model for which two samplers of a role are faster than one.
const SMALL_MODEL: usize = 128 << 20;

impl Footprint for CudaFootprint {
    fn bytes_per_parameter(&self) -> (usize, usize, usize) {
        match self.precision {
            Precision::Bf16 => (2, 4, 10),
            Precision::F32 => (4, 4, 8),
        }
    }

    fn logits_at_once(&self) -> usize {
        1 << 28
    }

    fn device_bytes(&self) -> usize {
        // These are the scratch memory of products, and the staging buffer of copies.
        WORKSPACE + 4 * PIECE
    }

    fn prefill_tokens(&self) -> usize {
        // For a small model, a step takes the GPU as long for a few tokens as for several thousand.
        8192
    }

    fn samplers(&self, config: &ModelConfig) -> usize {
        if config.parameters() * self.width() <= SMALL_MODEL { 2 } else { 1 }
    }

    fn decoder_work_bytes(&self, config: &ModelConfig, sizes: &DecoderSizes) -> u64 {
        let BufferLengths { elements, floats, ints, sampled } =
            BufferLengths::new(config, sizes, self.processors);
        let numbers: usize = floats.iter().chain(&ints).sum();
        let elements: usize = elements.iter().sum();
        let sampled = sampled * size_of::<RawSampledToken>();
        (elements * self.width() + 4 * numbers + sampled + WORKSPACE) as u64
    }

    fn decoder_page_bytes(&self, config: &ModelConfig, page_len: usize) -> u64 {
        (config.layers * page_elements(config, page_len) * self.width()) as u64
    }
}

impl Decode for Cuda {
    type Decoder = CudaDecoder;

    fn decoder(&self, config: &ModelConfig, sizes: &DecoderSizes) -> Result<CudaDecoder> {
        if config.vocab_size > VOCABULARY || config.head_dim > 256 {
            return Err(LmError::Input(format!(
                "the vocabulary has {} tokens and heads have width {}; the GPU samples up to {VOCABULARY} tokens and width 256",
                config.vocab_size, config.head_dim
            )));
        }
        let BufferLengths { elements, floats: [rstd, partials], ints: [pairs, ints], sampled } =
            BufferLengths::new(config, sizes, self.gpu.processors);
        let [x, x_mid, h, branch, qkv, attn, gate_up, act, logits] = elements;
        let page = page_elements(config, sizes.page_len);
        let results = || Pinned::filled(&self.gpu, sizes.max_batch, RawSampledToken::default());
        Ok(CudaDecoder {
            lane: Arc::new(Lane::new(&self.gpu, WORKSPACE)?),
            sizes: *sizes,
            page,
            cache: self.buf(config.layers * page * sizes.pages)?,
            pairs: self.ints(pairs)?,
            kernels: self.decode_kernels(config.head_dim, sizes.page_len)?,
            x: self.buf(x)?,
            x_mid: self.buf(x_mid)?,
            h: self.buf(h)?,
            branch: self.buf(branch)?,
            qkv: self.buf(qkv)?,
            attn: self.buf(attn)?,
            gate_up: self.buf(gate_up)?,
            act: self.buf(act)?,
            logits: self.buf(logits)?,
            rstd: self.stat(rstd)?,
            partials: self.stat(partials)?,
            ints: self.ints(ints)?,
            host_ints: Vec::with_capacity(ints),
            pinned_ints: pinned_ints(self, ints)?,
            sampled: Array::zeros(&self.gpu, sampled, size_of::<RawSampledToken>())?,
            host_sampled: [results()?, results()?],
            started: 0,
            collected: 0,
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
        plan: &StepPlan,
        _sampled: &mut [SampledToken],
    ) -> Result<()> {
        let (lane, number) = (Arc::clone(&decoder.lane), decoder.started);
        let outcome = lane.start(number, || self.start_step(decoder, model, plan));
        match outcome {
            Ok(()) => decoder.started += 1,
            // The caller does not collect this step, and the next one uses its buffers. The first error is returned.
            Err(_) => drop(lane.wait(number)),
        }
        outcome
    }

    fn steps_in_flight(&self) -> usize {
        2
    }

    fn is_done(&self, decoder: &CudaDecoder) -> Result<bool> {
        decoder.lane.is_done(decoder.collected)
    }

    fn collect(&self, decoder: &mut CudaDecoder, sampled: &mut [SampledToken]) -> Result<()> {
        let number = decoder.collected;
        decoder.collected += 1;
        decoder.lane.wait(number)?;
        let results = &decoder.host_sampled[number % 2];
        sampled.iter_mut().zip(&**results).for_each(|(to, from)| *to = (*from).into());
        Ok(())
    }
}

impl Cuda {
    /// Starts a planned step, and the copy of its results to the host.
    fn start_step(&self, decoder: &mut CudaDecoder, model: &Model<Self>, plan: &StepPlan) -> Result<()> {
        decoder.copy_pages(self, &model.config, &plan.copies)?;
        let by_tiles = decoder.kernels.prompt.is_some();
        let (heads, processors) = (model.config.heads, self.gpu.processors);
        let shape = StepShape::new(&plan.decode, &plan.prefill, by_tiles, heads, processors);
        decoder.load(self, plan, shape)?;
        // The steps borrow the buffers; the graphs do not.
        let mut graphs = std::mem::take(&mut decoder.graphs);
        let outcome = graphs.step(self, decoder, model, shape);
        decoder.graphs = graphs;
        outcome?;
        let results = &mut decoder.host_sampled[decoder.started % 2];
        decoder.sampled.fetch(results, plan.samples.len())
    }
}

impl CudaDecoder {
    /// Copies pages; each pair is source and destination.
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

    /// Copies the columns of a step to the GPU.
    fn load(&mut self, device: &Cuda, plan: &StepPlan, shape: StepShape) -> Result<()> {
        let nobody = InputToken { token: NextToken::Known(0), position: PADDING, table: (0, 0) };
        let fill = |columns: &[InputToken], len: usize| std::iter::repeat_n(nobody, len - columns.len());
        let columns = || {
            let decode = plan.decode.iter().copied().chain(fill(&plan.decode, shape.decode));
            decode.chain(plan.prefill.iter().copied()).chain(fill(&plan.prefill, shape.prompt))
        };
        let host = &mut self.host_ints;
        host.clear();
        host.extend(columns().map(|c| match c.token {
            NextToken::Known(token) => token,
            NextToken::Sampled(index) => SAMPLED | index,
        }));
        host.extend(columns().map(|c| c.position));
        host.extend(columns().map(|c| c.table.0));
        host.extend(plan.samples.iter().flat_map(choice));
        // Padding columns are sampled at temperature 1.
        let idle = [1f32.to_bits(), 1f32.to_bits(), 0, 0, 0, 0];
        host.extend(std::iter::repeat_n(idle, shape.decode - plan.samples.len()).flatten());
        if shape.tiles > 0 {
            let tiles = tiles(&plan.prefill, shape.decode);
            host.extend(tiles.iter().flatten());
            host.extend(std::iter::repeat_n(0, 4 * (shape.tiles - tiles.len())));
        }
        host.extend_from_slice(&plan.tables);
        if host.len() > self.ints.len {
            // Recorded steps read from the old addresses.
            device.gpu.wait()?;
            self.graphs.clear();
            let len = host.len().next_power_of_two();
            self.ints = device.ints(len)?;
            self.pinned_ints = pinned_ints(device, len)?;
        }
        // No copy from this memory is running, because the step before the last was collected.
        let pinned = &mut self.pinned_ints[self.started % 2][..host.len()];
        pinned.copy_from_slice(host);
        self.ints.write(pinned, 0)
    }
}
