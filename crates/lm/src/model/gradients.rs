//! Gradients of the parameters: all of them if one rank trains alone, a few buckets at a time with several ranks.

use std::ops::Range;

use crate::device::{BufferSlice, BufferSliceMut, Device, Write, first_mut};
use crate::error::{LmError, Result};
use crate::layout::{Layout, Span};
use crate::ranks::{Collective, Reduction};
use crate::shard::{Shard, Sharding};

/// The other ranks, if any.
pub type Peers<'a, D> = Option<&'a mut (dyn Collective<D> + 'static)>;

/// The buffers to which the backward pass adds gradients, and the sums over the micro-batches of a step.
///
/// With one rank, both are the same buffer. With several ranks, a bucket is summed over the ranks as soon as it is
/// complete, each rank adds its share to `sum`, and the buffer is then used for another bucket. The embedding and the
/// head have their own buffers, and layers alternate between two.
pub struct Gradients<D: Device> {
    sharding: Sharding,
    /// Buffer of each bucket.
    slots: Vec<usize>,
    buffers: Vec<D::Grad>,
    /// Elements of each buffer.
    sizes: Vec<usize>,
    /// This rank's shard, packed; `None` with one rank, whose single buffer holds the sums.
    sum: Option<D::Grad>,
    shard: Shard,
    /// How products of this micro-batch treat existing gradients.
    write: Write,
    /// How products of the next micro-batch treat them. With one rank, the first micro-batch of a step
    /// overwrites the gradients of the previous step, so they need not be zeroed and read. With several ranks,
    /// buckets are zeroed when they are summed.
    next: Write,
}

/// Returns the number of gradient elements on a rank: the buffers of buckets, and its shard.
pub fn gradient_len(layout: &Layout, rank: usize, ranks: usize) -> usize {
    if ranks <= 1 {
        return layout.len;
    }
    let sharding = Sharding::new(layout, ranks);
    let (_, sizes) = places(&sharding);
    sizes.iter().sum::<usize>() + sharding.shard(rank).len
}

/// Maps buckets to buffers; also returns the sizes of the buffers.
fn places(sharding: &Sharding) -> (Vec<usize>, Vec<usize>) {
    let last = sharding.buckets.len() - 1;
    let slots: Vec<usize> = (0..=last)
        .map(|bucket| match bucket {
            0 => 0,
            _ if bucket == last => 1,
            _ => 2 + bucket % 2,
        })
        .collect();
    let count = slots.iter().max().map_or(0, |m| m + 1);
    let mut sizes = vec![0; count];
    for (bucket, slot) in slots.iter().enumerate() {
        sizes[*slot] = sizes[*slot].max(sharding.buckets[bucket].len());
    }
    (slots, sizes)
}

impl<D: Device> Gradients<D> {
    /// Allocates zeroed gradients for one of several ranks.
    pub(super) fn new(device: &D, layout: &Layout, rank: usize, ranks: usize) -> Result<Self> {
        let sharding = Sharding::new(layout, ranks);
        let shard = sharding.shard(rank);
        let (slots, sizes) = places(&sharding);
        let buffers = sizes.iter().map(|len| device.grad(*len)).collect::<Result<_>>()?;
        let sum = if ranks > 1 { Some(device.grad(shard.len)?) } else { None };
        let next = if ranks > 1 { Write::Add } else { Write::Set };
        Ok(Self { sharding, slots, buffers, sizes, sum, shard, write: Write::Add, next })
    }

    /// Returns this rank's shard.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Returns the sums of this rank's shard, packed.
    pub fn sum(&mut self) -> &mut D::Grad {
        match &mut self.sum {
            Some(sum) => sum,
            None => &mut self.buffers[0],
        }
    }

    /// Returns the whole gradient, which exists only with one rank.
    ///
    /// # Errors
    /// Returns an error if there are several ranks.
    pub fn whole(&self) -> Result<BufferSlice<'_, D::Grad>> {
        match (&self.sum, self.buffers.first()) {
            (None, Some(buf)) => Ok(BufferSlice { buf, range: 0..self.shard.len }),
            _ => Err(LmError::Input("the gradient is sharded over several ranks".to_owned())),
        }
    }

    /// Returns the index of the last bucket.
    pub(super) fn last(&self) -> usize {
        self.sharding.buckets.len() - 1
    }

    /// Returns the index of a layer's bucket.
    pub(super) fn of_layer(&self, layer: usize) -> usize {
        (layer + 1).min(self.last())
    }

    /// Returns the gradient of a tensor.
    pub(super) fn at(&mut self, span: Span) -> BufferSliceMut<'_, D::Grad> {
        let bucket = self.sharding.buckets.partition_point(|b| b.end <= span.offset).min(self.last());
        let start = span.offset - self.sharding.buckets[bucket].start;
        BufferSliceMut { buf: &mut self.buffers[self.slots[bucket]], range: start..start + span.len }
    }

    /// Prepares for a micro-batch; each gradient's products then add to it.
    pub(super) fn begin_micro_batch(&mut self) {
        self.write = std::mem::replace(&mut self.next, Write::Add);
    }

    /// Zeroes the gradients that no product of the first micro-batch overwrites.
    pub(super) fn zero_vectors(&mut self, device: &D, layout: &Layout) -> Result<()> {
        if self.write == Write::Add {
            return Ok(());
        }
        let vectors = layout.tensors.iter().filter(|t| t.shape.len() == 1).map(|t| t.span);
        let table = (layout.embed != layout.head).then_some(layout.embed);
        vectors.chain(table).try_for_each(|span| device.zero_grad(self.at(span)))
    }

    /// Returns how this micro-batch's first product for a gradient treats the existing values.
    pub(super) fn write(&self) -> Write {
        self.write
    }

    /// Returns whether an update must zero the sums; otherwise [`Gradients::mark_outdated`] must be called after it.
    pub(crate) fn are_zeroed(&self) -> bool {
        self.sum.is_some()
    }

    /// Marks the gradients of a step as outdated: the next micro-batch overwrites them.
    pub(crate) fn mark_outdated(&mut self) {
        if !self.are_zeroed() {
            self.next = Write::Set;
        }
    }

    /// Zeroes outdated gradients if no micro-batch overwrites them.
    pub(crate) fn zero_outdated(&mut self, device: &D) -> Result<()> {
        if self.next == Write::Set { self.clear(device) } else { Ok(()) }
    }

    /// Prepares a bucket's buffer for its gradients.
    pub(super) fn begin(&mut self, bucket: usize, peers: &mut Peers<'_, D>) -> Result<()> {
        match peers {
            Some(peers) if self.sum.is_some() => peers.wait_for_slot(self.slots[bucket]),
            _ => Ok(()),
        }
    }

    /// Sums a complete bucket over the ranks.
    pub(super) fn complete(&mut self, bucket: usize, peers: &mut Peers<'_, D>) -> Result<()> {
        let (Some(sum), Some(peers)) = (&mut self.sum, peers) else { return Ok(()) };
        let share = self.sharding.share(bucket, self.shard.rank);
        let at = self.shard.within(share.clone()).next().map_or(0, |piece| piece.at);
        let slot = self.slots[bucket];
        let len = self.sharding.buckets[bucket].len();
        peers.group().combine(size_of::<f32>() * len);
        peers.reduce(Reduction {
            slot,
            bucket: BufferSliceMut { buf: &mut self.buffers[slot], range: 0..len },
            even: self.sharding.even(bucket),
            sum: BufferSliceMut { buf: sum, range: at..at + share.len() },
        })
    }

    /// Takes part in the reductions of a micro-batch without contributing to them.
    pub(super) fn complete_all(&mut self, peers: &mut Peers<'_, D>) -> Result<()> {
        let order = std::iter::once(self.last()).chain((0..self.last()).rev());
        for bucket in order {
            self.begin(bucket, peers)?;
            self.complete(bucket, peers)?;
        }
        Ok(())
    }

    /// Gathers the updated parameters of a bucket, of `width` bytes each, on every rank.
    pub(crate) fn gather(
        &self,
        bucket: usize,
        width: usize,
        params: &mut D::Buf,
        peers: &mut Peers<'_, D>,
    ) -> Result<()> {
        let Some(peers) = peers else { return Ok(()) };
        let range = self.sharding.buckets[bucket].clone();
        peers.group().combine(width * range.len());
        peers.gather(BufferSliceMut { buf: params, range }, self.sharding.even(bucket))
    }

    /// Returns the buckets, in order.
    pub(crate) fn buckets(&self) -> &[Range<usize>] {
        &self.sharding.buckets
    }

    /// Zeroes all gradients.
    pub fn clear(&mut self, device: &D) -> Result<()> {
        for (buffer, len) in self.buffers.iter_mut().zip(&self.sizes) {
            device.zero_grad(first_mut(buffer, *len))?;
        }
        if let Some(sum) = &mut self.sum {
            device.zero_grad(first_mut(sum, self.shard.len))?;
        }
        self.next = Write::Add;
        Ok(())
    }
}
