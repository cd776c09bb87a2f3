"""Programs that compute a sequence of integers, checked against its first terms.

A statement is the first eight terms of a sequence modulo 100. A proof is a program for a stack machine that computes
the n-th term from `n` and the previous term `p` (1 before the first). A conjecture is a program as well; its statement
is the sequence that it computes, so that every conjecture has a solution.
"""

from sgs_external import Malformed, serve

TERMS, MODULUS, LONGEST = 8, 100, 12

BINARY = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": max,
    "min": min,
}
VALUES = ["n", "p"] + [str(digit) for digit in range(1, 10)]
WORDS = VALUES + ["dup", "swap", "over"] + list(BINARY)


def run(program, n, p):
    """Returns the value of a program, or None if it fails."""
    stack = []
    for word in program:
        if word in BINARY:
            if len(stack) < 2:
                return None
            b, a = stack.pop(), stack.pop()
            if word in "/%" and b == 0:
                return None
            stack.append(BINARY[word](a, b) % MODULUS)
        elif word == "dup" and stack:
            stack.append(stack[-1])
        elif word == "swap" and len(stack) > 1:
            stack[-2:] = stack[:-3:-1]
        elif word == "over" and len(stack) > 1:
            stack.append(stack[-2])
        elif word in VALUES:
            stack.append({"n": n, "p": p}[word] if word in "np" else int(word))
        else:
            return None
    return stack[0] if len(stack) == 1 else None


def sequence(program):
    """Returns the terms that a program computes, or None if it fails."""
    terms, p = [], 1
    for n in range(TERMS):
        p = run(program, n, p)
        if p is None:
            return None
        terms.append(p)
    return terms


def order(terms):
    """Returns how often differences are taken until they are all zero."""
    count = 0
    while any(terms):
        terms = [(b - a) % MODULUS for a, b in zip(terms, terms[1:])]
        count += 1
    return count


def review(target, conjecture):
    """Returns relevance (0 to 5), redundancy (0 or 1) and complexity (0 to 4) of a conjecture for a target."""
    relevance = max(0, 5 - abs(order(target) - order(conjecture)))
    falls = sum(b < a for a, b in zip(conjecture, conjecture[1:]))
    return relevance, int(conjecture == target or order(conjecture) < 2), min(4, falls)


def words(completion):
    return completion.replace("<end>", " ").split()


def program_in(completion):
    program = words(completion)
    unknown = [word for word in program if word not in WORDS]
    if unknown:
        raise Malformed("unknown-word", unknown[0][:40])
    if not 0 < len(program) <= LONGEST:
        raise Malformed("length", f"{len(program)} words")
    return program


class Sequences:
    def describe(self):
        return {
            "name": "sequences",
            "version": "1",
            "prompts": {
                "solver": "<solver> {statement} <program>",
                "conjecturer": "<conjecturer> {statement} <program>",
                "conjecturer_solved": "<conjecturer> {statement} <program>",
                "conjecturer_unconditioned": "<conjecturer> <program>",
                "guide": "<guide> {statement} <conjecture> {conjecture} <review>",
            },
        }

    def read_proof(self, problem, completion):
        return " ".join(program_in(completion))

    def read_conjecture(self, problem, completion):
        terms = sequence(program_in(completion))
        if terms is None:
            raise Malformed("fails", "the program computes no sequence")
        return {"statement": " ".join(map(str, terms))}

    def read_review(self, completion):
        scores = words(completion)
        if len(scores) != 3 or not all(score.isdigit() for score in scores):
            raise Malformed("no-scores", "expected three numbers")
        return [min(int(score), most) for score, most in zip(scores, (5, 1, 4))]

    def verify(self, problem, proof):
        expected = [int(term) for term in problem["statement"].split()]
        p = 1
        for n, term in enumerate(expected):
            p = run(proof.split(), n, p)
            if p != term:
                return {"verdict": "refused", "reason": f"term {n} is {p}, expected {term}", "step": n + 1}
        return {"verdict": "proved"}


if __name__ == "__main__":
    serve(Sequences())
