//! One step of the sampler on the CPU: runs every planned token through all layers and then samples.
//!
//! Panels are independent of each other during the whole step, so each panel is one parallel task. Within a
//! panel, the rows of products and the attention of tokens are divided further, for threads that have no panel.

#![allow(unsafe_code)]

mod attention;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod kv;
mod panel;
mod prefetch;
pub(crate) mod sampling;

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::gemm::Write;
use crate::norm::normalise_heads;
use crate::{Cpu, CpuFootprint, simd};
use attention::{PagedAttention, TOGETHER, scratch_len};
use kv::{KvCache, PageShape, SharedKv};
pub(crate) use panel::available_precision;
use panel::{COLUMN_STEP, Columns, MAX_WIDTH, add_bias, gated, product, rms_norm, transpose};
use sgs_lm::config::ModelConfig;
use sgs_lm::decode::{
    Decode, DecoderSizes, InputToken, NextToken, PageId, SampleSpec, SampledToken, StepPlan,
};
use sgs_lm::device::{Device, Heads, Precision};
use sgs_lm::error::Result;
use sgs_lm::footprint::Footprint;
use sgs_lm::host_buffer::HostBuffer;
use sgs_lm::layout::Span;
use sgs_lm::model::Model;

/// The cache, and buffers for every panel of a step.
#[derive(Debug)]
pub struct CpuDecoder {
    cache: KvCache,
    panels: Vec<PanelBuffers>,
    /// Number of panels that have buffers for logits. They come first.
    sampling_panels: usize,
    scratch: Vec<Mutex<Scratch>>,
    /// The tokens that the last step sampled.
    previous: Vec<u32>,
}

/// Memory that a thread uses while it processes a token.
#[derive(Debug)]
struct Scratch {
    scores: HostBuffer,
    candidates: Vec<(f32, u32)>,
}

/// Buffers of up to 64 columns. Those named `_rows` store one column after the other; the others are feature-major.
#[derive(Debug)]
struct PanelBuffers {
    residual: HostBuffer,
    normed: HostBuffer,
    /// Queries, keys and values; later the attention's output.
    qkv: HostBuffer,
    qkv_rows: HostBuffer,
    attention_rows: HostBuffer,
    hidden: HostBuffer,
    /// The input of a product in bf16.
    rounded: HostBuffer,
    logits: HostBuffer,
    statistics: HostBuffer,
}

/// The tokens of a panel in this step.
struct PanelInput<'a> {
    columns: &'a [InputToken],
    samples: &'a [SampleSpec],
    sampled: &'a mut [SampledToken],
}

impl Footprint for CpuFootprint {
    fn bytes_per_parameter(&self) -> (usize, usize, usize) {
        (4, 4, 8)
    }

    fn logits_at_once(&self) -> usize {
        1 << 20
    }

    fn device_bytes(&self) -> usize {
        0
    }

    fn prefill_tokens(&self) -> usize {
        512
    }

    fn samplers(&self, _config: &ModelConfig) -> usize {
        1
    }

    fn decoder_work_bytes(&self, config: &ModelConfig, sizes: &DecoderSizes) -> u64 {
        let sampling_panels = count_sampling_panels(sizes.max_batch, self.threads);
        let panels = PanelBuffers::sizes(config, true).iter().sum::<usize>() * sampling_panels
            + PanelBuffers::sizes(config, false).iter().sum::<usize>()
                * sizes.prefill_tokens.div_ceil(MAX_WIDTH);
        let scratch = self.threads * (scratch_len(sizes.context, config.head_dim) + 2 * config.vocab_size);
        (size_of::<f32>() * (panels + scratch + sizes.max_batch)) as u64
    }

    fn decoder_page_bytes(&self, config: &ModelConfig, page_len: usize) -> u64 {
        (size_of::<f32>() * PageShape::new(config, page_len).page_numbers()) as u64
    }
}

impl Decode for Cpu {
    type Decoder = CpuDecoder;

