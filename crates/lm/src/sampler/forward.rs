//! One step of the model on the CPU: every planned column through all layers, then the draws.
//!
//! Panels are independent of each other for the whole step, so each is one parallel task; inside, the
//! rows of products and the attention of columns are split again, for threads that have no panel.

#![allow(unsafe_code)]

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::attention::{Attention, TOGETHER, scratch_len};
use super::decode::{Decode, DecoderSizes};
use super::draw;
use super::kv::{KvCache, PageShape, SharedKv};
use super::pages::Page;
use super::panel::{COLUMN_STEP, MAX_WIDTH, add_bias, gated, product, rms_norm, transpose};
use super::schedule::{Column, Draw, Drawn, Plan};
use crate::config::ModelConfig;
use crate::cpu::gemm::Write;
use crate::cpu::{Cpu, Floats, simd};
use crate::device::Device;
use crate::error::Result;
use crate::layout::Span;
use crate::model::Model;

/// The cache, and buffers for every panel of a step.
#[derive(Debug)]
pub struct CpuDecoder {
    cache: KvCache,
    panels: Vec<Panel>,
    /// Panels from this index on have no buffers for logits.
    drawing: usize,
    scratch: Vec<Mutex<Scratch>>,
}

/// What one thread needs while it works on a column.
#[derive(Debug)]
struct Scratch {
    scores: Floats,
    candidates: Vec<(f32, u32)>,
}

/// Buffers of up to 64 columns. Those named `_rows` hold one column after the other, the rest lie
/// feature-major.
#[derive(Debug)]
struct Panel {
    residual: Floats,
    normed: Floats,
    /// Query, key and value, later the attention's output.
    qkv: Floats,
    qkv_rows: Floats,
    attention_rows: Floats,
    hidden: Floats,
    logits: Floats,
    statistics: Floats,
}

/// The columns that a panel holds in this step.
struct Load<'a> {
    columns: &'a [Column],
    draws: &'a [Draw],
    drawn: &'a mut [Drawn],
}

impl Decode for Cpu {
    type Decoder = CpuDecoder;

    fn decoder_work_bytes(&self, config: &ModelConfig, sizes: &DecoderSizes) -> u64 {
        let drawing = drawing_panels(sizes.max_batch, self.threads());
        let panels = Panel::sizes(config, true).iter().sum::<usize>() * drawing
            + Panel::sizes(config, false).iter().sum::<usize>() * sizes.prefill_tokens.div_ceil(MAX_WIDTH);
        let scratch = self.threads() * (scratch_len(sizes.context, config.head_dim) + 2 * config.vocab_size);
        (size_of::<f32>() * (panels + scratch)) as u64
    }

    fn decoder_page_bytes(&self, config: &ModelConfig, page_len: usize) -> u64 {
        (size_of::<f32>() * PageShape::new(config, page_len).page_numbers()) as u64
    }

    fn decoder(&self, config: &ModelConfig, sizes: &DecoderSizes) -> Result<CpuDecoder> {
        let drawing = drawing_panels(sizes.max_batch, self.threads());
        let panels = drawing + sizes.prefill_tokens.div_ceil(MAX_WIDTH);
        let scratch = || {
            Mutex::new(Scratch {
                scores: Floats::zeros(scratch_len(sizes.context, config.head_dim)),
                candidates: Vec::with_capacity(config.vocab_size),
            })
        };
        Ok(CpuDecoder {
            cache: KvCache::new(PageShape::new(config, sizes.page_len), sizes.pages)?,
            panels: (0..panels).map(|i| Panel::new(config, i < drawing)).collect(),
            drawing,
            scratch: (0..self.threads()).map(|_| scratch()).collect(),
        })
    }

    fn decode(
        &self,
        decoder: &mut CpuDecoder,
        model: &Model<Cpu>,
        plan: &Plan,
        drawn: &mut [Drawn],
    ) -> Result<()> {
        self.run(|| decoder.step(model, plan, drawn));
        Ok(())
    }
}

