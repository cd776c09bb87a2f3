"""llama.cpp's server over a Llama model in Hugging Face layout, for the tests of endpoints.

Writes the model as a GGUF file, serves it on loopback, prints its address, and ends with its standard input.
"""

import argparse
import json
import os
import struct
import sys
from pathlib import Path

import numpy
from gguf import GGUFWriter, TokenType
from xllamacpp import CommonParams, Server


def read_tensors(path: Path) -> dict[str, numpy.ndarray]:
    """The tensors of a safetensors file that holds bfloat16 or float32."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    start = 8 + length
    tensors = {}
    for name, about in json.loads(raw[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        data = raw[start + begin : start + end]
        if about["dtype"] == "BF16":
            data = (numpy.frombuffer(data, dtype="<u2").astype("<u4") << 16).tobytes()
        elif about["dtype"] != "F32":
            sys.exit(f"{path}: {name} is {about['dtype']}, neither BF16 nor F32")
        tensors[name] = numpy.frombuffer(data, dtype="<f4").reshape(about["shape"])
    return tensors


def interleaved(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """Rows in the order of llama.cpp's rotary embedding: pairs side by side, not half a head apart."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(folder: Path, out: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tensors = read_tensors(folder / "model.safetensors")
    heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
    part = out.with_suffix(f".{os.getpid()}.part")
    writer = GGUFWriter(str(part), "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(shared)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    writer.add_rope_dimension_count(head_dim)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_vocab_size(config["vocab_size"])
    special = {token["id"] for token in tokenizer["added_tokens"] if token["special"]}
    added = {token["id"] for token in tokenizer["added_tokens"]} - special
    words = sorted(tokenizer["model"]["vocab"].items(), key=lambda pair: pair[1])
    if tokenizer["pre_tokenizer"]["type"] == "ByteLevel":
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([word for word, _ in words])
        # The model has no merges, but llama.cpp requires at least one. This one joins bytes that no text contains.
        writer.add_token_merges(["\u0100 \u0101"])
        about = json.loads((folder / "tokenizer_config.json").read_text())
        writer.add_chat_template(about["chat_template"])
    else:
        # The vocabulary consists of whole words. This is the only tokenizer of llama.cpp that can encode text with such
        # a vocabulary: it takes the longest match.
        writer.add_tokenizer_model("rwkv")
        writer.add_token_list([(word if at in special else " " + word).encode() for word, at in words])
    types = {at: TokenType.CONTROL for at in special} | {at: TokenType.USER_DEFINED for at in added}
    writer.add_token_types([types.get(at, TokenType.NORMAL) for _, at in words])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_unk_token_id(1)
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_tensor("token_embd.weight", tensors["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", tensors["model.norm.weight"])
    if "lm_head.weight" in tensors:
        writer.add_tensor("output.weight", tensors["lm_head.weight"])
    names = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for layer in range(config["num_hidden_layers"]):
        for theirs, ours in names.items():
            weight = tensors[f"model.layers.{layer}.{theirs}.weight"]
            if ours in ("attn_q", "attn_k"):
                weight = interleaved(weight, heads if ours == "attn_q" else shared)
            writer.add_tensor(f"blk.{layer}.{ours}.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, out)


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--model", type=Path, required=True)
    args.add_argument("--gguf", type=Path, required=True)
    args.add_argument("--port", type=int, default=0)
    args.add_argument("--context", type=int, default=512)
    args.add_argument("--slots", type=int, default=4)
    args.add_argument("--name", default="sgs-base")
    args.add_argument("--key")
    args = args.parse_args()
    if not args.gguf.exists():
        write_gguf(args.model, args.gguf)
    params = CommonParams()
    params.model.path = str(args.gguf)
    params.model_alias = {args.name}
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_parallel = args.slots
    params.n_ctx = args.slots * args.context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.ui = False
    if args.key:
        params.api_keys = [args.key]
    server = Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)


main()
