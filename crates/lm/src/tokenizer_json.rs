//! Checks a `tokenizer.json` before the library parses it, because the library panics, allocates without limit or does not
//! end on some files.

use serde_json::Value;

/// Maximum number of added tokens. Models have up to about a thousand.
const MOST_ADDED: usize = 10_000;

/// Maximum total length of the added tokens in bytes.
const MOST_ADDED_BYTES: usize = 256 << 10;

/// Maximum number of normalizers, of pre-tokenizers and of decoders, including those that contain others.
const MOST_PARTS: usize = 16;

/// Maximum depth of parts that contain others.
const MOST_NESTED: usize = 8;

/// Maximum length in bytes of a text that a part inserts.
const MOST_INSERTED: usize = 64;

/// Maximum factor by which the parts of a section may lengthen a text.
const MOST_GROWTH: usize = 16;

/// A field of the file that contains parts: its name, the field of a sequence with its parts, and their supported types.
struct Section {
    name: &'static str,
    inner: &'static str,
    types: &'static [&'static str],
}

const SECTIONS: [Section; 3] = [
    Section {
        name: "normalizer",
        inner: "normalizers",
        types: &[
            "BertNormalizer",
            "ByteLevel",
            "Lowercase",
            "NFC",
            "NFD",
            "NFKC",
            "NFKD",
            "Nmt",
            "Prepend",
            "Replace",
            "Sequence",
            "Strip",
            "StripAccents",
        ],
    },
    Section {
        name: "pre_tokenizer",
        inner: "pretokenizers",
        types: &[
            "BertPreTokenizer",
            "ByteLevel",
            "Digits",
            "Metaspace",
            "Punctuation",
            "Sequence",
            "Split",
            "UnicodeScripts",
            "Whitespace",
            "WhitespaceSplit",
        ],
    },
    Section {
        name: "decoder",
        inner: "decoders",
        types: &[
            "BPEDecoder",
            "ByteFallback",
            "ByteLevel",
            "CTC",
            "Fuse",
            "Metaspace",
            "Replace",
            "Sequence",
            "Strip",
            "WordPiece",
        ],
    },
];

/// Returns the text of a tokenizer for the library, or what is not supported and what to do.
///
/// Truncation, padding and the post-processor are removed: texts are encoded whole and without added tokens.
pub(crate) fn checked(mut tokenizer: Value) -> Result<String, String> {
    let Some(fields) = tokenizer.as_object_mut() else { return Err("it is not an object".to_owned()) };
    for removed in ["truncation", "padding", "post_processor"] {
        fields.remove(removed);
    }
    for section in &SECTIONS {
        if let Some(part) = fields.get(section.name).filter(|part| !part.is_null()) {
            let mut found = Found { parts: 0, growth: 1 };
            check(section, part, 1, &mut found)
                .map_err(|what| format!("{}: {what}; use a model with another tokenizer", section.name))?;
        }
    }
    let added = fields.get("added_tokens").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let bytes = added.iter().filter_map(|token| token.get("content")?.as_str()).map(str::len).sum::<usize>();
    if added.len() > MOST_ADDED || bytes > MOST_ADDED_BYTES {
        return Err(format!(
            "added_tokens: {} tokens of {bytes} bytes; at most {MOST_ADDED} tokens of {MOST_ADDED_BYTES} bytes are \
             supported: move them to the vocabulary of the model",
            added.len()
        ));
    }
    Ok(tokenizer.to_string())
}

/// The parts of a section so far.
struct Found {
    parts: usize,
    /// The largest factor by which they lengthen a text.
    growth: usize,
}

