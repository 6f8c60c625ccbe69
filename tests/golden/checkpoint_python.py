#!/usr/bin/env python3
"""Python objects that tests/checkpoint/python.cpp reads, and optimizers that continue in the other language.

make DIR              writes checkpoint_objects2.pth and checkpoint_objects5.pth, by pickle protocols 2 and 5
                      (with torch, numpy and chanfig; the files are in tests/golden/data)
go-on KIND IN OUT     takes four steps with the torch.optim optimizer KIND from the state in IN, and saves to OUT
"""

import os
import sys
from collections import Counter, defaultdict

import torch

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def objects():
    import chanfig
    import numpy as np

    tensor = torch.arange(2.0)
    tensor.note = "a tensor with an attribute"
    parameter = torch.nn.Parameter(torch.arange(3.0))
    parameter.note = "a parameter with an attribute"
    return {
        "arrays": {
            "int16": np.array([[1, -2], [3, 4]], dtype="int16"),
            "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            "float32": np.array([0.5, -0.1], dtype="float32"),
            "bool": np.array([True, False]),
            "uint8": np.arange(3, dtype="uint8"),
            "uint64": np.array([2**63 - 1], dtype="uint64"),
            "empty": np.zeros((0, 3)),
            "hollow": np.zeros((2, 0), dtype="int64"),
            "zero_dim": np.array(2.5),
        },
        "numbers": [np.float64(0.1), np.float32(-0.5), np.int64(-7), np.uint8(255), np.bool_(True)],
        "sets": [{7}, frozenset(["one"]), set()],
        "maps": {
            "default": defaultdict(list, {"a": [1]}),
            "counter": Counter("aab"),
            "config": chanfig.Config(lr=0.1, optim={"name": "sgd"}),
            "nested": chanfig.NestedDict({"a": {"b": 1}}),
        },
        "devices": [torch.device("cuda", 1), torch.device("cpu")],
        "tensors": {"attribute": tensor, "parameter": parameter, "buffer": torch.nn.Buffer(torch.arange(4.0))},
    }


def make(directory):
    for protocol in (2, 5):
        path = os.path.join(directory, f"checkpoint_objects{protocol}.pth")
        torch.save(objects(), path, pickle_protocol=protocol)


def go_on(kind, source, target):
    saved = torch.load(source, weights_only=True, mmap=True)
    params = [param.clone().requires_grad_() for param in saved["params"]]
    optimizer = OPTIMIZERS[kind](params, lr=1.0)  # all options come with the state
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
    for step in range(step, step + 4):
        for param in params:
            param.grad = 0.3 * param.detach() + 0.01 * step
        optimizer.step()
    state = {"params": [param.detach() for param in params], "optimizer": optimizer.state_dict(), "step": step + 1}
    torch.save(state, target)


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "make":
        make(*arguments)
    elif command == "go-on":
        go_on(*arguments)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