/// Panels that draw: enough for all columns at full width, and one a thread when they are narrower.
fn drawing_panels(max_batch: usize, threads: usize) -> usize {
    max_batch.div_ceil(MAX_WIDTH).max(threads.min(max_batch.div_ceil(COLUMN_STEP)))
}

impl CpuDecoder {
    /// Runs a planned step. Nothing is allocated.
    fn step(&mut self, model: &Model<Cpu>, plan: &Plan, drawn: &mut [Drawn]) {
        plan.copies.iter().for_each(|(from, to)| self.cache.copy(*from, *to));
        let step = Step { model, kv: self.cache.shared(), tables: &plan.tables, scratch: &self.scratch };
        let width = drawing_width(plan.decode.len(), self.drawing);
        let (drawing, reading) = self.panels.split_at_mut(self.drawing);
        let decode = drawing
            .par_iter_mut()
            .zip(plan.decode.par_chunks(width))
            .zip(plan.draws.par_chunks(width).zip(drawn.par_chunks_mut(width)))
            .map(|((panel, columns), (draws, drawn))| (panel, Load { columns, draws, drawn }));
        let ends = &plan.prefill_ends;
        let prefill = reading.par_iter_mut().zip(ends.par_iter().enumerate()).map(|(panel, (i, end))| {
            let start = if i == 0 { 0 } else { ends[i - 1] };
            (panel, Load { columns: &plan.prefill[start..*end], draws: &[], drawn: &mut [] })
        });
        decode.chain(prefill).for_each(|(panel, load)| panel.step(&step, load));
    }
}

/// What all panels of a step share.
#[derive(Clone, Copy)]
struct Step<'a> {
    model: &'a Model<Cpu>,
    kv: SharedKv<'a>,
    tables: &'a [Page],
    scratch: &'a [Mutex<Scratch>],
}

