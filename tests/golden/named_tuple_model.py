#!/usr/bin/env python3
"""Saves a TorchScript model that returns a named tuple: tests/runner/torchscript.cpp loads it.

Usage: named_tuple_model.py OUTPUT.pt
"""

import sys
from typing import NamedTuple

import torch
from torch import Tensor


class Output(NamedTuple):
    output: Tensor
    hidden: Tensor


class Model(torch.nn.Module):
    def forward(self, input: Tensor) -> Output:
        return Output(output=input + 1, hidden=input * 2)


if __name__ == "__main__":
    torch.jit.script(Model()).save(sys.argv[1])
