#!/usr/bin/env python3
"""Floating-point operations by torch.utils.flop_counter, for tests/nn/summary.cpp (needs torch).

Usage: model_flops.py > tests/golden/data/model_flops.json
"""

import json

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


class Attention(nn.Module):
    """One head, by plain products."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, -1)
        return self.out(torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v))


NETS = {
    "mlp": (nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)), (8, 784)),
    "sequence": (nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4, bias=False)), (2, 5, 16)),
    "convolutions": (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.Conv2d(8, 16, 3, stride=2, groups=4),
            nn.ConvTranspose2d(16, 4, 2, stride=2),
            nn.Flatten(),
            nn.Linear(144, 5),
        ),
        (2, 3, 8, 8),
    ),
    "attention": (Attention(), (2, 5, 16)),
}


def main():
    out = {}
    for name, (net, shape) in NETS.items():
        net.eval()
        counter = FlopCounterMode(display=False)
        with torch.no_grad(), counter:
            net(torch.zeros(shape))
        layers = {}
        for layer, counts in counter.get_flop_counts().items():
            if "." in layer:
                layers[layer.split(".", 1)[1]] = sum(counts.values())
        out[name] = {"total": counter.get_total_flops(), "layers": layers}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
