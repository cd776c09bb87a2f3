//! Training by several processes, data parallel with gradients and optimiser state sharded (ZeRO-2: Rajbhandari et
//! al. 2020).
//!
//! Every rank is a process with the whole model. The batch of a step is dealt out; as the backward pass completes a
//! bucket of gradients ([`shard`]), the ranks sum it and each keeps its share; each updates its shard of moments
//! and masters, and the updated weights are gathered. [`meeting`] brings the ranks together and notices when one is
//! gone; [`Collective`] moves the numbers: over TCP between processors ([`tcp`]), by NCCL between GPUs.

pub mod meeting;
pub mod orders;
pub mod shard;
pub mod tcp;

use std::sync::Arc;

use crate::cpu::Cpu;
use crate::device::{Device, PartMut};
use crate::error::Result;

pub use meeting::{Meeting, Member, Place, Rendezvous};
pub use orders::Orders;
pub use shard::{Piece, Shard, Sharding};

/// One bucket of gradients on its way to the ranks that keep it.
#[derive(Debug)]
pub struct Reduction<'a, D: Device> {
    /// Number of the buffer that holds the bucket.
    pub slot: usize,
    /// The bucket; zeroed once it is summed.
    pub bucket: PartMut<'a, D::Grad>,
    /// Elements that every rank takes alike, in the order of ranks; the last rank also takes the rest.
    pub even: usize,
    /// Where this rank's share is added to.
    pub sum: PartMut<'a, D::Grad>,
}

/// What the ranks do together. All ranks make the same calls in the same order.
///
/// On a GPU a reduction or gathering only begins with its call, on a stream of its own: kernels started afterwards
/// may run beside it. [`Collective::reuse`] and [`Collective::settle`] put later kernels behind it.
pub trait Collective<D: Device>: Send {
    /// The ranks.
    fn meeting(&mut self) -> &mut Meeting;
    /// Sums a bucket over all ranks, in the order of ranks where the device allows.
    ///
    /// # Errors
    /// A rank is gone, or the device fails.
    fn reduce(&mut self, reduction: Reduction<'_, D>) -> Result<()>;
    /// Waits with what follows until the buffer `slot` was given back by its last reduction.
    ///
    /// # Errors
    /// As [`Collective::reduce`].
    fn reuse(&mut self, slot: usize) -> Result<()>;
    /// Gives every rank all shares of a bucket of parameters: `even` elements a rank, the rest from the last.
    ///
    /// # Errors
    /// As [`Collective::reduce`].
    fn gather(&mut self, bucket: PartMut<'_, D::Buf>, even: usize) -> Result<()>;
    /// Waits with what follows until everything begun is done.
    ///
    /// # Errors
    /// As [`Collective::reduce`].
    fn settle(&mut self) -> Result<()>;
}

/// A device whose processes can train together.
pub trait Parallel: Device {
    /// Connects this process's device to those of the other ranks.
    ///
    /// # Errors
    /// A rank does not come, or what moves the numbers is missing.
    fn connect(device: &Arc<Self>, meeting: Meeting) -> Result<Box<dyn Collective<Self>>>;
}

impl Parallel for Cpu {
    fn connect(_: &Arc<Self>, meeting: Meeting) -> Result<Box<dyn Collective<Self>>> {
        Ok(Box::new(tcp::Tcp::connect(meeting)?))
    }
}
