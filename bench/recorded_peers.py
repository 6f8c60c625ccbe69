"""The Python side of bench/recorded.cpp: trains on command, eagerly and with torch.compile.

Reads one command per line from stdin and answers each with one line: `ok <number>` or `error <text>`. HOW is eager or
compile. WORK is a JSON object: `model` (mlp, net or encoder), `hidden`, `batch_size`, `optim`, `lr`, `folder`.

  work WORK        the model, data and optimizer of the following commands
  restart HOW      begins again with the initial weights and random numbers; compiles where that is to be done
  train HOW STEPS  seconds per step
  mean HOW STEPS   the mean of the first losses since the restart
"""

import json
import os
import sys
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(32 * 7 * 7, 10)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc(self.dropout(x.flatten(1)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, dim_feedforward=512, dropout=0.1)
        self.tokens = nn.Embedding(512, 128)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.encoder(self.tokens(x.t())).mean(0))


def build(work):
    if work["model"] == "encoder":
        return Encoder()
    if work["model"] == "net":
        return Net()
    return nn.Sequential(nn.Linear(784, work["hidden"]), nn.ReLU(), nn.Linear(work["hidden"], 10))


class Training:
    """One model, which trains some steps at a time with random numbers that no other draws from."""

    def __init__(self, work, how):
        self.work = work
        self.model = build(work).train()
        self.loss = lambda batch, target: cross_entropy(self.model(batch), target)
        if how == "compile":
            self.loss = torch.compile(self.loss)
        folder, size = work["folder"], work["batch_size"]
        targets = torch.from_file(f"{folder}/target", size=os.path.getsize(f"{folder}/target") // 8, dtype=torch.int64)
        shape = {"mlp": (784,), "net": (1, 28, 28), "encoder": (16,)}[work["model"]]
        dtype = torch.int64 if work["model"] == "encoder" else torch.float32
        count = len(targets) * torch.Size(shape).numel()
        inputs = torch.from_file(f"{folder}/input", size=count, dtype=dtype).view(-1, *shape)
        self.batches = list(zip(inputs.split(size), targets.split(size)))
        self.restart()
        self.train(3)  # compiles
        self.restart()

    def restart(self):
        params = sorted(self.model.named_parameters())
        path = self.work["folder"] + "/weights"
        weights = torch.from_file(path, size=os.path.getsize(path) // 4, dtype=torch.float32)
        with torch.no_grad():
            for (_, param), values in zip(params, weights.split([param.numel() for _, param in params])):
                param.copy_(values.view_as(param))
                param.grad = None
        kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[self.work["optim"]]
        self.optimizer = kind(self.model.parameters(), lr=self.work["lr"], fused=True)
        torch.manual_seed(3)
        self.random = torch.get_rng_state()
        self.losses = []

    def train(self, steps):
        torch.set_rng_state(self.random)
        begin = time.perf_counter()
        for _ in range(steps):
            batch, target = self.batches[len(self.losses) % len(self.batches)]
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss(batch, target)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
        seconds = time.perf_counter() - begin
        self.random = torch.get_rng_state()
        return seconds / steps


def main():
    torch.set_num_threads(1)
    work, trainings = None, {}
    print("ok", flush=True)
    for line in sys.stdin:
        command, _, rest = line.strip().partition(" ")
        try:
            answer = 0
            if command == "work":
                work = json.loads(rest)
                trainings.clear()
                torch.compiler.reset()
            elif command == "restart":
                if rest in trainings:
                    trainings[rest].restart()
                else:
                    trainings[rest] = Training(work, rest)
            else:
                how, steps = rest.split()
                if command == "train":
                    answer = trainings[how].train(int(steps))
                else:
                    answer = sum(trainings[how].losses[: int(steps)]) / int(steps)
            print("ok", repr(answer), flush=True)
        except Exception as error:
            print("error", type(error).__name__, " ".join(str(error).split())[:200], flush=True)


main()
