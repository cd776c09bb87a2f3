//! The sampler: continuous batching over a paged key/value cache.
//!
//! [`Sampler`] takes [`Request`]s and returns each [`SampledCompletion`] as soon as it ends. Requests with
//! equal prompts share the computation of the prompt. Each request has its own seed: on the same machine it
//! gets the same tokens no matter which other requests run at the same time, because no sum of the model's
//! arithmetic depends on the batch.
//!
//! `schedule` plans the steps, `pages` allocates the pages of the cache, and `engine` runs the
//! steps on a device that implements [`Decode`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod engine;
mod pages;
mod request;
mod schedule;

pub use engine::{Sampler, SamplerCounters, SamplerMemory, SamplerOptions};
pub use request::{Finish, Request, RequestRefusal, SampledCompletion, SamplerError};
pub use sgs_lm::decode::{Decode, RequestId, SamplingParams};
