//! Text to token ids and back, by a model folder's `tokenizer.json`.
//!
//! Special ids come from `tokenizer_config.json` (the spelling of the token) and, where that is
//! silent, from `config.json` (the id).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use tokenizers::{ModelWrapper, PreTokenizerWrapper};

use crate::chat::{ChatTemplate, Message, SpecialTokens};
use crate::config::ModelConfig;
use crate::error::{LmError, Result};

/// How a token is spelled.
#[derive(Debug)]
struct Word {
    text: Box<str>,
    special: bool,
}

/// The vocabulary by id, if the tokenizer has no decoder and so puts spaces between words.
fn words(inner: &tokenizers::Tokenizer) -> Option<Vec<Option<Word>>> {
    if inner.get_decoder().is_some() {
        return None;
    }
    let last = inner.get_vocab(true).into_values().max()?;
    let word = |id| {
        let text = inner.id_to_token(id)?.into_boxed_str();
        let special = inner.get_added_vocabulary().is_special_token(&text);
        Some(Word { text, special })
    };
    Some((0..=last).map(word).collect())
}

/// The ids of words, if texts are cut at spaces and nothing else is done to them. Words that the library takes apart, since
/// another token is spelled in them, are left out.
fn ids(inner: &tokenizers::Tokenizer) -> Option<HashMap<Box<str>, u32>> {
    let is_plain = matches!(inner.get_pre_tokenizer(), Some(PreTokenizerWrapper::WhitespaceSplit(_)))
        && matches!(inner.get_model(), ModelWrapper::WordLevel(_))
        && inner.get_normalizer().is_none()
        && inner.get_truncation().is_none()
        && inner.get_padding().is_none();
    let mut added = inner.get_added_tokens_decoder().into_values();
    if !is_plain || added.any(|token| token.content.contains(char::is_whitespace)) {
        return None;
    }
    let is_one = |(word, id): &(String, u32)| {
        inner.encode_fast(word.as_str(), false).is_ok_and(|read| read.get_ids() == [*id])
    };
    let words = inner.get_vocab(true).into_iter().filter(is_one);
    Some(words.map(|(word, id)| (word.into_boxed_str(), id)).collect())
}

