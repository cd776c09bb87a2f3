//! The forward pass: embedding, layers, and the head over the rows that have a loss.

use crate::device::{
    BufferSlice, BufferSliceMut, Device, Heads, Linear, LossRows, Pass, RowLoss, Write, at, first, first_mut,
    row_count,
};
use crate::error::{LmError, Result};
use crate::pack::Packed;
use std::ops::Range;

use super::Model;
use super::gradients::Peers;
use super::plan::Mode;
use super::workspace::{Workspace, planned_for_inference};

impl<D: Device> Workspace<D> {
    /// Computes log-probabilities and entropies of a batch's loss rows, without gradients.
    ///
    /// # Errors
    /// Returns an error if the batch is larger than planned, if a token is not in the vocabulary, or if the
    /// device fails.
    pub fn forward(&mut self, model: &Model<D>, batch: &Packed) -> Result<()> {
        self.check(model, batch)?;
        self.load(&model.device, batch)?;
        self.run_layers(model, batch)?;
        let loss = RowLoss { ratio_bounds: None, entropy_bonus: 0.0, kl_penalty: 0.0, backward: false };
        self.run_head(model, batch.rows.len(), loss, |_, _| Ok(()))
    }

    /// Runs the forward and backward pass of a micro-batch and adds the gradients to [`Workspace::gradients`].
    /// With `peers`, buckets of gradients are summed over the ranks during the backward pass: each rank passes
    /// its own micro-batch, or calls [`Workspace::stand_by`].
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Workspace::forward`], if the workspace was planned for
    /// inference, or if a rank is lost.
    pub fn forward_backward(
        &mut self,
        model: &Model<D>,
        batch: &Packed,
        loss: RowLoss,
        mut peers: Peers<'_, D>,
    ) -> Result<()> {
        self.check(model, batch)?;
        self.load(&model.device, batch)?;
        let loss = RowLoss { backward: true, ..loss };
        let gradients = self.gradients()?;
        if batch.rows.is_empty() {
            // Without loss rows, the head has no product that would overwrite old gradients.
            gradients.zero_outdated(&model.device)?;
        }
        gradients.begin_micro_batch();
        if peers.is_some() {
            // The reductions run between the kernels, so the pass cannot be recorded.
            return self.run_pass(model, batch, loss, &mut peers);
        }
        let pass = Pass {
            params: &model.params,
            rope: &model.rope,
            starts: &batch.starts,
            loss_rows: batch.rows.len(),
            heads: Heads::of(&model.config),
            loss,
            write: gradients.write(),
        };
        // A pass borrows the buffers; the recorded passes do not.
        let mut passes = std::mem::take(&mut self.passes);
        let outcome = model.device.pass(&mut passes, pass, || self.run_pass(model, batch, loss, &mut None));
        self.passes = passes;
        outcome
    }

    /// Runs the kernels of a forward and backward pass over the loaded batch.
    fn run_pass(
        &mut self,
        model: &Model<D>,
        batch: &Packed,
        loss: RowLoss,
        peers: &mut Peers<'_, D>,
    ) -> Result<()> {
        self.run_layers(model, batch)?;
        let d = model.config.hidden_size;
        let back = self.back.as_mut().ok_or_else(planned_for_inference)?;
        model.device.zero(first_mut(&mut back.dx, batch.tokens.len() * d))?;
        let gradients = self.gradients()?;
        gradients.zero_vectors(&model.device, &model.layout)?;
        let last = gradients.last();
        // A tied head adds to the gradients of the embedding.
        [0, last].into_iter().try_for_each(|bucket| gradients.begin(bucket, peers))?;
        self.run_head(model, batch.rows.len(), loss, |_, _| Ok(()))?;
        self.gradients()?.complete(last, peers)?;
        self.run_layers_backward(model, batch, peers)
    }

    /// Takes part in the reductions of a micro-batch that other ranks process.
    ///
    /// # Errors
    /// Returns an error if the workspace was planned for inference, or if a rank is lost.
    pub fn stand_by(&mut self, mut peers: Peers<'_, D>) -> Result<()> {
        self.gradients()?.complete_all(&mut peers)
    }

    /// Computes the logits of every loss row, `[rows, vocabulary]`, and passes them block by block to
    /// `take(first_row, logits)`.
    pub fn logits(
        &mut self,
        model: &Model<D>,
        batch: &Packed,
        mut take: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.check(model, batch)?;
        self.load(&model.device, batch)?;
        self.run_layers(model, batch)?;
        let loss = RowLoss { ratio_bounds: None, entropy_bonus: 0.0, kl_penalty: 0.0, backward: false };
        let mut host = vec![0.0; self.plan.logit_rows * model.config.vocab_size];
        self.run_head(model, batch.rows.len(), loss, |row, logits| {
            let host = &mut host[..logits.range.len()];
            model.device.read_buf(logits, host)?;
            take(row, host)
        })
    }

    /// Computes the last hidden state (after the final norm) of every loss row, `[rows, hidden]`, and passes
    /// the states block by block to `take(first_row, states)`.
    pub fn hidden(
        &mut self,
        model: &Model<D>,
        batch: &Packed,
        mut take: impl FnMut(usize, &[f32]),
    ) -> Result<()> {
        self.check(model, batch)?;
        self.load(&model.device, batch)?;
        self.run_layers(model, batch)?;
        let (rows, d) = (batch.rows.len(), model.config.hidden_size);
        let block = even_block(rows, self.plan.logit_rows);
        let mut host = vec![0.0; block * d];
        for start in (0..rows).step_by(block) {
            let end = rows.min(start + block);
            self.run_final_norm(model, start..end)?;
            let states = &mut host[..(end - start) * d];
            model.device.read_buf(first(&self.head_in, states.len()), states)?;
            take(start, states);
        }
        Ok(())
    }

    fn check(&self, model: &Model<D>, batch: &Packed) -> Result<()> {
        if model.config != self.config {
            return Err(LmError::Input("the workspace was planned for a model of another shape".to_owned()));
        }
        let vocabulary = model.config.vocab_size;
        if let Some(id) = batch.tokens.iter().chain(&batch.targets).find(|id| **id as usize >= vocabulary) {
            return Err(LmError::Input(format!("token id {id} is beyond the vocabulary of {vocabulary}")));
        }
        match batch.positions.iter().max() {
            Some(p) if *p as usize >= model.max_positions => Err(LmError::Input(format!(
                "a sequence of {} tokens is longer than the {} positions of the model",
                p + 1,
                model.max_positions
            ))),
            _ => Ok(()),
        }
    }

    fn run_layers(&mut self, model: &Model<D>, batch: &Packed) -> Result<()> {
        let (t, d) = (batch.tokens.len(), model.config.hidden_size);
        let table = at(&model.params, model.layout.embed);
        model.device.gather(table, first(&self.tokens, t), d, first_mut(&mut self.x[0], t * d))?;
        for layer in 0..model.config.layers {
            let (from, to) = self.stream_ends(layer);
            self.run_layer(model, layer, from, &batch.starts)?;
            let slot = self.slot_of(layer);
            let (x_mid, branch) = (first(&self.slots[slot].x_mid, t * d), first(&self.branch, t * d));
            model.device.add(x_mid, branch, first_mut(&mut self.x[to], t * d))?;
        }
        Ok(())
    }

    /// Returns the indices of the residual streams before and after a layer.
    pub(super) fn stream_ends(&self, layer: usize) -> (usize, usize) {
        match self.plan.mode {
            Mode::Infer => (layer % 2, (layer + 1) % 2),
            Mode::Train | Mode::TrainRecompute { .. } => (layer, layer + 1),
        }
    }

    /// Returns the index of the activations of a layer.
    pub(super) fn slot_of(&self, layer: usize) -> usize {
        match self.plan.mode {
            Mode::Infer => 0,
            Mode::Train => layer,
            // All recomputed layers share the first slot.
            Mode::TrainRecompute { .. } => (layer + 1).saturating_sub(self.recomputed().max(1)),
        }
    }

    /// Returns the number of layers, counted from the first, that the backward pass recomputes.
    pub(super) fn recomputed(&self) -> usize {
        self.plan.mode.recomputed(self.config.layers)
    }

    /// Runs one layer from stream `from` up to its feed-forward output in `branch`.
    fn run_layer(&mut self, model: &Model<D>, layer: usize, from: usize, starts: &[usize]) -> Result<()> {
        self.run_layer_to_gates(model, layer, from, starts)?;
        let (device, config) = (&*model.device, &model.config);
        let t = row_count(starts);
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let acts = &self.slots[self.slot_of(layer)];
        device.swiglu(first(&acts.gate_up, t * 2 * f), f, first_mut(&mut self.act, t * f))?;
        let size = Linear { rows: t, input: f, output: d };
        let (down, branch) = (at(&model.params, model.layout.layers[layer].down), &mut self.branch);
        device.linear(size, first(&self.act, t * f), down, first_mut(branch, t * d))
    }

    /// Runs one layer from stream `from` up to the gate and up projections, which is everything that the backward pass
    /// needs.
    pub(super) fn run_layer_to_gates(
        &mut self,
        model: &Model<D>,
        layer: usize,
        from: usize,
        starts: &[usize],
    ) -> Result<()> {
        let (device, config, params) = (&*model.device, &model.config, &model.params);
        let spans = &model.layout.layers[layer];
        let t = row_count(starts);
        let (d, q, qkv, f) = (config.hidden_size, config.q_dim(), config.qkv_dim(), config.intermediate_size);
        let slot = self.slot_of(layer);
        let (acts, x) = (&mut self.slots[slot], first(&self.x[from], t * d));
        let heads = Heads::of(config);

        let (h1, rstd1) = (first_mut(&mut acts.h1, t * d), &mut acts.rstd1);
        device.rmsnorm(x, at(params, spans.input_norm), config.norm_eps, h1, rstd1)?;
        let size = Linear { rows: t, input: d, output: qkv };
        let merged = first_mut(&mut acts.qkv, t * qkv);
        device.linear(size, first(&acts.h1, t * d), at(params, spans.qkv), merged)?;
        if let Some(bias) = spans.qkv_bias {
            device.add_bias(first_mut(&mut acts.qkv, t * qkv), at(params, bias))?;
        }
        let positions = first(&self.positions, t);
        let rotated = if let (Some(norm), Some(rotated)) = (spans.qk_norm, &mut self.rotated) {
            let (raw, out) = (first(&acts.qkv, t * qkv), first_mut(&mut *rotated, t * qkv));
            device.head_norm(raw, heads, at(params, norm), config.norm_eps, out)?;
            rotated
        } else {
            &mut acts.qkv
        };
        device.rope(first_mut(rotated, t * qkv), heads, positions, &model.rope, false)?;
        let out = first_mut(&mut acts.attn, t * q);
        device.attention(first(rotated, t * qkv), starts, heads, out, &mut acts.lse)?;
        let size = Linear { rows: t, input: q, output: d };
        let branch = first_mut(&mut self.branch, t * d);
        device.linear(size, first(&acts.attn, t * q), at(params, spans.o), branch)?;

        let (x, branch) = (first(&self.x[from], t * d), first(&self.branch, t * d));
        let (x_mid, h2) = (first_mut(&mut acts.x_mid, t * d), first_mut(&mut acts.h2, t * d));
        let w = at(params, spans.post_norm);
        device.add_rmsnorm(x, branch, w, config.norm_eps, x_mid, h2, &mut acts.rstd2)?;
        let size = Linear { rows: t, input: d, output: 2 * f };
        let gate_up = first_mut(&mut acts.gate_up, t * 2 * f);
        device.linear(size, first(&acts.h2, t * d), at(params, spans.gate_up), gate_up)
    }

    /// Gathers the residual stream of some loss rows and applies the final norm, into `head_in`.
    fn run_final_norm(&mut self, model: &Model<D>, rows: Range<usize>) -> Result<()> {
        let (device, d, n) = (&*model.device, model.config.hidden_size, rows.len());
        let (_, last) = self.stream_ends(model.config.layers - 1);
        let ids = BufferSlice { buf: &self.rows.ids, range: rows };
        let gathered = first_mut(&mut self.gathered, n * d);
        device.gather(first(&self.x[last], self.plan.tokens * d), ids, d, gathered)?;
        let (norm, rstd) = (at(&model.params, model.layout.final_norm), &mut self.head_rstd);
        let head_in = first_mut(&mut self.head_in, n * d);
        device.rmsnorm(first(&self.gathered, n * d), norm, model.config.norm_eps, head_in, rstd)
    }

    /// Runs the head over all loss rows, block by block. With [`RowLoss::backward`] it also computes the head's
    /// gradients and scatters those of the residual stream into `dx`. `look(first_row, logits)` is called for
    /// each block of logits.
    fn run_head(
        &mut self,
        model: &Model<D>,
        rows: usize,
        loss: RowLoss,
        mut look: impl FnMut(usize, BufferSlice<'_, D::Buf>) -> Result<()>,
    ) -> Result<()> {
        let (device, config, params) = (&*model.device, &model.config, &model.params);
        let (d, v) = (config.hidden_size, config.vocab_size);
        let stream = self.plan.tokens * d;
        let block = even_block(rows, self.plan.logit_rows);
        for start in (0..rows).step_by(block) {
            let n = block.min(rows - start);
            let range = start..start + n;
            self.run_final_norm(model, range.clone())?;
            let size = Linear { rows: n, input: d, output: v };
            let (head_in, head) = (first(&self.head_in, n * d), at(params, model.layout.head));
            device.linear(size, head_in, head, first_mut(&mut self.logits, n * v))?;
            let part = |buf| BufferSlice { buf, range: range.clone() };
            let loss_rows = LossRows {
                targets: BufferSlice { buf: &self.rows.targets, range: range.clone() },
                weight: part(&self.rows.weight),
                norm: part(&self.rows.norm),
                old: part(&self.rows.old),
                reference: part(&self.rows.reference),
                log_prob: BufferSliceMut { buf: &mut self.rows.log_prob, range: range.clone() },
                entropy: BufferSliceMut { buf: &mut self.rows.entropy, range: range.clone() },
            };
            device.loss_rows(loss, v, first_mut(&mut self.logits, n * v), loss_rows)?;
            look(start, first(&self.logits, n * v))?;
            if loss.backward {
                let (Some(back), Some(grads)) = (&mut self.back, &mut self.grads) else {
                    return Err(planned_for_inference());
                };
                let (dlogits, head) = (first(&self.logits, n * v), at(params, model.layout.head));
                device.linear_dx(size, dlogits, head, first_mut(&mut back.dhead, n * d))?;
                let (dlogits, head_in) = (first(&self.logits, n * v), first(&self.head_in, n * d));
                let write = if start == 0 { grads.write() } else { Write::Add };
                device.linear_dw(size, write, dlogits, head_in, grads.at(model.layout.head))?;
                device.zero(first_mut(&mut back.dgathered, n * d))?;
                device.rmsnorm_backward(
                    first(&back.dhead, n * d),
                    first(&self.gathered, n * d),
                    &self.head_rstd,
                    at(params, model.layout.final_norm),
                    first_mut(&mut back.dgathered, n * d),
                    grads.at(model.layout.final_norm),
                    &mut back.partial,
                )?;
                let ids = BufferSlice { buf: &self.rows.ids, range: range.clone() };
                let dx = first_mut(&mut back.dx, stream);
                device.scatter(first(&back.dgathered, n * d), ids, d, dx)?;
            }
        }
        Ok(())
    }
}

/// Returns the number of rows per block. The number of blocks is the smallest that `most` rows per block allow. All
/// blocks have about the same size, so that they are whole tiles of matrix products and no small block remains at the
/// end.
fn even_block(rows: usize, most: usize) -> usize {
    let blocks = rows.div_ceil(most).max(1);
    rows.div_ceil(blocks).max(1).next_multiple_of(TILE).min(most)
}

/// Rows of the largest tiles of matrix products.
const TILE: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_rows_are_even() {
        assert_eq!(even_block(8192, 2621), 2048);
        assert_eq!(even_block(8192, 8388), 8192);
        assert_eq!(even_block(100, 2621), 128);
        assert_eq!(even_block(0, 60), 60);
        for rows in 1..3000 {
            for most in [1, 60, 128, 200, 1024] {
                let block = even_block(rows, most);
                assert!(
                    (1..=most).contains(&block) && rows.div_ceil(block) == rows.div_ceil(most),
                    "{rows} {most}"
                );
            }
        }
    }
}
