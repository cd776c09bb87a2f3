//! A small hand-made model that writes Lean tactics, and a shell script that simulates Lean.
//!
//! The model is a byte-level Llama with one layer. It answers every prompt with one of a few complete texts, which are
//! single tokens and initially equally probable. The engine can sample, score and train it like any policy; some of its
//! about twenty actions prove theorems of the set `core`.
#![allow(dead_code)] // each test file uses a part

use serde_json::{Map, Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SPECIAL: [&str; 5] = ["<pad>", "<unk>", "<end>", "<user>", "<assistant>"];
const END: usize = 2;
const ASSISTANT: usize = 4;
/// Hidden size, which is at least the number of tokens and a multiple of 8.
const WIDTH: usize = 320;
/// Minimum size of a part of a prompt that is one token, in bytes.
const PART: usize = 40;
/// Head size. Attention over long prompts dominates the time, so there is one narrow head. Its output projection is
/// initially zero.
const HEAD: usize = 16;
const INNER: usize = 32;

/// Returns the default completions: proofs, conjectures and reviews.
fn completions() -> Vec<String> {
    let proofs = [
        "omega",
        "simp",
        "simp_all",
        "decide",
        "rfl",
        "intros; omega",
        "exact h",
        "intro h\n  exact h",
        "exact ⟨h.2, h.1⟩",
        "constructor <;> simp_all",
        "cases h <;> simp_all",
        "exact sorryAx _ true",
        "native_decide",
    ];
    let conjectures = [
        "theorem c_add (a b : Nat) : a + b = b + a := by sorry",
        "theorem c_and (p q : Prop) (h : p ∧ q) : q ∧ p := by sorry",
        "theorem c_wrong (n : Nat) : n = n + 1 := by sorry",
    ];
    let review = |relevance: u32| {
        let score = |name: &str, n: u32| format!("<begin_{name}_score>{n}<end_{name}_score>\n");
        [score("relevance", relevance), score("redundancy", 0), score("conclusion_complexity", 1)].concat()
    };
    let code = |text: &str| format!("```lean4\n{text}\n```");
    let mut all: Vec<String> = proofs.iter().map(|p| code(&format!("  {p}"))).collect();
    all.extend(conjectures.iter().map(|c| code(c)));
    all.extend([review(4), review(1), "I do not know.".to_owned()]);
    all
}

/// Returns the character that represents a byte in byte-level vocabularies.
fn character(byte: u8) -> char {
    let plain = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if plain(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !plain(b)).count();
    char::from_u32(256 + before as u32).unwrap()
}

/// Returns the long parts of the built-in prompts that are the same for all problems. Each is one token, because a byte per
/// token would make the Guide's prompt ten times as long.
fn prompt_parts() -> Vec<&'static str> {
    let parts = sgs_lean::BUILT_IN_PROMPTS.iter().flat_map(|(_, text)| text.split(['{', '}'])).map(str::trim);
    let mut parts: Vec<&str> = parts.filter(|part| part.len() >= PART).collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}

fn tokenizer(completions: &[String]) -> Value {
    let mut vocabulary = Map::new();
    let mut put = |text: String| {
        let id = vocabulary.len();
        assert!(vocabulary.insert(text, id.into()).is_none());
    };
    SPECIAL.iter().for_each(|s| put((*s).to_owned()));
    (0..=255).for_each(|b| put(character(b).to_string()));
    prompt_parts().into_iter().for_each(|part| put(part.to_owned()));
    completions.iter().for_each(|c| put(c.bytes().map(character).collect()));
    let added: Vec<Value> = SPECIAL
        .iter()
        .copied()
        .chain(prompt_parts())
        .map(|content| {
            let id = &vocabulary[content];
            json!({"id": id, "content": content, "special": SPECIAL.contains(&content), "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false})
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true, "vocab": vocabulary, "merges": []},
    })
}

/// Writes the folder of a model with the default completions.
pub fn write_model(folder: &Path) {
    write_model_with_completions(folder, &completions());
}

/// Writes the folder of a model that generates only these texts.
pub fn write_model_with_completions(folder: &Path, completions: &[String]) {
    fs::create_dir_all(folder).unwrap();
    let tokenizer = tokenizer(completions);
    let tokens = tokenizer["model"]["vocab"].as_object().unwrap().len();
    assert!(tokens <= WIDTH, "{tokens}");
    let write = |name: &str, value: &Value| fs::write(folder.join(name), value.to_string()).unwrap();
    write("tokenizer.json", &tokenizer);
    let template = "{% for message in messages %}<user>{{ message['content'] }}{% endfor %}<assistant>";
    write(
        "tokenizer_config.json",
        &json!({"eos_token": "<end>", "pad_token": "<pad>", "chat_template": template}),
    );
    write(
        "config.json",
        &json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "vocab_size": tokens, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 1,
            "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": HEAD, "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
            "bos_token_id": null, "eos_token_id": END, "pad_token_id": 0, "torch_dtype": "float32",
        }),
    );
    fs::write(folder.join("model.safetensors"), safetensors(&weights(tokens))).unwrap();
}

