//! Converts between text and token ids with a model folder's `tokenizer.json`.
//!
//! The special tokens are named in `tokenizer_config.json` or, if they are missing there, by their ids in
//! `config.json`.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use serde_json::Value;
use tokenizers::{ModelWrapper, PreTokenizerWrapper};

use crate::chat::{ChatMessage, ChatTemplate, SpecialTokens};
use crate::config::ModelConfig;
use crate::error::{LmError, Result};
use crate::json::{self, optional_json};
use crate::tokenizer_json;

/// The text of a token, and whether the token is special.
#[derive(Debug)]
struct Word {
    text: Box<str>,
    special: bool,
}

/// Returns the vocabulary by id if the tokenizer has no decoder and therefore puts spaces between words. Returns `None` if
/// most ids have no word, because the table could then exceed the memory.
fn words(inner: &tokenizers::Tokenizer) -> Option<Vec<Option<Word>>> {
    if inner.get_decoder().is_some() {
        return None;
    }
    let vocabulary = inner.get_vocab(true);
    let last = vocabulary.values().copied().max().filter(|last| *last as usize / 16 <= vocabulary.len())?;
    let word = |id| {
        let text = inner.id_to_token(id)?.into_boxed_str();
        let special = inner.get_added_vocabulary().is_special_token(&text);
        Some(Word { text, special })
    };
    Some((0..=last).map(word).collect())
}

/// Returns the ids of words if texts are only split at spaces. Words that the library splits further, because
/// they contain another token, are left out.
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
        guarded(|| inner.encode_fast(word.as_str(), false)).is_ok_and(|read| read.get_ids() == [*id])
    };
    let words = inner.get_vocab(true).into_iter().filter(is_one);
    Some(words.map(|(word, id)| (word.into_boxed_str(), id)).collect())
}

/// Runs a call of the library and also returns its panics as errors: it panics on some tokenizers.
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> std::result::Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(|e| e.to_string()),
        Err(panic) => {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(format!("the tokenizer is not consistent, the library panicked ({message})"))
        }
    }
}

/// Parses the text of a `tokenizer.json`.
fn parse(text: &str) -> std::result::Result<tokenizers::Tokenizer, String> {
    let value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let checked = tokenizer_json::checked(value)?;
    // Do not use `from_bytes`, because it is generic, and the library's whole parser would be compiled here again.
    guarded(|| tokenizers::Tokenizer::from_str(&checked))
        // The location in the checked text is not that in the file.
        .map_err(|e| e.rsplit_once(" at line ").map_or(e.as_str(), |(what, _)| what).to_owned())
}

/// A model's tokenizer with its special ids and its chat template, if any.
#[derive(Debug)]
pub struct Tokenizer {
    origin: PathBuf,
    inner: tokenizers::Tokenizer,
    /// A copy of the tokenizer that reads special tokens as plain text; created on first use.
    plain: OnceLock<tokenizers::Tokenizer>,
    /// The text of each id, if texts are words separated by spaces; created on first use.
    words: OnceLock<Option<Vec<Option<Word>>>>,
    /// The id of each word, if texts are only split at spaces; created on first use.
    ids: OnceLock<Option<HashMap<Box<str>, u32>>>,
    /// Vocabulary size, computed on first use, because the library copies its vocabulary to count it.
    size: OnceLock<usize>,
    special: SpecialTokens,
    bos: Option<u32>,
    eos: Vec<u32>,
    pad: Option<u32>,
    chat: Option<ChatTemplate>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a model folder and, if they exist, `tokenizer_config.json`, `config.json` and
    /// `chat_template.jinja`.
    ///
    /// # Errors
    /// Returns an error if `tokenizer.json` is missing or not supported, if one of the other files is invalid, if a
    /// special token of `tokenizer_config.json` is not in the vocabulary, or if the chat template does not parse.
    pub fn load(dir: &Path) -> Result<Self> {
        let path = dir.join("tokenizer.json");
        let inner = parse(&json::text(&path)?)
            .map_err(|e| LmError::Input(format!("{}: not a supported tokenizer: {e}", path.display())))?;
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
            // The model can have more end tokens than the one that the tokenizer names (Llama 3 has three).
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

    /// Encodes `text`; special tokens in it (`</s>`, `<|im_end|>`) become the corresponding ids. No token is
    /// added: prepend [`Tokenizer::bos`] to a text that starts a sequence.
    ///
    /// # Errors
    /// Returns an error if the tokenizer cannot represent the text (it has no unknown token).
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self.looked_up(text) {
            Some(ids) => Ok(ids),
            None => self.encode_with(&self.inner, text),
        }
    }