impl Step<'_> {
    /// The pages of a column's sequence.
    fn table(&self, column: &Column) -> &[Page] {
        &self.tables[column.table.0 as usize..][..column.table.1 as usize]
    }

    /// Lends this thread's scratch memory. Nothing parallel runs inside, so no thread waits for itself.
    fn with_scratch(&self, work: impl FnOnce(&mut Scratch)) {
        let own = &self.scratch[rayon::current_thread_index().unwrap_or(0) % self.scratch.len()];
        // A panic elsewhere leaves numbers that are overwritten before they are read.
        work(&mut own.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Width of the drawing panels for so many columns: as even as the column step allows.
fn drawing_width(columns: usize, panels: usize) -> usize {
    columns.div_ceil(panels.max(1)).next_multiple_of(COLUMN_STEP).clamp(COLUMN_STEP, MAX_WIDTH)
}

impl Panel {
    fn sizes(config: &ModelConfig, draws: bool) -> [usize; 8] {
        let (d, q, qkv) = (config.hidden_size, config.q_dim(), config.qkv_dim());
        let vocabulary = if draws { config.vocab_size } else { 0 };
        let statistics = draw::statistics_len(vocabulary, MAX_WIDTH);
        let w = MAX_WIDTH;
        [d * w, d * w, qkv * w, qkv * w, q * w, config.intermediate_size * w, vocabulary * w, statistics]
    }

    fn new(config: &ModelConfig, draws: bool) -> Self {
        let [residual, normed, qkv, qkv_rows, attention_rows, hidden, logits, statistics] =
            Self::sizes(config, draws).map(Floats::zeros);
        Self { residual, normed, qkv, qkv_rows, attention_rows, hidden, logits, statistics }
    }

    fn step(&mut self, step: &Step<'_>, load: Load<'_>) {
        let (config, layout) = (&step.model.config, &step.model.layout);
        let weights = |span: Span| &step.model.params[span.range()];
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, qkv) = (config.q_dim(), config.qkv_dim());
        let (columns, eps) = (load.columns, config.norm_eps);
        let width = columns.len().next_multiple_of(COLUMN_STEP);
        let Self { residual, normed, qkv: qkv_panel, qkv_rows, attention_rows, hidden, .. } = self;
        let (residual, normed) = (&mut residual[..d * width], &mut normed[..d * width]);
        embed(weights(layout.embed), d, columns, width, residual);
        for (index, layer) in layout.layers.iter().enumerate() {
            rms_norm(residual, weights(layer.input_norm), eps, width, normed);
            let projected = &mut qkv_panel[..qkv * width];
            product(weights(layer.qkv), d, normed, width, projected, Write::Set);
            if let Some(bias) = layer.qkv_bias {
                add_bias(projected, weights(bias), width);
            }
            transpose(projected, width, qkv, columns.len(), qkv_rows, qkv);
            rotate_and_append(step, index, columns, qkv_rows);
            attend(step, index, columns, qkv_rows, attention_rows);
            let attended = &mut qkv_panel[..q * width];
            transpose(attention_rows, q, columns.len(), q, attended, width);
            product(weights(layer.o), q, attended, width, residual, Write::Add);
            rms_norm(residual, weights(layer.post_norm), eps, width, normed);
            let hidden = &mut hidden[..f * width];
            gated(weights(layer.gate_up), d, normed, width, hidden);
            product(weights(layer.down), f, hidden, width, residual, Write::Add);
        }
        if !load.draws.is_empty() {
            rms_norm(residual, weights(layout.final_norm), eps, width, normed);
            self.draw(step, weights(layout.head), width, load);
        }
    }

    fn draw(&mut self, step: &Step<'_>, head: &[f32], width: usize, load: Load<'_>) {
        let d = step.model.config.hidden_size;
        let vocabulary = step.model.config.vocab_size;
        let mut inverse = [1.0f32; MAX_WIDTH];
        for (inverse, draw) in inverse.iter_mut().zip(load.draws) {
            if draw.choice.temperature > 0.0 {
                *inverse = 1.0 / draw.choice.temperature;
            }
        }
        let inverse = &inverse[..width];
        let logits = &mut self.logits[..vocabulary * width];
        let statistics = &mut self.statistics[..draw::statistics_len(vocabulary, width)];
        draw::head(head, d, &self.normed[..d * width], width, inverse, logits, statistics);
        let totals = draw::merge(statistics, width, inverse);
        let panel = draw::Panel { logits, statistics, totals: &totals, width };
        load.drawn.par_chunks_mut(8).zip(load.draws.par_chunks(8)).enumerate().for_each(
            |(i, (drawn, draws))| {
                step.with_scratch(|scratch| {
                    for (j, (drawn, draw)) in drawn.iter_mut().zip(draws).enumerate() {
                        *drawn = panel.draw(8 * i + j, draw, &mut scratch.candidates);
                    }
                });
            },
        );
    }
}

/// Rows of the embedding table as the panel's columns; columns that hold no sequence are zero.
fn embed(table: &[f32], d: usize, columns: &[Column], width: usize, residual: &mut [f32]) {
    /// Features gathered at once.
    const STRIP: usize = 64;
    let mut strip = [0.0f32; STRIP * MAX_WIDTH];
    for first in (0..d).step_by(STRIP) {
        let wide = STRIP.min(d - first);
        for (row, column) in strip.chunks_exact_mut(STRIP).zip(columns) {
            row[..wide].copy_from_slice(&table[column.token as usize * d + first..][..wide]);
        }
        transpose(&strip, STRIP, width, wide, &mut residual[first * width..], width);
    }
}

/// Rotates queries and keys by their positions (half-split pairs, as Hugging Face lays them out) and puts
/// keys and values into the cache.
fn rotate_and_append(step: &Step<'_>, layer: usize, columns: &[Column], rows: &mut [f32]) {
    let (config, rope, kv) = (&step.model.config, &step.model.rope, step.kv);
    let (dim, q, width) = (config.head_dim, config.q_dim(), config.qkv_dim());
    let page_len = kv.shape().page_len;
    rows.par_chunks_mut(width).zip(columns.par_iter()).with_min_len(8).for_each(|(row, column)| {
        let position = column.position as usize;
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
            // SAFETY: the plan gives each column its own place; the page is of this panel's sequences only,
            // and this panel reads it only after all appends (the loop ends before `attend` starts).
            // Two columns of one page write different numbers of it.
            unsafe { kv.append(page, layer, head, place, key, value) };
        }
    });
}

