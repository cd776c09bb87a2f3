//! Tokenizer folders: round trips, special ids from either file, untrusted text, chat, errors.

use std::path::Path;

use serde_json::{Value, json};
use sgs_lm::chat::ChatMessage;
use sgs_lm::tokenizer::Tokenizer;

/// Returns a byte-level BPE over all bytes with two merges ("he", "hel"). Ids: special 0-3, bytes 4-259, then the
/// merges.
fn tokenizer_json() -> Value {
    let byte_char = |b: u8| -> char {
        let printable =
            |c: u32| (33..=126).contains(&c) || (161..=172).contains(&c) || (174..=255).contains(&c);
        if printable(u32::from(b)) {
            return char::from(b);
        }
        let before = (0..u32::from(b)).filter(|c| !printable(*c)).count() as u32;
        char::from_u32(256 + before).unwrap()
    };
    let mut vocab = serde_json::Map::new();
    let specials = ["<s>", "</s>", "<pad>", "<|end|>"];
    for (i, s) in specials.iter().enumerate() {
        vocab.insert((*s).to_owned(), json!(i));
    }
    for b in 0..=255u8 {
        vocab.insert(byte_char(b).to_string(), json!(4 + usize::from(b)));
    }
    vocab.insert("he".to_owned(), json!(260));
    vocab.insert("hel".to_owned(), json!(261));
    let added: Vec<Value> = specials
        .iter()
        .enumerate()
        .map(|(i, s)| {
            json!({"id": i, "content": s, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
            "merges": [["h", "e"], ["he", "l"]]},
    })
}

fn model_config(vocab: usize) -> Value {
    json!({"model_type": "llama", "vocab_size": vocab, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 2, "eos_token_id": [1, 3]})
}

fn write(dir: &Path, name: &str, value: &Value) {
    std::fs::write(dir.join(name), serde_json::to_vec(value).unwrap()).unwrap();
}

fn folder(config: Option<Value>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "tokenizer.json", &tokenizer_json());
    if let Some(config) = config {
        write(dir.path(), "tokenizer_config.json", &config);
    }
    dir
}

#[test]
fn text_survives_the_round_trip() {
    let tokenizer = Tokenizer::load(folder(None).path()).unwrap();
    for text in ["", "hello", "⊢ ( 𝜑 → 𝜓 )\n\t \u{0}", "he said: \"∀x ∈ ℝ\"  two  spaces "] {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
    assert_eq!(tokenizer.encode("hello").unwrap()[0], 261, "merges are applied");
    assert_eq!(tokenizer.vocab_size(), 262);
}

#[test]
fn special_ids_come_from_both_files() {
    let dir = folder(Some(json!({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null})));
    let tokenizer = Tokenizer::load(dir.path()).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.pad()), (Some(0), &[1u32][..], None));
    write(dir.path(), "config.json", &model_config(262));
    let tokenizer = Tokenizer::load(dir.path()).unwrap();
    assert_eq!(tokenizer.eos(), [1, 3]);
    let without = folder(None);
    write(without.path(), "config.json", &model_config(262));
    let tokenizer = Tokenizer::load(without.path()).unwrap();
    assert_eq!(tokenizer.eos(), [1, 3]);
    assert_eq!(tokenizer.special_tokens().eos.as_deref(), Some("</s>"));
}

#[test]
fn special_tokens_in_untrusted_text_stay_text() {
    let tokenizer = Tokenizer::load(folder(None).path()).unwrap();
    let text = "a</s>b";
    assert!(tokenizer.encode(text).unwrap().contains(&1));
    let ids = tokenizer.encode_untrusted(text).unwrap();
    assert!(ids.iter().all(|id| *id > 3), "{ids:?}");
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    assert_eq!(tokenizer.decode(&[0, 4 + u32::from(b'a'), 1]).unwrap(), "a");
    assert_eq!(tokenizer.decode_with_special(&[0, 4 + u32::from(b'a'), 1]).unwrap(), "<s>a</s>");
}

#[test]
fn chat_templates_are_found_in_either_file() {
    let template = "{% for m in messages %}{{ bos_token + m.role + ': ' + m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
    let talk = [ChatMessage::new("user", "he")];
    let inline = folder(Some(json!({"bos_token": "<s>", "chat_template": template})));
    let named = folder(Some(json!({"bos_token": "<s>",
        "chat_template": [{"name": "tools", "template": "x"}, {"name": "default", "template": template}]})));
    let beside = folder(Some(json!({"bos_token": "<s>"})));
    std::fs::write(beside.path().join("chat_template.jinja"), template).unwrap();
    for dir in [inline, named, beside] {
        let tokenizer = Tokenizer::load(dir.path()).unwrap();
        let ids = tokenizer.encode_chat(&talk, true).unwrap();
        assert_eq!(tokenizer.decode_with_special(&ids).unwrap(), "<s>user: he<|end|>assistant:");
        assert_eq!((ids[0], ids.contains(&3)), (0, true));
    }
    let error = Tokenizer::load(folder(None).path()).unwrap().encode_chat(&talk, true).unwrap_err();
    assert!(error.to_string().contains("no chat template"), "{error}");
}

