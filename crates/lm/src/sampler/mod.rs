//! The sampler: continuous batching over a paged key/value cache.
//!
//! [`Sampler`] takes [`Request`]s and gives back [`Completion`]s as each ends. Requests with equal prompts
//! share the prompt's computation; every request carries its own seed, and its tokens are the same bits
//! whatever runs beside it on the same machine, because no sum of the model's arithmetic depends on the
//! batch.
//!
//! Inside: `schedule` decides who is fed, `pages` and `kv` hold the cache, `panel` and `attention` are the
//! kernels, `draw` turns logits into tokens, `forward` runs a step on the CPU behind the seam in `decode`, `philox`
//! gives the random numbers.

mod attention;
pub mod bench;
mod decode;
mod draw;
mod engine;
mod forward;
mod kv;
mod pages;
mod panel;
mod philox;
mod request;
mod schedule;

pub use decode::{Decode, DecoderSizes, PANEL};
pub use draw::truncated as draw_truncated;
pub use engine::{Counters, MemoryPlan, Sampler, SamplerOptions};
pub use forward::CpuDecoder;
pub use pages::Page;
pub use philox::{philox4x32, uniform};
pub use request::{Choice, Completion, Finish, Refusal, Request, RequestId, SamplerError};
pub use schedule::{Column, Draw, Drawn, Plan};