    fn decoder(&self, config: &ModelConfig, sizes: &DecoderSizes) -> Result<CpuDecoder> {
        let sampling_panels = count_sampling_panels(sizes.max_batch, self.threads());
        let panels = sampling_panels + sizes.prefill_tokens.div_ceil(MAX_WIDTH);
        let scratch = || {
            Mutex::new(Scratch {
                scores: HostBuffer::zeros(scratch_len(sizes.context, config.head_dim)),
                candidates: Vec::with_capacity(config.vocab_size),
            })
        };
        Ok(CpuDecoder {
            cache: KvCache::new(PageShape::new(config, sizes.page_len), sizes.pages)?,
            panels: (0..panels).map(|i| PanelBuffers::new(config, i < sampling_panels)).collect(),
            sampling_panels,
            scratch: (0..self.threads()).map(|_| scratch()).collect(),
            previous: Vec::with_capacity(sizes.max_batch),
        })
    }

    fn decode(
        &self,
        decoder: &mut CpuDecoder,
        model: &Model<Cpu>,
        plan: &StepPlan,
        sampled: &mut [SampledToken],
    ) -> Result<()> {
        self.run(|| decoder.step(model, plan, sampled));
        Ok(())
    }
}

/// Returns the number of panels that sample: enough for all requests at full width, or one per thread if the panels are
/// narrower.
fn count_sampling_panels(max_batch: usize, threads: usize) -> usize {
    max_batch.div_ceil(MAX_WIDTH).max(threads.min(max_batch.div_ceil(COLUMN_STEP)))
}

impl CpuDecoder {
    /// Runs a planned step without allocating memory.
    fn step(&mut self, model: &Model<Cpu>, plan: &StepPlan, sampled: &mut [SampledToken]) {
        plan.copies.iter().for_each(|(from, to)| self.cache.copy(*from, *to));
        let step = StepContext {
            model,
            precision: model.device.precision(),
            kv: self.cache.shared(),
            tables: &plan.tables,
            scratch: &self.scratch,
            previous: &self.previous,
        };
        let width = sampling_width(plan.decode.len(), self.sampling_panels);
        let (sampling, prefilling) = self.panels.split_at_mut(self.sampling_panels);
        let decode = sampling
            .par_iter_mut()
            .zip(plan.decode.par_chunks(width))
            .zip(plan.samples.par_chunks(width).zip(sampled.par_chunks_mut(width)))
            .map(|((panel, columns), (samples, sampled))| (panel, PanelInput { columns, samples, sampled }));
        let ends = &plan.prefill_ends;
        let prefill = prefilling.par_iter_mut().zip(ends.par_iter().enumerate()).map(|(panel, (i, end))| {
            let start = if i == 0 { 0 } else { ends[i - 1] };
            (panel, PanelInput { columns: &plan.prefill[start..*end], samples: &[], sampled: &mut [] })
        });
        decode.chain(prefill).for_each(|(panel, load)| panel.step(&step, load));
        self.previous.clear();
        self.previous.extend(sampled.iter().map(|result| result.token));
    }
}

/// Data that all panels of a step share.
#[derive(Clone, Copy)]
struct StepContext<'a> {
    model: &'a Model<Cpu>,
    precision: Precision,
    kv: SharedKv<'a>,
    tables: &'a [PageId],
    scratch: &'a [Mutex<Scratch>],
    /// The tokens that the preceding step sampled.
    previous: &'a [u32],
}