fn check(section: &Section, part: &Value, depth: usize, found: &mut Found) -> Result<(), String> {
    let Some(kind) = part.get("type").and_then(Value::as_str) else {
        return Err("a part is not an object with a \"type\"".to_owned());
    };
    if !section.types.contains(&kind) {
        return Err(format!("{kind:?} is not supported"));
    }
    found.parts += 1;
    if found.parts > MOST_PARTS || depth > MOST_NESTED {
        return Err(format!("at most {MOST_PARTS} parts, nested {MOST_NESTED} deep, are supported"));
    }
    // The library does not always heed the type, so these fields are examined in parts of any type.
    let inserted = ["content", "prepend"].into_iter().filter_map(|field| part.get(field)?.as_str());
    if inserted.clone().any(|text| text.len() > MOST_INSERTED) {
        return Err(format!("{kind:?} inserts a text of more than {MOST_INSERTED} bytes"));
    }
    let growth = match (part.get("content").and_then(Value::as_str), part.get("pattern")) {
        (Some(text), Some(pattern)) => match pattern.get("String").and_then(Value::as_str) {
            Some(replaced) if !replaced.is_empty() => text.len().div_ceil(replaced.len()).max(1),
            // A match can be empty.
            _ => text.len() + 1,
        },
        // Bytes become characters of up to two bytes.
        _ if kind == "ByteLevel" && section.name != "decoder" => 2,
        _ => 1,
    };
    found.growth = found.growth.saturating_mul(growth);
    if found.growth > MOST_GROWTH {
        return Err(format!("it can lengthen texts more than {MOST_GROWTH} times"));
    }
    let inner = part.get(section.inner).and_then(Value::as_array);
    inner.into_iter().flatten().try_for_each(|part| check(section, part, depth + 1, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn replace(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
    }

    fn normalizers(parts: &[Value]) -> Value {
        json!({"normalizer": {"type": "Sequence", "normalizers": parts}})
    }

    #[test]
    fn sections_of_common_tokenizers_are_supported() {
        let prepend = json!({"type": "Prepend", "prepend": "▁"});
        let split = json!({"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false});
        let bytes =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        checked(normalizers(&[prepend, replace(" ", "▁")])).unwrap();
        let pieces = [split.clone(), split.clone(), split, bytes.clone()];
        checked(json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": pieces}, "decoder": bytes}))
            .unwrap();
        let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
        let back = [replace("▁", " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"}), strip];
        checked(json!({"normalizer": null, "decoder": {"type": "Sequence", "decoders": back}})).unwrap();
    }

    #[test]
    fn fields_that_could_only_change_the_number_of_tokens_are_removed() {
        let written = checked(json!({
            "padding": {"strategy": {"Fixed": 1u64 << 33}}, "truncation": {"max_length": 3, "stride": 3},
            "post_processor": {"type": "TemplateProcessing"}, "version": "1.0"
        }));
        assert_eq!(written.unwrap(), r#"{"version":"1.0"}"#);
    }

    #[test]
    fn unsupported_parts_are_refused() {
        let mut nested = json!({"type": "Whitespace"});
        for _ in 0..MOST_NESTED {
            nested = json!({"type": "Sequence", "pretokenizers": [nested]});
        }
        let bytes =
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let added: Vec<Value> = (0..=MOST_ADDED).map(|i| json!({"id": i, "content": "x"})).collect();
        let refused = [
            (
                json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}),
                "\"Precompiled\"",
            ),
            (json!({"normalizer": {"prepend": "x"}}), "with a \"type\""),
            (json!({"normalizer": {"type": "Prepend", "prepend": "x".repeat(65)}}), "more than 64 bytes"),
            (normalizers(&[replace("p", &"p".repeat(1000))]), "more than 64 bytes"),
            (normalizers(&vec![replace("p", "pp"); 5]), "more than 16 times"),
            (normalizers(&[replace("", &"p".repeat(16))]), "more than 16 times"),
            (normalizers(&vec![json!({"type": "NFC"}); 16]), "at most 16 parts"),
            (json!({"pre_tokenizer": {"type": "FixedLength", "length": 0}}), "\"FixedLength\""),
            (
                json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": vec![bytes; 5]}}),
                "more than 16 times",
            ),
            (json!({"pre_tokenizer": nested}), "nested 8 deep"),
            (json!({"decoder": replace("", &"x".repeat(1000))}), "more than 64 bytes"),
            (json!({"added_tokens": added}), "10001 tokens"),
            (json!({"added_tokens": [{"id": 0, "content": "x".repeat(MOST_ADDED_BYTES + 1)}]}), "1 tokens"),
            (json!([]), "not an object"),
        ];
        for (tokenizer, what) in refused {
            let error = checked(tokenizer.clone()).unwrap_err();
            assert!(error.contains(what), "{tokenizer}: {error}");
        }
    }
}
