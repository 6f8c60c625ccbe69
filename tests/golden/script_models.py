#!/usr/bin/env python3
"""TorchScript models for tests/runner/script_export.cpp (needs torch).

Usage: script_models.py make FILE            writes a scripted model
       script_models.py check FILE OUT       opens FILE, writes what Python finds in it as JSON to OUT
"""

import json
import sys

import torch


class Net(torch.nn.Module):
    """Layers, a buffer, attributes, a submodule in a list, a second method."""

    names: list[str]

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)])
        self.norm = torch.nn.BatchNorm1d(8)
        self.dropout = torch.nn.Dropout(0.5)
        self.names = ["a", "b", "c"]
        self.gain = 1.5
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(torch.linspace(-0.5, 0.5, value.numel()).reshape(value.shape))

    @torch.jit.export
    def name_of(self, number: int) -> str:
        """The name of a class."""
        return self.names[number]

    def forward(self, x):
        x = self.dropout(self.norm(self.layers[0](x)).relu())
        return self.layers[1](x) * self.gain


def main():
    if sys.argv[1] == "make":
        torch.jit.script(Net()).save(sys.argv[2])
        return
    net = torch.jit.load(sys.argv[2])
    x = torch.linspace(-1, 1, 24).reshape(6, 4)
    found = {
        "training": net.training,
        "names": net.names,
        "gain": net.gain,
        "name_of": net.name_of(1),
        "output": net(x).tolist(),
        "state": {name: value.tolist() for name, value in net.state_dict().items()},
    }
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