/// A model's tokenizer with its special ids and its chat template, if it has one.
#[derive(Debug)]
pub struct Tokenizer {
    origin: PathBuf,
    inner: tokenizers::Tokenizer,
    /// The same tokenizer with special tokens read as plain text; made on first use.
    plain: OnceLock<tokenizers::Tokenizer>,
    /// How each id is spelled, if texts are words with spaces between; made on first use.
    words: OnceLock<Option<Vec<Option<Word>>>>,
    /// The id of each word, if texts are just cut at spaces; made on first use.
    ids: OnceLock<Option<HashMap<Box<str>, u32>>>,
    /// Number of ids, counted on first use: the library makes a copy of its vocabulary for it.
    size: OnceLock<usize>,
    special: SpecialTokens,
    bos: Option<u32>,
    eos: Vec<u32>,
    pad: Option<u32>,
    chat: Option<ChatTemplate>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a model folder, and beside it `tokenizer_config.json`, `config.json`
    /// and `chat_template.jinja` where they exist.
    ///
    /// # Errors
    /// `tokenizer.json` is absent or not understood; one of the other files is not what its name
    /// promises; a special token of `tokenizer_config.json` is not in the vocabulary; the chat template
    /// does not parse.
    pub fn load(dir: &Path) -> Result<Self> {
        let path = dir.join("tokenizer.json");
        let bytes = std::fs::read(&path).map_err(LmError::io(&path))?;
        let inner = tokenizers::Tokenizer::from_bytes(&bytes).map_err(|e| {
            LmError::Input(format!("{}: not a tokenizer that this engine reads: {e}", path.display()))
        })?;
        let config_path = dir.join("tokenizer_config.json");
        let config = optional_json(&config_path)?;
        let special = SpecialTokens {
            bos: special_text(&config_path, &config, "bos_token")?,
            eos: special_text(&config_path, &config, "eos_token")?,
            pad: special_text(&config_path, &config, "pad_token")?,
            unk: special_text(&config_path, &config, "unk_token")?,
        };
        let id_of = |text: &Option<String>, key: &str| match text {
            None => Ok(None),
            Some(t) => inner.token_to_id(t).map(Some).ok_or_else(|| {
                LmError::Input(format!(
                    "{}: {key} is {t:?}, which is not in the vocabulary of {}",
                    config_path.display(),
                    path.display()
                ))
            }),
        };
        let (mut bos, mut pad) = (id_of(&special.bos, "bos_token")?, id_of(&special.pad, "pad_token")?);
        let mut eos: Vec<u32> = id_of(&special.eos, "eos_token")?.into_iter().collect();
        if dir.join("config.json").exists() {
            let model = ModelConfig::load(dir)?;
            bos = bos.or(model.bos_token);
            pad = pad.or(model.pad_token);
            // The model may end on more tokens than the one that the tokenizer names (Llama 3 has three).
            for id in model.eos_tokens {
                if !eos.contains(&id) {
                    eos.push(id);
                }
            }
        }
        let mut special = special;
        let text_of = |id: Option<u32>| id.and_then(|id| inner.id_to_token(id));
        special.bos = special.bos.or_else(|| text_of(bos));
        special.eos = special.eos.or_else(|| text_of(eos.first().copied()));
        special.pad = special.pad.or_else(|| text_of(pad));
        let chat = ChatTemplate::load(dir)?;
        Ok(Self {
            origin: path,
            inner,
            plain: OnceLock::new(),
            words: OnceLock::new(),
            ids: OnceLock::new(),
            size: OnceLock::new(),
            special,
            bos,
            eos,
            pad,
            chat,
        })
    }

