//! Training corpora: files of prompts and completions, tokenised and mixed in a seeded order.

use crate::output;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sgs_lm::chat::Message;
use sgs_lm::loss::Example;
use sgs_lm::tokenizer::Tokenizer;
use sgs_run::evaluate::in_parallel;
use sgs_rundir::table::RowReader;
use sgs_selfplay::seed::{Stream, shuffle_seed};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

sgs_rundir::table_row! {
    /// A training text: what a role is asked and what it should answer.
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
        /// The completion as text, the end token included.
        pub completion: String,
    }
}

/// One corpus of a mixture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusConfig {
    /// Parquet or JSONL file with the columns of [`CorpusRow`], relative to the data folder.
    pub file: String,
    /// Kinds of examples to take; empty for all.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// How often each example is seen over the whole training; need not be a whole number.
    pub passes: f64,
    /// Weight of the prompt's tokens in the loss; the completion's have 1.
    #[serde(default)]
    pub prompt_weight: f32,
    /// Whether a prompt is a user's message, to be put into the tokenizer's chat template; the model's end token is then
    /// put behind the completion.
    #[serde(default)]
    pub chat: bool,
}

/// More passes than anybody trains for.
const MOST_PASSES: f64 = 1e6;

/// The mixture in its order: which example of which corpus comes when.
pub struct Mixture {
    examples: Vec<Text>,
    order: Vec<u32>,
    /// Examples that are never trained on, for the held-out loss.
    pub held_out: Vec<Example>,
    /// Examples that were too long for the model.
    pub left_out: usize,
}

/// A tokenised training text.
struct Text {
    tokens: Box<[u32]>,
    prompt_len: u32,
    /// Weight of the prompt's tokens in the loss.
    prompt_weight: f32,
}

impl Text {
    fn example(&self) -> Example {
        let prompt = self.prompt_len as usize;
        let (prompt_len, token_weights) = if self.prompt_weight > 0.0 {
            let mut weights = vec![self.prompt_weight; prompt - 1];
            weights.resize(self.tokens.len() - 1, 1.0);
            (1, weights)
        } else {
            (prompt, Vec::new())
        };
        Example { tokens: self.tokens.to_vec(), prompt_len, weight: 1.0, token_weights, ..Example::default() }
    }
}

/// Rows that are read before they are tokenised together.
const ROWS_AT_ONCE: usize = 65_536;

/// The role of texts that measure a model and may not train it.
pub const HELD_OUT: &str = "held-out";

impl Mixture {
    /// Reads and tokenises corpora and lays out the order of all passes, spread evenly over the training. The last
    /// `held_out` examples of each corpus are set aside.
    ///
    /// # Errors
    /// A file cannot be read, a corpus is empty, or a text has unknown words.
    pub fn read(
        corpora: &[CorpusConfig],
        folder: &Path,
        tokenizer: &Tokenizer,
        max_tokens: usize,
        seed: u64,
        held_out: usize,
    ) -> Result<Self> {
        let mut mixture = Self { examples: Vec::new(), order: Vec::new(), held_out: Vec::new(), left_out: 0 };
        let mut keyed: Vec<(f64, u32)> = Vec::new();
        for (number, corpus) in corpora.iter().enumerate() {
            if !(corpus.passes > 0.0 && corpus.passes <= MOST_PASSES) {
                bail!(
                    "{}: passes is {}: give more than 0, at most {MOST_PASSES}",
                    corpus.file,
                    corpus.passes
                );
            }
            let first = mixture.examples.len();
            mixture.add(corpus, folder, tokenizer, max_tokens)?;
            let keep = mixture.examples.len().saturating_sub(held_out).max(first);
            mixture.held_out.extend(mixture.examples.drain(keep..).map(|text| text.example()));
            let count = mixture.examples.len() - first;
            if count == 0 {
                bail!("{}: no example of the kinds {:?}", corpus.file, corpus.kinds);
            }
            let total = (count as f64 * corpus.passes).round() as usize;
            for pass in 0..total.div_ceil(count) {
                let counter = (number as u64) << 32 | pass as u64;
                let mut stream = Stream::new(shuffle_seed(seed, "mixture", counter));
                let mut pass_order: Vec<u32> = (first..first + count).map(|i| i as u32).collect();
                stream.shuffle(&mut pass_order);
                for (i, example) in pass_order.into_iter().enumerate().take(total - pass * count) {
                    keyed.push(((pass * count + i) as f64 / total as f64, example));
                }
            }
        }
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        mixture.order = keyed.into_iter().map(|k| k.1).collect();
        Ok(mixture)
    }

