//! Declarations of configuration keys.
//!
//! Each key is declared once. From the declaration, [`table!`] generates the field of a struct, its default, the allowed
//! values, the explanation for `--explain`, and the check. [`choice!`] does the same for a key whose value is one of
//! several names.
//!
//! ```
//! use sgs_keys::{KeyTable, above};
//!
//! sgs_keys::table! {
//!     /// Requests to a server.
//!     #[derive(Clone, Debug, PartialEq)]
//!     pub struct Requests {
//!         /// Format of prompts.
//!         pub form: Form = Form::Text,
//!         /// Attempts per request.
//!         pub tries: u32 = 8, in 1..=1000,
//!         /// Timeout of a request, in seconds.
//!         pub timeout_s: f64 = 600.0, in above(0.0).at_most(1e6),
//!         /// File that holds the key.
//!         pub key_file: String = String::new(), in "a file; empty for none",
//!     }
//! }
//!
//! sgs_keys::choice! {
//!     /// Format of prompts.
//!     pub enum Form {
//!         /// Text.
//!         Text = "text",
//!         /// Token ids.
//!         Tokens = "tokens",
//!     }
//! }
//!
//! let keys = Requests::keys("requests");
//! assert_eq!(keys[1].key, "requests.tries");
//! assert_eq!(keys[1].meaning, "Attempts per request.");
//! assert_eq!(keys[1].allowed.to_string(), "an integer from 1 to 1000");
//! let wrong = Requests { tries: 0, ..Requests::default() };
//! assert_eq!(wrong.check("requests").unwrap_err().to_string(), "`requests.tries` is 0; expected an integer from 1 to 1000");
//! ```
//!
//! # Adding a key
//!
//! 1. Add it to its table: a doc comment (the text of `--explain`, with the unit), then
//!    `pub name: Type = default, in RANGE,`. The range is `1..=1000` for integers; `above(0.0)` or `at_least(0.0)` with
//!    `.below(1.0)` or `.at_most(1.0)` for real numbers; `&["cpu", "cuda"]` for names; a phrase for free text. `bool` and
//!    every [`choice!`] need no range. A subtable is `pub name: OtherTable,` without a default, or an `Option` of one; a list of
//!    tables (`[[name]]`) is `pub name: Vec<OtherTable>,`.
//! 2. Put rules that involve several keys into the check of the configuration (`AlgorithmConfig::validate`,
//!    `EndpointConfig::check`). The range of a single key belongs in its declaration.
//! 3. Choose a default that preserves the behaviour of existing runs: their `config.toml` does not contain the new key.
//! 4. Write the schemas again: `sgs schema NAME > docs/schema/NAME.schema.json` for each that contains the table.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(test)]
extern crate self as sgs_keys;

mod allowed;
mod declare;
mod file;
mod suggest;
mod table;

pub use allowed::{Allowed, RangeEnd, RangeStart, above, at_least};
pub use file::{FileError, KeyFile, unknown_key};
pub use suggest::{did_you_mean, did_you_mean_path, is_of_some_runs, is_typing_error, no_such_path};
pub use table::{FixedDomain, InvalidValue, KeySpec, KeyTable, dotted};
