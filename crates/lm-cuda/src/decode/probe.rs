//! Runs parts of a step alone, to compare their kernels with the CPU's.

use std::sync::Arc;

use super::shape::StepShape;
use super::{CudaDecoder, RawSampledToken, choice};
use crate::Cuda;
use crate::gpu::{Array, Element};
use sgs_lm::decode::{
    Decode, DecoderSizes, InputToken, NextToken, PANEL, SampleSpec, SampledToken, StepPlan,
};
use sgs_lm::device::{Device, first};
use sgs_lm::error::Result;
use sgs_lm::host_buffer::HostBuffer;
use sgs_lm::model::Model;

impl Cuda {
    /// Samples from rows of logits, `[samples, vocabulary]`.
    ///
    /// # Errors
    /// Returns an error if the number of rows is wrong or if the GPU runs out of memory.
    pub fn draw_rows(
        &self,
        logits: &Array<Element>,
        vocabulary: usize,
        samples: &[SampleSpec],
    ) -> Result<Vec<SampledToken>> {
        let n = samples.len();
        let choices: Vec<u32> = samples.iter().flat_map(choice).collect();
        let mut on = self.ints(choices.len())?;
        on.write(&choices, 0)?;
        let sampled = Array::<RawSampledToken>::zeros(&self.gpu, n, size_of::<RawSampledToken>())?;
        self.draw(logits.front(n * vocabulary)?, vocabulary, on.front(0)?, sampled.front(0)?, n)?;
        let mut host = vec![RawSampledToken::default(); n];
        sampled.read(0, &mut host)?;
        Ok(host.into_iter().map(SampledToken::from).collect())
    }

    /// Computes attention of sequences over a paged cache whose pages are not in order. `qkv` has the rows of all
    /// sequences before rotation, `[Σ lengths, qkv_dim]`, for the first layer of a model's shape. All tokens of a
    /// sequence except the last `fed` enter the cache as a prompt, `chunk` per step; the others follow one per step.
    /// Returns the rows of all sequences, `[Σ lengths, q_dim]`.
    ///
    /// # Errors
    /// Returns an error if the sizes do not match or if the GPU runs out of memory.
    pub fn paged_attention(
        self: &Arc<Self>,
        model: &Model<Self>,
        qkv: &[f32],
        lengths: &[usize],
        fed: usize,
        chunk: usize,
    ) -> Result<Vec<f32>> {
        let pages_each = lengths.iter().copied().max().unwrap_or(0).div_ceil(PAGE);
        let sizes = DecoderSizes {
            max_batch: lengths.len(),
            prefill_tokens: (lengths.len() * chunk).next_multiple_of(PANEL),
            context: pages_each * PAGE,
            page_len: PAGE,
            pages: lengths.len() * pages_each,
        };
        let mut decoder = self.decoder(&model.config, &sizes)?;
        let mut out = vec![0.0; lengths.iter().sum::<usize>() * model.config.q_dim()];
        let mut done = vec![0; lengths.len()];
        while done.iter().zip(lengths).any(|(done, length)| done < length) {
            let step = ProbeStep::next(&mut done, lengths, fed, chunk, pages_each);
            self.attend_part(&mut decoder, model, &step, qkv, &mut out)?;
        }
        Ok(out)
    }

    /// Runs a step and copies its results to their rows.
    fn attend_part(
        &self,
        decoder: &mut CudaDecoder,
        model: &Model<Self>,
        step: &ProbeStep,
        qkv: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let (wide, narrow) = (model.config.qkv_dim(), model.config.q_dim());
        let (plan, by_tiles) = (&step.plan, decoder.kernels.prompt.is_some());
        let (heads, processors) = (model.config.heads, self.gpu.processors);
        let shape = StepShape::new(&plan.decode, &plan.prefill, by_tiles, heads, processors);
        decoder.load(self, plan, shape)?;
        let [single, prompt] = &step.rows;
        let columns = (0..single.len()).chain(shape.decode..shape.decode + prompt.len());
        let places: Vec<(usize, usize)> = columns.zip(single.iter().chain(prompt).copied()).collect();
        let mut host = vec![0.0f32; shape.columns() * wide];
        for (column, row) in &places {
            host[column * wide..][..wide].copy_from_slice(&qkv[row * wide..][..wide]);
        }
        decoder.qkv = self.upload(HostBuffer::from_slice(&host))?;
        self.attend(decoder, model, 0, shape)?;
        let mut host = vec![0.0f32; shape.columns() * narrow];
        self.read_buf(first(&decoder.attn, host.len()), &mut host)?;
        for (column, row) in &places {
            out[row * narrow..][..narrow].copy_from_slice(&host[column * narrow..][..narrow]);
        }
        Ok(())
    }
}

/// Positions per page.
const PAGE: usize = 16;

/// The tokens of one step, and the rows of the input that their columns correspond to: first single tokens,
/// then prompt tokens.
struct ProbeStep {
    plan: StepPlan,
    rows: [Vec<usize>; 2],
}

impl ProbeStep {
    /// Returns the next tokens of sequences, of which `done` have been fed. The distance between a sequence's pages is
    /// the number of sequences.
    fn next(done: &mut [usize], lengths: &[usize], fed: usize, chunk: usize, pages_each: usize) -> Self {
        let (mut plan, mut rows) = (StepPlan::default(), [Vec::new(), Vec::new()]);
        let mut start = 0;
        for (i, (done, length)) in done.iter_mut().zip(lengths).enumerate() {
            let table = (plan.tables.len() as u32, pages_each as u32);
            plan.tables.extend((0..pages_each).map(|page| (page * lengths.len() + i) as u32));
            let is_prompt = *done + fed < *length;
            let count = if is_prompt { chunk.min(length - fed - *done) } else { 1.min(length - *done) };
            let positions = *done..*done + count;
            let columns = positions.clone().map(|p| InputToken {
                token: NextToken::Known(0),
                position: p as u32,
                table,
            });
            if is_prompt { &mut plan.prefill } else { &mut plan.decode }.extend(columns);
            rows[usize::from(is_prompt)].extend(positions.map(|p| start + p));
            *done += count;
            start += length;
        }
        Self { plan, rows }
    }
}