    /// Token ids of `text`; spellings of special tokens in it (`</s>`, `<|im_end|>`) become those tokens.
    /// Nothing is put before or after: use [`Tokenizer::bos`] for a text that starts a sequence.
    ///
    /// # Errors
    /// The tokenizer's model cannot spell the text (it has no unknown token).
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self.looked_up(text) {
            Some(ids) => Ok(ids),
            None => self.encode_with(&self.inner, text, false),
        }
    }

    /// As [`Tokenizer::encode`], with the tokens around it that `tokenizer.json`'s post-processor adds
    /// to a single text (usually the beginning-of-sequence token).
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_with_special(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(&self.inner, text, true)
    }

    /// Token ids of text from an untrusted source: spellings of special tokens stay plain text, so that
    /// nobody can end or fake a turn by writing one.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_untrusted(&self, text: &str) -> Result<Vec<u32>> {
        let plain = self.plain.get_or_init(|| {
            let mut copy = self.inner.clone();
            copy.set_encode_special_tokens(true);
            copy
        });
        self.encode_with(plain, text, false)
    }

    /// Token ids of a text by a table, if its words can be looked up: the library does much more for each.
    fn looked_up(&self, text: &str) -> Option<Vec<u32>> {
        let ids = self.ids.get_or_init(|| ids(&self.inner)).as_ref()?;
        text.split_whitespace().map(|word| ids.get(word).copied()).collect()
    }

    fn encode_with(&self, inner: &tokenizers::Tokenizer, text: &str, special: bool) -> Result<Vec<u32>> {
        match inner.encode_fast(text, special) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(e) => Err(LmError::Input(format!(
                "{}: cannot encode a text of {} bytes that starts with {:?}: {e}",
                self.origin.display(),
                text.len(),
                text.chars().take(40).collect::<String>()
            ))),
        }
    }

    /// Text of token ids, special tokens left out.
    ///
    /// # Errors
    /// An id is outside the vocabulary: names it and its place.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.decode_with(ids, true)
    }

    /// Text of token ids, special tokens spelled out.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn decode_with_special(&self, ids: &[u32]) -> Result<String> {
        self.decode_with(ids, false)
    }

    fn decode_with(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        if let Some(text) = self.spelled(ids, skip_special) {
            return Ok(text);
        }
        // The library drops ids that it does not know without a word.
        if let Some((place, id)) =
            ids.iter().enumerate().find(|(_, id)| self.inner.id_to_token(**id).is_none())
        {
            return Err(LmError::Input(format!(
                "{}: token {place} of {} has id {id}, which is not in the vocabulary of {} tokens",
                self.origin.display(),
                ids.len(),
                self.vocab_size()
            )));
        }
        self.inner.decode(ids, skip_special).map_err(|e| {
            LmError::Input(format!("{}: cannot decode {} tokens: {e}", self.origin.display(), ids.len()))
        })
    }

    /// Text of token ids by a table, if the tokenizer just puts spaces between words: the library copies each word twice.
    /// `None` for another tokenizer and for an id that is not in the vocabulary.
    fn spelled(&self, ids: &[u32], skip_special: bool) -> Option<String> {
        let words = self.words.get_or_init(|| words(&self.inner)).as_ref()?;
        let mut shown = Vec::with_capacity(ids.len());
        for id in ids {
            let word = words.get(*id as usize)?.as_ref()?;
            if !(skip_special && word.special) {
                shown.push(&*word.text);
            }
        }
        Some(shown.join(" "))
    }

    /// Number of token ids, added tokens included. A model's vocabulary may be larger (padded).
    pub fn vocab_size(&self) -> usize {
        *self.size.get_or_init(|| self.inner.get_vocab_size(true))
    }

    /// Checks that the model has a row for every token.
    ///
    /// # Errors
    /// The tokenizer has more tokens than the model, or names a special id outside of it.
    pub fn check_model(&self, config: &ModelConfig) -> Result<()> {
        let largest =
            self.inner.get_vocab(true).into_values().chain(self.eos.iter().copied()).chain(self.bos).max();
        match largest {
            Some(id) if id as usize >= config.vocab_size => Err(LmError::Input(format!(
                "{}: token id {id} has no row in a model with vocab_size {}; the tokenizer belongs to another model",
                self.origin.display(),
                config.vocab_size
            ))),
            _ => Ok(()),
        }
    }

    /// The id of a token by its exact spelling.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The spelling of a token id.
    pub fn token_of(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The token that starts a sequence, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The tokens that end a completion: the tokenizer's first, then the model's others.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// The padding token, if there is one.
    pub fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// The chat template, if the model has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat.as_ref()
    }

    /// Token ids of a conversation rendered by the chat template, ready for the model to answer when
    /// `add_generation_prompt` is set.
    ///
    /// # Errors
    /// The model has no chat template; the template refuses the messages; the text cannot be encoded.
    pub fn encode_chat(&self, messages: &[Message], add_generation_prompt: bool) -> Result<Vec<u32>> {
        let template = self.chat.as_ref().ok_or_else(|| {
            LmError::Input(format!(
                "{}: no chat template beside it (chat_template.jinja or chat_template in tokenizer_config.json); \
                 use plain prompts for this model",
                self.origin.display()
            ))
        })?;
        self.encode(&template.render(messages, &self.special, add_generation_prompt)?)
    }

    /// The spellings of the special tokens, as a chat template sees them.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }
}

