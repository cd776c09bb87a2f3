"""Makes the recorded vectors in crates/lm/tests/data from small random models, and checks saved models.

Needs torch and transformers (tested with 5.23).

    vectors.py make FOLDER...   creates each folder, named after one of MODELS
    vectors.py check FOLDER     loads a model folder with io.safetensors in transformers, compares the logits
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

SIZES = dict(vocab_size=101, hidden_size=32, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0, eos_token_id=1)
MODELS = {
    "qwen3": ("Qwen3", dict(head_dim=16)),
    "qwen3_tied": ("Qwen3", dict(head_dim=24, tie_word_embeddings=True)),
    "mistral": ("Mistral", dict(head_dim=8, sliding_window=64)),
}
LENGTHS, PROMPTS, ADVANTAGES = [48, 31, 17], [10, 7, 5], [1.0, -0.5, 0.25]
MEANING = (
    "float32 model, HF transformers {}, eager attention. logprobs[b,t] is of token input_ids[b,t+1]; "
    "loss_mask[b,t] marks token t as trained on (so logprobs[b,t-1] counts). ce = mean over masked tokens; "
    "reinforce_per_sequence = -mean_b( v_b * mean_t logprob ), v = [1,0,1]; cispo = "
    "-sum(clip(exp(lp-old),0,4)*A_b*lp)/masked tokens, weight without gradient; grad_norms per parameter; adam: "
    "6 steps of Adam(lr 1e-2, betas .9 .95, eps 1e-8) on ce after clipping the global norm to 1.0: [loss, norm "
    "before clipping] before each step")


def random_model(name):
    family, extra = MODELS[name]
    config = getattr(transformers, family + "Config")(**SIZES, **extra)
    config._attn_implementation = "eager"
    model = getattr(transformers, family + "ForCausalLM")(config).float().eval()
    for key, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if "norm" in key else 0.0, 0.1 if "norm" in key else 0.08)
    return model


def outputs(model, ids):
    """Logits, log-probabilities of the next tokens and entropies; sequences are padded at the end."""
    logits = model(input_ids=ids).logits
    log_p = logits.log_softmax(-1)
    return logits, log_p[:, :-1].gather(-1, ids[:, 1:, None])[..., 0], -(log_p.exp() * log_p).sum(-1)


def losses(lp, old, mask):
    count = mask.sum()
    per_sequence = (lp * mask).sum(1) / mask.sum(1)
    ratio = (lp - old).exp().clamp(0, 4).detach()
    return {
        "ce": -(lp * mask).sum() / count,
        "reinforce_per_sequence": -(torch.tensor([1.0, 0.0, 1.0]) * per_sequence).mean(),
        "cispo": -(ratio * torch.tensor(ADVANTAGES)[:, None] * lp * mask).sum() / count,
    }


def make(folder):
    torch.manual_seed(17)
    model = random_model(folder.name)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(2, SIZES["vocab_size"], (len(LENGTHS), max(LENGTHS)))
    loss_mask = torch.zeros(ids.shape)
    for b, (length, prompt) in enumerate(zip(LENGTHS, PROMPTS)):
        ids[b, length:] = 1
        loss_mask[b, prompt:length] = 1
    mask = loss_mask[:, 1:]
    with torch.no_grad():
        logits, lp, entropy = outputs(model, ids)
    old = lp - 0.8 * torch.randn(lp.shape)
    save_file({"input_ids": ids.int(), "loss_mask": loss_mask, "old_logprobs": old,
               "advantages": torch.tensor(ADVANTAGES), "logits": logits, "logprobs": lp, "entropy": entropy},
              folder / "io.safetensors")
    expected = {"meaning": MEANING.format(transformers.__version__), "valid_lengths": LENGTHS}
    norms = {}
    for name in ("ce", "reinforce_per_sequence", "cispo"):
        model.zero_grad()
        loss = losses(outputs(model, ids)[1], old, mask)[name]
        loss.backward()
        expected[name] = loss.item()
        norms[name] = {key: p.grad.norm().item() for key, p in model.named_parameters()}
    adam = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    steps = []
    for _ in range(6):
        adam.zero_grad()
        loss = losses(outputs(model, ids)[1], old, mask)["ce"]
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.append([loss.item(), norm.item()])
        adam.step()
    expected |= {"grad_norms": norms, "adam": steps}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def check(folder):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    problems = {key: value for key, value in report.items() if value}
    assert not problems, problems
    io = load_file(folder / "io.safetensors")
    with torch.no_grad():
        logits = model.eval()(input_ids=io["input_ids"].long()).logits
    error = ((logits - io["logits"]).abs().max() / io["logits"].abs().max()).item()
    assert error < 1e-4, error
    print(f"{type(model).__name__}: the logits differ by {error:.1e} of the largest")


if __name__ == "__main__":
    command, *folders = sys.argv[1:]
    for folder in folders:
        {"make": make, "check": check}[command](Path(folder))
