"""Trains and samples the model of `sgs bench` with PyTorch on the CPU: the comparison in docs/performance.md.

Needs torch (measured with 2.11). Prints the median of ten training steps and of eight sampling passes, each in f32 and in
bfloat16. Training in bfloat16 keeps f32 weights (`torch.autocast`), as sgs does.
"""

import statistics
import time

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, INNER, VOCABULARY = 4, 256, 4, 1024, 1024
SEQUENCES, LENGTH = 32, 128  # a training step
BATCH, NEW = 64, 96  # sampling, after a prompt of one token


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Model:
    def __init__(self):
        matrix = lambda rows, columns: (0.02 * torch.randn(rows, columns)).requires_grad_()
        norm = lambda: torch.ones(WIDTH, requires_grad=True)
        self.embedding, self.head, self.norm = matrix(VOCABULARY, WIDTH), matrix(VOCABULARY, WIDTH), norm()
        self.layers = [
            (norm(), *(matrix(WIDTH, WIDTH) for _ in "qkvo"), norm(), matrix(INNER, WIDTH), matrix(INNER, WIDTH), matrix(WIDTH, INNER))
            for _ in range(LAYERS)
        ]
        size = WIDTH // HEADS
        angles = torch.arange(LENGTH)[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
        self.cos, self.sin = angles.cos(), angles.sin()

    def parameters(self):
        return [self.embedding, self.head, self.norm, *(tensor for layer in self.layers for tensor in layer)]

    def to(self, dtype):
        for tensor in self.parameters():
            tensor.data = tensor.data.to(dtype)
        self.cos, self.sin = self.cos.to(dtype), self.sin.to(dtype)

    def logits(self, tokens, start=0, cache=None):
        """Logits of the tokens at the positions from `start` on; `cache` has keys and values of each layer."""
        batch, length = tokens.shape
        cos, sin = self.cos[start : start + length], self.sin[start : start + length]
        heads = lambda y, w: (y @ w.T).view(batch, length, HEADS, -1).transpose(1, 2)
        x = F.embedding(tokens, self.embedding)
        for i, (norm, q, k, v, o, inner_norm, gate, up, down) in enumerate(self.layers):
            y = F.rms_norm(x, (WIDTH,), norm, 1e-5)
            query, keys, values = rotate(heads(y, q), cos, sin), rotate(heads(y, k), cos, sin), heads(y, v)
            if cache is not None:
                cache[i, 0, :, :, start : start + length], cache[i, 1, :, :, start : start + length] = keys, values
                keys, values = cache[i, 0, :, :, : start + length], cache[i, 1, :, :, : start + length]
            y = F.scaled_dot_product_attention(query, keys, values, is_causal=length > 1)
            x = x + y.transpose(1, 2).reshape(batch, length, WIDTH) @ o.T
            y = F.rms_norm(x, (WIDTH,), inner_norm, 1e-5)
            x = x + (F.silu(y @ gate.T) * (y @ up.T)) @ down.T
        return F.rms_norm(x, (WIDTH,), self.norm, 1e-5) @ self.head.T


def train(model, dtype):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (SEQUENCES, LENGTH + 1))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype != torch.float32):
            logits = model.logits(tokens[:, :-1])
        F.cross_entropy(logits.float().view(-1, VOCABULARY), tokens[:, 1:].reshape(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return SEQUENCES * LENGTH / seconds(step, 10)


@torch.no_grad()
def sample(model):
    cache = torch.empty(LAYERS, 2, BATCH, HEADS, NEW, WIDTH // HEADS, dtype=model.embedding.dtype)

    def run():
        tokens = torch.randint(VOCABULARY, (BATCH, 1))
        for position in range(NEW):
            logits = model.logits(tokens, position, cache)[:, -1].float()
            tokens = (logits - torch.log(-torch.log(torch.rand_like(logits)))).argmax(-1, keepdim=True)

    return BATCH * NEW / seconds(run, 8)


def seconds(call, times):
    """Median time of a call, after two that do not count."""
    measured = []
    for _ in range(times + 2):
        started = time.perf_counter()
        call()
        measured.append(time.perf_counter() - started)
    return statistics.median(measured[2:])


torch.manual_seed(1)
MODEL = Model()
print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
for DTYPE in torch.float32, torch.bfloat16:
    print(f"train  {train(MODEL, DTYPE):.0f} tokens/s ({DTYPE})")
for DTYPE in torch.float32, torch.bfloat16:
    MODEL.to(DTYPE)
    print(f"sample {sample(MODEL):.0f} tokens/s ({DTYPE})")
