//! Reads and writes data sets of Lean problems.

mod read;
mod record;
mod shipped;
mod source_file;
mod stream;
mod target;

pub use read::{collect, read_file, read_text, write_line};
pub use record::{RecordError, target_from_record};
pub use shipped::{composed, composed_held_out, core, d3k};
pub use source_file::targets_from_source;
pub use stream::{Records, Take, stream_file};
pub use target::{D3K_TOOLCHAIN, DataSetError, Import, SkippedRecord, Target};
