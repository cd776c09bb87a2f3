//! The backward pass through the layers, from last to first. `dx` always holds the gradient of the residual stream.

use crate::device::{Device, Heads, Linear, at, first, first_mut, row_count};
use crate::error::Result;
use crate::pack::Packed;

use super::Model;
use super::gradients::Peers;
use super::workspace::{Workspace, planned_for_inference};

impl<D: Device> Workspace<D> {
    pub(super) fn run_layers_backward(
        &mut self,
        model: &Model<D>,
        batch: &Packed,
        peers: &mut Peers<'_, D>,
    ) -> Result<()> {
        for layer in (0..model.config.layers).rev() {
            let bucket = self.gradients()?.of_layer(layer);
            self.gradients()?.begin(bucket, peers)?;
            // The last of the layers that share a slot still has its activations there.
            if layer + 1 < self.recomputed() {
                self.run_layer_to_gates(model, layer, layer, &batch.starts)?;
            }
            self.feed_forward_backward(model, layer, batch.tokens.len())?;
            self.attention_backward(model, layer, &batch.starts)?;
            self.gradients()?.complete(bucket, peers)?;
        }
        let (Some(back), Some(grads)) = (&self.back, &mut self.grads) else {
            return Err(planned_for_inference());
        };
        let (t, d) = (batch.tokens.len(), model.config.hidden_size);
        let table = grads.at(model.layout.embed);
        model.device.embed_backward(first(&back.dx, t * d), first(&self.tokens, t), d, table)?;
        grads.complete(0, peers)
    }

    /// Propagates `dx` backwards through the feed-forward half of a layer.
    fn feed_forward_backward(&mut self, model: &Model<D>, layer: usize, t: usize) -> Result<()> {
        let (device, config, params) = (&*model.device, &model.config, &model.params);
        let spans = &model.layout.layers[layer];
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let slot = self.slot_of(layer);
        let acts = &mut self.slots[slot];
        let (Some(back), Some(grads)) = (&mut self.back, &mut self.grads) else {
            return Err(planned_for_inference());
        };
        let down = Linear { rows: t, input: f, output: d };
        let dx = || first(&back.dx, t * d);
        device.linear_dx(down, dx(), at(params, spans.down), first_mut(&mut self.act, t * f))?;
        let gate_up = first_mut(&mut acts.gate_up, t * 2 * f);
        device.swiglu_backward(gate_up, f, first_mut(&mut self.act, t * f))?;
        device.linear_dw(down, grads.write(), dx(), first(&self.act, t * f), grads.at(spans.down))?;

        let up = Linear { rows: t, input: d, output: 2 * f };
        let dgate_up = || first(&acts.gate_up, t * 2 * f);
        let dh = first_mut(&mut back.dh, t * d);
        device.linear_dx(up, dgate_up(), at(params, spans.gate_up), dh)?;
        device.linear_dw(up, grads.write(), dgate_up(), first(&acts.h2, t * d), grads.at(spans.gate_up))?;
        device.rmsnorm_backward(
            first(&back.dh, t * d),
            first(&acts.x_mid, t * d),
            &acts.rstd2,
            at(params, spans.post_norm),
            first_mut(&mut back.dx, t * d),
            grads.at(spans.post_norm),
            &mut back.partial,
        )
    }

    /// Propagates `dx` backwards through the attention half of a layer.
    fn attention_backward(&mut self, model: &Model<D>, layer: usize, starts: &[usize]) -> Result<()> {
        let (device, config, params) = (&*model.device, &model.config, &model.params);
        let spans = &model.layout.layers[layer];
        let t = row_count(starts);
        let (d, q, qkv) = (config.hidden_size, config.q_dim(), config.qkv_dim());
        let heads = Heads::of(config);
        let (from, _) = self.stream_ends(layer);
        let slot = self.slot_of(layer);
        let acts = &self.slots[slot];
        let (Some(back), Some(grads)) = (&mut self.back, &mut self.grads) else {
            return Err(planned_for_inference());
        };
        let out = Linear { rows: t, input: q, output: d };
        let dattn = first_mut(&mut back.dattn, t * q);
        device.linear_dx(out, first(&back.dx, t * d), at(params, spans.o), dattn)?;
        let attn = || first(&acts.attn, t * q);
        device.linear_dw(out, grads.write(), first(&back.dx, t * d), attn(), grads.at(spans.o))?;
        let positions = || first(&self.positions, t);
        let rotated = if let (Some(norm), Some(rotated)) = (spans.qk_norm, &mut self.rotated) {
            // The layers share this buffer.
            let (raw, out) = (first(&acts.qkv, t * qkv), first_mut(&mut *rotated, t * qkv));
            device.head_norm(raw, heads, at(params, norm), config.norm_eps, out)?;
            device.rope(first_mut(&mut *rotated, t * qkv), heads, positions(), &model.rope, false)?;
            rotated
        } else {
            &acts.qkv
        };
        device.attention_backward(
            first(rotated, t * qkv),
            starts,
            heads,
            attn(),
            &acts.lse,
            first(&back.dattn, t * q),
            first_mut(&mut back.dqkv, t * qkv),
        )?;
        device.rope(first_mut(&mut back.dqkv, t * qkv), heads, positions(), &model.rope, true)?;
        if let Some(norm) = spans.qk_norm {
            let (raw, dqkv) = (first(&acts.qkv, t * qkv), first_mut(&mut back.dqkv, t * qkv));
            let (w, eps) = (at(params, norm), config.norm_eps);
            device.head_norm_backward(raw, heads, w, eps, dqkv, grads.at(norm), &mut back.partial)?;
        }

        let dqkv = || first(&back.dqkv, t * qkv);
        if let Some(bias) = spans.qkv_bias {
            device.bias_backward(dqkv(), grads.at(bias), &mut back.partial)?;
        }
        let merged = Linear { rows: t, input: d, output: qkv };
        device.linear_dx(merged, dqkv(), at(params, spans.qkv), first_mut(&mut back.dh, t * d))?;
        device.linear_dw(merged, grads.write(), dqkv(), first(&acts.h1, t * d), grads.at(spans.qkv))?;
        device.rmsnorm_backward(
            first(&back.dh, t * d),
            first(&self.x[from], t * d),
            &acts.rstd1,
            at(params, spans.input_norm),
            first_mut(&mut back.dx, t * d),
            grads.at(spans.input_norm),
            &mut back.partial,
        )
    }
}