    /// Encodes text from an untrusted source: special tokens are read as plain text, so that the text cannot
    /// end or forge a turn of a conversation.
    pub fn encode_untrusted(&self, text: &str) -> Result<Vec<u32>> {
        let plain = self.plain.get_or_init(|| {
            let mut copy = self.inner.clone();
            copy.set_encode_special_tokens(true);
            copy
        });
        self.encode_with(plain, text)
    }

    /// Encodes a text with a table if all its words are in the table, which is much faster than the library.
    fn looked_up(&self, text: &str) -> Option<Vec<u32>> {
        let ids = self.ids.get_or_init(|| ids(&self.inner)).as_ref()?;
        text.split_whitespace().map(|word| ids.get(word).copied()).collect()
    }

    fn encode_with(&self, inner: &tokenizers::Tokenizer, text: &str) -> Result<Vec<u32>> {
        match guarded(|| inner.encode_fast(text, false)) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(e) => Err(LmError::Input(format!(
                "{}: cannot encode a text of {} bytes that starts with {:?}: {e}",
                self.origin.display(),
                text.len(),
                text.chars().take(40).collect::<String>()
            ))),
        }
    }

    /// Decodes token ids, without special tokens.
    ///
    /// # Errors
    /// Returns an error, which names the id and its position, if an id is not in the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.decode_with(ids, true)
    }

    /// Decodes token ids, including special tokens.
    pub fn decode_with_special(&self, ids: &[u32]) -> Result<String> {
        self.decode_with(ids, false)
    }

    fn decode_with(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        if let Some(text) = self.spelled(ids, skip_special) {
            return Ok(text);
        }
        // The library silently drops unknown ids.
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
        guarded(|| self.inner.decode(ids, skip_special)).map_err(|e| {
            LmError::Input(format!("{}: cannot decode {} tokens: {e}", self.origin.display(), ids.len()))
        })
    }

    /// Decodes token ids with a table if the tokenizer only puts spaces between words, because the library
    /// copies each word twice. Returns `None` for other tokenizers and for ids that are not in the vocabulary.
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

    /// Returns the number of token ids, including added tokens. A model's vocabulary can be larger (padding).
    pub fn vocab_size(&self) -> usize {
        *self.size.get_or_init(|| self.inner.get_vocab_size(true))
    }

    /// Checks that the model has an embedding for every token.
    ///
    /// # Errors
    /// Returns an error if the tokenizer has more tokens than the model, or a special id that the model does not have.
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

    /// Returns the id of a token with exactly this text.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns the token that starts a sequence, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Returns the tokens that end a completion: first the tokenizer's, then the model's others.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// Returns the padding token, if the model has one.
    pub fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// Renders a conversation with the chat template and encodes it. With `add_generation_prompt`, the model
    /// can answer directly.
    ///
    /// # Errors
    /// Returns an error if the model has no chat template, if the template rejects the messages, or if the text
    /// cannot be encoded.
    pub fn encode_chat(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<Vec<u32>> {
        let template = self.chat.as_ref().ok_or_else(|| {
            LmError::Input(format!(
                "{}: no chat template beside it (chat_template.jinja or chat_template in tokenizer_config.json); \
                 use plain prompts for this model",
                self.origin.display()
            ))
        })?;
        self.encode(&template.render(messages, &self.special, add_generation_prompt)?)
    }

    /// Returns the texts of the special tokens, for chat templates.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }
}

/// Trains a byte-pair vocabulary on texts and returns it as the contents of a `tokenizer.json`. The regular
/// expression `pieces` splits texts into pieces that no pair crosses. Every text can be encoded; the tokens
/// `special` get the first ids.
///
/// # Errors
/// Returns an error if `pieces` is not a valid regular expression.
pub fn byte_pairs(
    texts: impl Iterator<Item = String> + Send,
    pieces: &str,
    special: &[&str],
    size: usize,
) -> Result<String> {
    use tokenizers::models::bpe::{BPE, BpeTrainer};
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    use tokenizers::pre_tokenizers::{sequence::Sequence, split::Split, split::SplitPattern};
    let failed = |error| LmError::Input(format!("cannot train a vocabulary: {error}"));
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

/// Returns the text of a special token, which `tokenizer_config.json` gives as a string or as an object with its
/// `content`.
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

    /// Parts of the test's texts: words, other text, and separators.
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
