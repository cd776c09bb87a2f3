//! Keys of a configuration, each declared once: [`table!`] makes of one declaration the struct's field, its default,
//! what it may be, the sentence that explains it, and the check. [`choice!`] does the same for a key that holds one of
//! a few names.
//!
//! ```
//! use sgs_keys::{Table, above};
//!
//! sgs_keys::table! {
//!     /// How a server is asked.
//!     #[derive(Clone, Debug, PartialEq)]
//!     pub struct Asking {
//!         /// How prompts are sent.
//!         pub form: Form = Form::Text,
//!         /// How often one request is sent.
//!         pub tries: u32 = 8, in 1..=1000,
//!         /// Longest time for one answer, seconds.
//!         pub timeout_s: f64 = 600.0, in above(0.0).at_most(1e6),
//!         /// File that holds the key.
//!         pub key_file: String = String::new(), in "a file; empty for none",
//!     }
//! }
//!
//! sgs_keys::choice! {
//!     /// How prompts are sent.
//!     pub enum Form {
//!         /// As text.
//!         Text = "text",
//!         /// As token ids.
//!         Tokens = "tokens",
//!     }
//! }
//!
//! let keys = Asking::keys("asking");
//! assert_eq!(keys[1].key, "asking.tries");
//! assert_eq!(keys[1].meaning, "How often one request is sent.");
//! assert_eq!(keys[1].allowed.to_string(), "1 to 1000");
//! let wrong = Asking { tries: 0, ..Asking::default() };
//! assert_eq!(wrong.check("asking").unwrap_err().to_string(), "`asking.tries` is 0; expected 1 to 1000");
//! ```
//!
//! # To add a key
//!
//! 1. Write it into its table: a doc comment (the text of `--explain`: what it means, with its unit), then
//!    `pub name: Type = default, in RANGE,`. The range is `1..=1000` for whole numbers; `above(0.0)` or `at_least(0.0)`
//!    with `.below(1.0)` or `.at_most(1.0)` for others; `&["cpu", "cuda"]` for a few names; a sentence for free text.
//!    `bool` and every [`choice!`] need none. A table within a table is `pub name: OtherTable,` without a default.
//! 2. What depends on two keys at once goes into the configuration's own check (`AlgorithmConfig::validate`,
//!    `EndpointConfig::check`); the range of one key never does.
//! 3. Choose the default under which a run that was begun before the key existed goes on as it was: its `config.toml`
//!    does not name the key, and a key that is not named takes its default.
#![forbid(unsafe_code)]

mod allowed;
mod declare;
mod table;

pub use allowed::{Allowed, End, Low, above, at_least};
pub use table::{Closed, Key, Leaf, Refused, Table, check, dotted};
