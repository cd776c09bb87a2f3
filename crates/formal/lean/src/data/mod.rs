//! Data sets of Lean problems: reading, describing, writing.

mod read;
mod record;
mod shipped;
mod source_file;
mod stats;
mod stream;

pub use read::{
    Format, Import, ReadError, Skipped, Target, collect, read_file, read_text, write_jsonl, write_line,
};
pub use record::{RecordError, target_from_record};
pub use shipped::{D3K_TOOLCHAIN, composed, composed_held_out, core, d3k};
pub use source_file::targets_from_source;
pub use stats::{Distribution, Stats, StatsBuilder, stats};
pub use stream::{Records, Take, stream_file};
