"""A task server after the paper's description, as the peer of the dispatch bench.

FastAPI on uvicorn; an in-memory queue under one lock; when nothing is pending, the task in progress with the fewest
workers is found by a linear scan; the first result wins. It speaks the bench's two calls, so that both servers get
the same load.

    uvicorn server:app --port PORT --log-level warning       (the number of open tasks in OPEN)
"""

import os
import threading
from collections import deque

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

TOKEN = "dispatch-bench-token"
OPEN = int(os.environ.get("OPEN", "100000"))
PROOF = "a1 a2 mp " * 20


class LeaseCall(BaseModel):
    worker: str
    kind: str
    capacity: int = 1
    wait_s: float = 0.0


class Result(BaseModel):
    task: int
    attempt: int
    outcome: dict


class ResultsCall(BaseModel):
    worker: str
    results: list[Result]


class TaskServer:
    def __init__(self, number: int):
        self.lock = threading.Lock()
        self.payloads: dict[int, str] = {}
        self.queue: deque[int] = deque()
        self.in_progress: dict[int, set[str]] = {}
        self.results: dict[int, dict] = {}
        self.next = 0
        for _ in range(number):
            self.add()

    def add(self):
        self.payloads[self.next] = f'{{"number":{self.next},"proof":"{PROOF}"}}'
        self.queue.append(self.next)
        self.next += 1

    def lease(self, worker: str, capacity: int) -> list[dict]:
        tasks = []
        with self.lock:
            for _ in range(capacity):
                if self.queue:
                    task = self.queue.popleft()
                    self.in_progress[task] = {worker}
                else:
                    candidates = [t for t, holders in self.in_progress.items() if worker not in holders]
                    if not candidates:
                        break
                    task = min(candidates, key=lambda t: len(self.in_progress[t]))
                    self.in_progress[task].add(worker)
                tasks.append({"task": task, "attempt": 1, "kind": "verify", "payload": self.payloads[task]})
        return tasks

    def report(self, results: list[Result]) -> list[str]:
        receipts = []
        with self.lock:
            for result in results:
                if result.task in self.results or result.task not in self.in_progress:
                    receipts.append("duplicate")
                    continue
                del self.in_progress[result.task]
                del self.payloads[result.task]
                self.results[result.task] = result.outcome
                receipts.append("accepted")
                # The number of open tasks stays as it is, as on the other side of the bench.
                self.results.pop(result.task)
                self.add()
        return receipts


server = TaskServer(OPEN)
app = FastAPI()


def check(request: Request):
    if request.headers.get("authorization") != f"Bearer {TOKEN}":
        raise HTTPException(status_code=401)


@app.post("/v1/lease")
def lease(call: LeaseCall, request: Request):
    check(request)
    return {"tasks": server.lease(call.worker, call.capacity), "lease_s": 60.0, "drain": False}


@app.post("/v1/results")
def results(call: ResultsCall, request: Request):
    check(request)
    return {"receipts": server.report(call.results)}
