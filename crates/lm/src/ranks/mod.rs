//! Data-parallel training with several processes; gradients and optimizer state are sharded (ZeRO-2,
//! Rajbhandari et al. 2020).
//!
//! Every rank is a process with a copy of the whole model. Each step divides its batch among the ranks. As soon as the
//! backward pass completes a bucket of gradients ([`crate::shard`]), the ranks sum the bucket and each keeps its share.
//! Each rank then updates its shard of moments and master weights, and the updated weights are gathered.
//!
//! [`process_group`] connects the ranks and detects lost ones. [`Collective`] transfers the tensors: over TCP
//! between CPUs ([`Tcp`]), with NCCL between GPUs.

pub mod commands;
mod greeting;
pub mod process_group;
mod tcp;

use std::sync::Arc;

use crate::device::{BufferSliceMut, Device};
use crate::error::Result;

pub use commands::CommandChannel;
pub use process_group::{ProcessGroup, RankConfig, RankInfo, Rendezvous};
pub use tcp::Tcp;

/// A bucket of gradients that is being reduced.
#[derive(Debug)]
pub struct Reduction<'a, D: Device> {
    /// Index of the buffer that holds the bucket.
    pub slot: usize,
    /// The bucket; zeroed after it is summed.
    pub bucket: BufferSliceMut<'a, D::Grad>,
    /// Elements of each rank's share, in the order of ranks; the last rank's share also has the remainder.
    pub even: usize,
    /// Where this rank's share of the sum is added.
    pub sum: BufferSliceMut<'a, D::Grad>,
}

/// Collective operations. All ranks make the same calls in the same order.
///
/// On a GPU, [`Collective::reduce`] and [`Collective::gather`] only start the operation on a separate stream,
/// and kernels that are started later may run concurrently. [`Collective::wait_for_slot`] and [`Collective::wait_all`]
/// make later kernels wait for it.
pub trait Collective<D: Device>: Send {
    /// Returns the process group.
    fn group(&mut self) -> &mut ProcessGroup;
    /// Sums a bucket over all ranks, in the order of ranks where the device supports it.
    fn reduce(&mut self, reduction: Reduction<'_, D>) -> Result<()>;
    /// Makes later kernels wait until the last reduction of the buffer `slot` no longer uses it.
    fn wait_for_slot(&mut self, slot: usize) -> Result<()>;
    /// Gathers the shares of a bucket of parameters on every rank: `even` elements from each rank, and the
    /// remainder from the last.
    fn gather(&mut self, bucket: BufferSliceMut<'_, D::Buf>, even: usize) -> Result<()>;
    /// Makes later kernels wait until all operations started so far are complete.
    fn wait_all(&mut self) -> Result<()>;
}

/// A device on which several processes can train together.
pub trait Parallel: Device {
    /// Connects this process's device to those of the other ranks.
    ///
    /// # Errors
    /// Returns an error if a rank does not connect or if the communication library is missing.
    fn connect(device: &Arc<Self>, group: ProcessGroup) -> Result<Box<dyn Collective<Self>>>;
}
