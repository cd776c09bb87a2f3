//! Problem sets: import, filtering, classification and reviews; may import [`crate::corpus`] only.

pub mod classify;
pub mod filter;
pub mod import;
pub mod label;
mod ledger;
pub mod reviews;
mod teacher;

pub use teacher::TeacherOptions;