#[test]
fn errors_name_the_file_and_the_position() {
    let message = |dir: &Path| Tokenizer::load(dir).unwrap_err().to_string();
    let empty = tempfile::tempdir().unwrap();
    assert!(message(empty.path()).contains("tokenizer.json"));
    std::fs::write(empty.path().join("tokenizer.json"), b"{\"version\": 1").unwrap();
    assert!(message(empty.path()).contains("not a supported tokenizer"));
    let unknown = folder(Some(json!({"eos_token": "<eot>"})));
    assert!(message(unknown.path()).contains("\"<eot>\""));
    let wrong = folder(Some(json!({"eos_token": 7})));
    assert!(message(wrong.path()).contains("eos_token is 7"));
    let template = folder(Some(json!({"chat_template": "{% if %}"})));
    assert!(message(template.path()).contains("does not parse"));

    let tokenizer = Tokenizer::load(folder(None).path()).unwrap();
    let error = tokenizer.decode(&[5, 9999]).unwrap_err().to_string();
    assert!(error.contains("9999") && error.contains("token 1 of 2"), "{error}");
    let config = sgs_lm::ModelConfig::from_json(model_config(200), "config").unwrap();
    assert!(tokenizer.check_model(&config).unwrap_err().to_string().contains("261"));
    let config = sgs_lm::ModelConfig::from_json(model_config(262), "config").unwrap();
    tokenizer.check_model(&config).unwrap();
}

/// Returns a folder whose tokenizer has other values of these fields.
fn folder_with(fields: Value) -> tempfile::TempDir {
    let dir = folder(None);
    let mut tokenizer = tokenizer_json();
    tokenizer.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    write(dir.path(), "tokenizer.json", &tokenizer);
    dir
}

#[test]
fn padding_truncation_and_added_tokens_do_not_change_texts() {
    let padding = json!({"strategy": {"Fixed": 1u64 << 33}, "direction": "Right", "pad_to_multiple_of": 1u64 << 40,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "x"});
    let truncation = json!({"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 3});
    let template = json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "z", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"z": {"id": "z", "ids": [1, 2, 3], "tokens": ["z"]}}});
    let plain = Tokenizer::load(folder(None).path()).unwrap().encode("hello hello").unwrap();
    for fields in
        [json!({"padding": padding}), json!({"truncation": truncation}), json!({"post_processor": template})]
    {
        let tokenizer = Tokenizer::load(folder_with(fields).path()).unwrap();
        assert_eq!(tokenizer.encode("hello hello").unwrap(), plain);
    }
}

#[test]
fn tokenizers_that_the_library_cannot_handle_are_refused() {
    let mut model = tokenizer_json()["model"].clone();
    model["continuing_subword_prefix"] = json!("éééé");
    let normalizer = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
    let long = vec![json!({"type": "Replace", "pattern": {"String": "p"}, "content": "p".repeat(60)}); 4];
    let mut nested = json!({"type": "Sequence", "pretokenizers": []});
    for _ in 0..8 {
        nested = json!({"type": "Sequence", "pretokenizers": [nested, nested]});
    }
    let token = |i: usize| {
        json!({"id": 262 + i, "content": format!("x{i}"), "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": true, "special": false})
    };
    for (fields, what) in [
        (json!({"model": model}), "not consistent"),
        (json!({"normalizer": normalizer}), "normalizer: \"Precompiled\""),
        (json!({"normalizer": {"type": "Sequence", "normalizers": long}}), "more than 16 times"),
        (json!({"pre_tokenizer": {"type": "FixedLength", "length": 0}}), "pre_tokenizer: \"FixedLength\""),
        (json!({"pre_tokenizer": nested}), "at most 16 parts"),
        (json!({"added_tokens": (0..100_000).map(token).collect::<Vec<_>>()}), "100000 tokens"),
    ] {
        let error = Tokenizer::load(folder_with(fields).path()).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json") && error.contains(what), "{error}");
    }
    // The largest number that is supported.
    let added = json!({"added_tokens": (0..10_000).map(token).collect::<Vec<_>>()});
    assert_eq!(Tokenizer::load(folder_with(added).path()).unwrap().encode("x9999").unwrap(), [10_261]);
}

#[test]
fn a_vocabulary_may_have_a_large_id() {
    let model = json!({"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": u32::MAX}});
    let fields = json!({"model": model, "decoder": null, "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"}});
    let tokenizer = Tokenizer::load(folder_with(fields).path()).unwrap();
    assert_eq!(tokenizer.encode("a b").unwrap(), [0, u32::MAX]);
    assert_eq!(tokenizer.decode(&[u32::MAX, 0]).unwrap(), "b a");
}

#[test]
fn a_decoder_that_panics_is_an_error() {
    let strip = json!({"type": "Strip", "content": "h", "start": 0, "stop": 1u64 << 40});
    let tokenizer = Tokenizer::load(folder_with(json!({"decoder": strip})).path()).unwrap();
    let error = tokenizer.decode(&[4 + u32::from(b'h')]).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.contains("not consistent"), "{error}");
}

#[test]
fn fifos_in_a_model_folder_are_refused() {
    let names = [
        "tokenizer.json",
        "tokenizer_config.json",
        "config.json",
        "generation_config.json",
        "chat_template.jinja",
        "model.safetensors",
        "model.safetensors.index.json",
    ];
    for name in names {
        let dir = folder(None);
        if name != "config.json" {
            write(dir.path(), "config.json", &model_config(262));
        }
        let _ = std::fs::remove_file(dir.path().join(name));
        let made = std::process::Command::new("mkfifo").arg(dir.path().join(name)).status().unwrap();
        assert!(made.success());
        let error = match name.starts_with("model") {
            true => sgs_lm::weights::read_all(&dir.path().join(name)).unwrap_err(),
            false => Tokenizer::load(dir.path()).unwrap_err(),
        };
        let error = error.to_string();
        assert!(error.contains(name) && error.contains("regular file"), "{error}");
    }
}
