"""Serves a formal system to sgs over JSON lines (docs/external.md). Standard library only."""

import json
import sys
import traceback


class Malformed(Exception):
    """A completion without a well-formed proof, conjecture or review. `kind` is a short name for statistics."""

    def __init__(self, kind, detail=""):
        super().__init__(kind)
        self.kind, self.detail = kind, detail


def answer(system, request):
    """Returns the result of a request."""
    op, problem, text = request["op"], request.get("problem"), request.get("completion")
    try:
        if op == "describe":
            return system.describe()
        if op == "read_proof":
            return {"proof": system.read_proof(problem, text)}
        if op == "read_conjecture":
            return system.read_conjecture(problem, text)
        if op == "read_review":
            return dict(zip(("relevance", "redundancy", "complexity"), system.read_review(text)))
        if op == "verify":
            return {"verdicts": [system.verify(problem, proof) for proof in request["proofs"]]}
    except Malformed as error:
        return {"malformed": error.kind, "detail": error.detail}
    raise ValueError(f"unknown operation {op!r}")


def serve(system):
    """Answers requests until standard input ends."""
    replies, sys.stdout = sys.stdout, sys.stderr  # a stray print() must not look like a reply
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = {"id": request["id"], "result": answer(system, request)}
        except Exception as error:
            traceback.print_exc()
            reply = {"id": request["id"], "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)