impl StepContext<'_> {
    /// Returns the token that a column feeds.
    fn token(&self, column: &InputToken) -> u32 {
        match column.token {
            NextToken::Known(token) => token,
            NextToken::Sampled(index) => self.previous[index as usize],
        }
    }

    /// Returns the page table of a token's sequence.
    fn table(&self, column: &InputToken) -> &[PageId] {
        &self.tables[column.table.0 as usize..][..column.table.1 as usize]
    }

    /// Gives `work` this thread's scratch memory. `work` runs no parallel tasks, so a thread never waits for
    /// its own lock.
    #[allow(clippy::expect_used, reason = "two threads must not share scratch memory")]
    fn with_scratch(&self, work: impl FnOnce(&mut Scratch)) {
        let thread =
            rayon::current_thread_index().expect("invariant: a step runs in the device's thread pool");
        // A panic in another step can only leave numbers that are overwritten before they are read.
        work(&mut self.scratch[thread].lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Returns the width of the sampling panels for a number of columns, as balanced as the column step permits.
fn sampling_width(columns: usize, panels: usize) -> usize {
    columns.div_ceil(panels.max(1)).next_multiple_of(COLUMN_STEP).clamp(COLUMN_STEP, MAX_WIDTH)
}

impl PanelBuffers {
    fn sizes(config: &ModelConfig, samples: bool) -> [usize; 9] {
        let (d, q, qkv) = (config.hidden_size, config.q_dim(), config.qkv_dim());
        let vocabulary = if samples { config.vocab_size } else { 0 };
        let statistics = sampling::statistics_len(vocabulary, MAX_WIDTH);
        let w = MAX_WIDTH;
        let hidden = config.intermediate_size;
        let rounded = d.max(q).max(hidden).div_ceil(2);
        [d * w, d * w, qkv * w, qkv * w, q * w, hidden * w, rounded * w, vocabulary * w, statistics]
    }

    fn new(config: &ModelConfig, samples: bool) -> Self {
        let [residual, normed, qkv, qkv_rows, attention_rows, hidden, rounded, logits, statistics] =
            Self::sizes(config, samples).map(HostBuffer::zeros);
        Self { residual, normed, qkv, qkv_rows, attention_rows, hidden, rounded, logits, statistics }
    }

    fn step(&mut self, step: &StepContext<'_>, load: PanelInput<'_>) {
        let (config, layout) = (&step.model.config, &step.model.layout);
        let weights = |span: Span| &step.model.params[span.range()];
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, qkv) = (config.q_dim(), config.qkv_dim());
        let (columns, eps, precision) = (load.columns, config.norm_eps, step.precision);
        let width = columns.len().next_multiple_of(COLUMN_STEP);
        let Self { residual, normed, qkv: qkv_panel, qkv_rows, attention_rows, hidden, rounded, .. } = self;
        let (residual, normed) = (&mut residual[..d * width], &mut normed[..d * width]);
        embed(step, weights(layout.embed), d, columns, width, residual);
        for (index, layer) in layout.layers.iter().enumerate() {
            rms_norm(residual, weights(layer.input_norm), eps, width, normed);
            let projected = &mut qkv_panel[..qkv * width];
            let x = Columns::new(normed, width, precision, rounded);
            product(weights(layer.qkv), d, x, width, projected, Write::Set);
            if let Some(bias) = layer.qkv_bias {
                add_bias(projected, weights(bias), width);
            }
            transpose(projected, width, qkv, columns.len(), qkv_rows, qkv);
            let norm = layer.qk_norm.map(weights);
            rotate_and_append(step, index, norm, columns, qkv_rows);
            attend(step, index, columns, qkv_rows, attention_rows);
            let attended = &mut qkv_panel[..q * width];
            transpose(attention_rows, q, columns.len(), q, attended, width);
            let x = Columns::new(attended, width, precision, rounded);
            product(weights(layer.o), q, x, width, residual, Write::Add);
            rms_norm(residual, weights(layer.post_norm), eps, width, normed);
            let hidden = &mut hidden[..f * width];
            let x = Columns::new(normed, width, precision, rounded);
            gated(weights(layer.gate_up), d, x, width, hidden);
            let x = Columns::new(hidden, width, precision, rounded);
            product(weights(layer.down), f, x, width, residual, Write::Add);
        }
        if !load.samples.is_empty() {
            rms_norm(residual, weights(layout.final_norm), eps, width, normed);
            self.draw(step, weights(layout.head), width, load);
        }
    }

    fn draw(&mut self, step: &StepContext<'_>, head: &[f32], width: usize, load: PanelInput<'_>) {
        let d = step.model.config.hidden_size;
        let vocabulary = step.model.config.vocab_size;
        let mut inverse = [1.0f32; MAX_WIDTH];
        for (inverse, draw) in inverse.iter_mut().zip(load.samples) {
            if draw.params.temperature > 0.0 {
                *inverse = 1.0 / draw.params.temperature;
            }
        }
        let inverse = &inverse[..width];
        let logits = &mut self.logits[..vocabulary * width];
        let statistics = &mut self.statistics[..sampling::statistics_len(vocabulary, width)];
        let x = Columns::new(&self.normed[..d * width], width, step.precision, &mut self.rounded);
        sampling::head(head, d, x, width, inverse, logits, statistics);
        let totals = sampling::merge(statistics, width, inverse);
        let panel = sampling::PanelLogits { logits, statistics, totals: &totals, width };
        load.sampled.par_chunks_mut(8).zip(load.samples.par_chunks(8)).enumerate().for_each(
            |(i, (sampled, samples))| {
                step.with_scratch(|scratch| {
                    for (j, (sampled, draw)) in sampled.iter_mut().zip(samples).enumerate() {
                        *sampled = panel.draw(8 * i + j, draw, &mut scratch.candidates);
                    }
                });
            },
        );
    }
}

/// Copies rows of the embedding table to the columns of a panel; columns without a token are zero.
fn embed(
    step: &StepContext<'_>,
    table: &[f32],
    d: usize,
    columns: &[InputToken],
    width: usize,
    residual: &mut [f32],
) {
    /// Features that are copied at a time.
    const STRIP: usize = 64;
    let mut strip = [0.0f32; STRIP * MAX_WIDTH];
    for first in (0..d).step_by(STRIP) {
        let wide = STRIP.min(d - first);
        for (row, column) in strip.chunks_exact_mut(STRIP).zip(columns) {
            row[..wide].copy_from_slice(&table[step.token(column) as usize * d + first..][..wide]);
        }
        transpose(&strip, STRIP, width, wide, &mut residual[first * width..], width);
    }
}

/// Normalises queries and keys with the weights `norm`, if any, rotates them by their positions (pairs are half a
/// head apart, as in Hugging Face files) and writes keys and values to the cache.
fn rotate_and_append(
    step: &StepContext<'_>,
    layer: usize,
    norm: Option<&[f32]>,
    columns: &[InputToken],
    rows: &mut [f32],
) {
    let (config, rope, kv) = (&step.model.config, &step.model.rope, step.kv);
    let (dim, q, width) = (config.head_dim, config.q_dim(), config.qkv_dim());
    let page_len = kv.shape().page_len;
    rows.par_chunks_mut(width).zip(columns.par_iter()).with_min_len(8).for_each(|(row, column)| {
        let position = column.position as usize;
        if let Some(norm) = norm {
            normalise_heads(row, Heads::of(config), norm, config.norm_eps);
        }
        let cos = &rope.cos[position * rope.half..][..rope.half];
        let sin = &rope.sin[position * rope.half..][..rope.half];
        simd(
            #[inline(always)]
            || {
                for head in row[..q + config.kv_dim()].chunks_exact_mut(dim) {
                    let (low, high) = head.split_at_mut(dim / 2);
                    for (((a, b), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                    }
                }
            },
        );
        let (page, place) = (step.table(column)[position / page_len], position % page_len);
        let (keys, values) = row[q..].split_at(config.kv_dim());
        for (head, (key, value)) in keys.chunks_exact(dim).zip(values.chunks_exact(dim)).enumerate() {
            // SAFETY: the plan gives each token its own position. The page belongs to a sequence of this panel,
            // which reads it only after all appends (the loop ends before `attend` starts). Two tokens of one
            // page write to different positions.
            unsafe { kv.append(page, layer, head, place, key, value) };
        }
    });
}

/// Computes the attention of all tokens; adjacent tokens read the pages that they share together.
fn attend(step: &StepContext<'_>, layer: usize, columns: &[InputToken], rows: &[f32], out: &mut [f32]) {
    let config = &step.model.config;
    let (q, width) = (config.q_dim(), config.qkv_dim());
    let parts = out.par_chunks_mut(TOGETHER * q).zip(rows.par_chunks(TOGETHER * width));
    parts.zip(columns.par_chunks(TOGETHER)).for_each(|((out, rows), columns)| {
        step.with_scratch(|scratch| {
            let attention = PagedAttention {
                kv: step.kv,
                layer,
                heads: config.heads,
                columns,
                tables: step.tables,
                queries: rows,
                stride: width,
                out,
                scratch: &mut scratch.scores,
            };
            // SAFETY: only this panel writes to the pages of its requests and of prompts that are being filled,
            // and not before its next layer. No thread writes to pages of filled prompts.
            unsafe { attention.run() };
        });
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use sgs_lm::decode::{RequestId, SamplingParams};
    use sgs_lm::weights::{HostWeights, read_all};

    /// Runs three recorded sequences (Hugging Face transformers, f32) through the cache at the same time:
    /// the first `prefilled` tokens of each as a prompt, the others one per step.
    fn worst_error(name: &str, prefilled: usize, precision: Precision) -> f64 {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/data").join(name);
        let io = read_all(&dir.join("io.safetensors")).unwrap();
        let (shape, ids) = &io["input_ids"];
        let (batch, length) = (shape[0], shape[1]);
        let (logits_shape, want) = &io["logits"];
        let vocabulary = logits_shape[2];
        let device = Arc::new(Cpu::with_precision(2, precision).unwrap());
        let model = Model::new(Arc::clone(&device), HostWeights::load(&dir).unwrap(), length).unwrap();
        let pages_each = length.div_ceil(16);
        let sizes = DecoderSizes {
            max_batch: batch,
            prefill_tokens: 64 * batch,
            context: length,
            page_len: 16,
            pages: batch * pages_each,
        };
        let mut decoder = device.decoder(&model.config, &sizes).unwrap();
        // Interleave the pages, so that those of a sequence are not adjacent.
        let tables: Vec<PageId> =
            (0..batch).flat_map(|b| (0..pages_each).map(move |p| (p * batch + b) as PageId)).collect();
        let column = |b: usize, t: usize| InputToken {
            token: NextToken::Known(ids[b * length + t] as u32),
            position: t as u32,
            table: ((b * pages_each) as u32, pages_each as u32),
        };
        let draw = SampleSpec { id: RequestId(0), seed: 0, index: 0, params: SamplingParams::default() };
        let mut plan = StepPlan { tables, ..StepPlan::default() };
        for b in 0..batch {
            plan.prefill.extend((0..prefilled).map(|t| column(b, t)));
            plan.prefill_ends.push(plan.prefill.len());
        }
        if prefilled > 0 {
            device.decode(&mut decoder, &model, &plan, &mut []).unwrap();
        }
        plan.prefill.clear();
        plan.prefill_ends.clear();
        plan.samples = vec![draw; batch];
        let largest = want.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let mut worst = 0.0f64;
        for t in prefilled..length {
            plan.decode = (0..batch).map(|b| column(b, t)).collect();
            let mut sampled = vec![SampledToken::default(); batch];
            device.decode(&mut decoder, &model, &plan, &mut sampled).unwrap();
            assert!(sampled.iter().all(|d| d.finite));
            let width = sampling_width(batch, decoder.sampling_panels);
            for (b, v) in (0..batch * vocabulary).map(|i| (i / vocabulary, i % vocabulary)) {
                let got = decoder.panels[b / width].logits[v * COLUMN_STEP + b % width];
                let error =
                    f64::from(got - want[(b * length + t) * vocabulary + v]).abs() / f64::from(largest);
                worst = if error > worst || error.is_nan() { error } else { worst };
            }
        }
        worst
    }

    #[test]
    fn recorded_logits_are_reproduced_through_the_cache() {
        for name in
            ["llama_mha", "llama_gqa_tied", "llama_yarn", "qwen2_bias", "qwen3", "qwen3_tied", "mistral"]
        {
            for prefilled in [0, 13, 33] {
                for (precision, allowed) in [(Precision::F32, 1e-4), (Precision::Bf16, 2e-2)] {
                    let error = worst_error(name, prefilled, precision);
                    assert!(
                        error < allowed,
                        "{name}, {precision:?}, {prefilled} tokens of prompt: relative error {error:e}"
                    );
                }
            }
        }
    }
}
