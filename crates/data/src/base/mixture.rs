//! Training corpora: files of prompts and completions, tokenized and mixed in a seeded order.

use super::config::CorpusConfig;
use crate::corpus::{self, CorpusRow, HELD_OUT};
use sgs_base::digest::hex;
use sgs_base::parallel;
use sgs_lm::chat::ChatMessage;
use sgs_lm::loss::TrainExample;
use sgs_lm::tokenizer::Tokenizer;
use sgs_run::error::{Context, Result, bail};
use sgs_selfplay::seed::{SeededRng, shuffle_seed};
use sha2::{Digest, Sha256};
use std::path::Path;

/// The examples of all corpora and the order of training.
pub struct Mixture {
    examples: Vec<Text>,
    order: Vec<u32>,
    /// Examples that are never trained on, for the held-out loss.
    pub held_out: Vec<TrainExample>,
    /// Examples that were too long for the model.
    pub left_out: usize,
}

struct Text {
    tokens: Box<[u32]>,
    prompt_len: u32,
    /// Weight of the prompt's tokens in the loss.
    prompt_weight: f32,
}

impl Text {
    fn example(&self) -> TrainExample {
        let prompt = self.prompt_len as usize;
        let (prompt_len, token_weights) = if self.prompt_weight > 0.0 {
            let mut weights = vec![self.prompt_weight; prompt - 1];
            weights.resize(self.tokens.len() - 1, 1.0);
            (1, weights)
        } else {
            (prompt, Vec::new())
        };
        TrainExample {
            tokens: self.tokens.to_vec(),
            prompt_len,
            weight: 1.0,
            token_weights,
            ..TrainExample::default()
        }
    }
}

const ROWS_AT_ONCE: usize = 65_536;

impl Mixture {
    /// Reads and tokenizes corpora and determines the order of training, with all passes spread evenly. The last `held_out`
    /// examples of each corpus are held out.
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
            let first = mixture.examples.len();
            mixture.add(corpus, folder, tokenizer, max_tokens)?;
            let ends = |text: &Text| text.tokens.last().is_some_and(|last| tokenizer.eos().contains(last));
            let added = &mixture.examples[first..];
            if !tokenizer.eos().is_empty() && !added.is_empty() && !added.iter().any(ends) {
                bail!(
                    "{}: no completion ends with the tokenizer's end token `{}`: a model would learn from it never to \
                     end its completions",
                    corpus.file,
                    tokenizer.decode_with_special(&tokenizer.eos()[..1])?
                );
            }
            let keep = mixture.examples.len().saturating_sub(held_out).max(first);
            mixture.held_out.extend(mixture.examples.drain(keep..).map(|text| text.example()));
            let count = mixture.examples.len() - first;
            if count == 0 {
                bail!("{}: no example of the kinds {:?}", corpus.file, corpus.kinds);
            }
            let total = (count as f64 * corpus.passes).round() as usize;
            for pass in 0..total.div_ceil(count) {
                let counter = (number as u64) << 32 | pass as u64;
                let mut stream = SeededRng::new(shuffle_seed(seed, "mixture", counter));
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
        let mut rows = corpus::read(&path).with_context(of_file)?;
        loop {
            let some: Vec<CorpusRow> =
                rows.by_ref().take(ROWS_AT_ONCE).collect::<Result<_, _>>().with_context(of_file)?;
            if some.is_empty() {
                return Ok(());
            }
            if some.iter().any(|row| row.role == HELD_OUT) {
                bail!("{} measures a model and must not be used for training", path.display());
            }
            let texts = parallel::map(sgs_run::config::device::threads(), &some, |row| {
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

    /// Returns a hash of the examples and their order. A training can only be continued with the same examples and
    /// order.
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
        hex(&hash.finalize())
    }

    /// Returns the number of examples over all passes.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the examples of a batch.
    pub fn batch(&self, number: usize, size: usize) -> Vec<TrainExample> {
        let from = (number * size).min(self.order.len());
        let to = (from + size).min(self.order.len());
        self.order[from..to].iter().map(|&i| self.examples[i as usize].example()).collect()
    }

    /// Returns the number of batches of a size.
    pub fn batches(&self, size: usize) -> usize {
        self.len().div_ceil(size.max(1))
    }
}

/// Tokenizes a row; returns `None` if it is too long or one of its parts is empty.
fn tokenise(
    row: &CorpusRow,
    corpus: &CorpusConfig,
    tokenizer: &Tokenizer,
    max_tokens: usize,
) -> Result<Option<Text>> {
    let (mut tokens, completion) = if corpus.chat {
        let message = ChatMessage::new("user", row.prompt.clone());
        // The text of an example is data, so it must not be read as special tokens.
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
    let (prompt_len, prompt_weight) = (prompt as u32, corpus.prompt_weight as f32);
    Ok(fits.then(|| Text { tokens: tokens.into(), prompt_len, prompt_weight }))
}
