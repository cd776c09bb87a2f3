//! The rows of training corpora.

sgs_rundir::table_row! {
    /// A training text: a prompt for a role and the desired completion.
    #[derive(Clone, Debug, PartialEq)]
    pub struct CorpusRow {
        /// `solver`, `conjecturer` or `guide`.
        pub role: String,
        /// Where the example comes from (`theorem`, `sub-proof`, `composed`, `step`, …).
        pub kind: String,
        /// Label of the theorem that it comes from.
        pub source: String,
        /// The prompt as text.
        pub prompt: String,
        /// The completion as text, including the end token.
        pub completion: String,
    }
}

/// The role of texts that measure a model and must not train it.
pub const HELD_OUT: &str = "held-out";