/// Name, shape and values of a tensor.
type Tensor = (&'static str, Vec<usize>, Vec<f32>);

fn weights(tokens: usize) -> Vec<Tensor> {
    let small = |n: usize| (0..n).map(|i| 0.02 * (i as f32 * 1.7).sin()).collect::<Vec<f32>>();
    let matrix = |name, rows: usize, columns: usize, values| (name, vec![rows, columns], values);
    let norm = |name| (name, vec![WIDTH], vec![1.0; WIDTH]);
    // Embeddings are one-hot, the layer initially adds nothing, and the output head encodes the allowed successors.
    let mut embedding = vec![0.0; tokens * WIDTH];
    (0..tokens).for_each(|t| embedding[t * WIDTH + t] = 1.0);
    let answers = SPECIAL.len() + 256 + prompt_parts().len();
    let scale = 6.0 / (WIDTH as f32).sqrt();
    let mut head = vec![-scale; tokens * WIDTH];
    for before in 0..tokens {
        let after = if before == ASSISTANT { answers..tokens } else { END..END + 1 };
        after.for_each(|t| head[t * WIDTH + before] = scale);
    }
    vec![
        matrix("model.embed_tokens.weight", tokens, WIDTH, embedding),
        norm("model.layers.0.input_layernorm.weight"),
        matrix("model.layers.0.self_attn.q_proj.weight", HEAD, WIDTH, small(HEAD * WIDTH)),
        matrix("model.layers.0.self_attn.k_proj.weight", HEAD, WIDTH, small(HEAD * WIDTH)),
        matrix("model.layers.0.self_attn.v_proj.weight", HEAD, WIDTH, small(HEAD * WIDTH)),
        matrix("model.layers.0.self_attn.o_proj.weight", WIDTH, HEAD, vec![0.0; WIDTH * HEAD]),
        norm("model.layers.0.post_attention_layernorm.weight"),
        matrix("model.layers.0.mlp.gate_proj.weight", INNER, WIDTH, small(INNER * WIDTH)),
        matrix("model.layers.0.mlp.up_proj.weight", INNER, WIDTH, small(INNER * WIDTH)),
        matrix("model.layers.0.mlp.down_proj.weight", WIDTH, INNER, vec![0.0; INNER * WIDTH]),
        norm("model.norm.weight"),
        matrix("lm_head.weight", tokens, WIDTH, head),
    ]
}

fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, shape, values) in tensors {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "{name}");
        let begin = data.len();
        values.iter().for_each(|v| data.extend(v.to_le_bytes()));
        header.insert(
            (*name).to_owned(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]}),
        );
    }
    let mut text = Value::Object(header).to_string();
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat()
}

/// Writes a folder that looks like the WebAssembly build of Lean, with a script that answers the judge's requests.
///
/// The script accepts proofs that contain `omega`, except of two false statements, and rejects all others. It fails
/// headers that import the module named in the file `lacks` of the same folder. A proof that contains `slow` takes until
/// there is a file `go` in that folder. `version` is the reported version.
pub fn write_scripted_lean(root: &Path, version: &str) {
    fs::create_dir_all(root.join("build")).unwrap();
    fs::write(root.join("build/lean.js"), "").unwrap();
    let program = root.join("lean");
    fs::write(&program, SCRIPT.replace("VERSION", version)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

const SCRIPT: &str = r##"#!/bin/sh
for file; do :; done
if [ "$file" = --version ]; then
    echo "Lean (version VERSION, scripted, commit 0, Release)"
    exit 0
fi
here=${0%/*}
lacks=none
[ -f "$here/lacks" ] && read -r lacks < "$here/lacks"
case "$file" in */replay/*) replaying=1 ;; *) replaying=0 ;; esac
exec awk -v go="$here/go" -v lacks="$lacks" -v replaying="$replaying" '
function say(fields) { printf "{\"nonce\":\"%s\",%s}\n", nonce, fields }
{
    match($0, /"nonce":"[^"]*"/)
    nonce = substr($0, RSTART + 9, RLENGTH - 10)
    say("\"read\":true")
    if (index($0, "import " lacks)) {
        say("\"broken\":\"unknown module prefix " lacks "\"")
        exit
    }
    say("\"header\":true")
    # Each candidate begins with its first key, `declarations`.
    n = split($0, candidate, /"declarations":/)
    for (i = 2; i <= n; i++) {
        text = candidate[i]
        sub(/"context":.*/, "", text)
        proved = replaying || text ~ /omega|exact ⟨hp, hq⟩/ && text !~ /\(1 : Nat\) = 2|n = n \+ 1/
        # The process that replays gets no proofs. It reads what the other one writes.
        split(text, part, "\"")
        if (proved && !replaying && part[2] != "") { print "declarations" > part[2]; close(part[2]) }
        say("\"begin\":" i - 2)
        fflush()
        if (text ~ /slow/) while ((getline line < go) < 0);
        if (proved) say("\"end\":" i - 2 ",\"messages\":[],\"accepted\":true,\"reason\":\"\",\"axioms\":[]")
        else say("\"end\":" i - 2 ",\"messages\":[{\"severity\":\"error\",\"kind\":\"\",\"pos\":{\"line\":2},\"data\":\"unsolved goals\"}],\"accepted\":false,\"reason\":\"\",\"axioms\":[]")
    }
}
' "${file%/*}/request.json"
"##;
