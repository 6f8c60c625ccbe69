#!/usr/bin/env python3
"""Reads the NestedTensor `words` of a .pth and a .safetensors file of danling: tests/checkpoint/nested.cpp."""
import sys

import torch
from safetensors.torch import load_file

words = torch.load(sys.argv[1], weights_only=True)["words"]
flat = load_file(sys.argv[2])
for name in ("values", "offsets", "shapes", "nested_tensor", "padding_value"):
    assert torch.equal(words[name], flat["words." + name]), name
elements = torch.tensor_split(words["values"], words["offsets"][1:-1])
assert [element.tolist() for element in elements] == [[[0, 1], [2, 3], [4, 5]], [], [[7, 7]]], elements
assert words["shapes"].tolist() == [[3, 2], [0, 2], [1, 2]], words["shapes"]
