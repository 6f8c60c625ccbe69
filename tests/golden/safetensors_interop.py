#!/usr/bin/env python3
"""Safetensors files between Python and C++.

make DIR         writes with safetensors what tests/formats/safetensors.cpp and tests/checkpoint/weights.cpp read
check FILE       loads FILE, written by the C++ test, and compares it with reference()
check-tied FILE  loads FILE into a model with tied weights, as safetensors.torch.save_model's own files are loaded

tests/golden/data/safetensors_*.safetensors are the small files of `make`, so that the reading side needs no Python.
"""

import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64",
    "bool", "complex64",
]  # fmt: skip


def pattern(dtype_name):
    """Six elements whose bytes count up; bools alternate."""
    dtype = getattr(torch, dtype_name)
    if dtype is torch.bool:
        return (torch.arange(6) % 2 == 1).reshape(2, 3)
    return torch.arange(6 * dtype.itemsize, dtype=torch.uint8).view(dtype).reshape(2, 3)


def reference():
    tensors = {name: pattern(name) for name in DTYPES}
    tensors["empty"] = torch.empty(0, 3)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["größe \"1\"\n\t\x01\x7f/\\"] = torch.arange(3, dtype=torch.int16)
    return tensors


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(3, 2)
        self.head = torch.nn.Linear(2, 3, bias=True)
        self.head.weight = self.embedding.weight
        with torch.no_grad():
            self.embedding.weight.copy_(torch.arange(6).reshape(3, 2))
            self.head.bias.copy_(torch.arange(3))


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.reshape(-1).view(torch.uint8).equal(b.reshape(-1).view(torch.uint8))


def check(path):
    expected = reference()
    for backend in ("mmap", "pread"):
        loaded = load_file(path, backend=backend)
        assert loaded.keys() == expected.keys(), sorted(loaded)
        for name, tensor in expected.items():
            assert same(tensor, loaded[name]), name
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["format"] == "pt"


def check_tied(path):
    model = Tied()
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert load_model(model, path) == (set(), [])
    for name, tensor in model.state_dict().items():
        assert tensor.equal(expected[name]), name
    with safe_open(path, framework="pt") as file:
        assert sorted(file.keys()) == ["embedding.weight", "head.bias"]
        assert file.metadata()["head.weight"] == "embedding.weight"


def make(directory):
    save_file(reference(), f"{directory}/safetensors_reference.safetensors", metadata={"format": "pt"})
    save_model(Tied(), f"{directory}/safetensors_tied.safetensors")
    save_file({}, f"{directory}/safetensors_empty.safetensors")


if __name__ == "__main__":
    {"make": make, "check": check, "check-tied": check_tied}[sys.argv[1]](*sys.argv[2:])
