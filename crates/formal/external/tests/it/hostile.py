"""A system that misbehaves as its first argument says, until the file that is its second argument exists."""

import json
import os
import sys
import time

how, healed = sys.argv[1], sys.argv[2]
prompts = ("solver", "conjecturer", "conjecturer_solved", "conjecturer_unconditioned", "guide")

for line in sys.stdin:
    request = json.loads(line)
    reply = {"id": request["id"]}
    if request["op"] == "describe":
        reply["result"] = {"name": "hostile", "version": "1", "prompts": {name: "|- ph" for name in prompts}}
    elif os.path.exists(healed):
        text = request.get("completion", "")
        verdicts = [{"verdict": "proved"} for _ in request.get("proofs", [])]
        scores = {"relevance": 3, "redundancy": 0, "complexity": 0}
        reply["result"] = {"verdicts": verdicts, "proof": text, "statement": text, **scores}
    elif how == "silent":
        time.sleep(600)
    elif how == "slow":
        while True:
            print("x", end="", flush=True)
            time.sleep(0.05)
    elif how == "wrong id":
        reply.update(id=request["id"] + 1, result={"proof": "x"})
    elif how == "huge line":
        while True:
            print("x" * 65536, end="", flush=True)
    elif how == "dies on proofs" and request["op"] != "verify":
        reply["result"] = {"malformed": "none"} if request["op"] != "read_proof" else {"proof": "x"}
    elif how.startswith("dies"):
        print("no more", file=sys.stderr)
        os._exit(3)
    elif how == "not JSON":
        print("Traceback")
    elif how == "few verdicts":
        reply["result"] = {"verdicts": [], "malformed": "infra"}
    elif how == "wrong fields":
        reply["result"] = {"proofs": "x", "verdicts": [{"verdict": "perfect"}]}
    elif how == "strange":
        scores = {"relevance": 100, "redundancy": 0, "complexity": 0}
        reply["result"] = {"verdicts": [{"verdict": "infra"}] * len(request.get("proofs", [])), **scores}
    elif how == "deaf":
        sys.stdin.close()
        time.sleep(600)
    elif how == "error":
        reply["error"] = "out of order"
    print(json.dumps(reply), flush=True)
