//! The vocabulary of the embedded model: one token per math symbol, label and hypothesis number, and a few for the roles,
//! in the `tokenizer.json` format of the `tokenizers` library.

use crate::theory::{RuleId, Theory};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// Padding; never part of a text.
pub const PAD: &str = "<pad>";
/// The token of an unknown word.
pub const UNKNOWN: &str = "<unk>";
/// Ends every completion.
pub const END: &str = "<end>";
/// Begins the Solver's prompt.
pub const SOLVER: &str = "<solver>";
/// Begins the Conjecturer's prompt.
pub const CONJECTURER: &str = "<conjecturer>";
/// Begins the Guide's prompt.
pub const GUIDE: &str = "<guide>";
/// Precedes a proof.
pub const PROOF: &str = "<proof>";
/// Precedes a conjecture.
pub const CONJECTURE: &str = "<conjecture>";
/// Precedes the Guide's scores.
pub const REVIEW: &str = "<review>";

/// Number of tokens for a problem's position in the database.
pub const PLACES: usize = 64;
/// Number of hypotheses that have a token (`h1` … `h32`).
pub const HYPOTHESES: usize = 32;

/// Returns the token of a label. The `~` distinguishes labels from symbols with the same spelling.
pub fn label_token(label: &str) -> String {
    format!("~{label}")
}

/// Returns the token of a problem's position in the database, given the number of rules before it.
pub fn place_token(rules_before: usize, rules: usize) -> String {
    let place = rules_before * PLACES / rules.max(1);
    format!("<at-{}>", place.min(PLACES - 1))
}

/// Returns all tokens in order of their ids: special tokens, then words.
pub fn vocabulary(theory: &Theory) -> (Vec<String>, Vec<String>) {
    let mut special: Vec<String> = [PAD, UNKNOWN, END, SOLVER, CONJECTURER, GUIDE, PROOF, CONJECTURE, REVIEW]
        .map(str::to_owned)
        .to_vec();
    special.extend((0..PLACES).map(|i| format!("<at-{i}>")));
    let mut words: Vec<String> = ["$d", "$e", "$p"].map(str::to_owned).to_vec();
    words.extend((0..=5).map(|i| format!("relevance-{i}")));
    words.extend((0..=1).map(|i| format!("redundancy-{i}")));
    words.extend((0..=4).map(|i| format!("complexity-{i}")));
    words.extend((1..=HYPOTHESES).map(|i| format!("h{i}")));
    let database = theory.database();
    words.extend(
        (0..database.symbol_count())
            .map(|s| database.symbol_text(crate::database::Symbol(s as u32)).to_owned()),
    );
    words.extend((0..theory.rules().len()).map(|i| label_token(theory.label(RuleId(i as u32)))));
    let mut seen = FxHashMap::default();
    words.retain(|w| seen.insert(w.clone(), ()).is_none() && !special.contains(w));
    (special, words)
}

/// Returns the content of `tokenizer.json`.
pub fn tokenizer_json(theory: &Theory) -> Value {
    let (special, words) = vocabulary(theory);
    let mut vocab = serde_json::Map::new();
    for (id, word) in special.iter().chain(&words).enumerate() {
        vocab.insert(word.clone(), json!(id));
    }
    let added: Vec<Value> = special
        .iter()
        .enumerate()
        .map(|(id, content)| {
            json!({
                "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true
            })
        })
        .collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": UNKNOWN }
    })
}

/// Returns the content of `tokenizer_config.json`, which names the special tokens.
pub fn tokenizer_config_json() -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "clean_up_tokenization_spaces": false,
        "model_max_length": 512
    })
}
