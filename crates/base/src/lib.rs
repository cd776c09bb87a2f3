//! Small tools that several crates need.
//!
//! The numbers of [`random`], [`philox`] and [`mersenne`] determine what runs sample and train on. They never change, so that
//! old runs can be reproduced and resumed.
//!
//! ```
//! use sgs_base::random::SeededRng;
//!
//! let mut items = [1, 2, 3];
//! SeededRng::new(7).shuffle(&mut items);
//! assert_eq!(items, [2, 3, 1]);
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod command;
pub mod digest;
pub mod excerpt;
pub mod files;
pub mod host;
pub mod mersenne;
pub mod parallel;
pub mod philox;
pub mod random;
pub mod stop;
pub mod temporary;