    fn add(
        &mut self,
        corpus: &CorpusConfig,
        folder: &Path,
        tokenizer: &Tokenizer,
        max_tokens: usize,
    ) -> Result<()> {
        let path = folder.join(&corpus.file);
        let of_file = || format!("cannot read the corpus {}", path.display());
        let mut rows = RowReader::<CorpusRow>::open(&path).with_context(of_file)?;
        loop {
            let some: Vec<CorpusRow> =
                rows.by_ref().take(ROWS_AT_ONCE).collect::<Result<_, _>>().with_context(of_file)?;
            if some.is_empty() {
                return Ok(());
            }
            if some.iter().any(|row| row.role == HELD_OUT) {
                bail!("{} is for measuring a model: nothing may be trained on it", path.display());
            }
            let texts = in_parallel(sgs_run::device::threads(), &some, |row| {
                (corpus.kinds.is_empty() || corpus.kinds.contains(&row.kind))
                    .then(|| tokenise(row, corpus, tokenizer, max_tokens))
            });
            for text in texts.into_iter().flatten() {
                match text? {
                    Some(text) => self.examples.push(text),
                    None => self.left_out += 1,
                }
            }
        }
    }

    /// Names the examples and their order: a training that goes on must find the same.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for example in &self.examples {
            hash.update((example.tokens.len() as u64).to_le_bytes());
            hash.update(u64::from(example.prompt_len).to_le_bytes());
            for token in &*example.tokens {
                hash.update(token.to_le_bytes());
            }
        }
        for example in &self.order {
            hash.update(example.to_le_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Number of examples over all passes.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The examples of a batch.
    pub fn batch(&self, number: usize, size: usize) -> Vec<Example> {
        let from = (number * size).min(self.order.len());
        let to = (from + size).min(self.order.len());
        self.order[from..to].iter().map(|&i| self.examples[i as usize].example()).collect()
    }

    /// Number of batches of a size.
    pub fn batches(&self, size: usize) -> usize {
        self.len().div_ceil(size.max(1))
    }
}

/// The tokens of a row; `None` if it is too long, or one of its parts is empty.
fn tokenise(
    row: &CorpusRow,
    corpus: &CorpusConfig,
    tokenizer: &Tokenizer,
    max_tokens: usize,
) -> Result<Option<Text>> {
    let (mut tokens, completion) = if corpus.chat {
        let message = Message::new("user", row.prompt.clone());
        // Whoever wrote it wrote no tokens of ours.
        let mut completion = tokenizer.encode_untrusted(&row.completion)?;
        let end = tokenizer.eos().first().context("the tokenizer has no token that ends a text")?;
        completion.push(*end);
        (tokenizer.encode_chat(&[message], true)?, completion)
    } else {
        (tokenizer.encode(&row.prompt)?, tokenizer.encode(&row.completion)?)
    };
    let prompt = tokens.len();
    tokens.extend(completion);
    let fits = tokens.len() <= max_tokens && prompt > 0 && tokens.len() > prompt;
    let (prompt_len, prompt_weight) = (prompt as u32, corpus.prompt_weight);
    Ok(fits.then(|| Text { tokens: tokens.into(), prompt_len, prompt_weight }))
}

/// What a corpus of `sgs data build` holds.
#[derive(Debug, Default, Serialize)]
pub struct CorpusStats {
    examples: u64,
    /// Examples and words of prompts and completions, by role and kind.
    kinds: BTreeMap<String, [u64; 3]>,
}

impl CorpusStats {
    /// Counts; `None` if the file is no corpus.
    ///
    /// # Errors
    /// It is one, and is damaged.
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

    /// For people.
    pub fn text(&self, path: &Path) -> String {
        let rows: Vec<Vec<String>> = self
            .kinds
            .iter()
            .map(|(kind, [examples, prompts, completions])| {
                let mean = |words: &u64| format!("{:.1}", *words as f64 / *examples as f64);
                vec![kind.clone(), examples.to_string(), mean(prompts), mean(completions)]
            })
            .collect();
        let header = ["role and kind", "examples", "words of a prompt", "of a completion"];
        format!(
            "{} (corpus)\n  {} examples\n\n{}",
            path.display(),
            self.examples,
            output::table(&header, &rows)
        )
    }
}