/// Attention of all columns; neighbours go together over the pages that they share.
fn attend(step: &Step<'_>, layer: usize, columns: &[Column], rows: &[f32], out: &mut [f32]) {
    let config = &step.model.config;
    let (q, width) = (config.q_dim(), config.qkv_dim());
    let parts = out.par_chunks_mut(TOGETHER * q).zip(rows.par_chunks(TOGETHER * width));
    parts.zip(columns.par_chunks(TOGETHER)).for_each(|((out, rows), columns)| {
        step.with_scratch(|scratch| {
            let attention = Attention {
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
            // SAFETY: a request's own pages and a prompt's in the making are written by this panel alone, and
            // not before its next layer; finished prompts are written by nobody.
            unsafe { attention.run() };
        });
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::sampler::request::{Choice, RequestId};
    use crate::weights::{HostWeights, read_all};

    /// Three recorded sequences (Hugging Face transformers 5.17, f32) through the cache: the first
    /// `prefilled` tokens of each as a prompt, the rest one token a step, all three side by side.
    fn worst_error(name: &str, prefilled: usize) -> f64 {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let io = read_all(&dir.join("io.safetensors")).unwrap();
        let (shape, ids) = &io["input_ids"];
        let (batch, length) = (shape[0], shape[1]);
        let (logits_shape, want) = &io["logits"];
        let vocabulary = logits_shape[2];
        let device = Arc::new(Cpu::new(2).unwrap());
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
        // Interleaved pages: a sequence's are not neighbours.
        let tables: Vec<Page> =
            (0..batch).flat_map(|b| (0..pages_each).map(move |p| (p * batch + b) as Page)).collect();
        let column = |b: usize, t: usize| Column {
            token: ids[b * length + t] as u32,
            position: t as u32,
            table: ((b * pages_each) as u32, pages_each as u32),
        };
        let draw = Draw { id: RequestId(0), seed: 0, index: 0, choice: Choice::default() };
        let mut plan = Plan::default();
        plan.tables = tables;
        for b in 0..batch {
            plan.prefill.extend((0..prefilled).map(|t| column(b, t)));
            plan.prefill_ends.push(plan.prefill.len());
        }
        if prefilled > 0 {
            device.decode(&mut decoder, &model, &plan, &mut []).unwrap();
        }
        plan.prefill.clear();
        plan.prefill_ends.clear();
        plan.draws = vec![draw; batch];
        let largest = want.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let mut worst = 0.0f64;
        for t in prefilled..length {
            plan.decode = (0..batch).map(|b| column(b, t)).collect();
            let mut drawn = vec![Drawn::default(); batch];
            device.decode(&mut decoder, &model, &plan, &mut drawn).unwrap();
            assert!(drawn.iter().all(|d| d.finite));
            let width = drawing_width(batch, decoder.drawing);
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
    fn recorded_logits_come_out_of_the_cache() {
        for name in ["llama_mha", "llama_gqa_tied", "llama_yarn", "qwen2_bias"] {
            for prefilled in [0, 13, 33] {
                let error = worst_error(name, prefilled);
                assert!(error < 1e-4, "{name}, {prefilled} tokens of prompt: relative error {error:e}");
            }
        }
    }
}