/// A new vocabulary of byte pairs as `tokenizer.json`, learnt from texts that `pieces` (a regular expression) cuts into
/// what no pair crosses. Every text can be spelled; the tokens `special` come first.
///
/// # Errors
/// `pieces` is no regular expression.
pub fn byte_pairs(
    texts: impl Iterator<Item = String> + Send,
    pieces: &str,
    special: &[&str],
    size: usize,
) -> Result<String> {
    use tokenizers::models::bpe::{BPE, BpeTrainer};
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    use tokenizers::pre_tokenizers::{sequence::Sequence, split::Split, split::SplitPattern};
    let failed = |error| LmError::Input(format!("a vocabulary cannot be made: {error}"));
    let cut = Split::new(
        SplitPattern::Regex(pieces.to_owned()),
        tokenizers::SplitDelimiterBehavior::Isolated,
        false,
    )
    .map_err(failed)?;
    let bytes = ByteLevel::new(false, true, false);
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![cut.into(), bytes.into()])));
    tokenizer.with_decoder(Some(bytes));
    let added = special.iter().map(|text| tokenizers::AddedToken::from(*text, true)).collect();
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(size)
        .special_tokens(added)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut trainer = tokenizers::models::TrainerWrapper::from(trainer);
    tokenizer.train(&mut trainer, texts).map_err(failed)?;
    tokenizer.to_string(false).map_err(failed)
}

/// A JSON file that may be absent; then `null`.
pub(crate) fn optional_json(path: &Path) -> Result<Value> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(LmError::json(path)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(e) => Err(LmError::io(path)(e)),
    }
}

/// A special token in `tokenizer_config.json` is a string or an object with its `content`.
fn special_text(path: &Path, config: &Value, key: &str) -> Result<Option<String>> {
    match config.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Object(token)) if token.get("content").is_some_and(Value::is_string) => {
            Ok(token.get("content").and_then(Value::as_str).map(str::to_owned))
        }
        Some(other) => Err(LmError::Input(format!(
            "{}: {key} is {other}; expected a string or an object with \"content\"",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn of_words() -> (tempfile::TempDir, Tokenizer) {
        let folder = tempfile::tempdir().unwrap();
        let added = |content: &str, id: u32, special: bool| {
            serde_json::json!({"content": content, "id": id, "lstrip": false, "normalized": false, "rstrip": false,
                "single_word": false, "special": special})
        };
        let tokenizer = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "decoder": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
            "added_tokens": [added("<end>", 0, true), added("<kept>", 1, false), added("late", 9, true)],
            "model": {"type": "WordLevel", "unk_token": "<end>",
                "vocab": {"<end>": 0, "<kept>": 1, "ph": 2, "->": 3, "": 4, "∀": 6, "plates": 7, "ph ph": 8}},
        });
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        let tokenizer = Tokenizer::load(folder.path()).unwrap();
        (folder, tokenizer)
    }

    /// What texts are made of: words, what is none, and what stands between.
    const WRITTEN: [&str; 16] = [
        "<end>", "<kept>", "late", "ph", "->", "∀", "plates", "ph ph", "unknown", "<", " ", " ", " ", "\t\n",
        "\u{3000}", "\u{a0}",
    ];

    proptest! {
        #[test]
        fn the_table_spells_as_the_library_does(ids in prop::collection::vec(0u32..11, 0..12), skip: bool) {
            let (_folder, tokenizer) = of_words();
            let known = ids.iter().all(|id| tokenizer.inner.id_to_token(*id).is_some());
            match tokenizer.spelled(&ids, skip) {
                Some(text) => prop_assert_eq!(text, tokenizer.inner.decode(&ids, skip).unwrap()),
                None => prop_assert!(!known, "an id without a spelling"),
            }
            prop_assert_eq!(tokenizer.decode_with(&ids, skip).is_ok(), known);
        }

        #[test]
        fn words_are_looked_up_as_the_library_reads_them(pieces in prop::collection::vec(0..WRITTEN.len(), 0..8)) {
            let (_folder, tokenizer) = of_words();
            let text: String = pieces.into_iter().map(|piece| WRITTEN[piece]).collect();
            let read = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
            prop_assert_eq!(&tokenizer.encode(&text).unwrap(), read.get_ids());
            let known = ["<end>", "<kept>", "late", "ph", "->", "∀"];
            let is_known = text.split_whitespace().all(|word| known.contains(&word));
            prop_assert_eq!(tokenizer.looked_up(&text).is_some(), is_known);
        }
    }
}
