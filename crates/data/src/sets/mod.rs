//! Problem sets: import, statistics, filtering, classification and reviews; may import [`crate::corpus`] only.

pub mod classify;
pub mod describe;
pub mod filter;
pub mod import;
pub mod label;
mod ledger;
pub mod reviews;
pub mod stats;
mod teacher;

pub use teacher::TeacherOptions;
