"""The Python side of bench/ddp.cpp: one rank of DistributedDataParallel, which trains on command.

Arguments: a JSON object with `workload`, `folder`, `batch_size`, `optim` (adamw or sgd), `lr`, and `ddp`: options of
DistributedDataParallel, or null for a loop without communication. Rank and world size are in the environment.

Answers `ok` when it is ready, then each line of the standard input, a number of steps, with
`ok <seconds> <seconds of CPU time> <bytes written> <voluntary switches> <loss of the last step>`.
"""

import datetime
import json
import os
import resource
import sys
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
import torch.distributed
from torch.nn import Embedding, LayerNorm, Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

num_samples, num_classes, vocabulary, length = 3840, 10, 512, 32


class Layer(torch.nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1 = LayerNorm(width)
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.norm2 = LayerNorm(width)
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        mixed = scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(gelu(self.up(self.norm2(x))))


class Encoder(torch.nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.positions = torch.nn.Parameter(torch.empty(length, width))
        self.tokens = Embedding(vocabulary, width)
        self.first = Layer(width, 4, 512)
        self.second = Layer(width, 4, 512)
        self.norm = LayerNorm(width)
        self.head = Linear(width, num_classes)

    def forward(self, tokens):
        return self.head(self.norm(self.second(self.first(self.tokens(tokens) + self.positions))).mean(1))


def mlp(*widths):
    net = Sequential()
    for i, (before, after) in enumerate(zip(widths, widths[1:])):
        if i:
            net.append(ReLU())
        net.append(Linear(before, after))
    return net


def build(work):
    name, folder = work["workload"], work["folder"]
    model = Encoder() if name == "encoder" else mlp(784, 32, 10) if name == "small" else mlp(784, 1024, 1024, 10)
    params = list(model.parameters())
    weights = torch.from_file(f"{folder}/weights", size=sum(p.numel() for p in params), dtype=torch.float32)
    with torch.no_grad():
        for param, values in zip(params, weights.split([p.numel() for p in params])):
            param.copy_(values.view_as(param))
    width, dtype = (length, torch.int64) if name == "encoder" else (784, torch.float32)
    inputs = torch.from_file(f"{folder}/input", size=num_samples * width, dtype=dtype).view(num_samples, width)
    return model, inputs, torch.from_file(f"{folder}/target", size=num_samples, dtype=torch.int64)


def written_bytes():
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("wchar"))


def main():
    work = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    model, inputs, targets = build(work)
    rank, world_size = 0, 1
    if work["ddp"] is not None:
        torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        model = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False, **work["ddp"])
    model.train()
    kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[work["optim"]]
    optimizer = kind(model.parameters(), lr=work["lr"], weight_decay=0.01, fused=True)
    # Views of all batches of this rank: a loader would have no work left.
    size = work["batch_size"]
    starts = range(rank * size, num_samples, world_size * size)
    batches = [(inputs[start : start + size], targets[start : start + size]) for start in starts]
    print("ok", flush=True)
    step = 0
    for line in sys.stdin:
        written, used, begin = written_bytes(), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        for _ in range(int(line)):
            batch, target = batches[step % len(batches)]
            step += 1
            optimizer.zero_grad(set_to_none=True)
            loss = cross_entropy(model(batch), target)
            loss.backward()
            optimizer.step()
        wall = time.perf_counter() - begin
        now = resource.getrusage(resource.RUSAGE_SELF)
        cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        print("ok", wall, cpu, written_bytes() - written, now.ru_nvcsw - used.ru_nvcsw, loss.item(), flush=True)
    sys.stdout.flush()
    os._exit(0)


main()
