"""Writes problems, training corpora and tokenizer of the example: python3 make_data.py FOLDER [PROGRAMS]"""

import json
import random
import sys
from pathlib import Path

from sequences import BINARY, MODULUS, VALUES, WORDS, order, review, sequence

SPECIAL = ["<pad>", "<unk>", "<end>", "<solver>", "<conjecturer>", "<guide>", "<program>", "<conjecture>", "<review>"]


def program(size, rng):
    """Returns a random program with `size` values, which computes one value."""
    if size == 1:
        return [rng.choice(VALUES[:2] * 3 + VALUES[2:])]
    left = rng.randrange(1, size)
    first, second = program(left, rng), program(size - left, rng)
    if first == second:
        second = ["dup"]
    return first + second + [rng.choice(["+", "-", "*"] * 3 + list(BINARY))]


def draw(count, sizes, taken, rng):
    """Returns random programs with their sequences: no straight lines, and none of the sequences in `taken`."""
    found = []
    while len(found) < count:
        one = program(rng.choice(sizes), rng)
        terms = sequence(one)
        if terms and order(terms) > 2 and tuple(terms) not in taken:
            found.append((one, terms))
    return found


def text(terms):
    return " ".join(map(str, terms))


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def row(role, prompt, completion):
    return {"role": role, "kind": "random", "source": "", "prompt": prompt, "completion": completion + " <end>"}


def tokenizer(folder):
    vocabulary = SPECIAL + [str(number) for number in range(MODULUS)]
    vocabulary += [word for word in WORDS if word not in vocabulary]
    added = [
        {"id": i, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        for i, word in enumerate(SPECIAL)
    ]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(vocabulary)}, "unk_token": "<unk>"},
    }))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "pad_token": "<pad>", "unk_token": "<unk>",
        "model_max_length": 64, "clean_up_tokenization_spaces": False,
    }))


def main(folder, programs, rng):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(folder)
    # The problems were drawn as longer programs than those of the corpus, which has none of their sequences.
    problems = list(dict.fromkeys(tuple(terms) for _, terms in draw(4000, [3, 4], set(), rng)))[:2200]
    known = draw(programs, [2, 3], set(problems), rng)
    lines = [{"id": f"s{i}", "statement": text(terms)} for i, terms in enumerate(problems)]
    write(folder / "targets.jsonl", lines[200:])
    write(folder / "held-out.jsonl", lines[:200])
    write(folder / "solver.jsonl", [row("solver", f"<solver> {text(t)} <program>", " ".join(p)) for p, t in known])
    # A conjecture has something in common with its target: the last operation.
    related = {}
    for one, _ in known:
        related.setdefault(one[-1], []).append(one)
    pairs = [(terms, rng.choice(related[one[-1]])) for one, terms in known[:12000]]
    write(folder / "conjecturer.jsonl", [row("conjecturer", f"<conjecturer> {text(t)} <program>", " ".join(c)) for t, c in pairs])
    reviews = []
    for terms, other in pairs:
        conjecture = terms if rng.random() < 0.1 else sequence(other)
        prompt = f"<guide> {text(terms)} <conjecture> {text(conjecture)} <review>"
        reviews.append(row("guide", prompt, text(review(terms, conjecture))))
    write(folder / "guide.jsonl", reviews)
    print(f"{folder}: {len(lines)} problems, {len(known)} programs, {len(pairs)} conjectures, {len(reviews)} reviews")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int((sys.argv[2:] or [60000])[0]), random.Random(1))
