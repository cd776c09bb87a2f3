//! The rows of training corpora, and statistics of a corpus.

use serde::Serialize;
use sgs_run::error::{Context, Result};
use sgs_rundir::table::RowReader;
use std::collections::BTreeMap;
use std::path::Path;

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

/// Statistics of a training corpus.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CorpusStats {
    /// Number of examples.
    pub examples: u64,
    /// Examples, words of their prompts, and words of their completions, by role and kind.
    pub kinds: BTreeMap<String, [u64; 3]>,
}

impl CorpusStats {
    /// Reads a corpus; returns `None` for a file of another kind.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        // A file of another kind lacks a column.
        let Ok(mut rows) = RowReader::<CorpusRow>::open(path) else { return Ok(None) };
        let mut stats = Self::default();
        let is_lines = path.extension().is_some_and(|e| e == "jsonl");
        match rows.next() {
            None => return Ok(None),
            Some(Err(_)) if is_lines => return Ok(None),
            Some(first) => stats.add(&first?),
        }
        for row in rows {
            stats.add(&row.with_context(|| format!("in {}", path.display()))?);
        }
        Ok(Some(stats))
    }

    fn add(&mut self, row: &CorpusRow) {
        let words = |text: &str| text.split_whitespace().count() as u64;
        let counts = self.kinds.entry(format!("{} {}", row.role, row.kind)).or_default();
        for (count, more) in counts.iter_mut().zip([1, words(&row.prompt), words(&row.completion)]) {
            *count += more;
        }
        self.examples += 1;
    }
}
