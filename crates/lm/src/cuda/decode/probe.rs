//! Parts of a step by themselves, for checking their kernels against the CPU's.

use std::sync::Arc;

use super::shape::Shape;
use super::{CudaDecoder, RawDrawn, choice};
use crate::cpu::Floats;
use crate::cuda::Cuda;
use crate::cuda::gpu::{Array, Element};
use crate::device::{Device, first};
use crate::error::Result;
use crate::model::Model;
use crate::sampler::{Column, Decode, DecoderSizes, Draw, Drawn, PANEL, Plan};

impl Cuda {
    /// Draws from rows of logits, `[draws, vocabulary]`.
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

    /// Attention of sequences over a paged cache whose pages lie in no order. `qkv` are the rows of all sequences
    /// before rotation, `[Σ lengths, qkv_dim]`, in the first layer of a model's shape; of each sequence all tokens
    /// but the last `fed` go into the cache as prompts, `chunk` a step, the rest one token a step. Returns the rows
    /// of all sequences, `[Σ lengths, q_dim]`.
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
            let part = Part::next(&mut done, lengths, fed, chunk, pages_each);
            self.attend_part(&mut decoder, model, &part, qkv, &mut out)?;
        }
        Ok(out)
    }

    /// Feeds a part, and puts its results into their rows.
    fn attend_part(
        &self,
        decoder: &mut CudaDecoder,
        model: &Model<Self>,
        part: &Part,
        qkv: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let (wide, narrow) = (model.config.qkv_dim(), model.config.q_dim());
        let (plan, by_tiles) = (&part.plan, decoder.kernels.prompt.is_some());
        let (heads, processors) = (model.config.heads, self.gpu.processors);
        let shape = Shape::new(&plan.decode, &plan.prefill, by_tiles, heads, processors);
        decoder.load(self, plan, shape)?;
        let [single, prompt] = &part.rows;
        let columns = (0..single.len()).chain(shape.decode..shape.decode + prompt.len());
        let places: Vec<(usize, usize)> = columns.zip(single.iter().chain(prompt).copied()).collect();
        let mut host = vec![0.0f32; shape.columns() * wide];
        for (column, row) in &places {
            host[column * wide..][..wide].copy_from_slice(&qkv[row * wide..][..wide]);
        }
        decoder.qkv = self.adopt(Floats::from_slice(&host))?;
        self.attend(decoder, model, 0, shape)?;
        let mut host = vec![0.0f32; shape.columns() * narrow];
        self.read_buf(first(&decoder.attn, host.len()), &mut host)?;
        for (column, row) in &places {
            out[row * narrow..][..narrow].copy_from_slice(&host[column * narrow..][..narrow]);
        }
        Ok(())
    }
}

/// Positions of a page.
const PAGE: usize = 16;

/// What is fed in one step, and which rows of the input its columns are: single tokens, then prompt tokens.
struct Part {
    plan: Plan,
    rows: [Vec<usize>; 2],
}

impl Part {
    /// The next tokens of sequences of which `done` have been fed. Pages of a sequence lie as far apart as there are
    /// sequences.
    fn next(done: &mut [usize], lengths: &[usize], fed: usize, chunk: usize, pages_each: usize) -> Self {
        let (mut plan, mut rows) = (Plan::default(), [Vec::new(), Vec::new()]);
        let mut start = 0;
        for (i, (done, length)) in done.iter_mut().zip(lengths).enumerate() {
            let table = (plan.tables.len() as u32, pages_each as u32);
            plan.tables.extend((0..pages_each).map(|page| (page * lengths.len() + i) as u32));
            let is_prompt = *done + fed < *length;
            let count = if is_prompt { chunk.min(length - fed - *done) } else { 1.min(length - *done) };
            let positions = *done..*done + count;
            let columns = positions.clone().map(|p| Column { token: 0, position: p as u32, table });
            if is_prompt { &mut plan.prefill } else { &mut plan.decode }.extend(columns);
            rows[usize::from(is_prompt)].extend(positions.map(|p| start + p));
            *done += count;
            start += length;
        }
        Self { plan, rows }
    }
}
