"""The Python side of bench/nested.cpp: torch.nested (jagged) and PyPI's danling, on the same tokens.

Usage: nested.py DATA THREADS

DATA is a file that torch.load opens: `packed` [tokens, width] and `lengths`. The script reads one command per line from
stdin, `linear WIDTH PEER`, `norm 0 PEER` or `pad 0 PEER` with the peer `jagged` or `danling`, and answers each with one
line: `ok <seconds>` or `error <text>`. linear and norm: seconds of 5 calls.
"""

import logging
import os
import sys
import time
import warnings

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch

try:
    from danling.tensors import NestedTensor
except ImportError:
    NestedTensor = None


def main(path, threads):
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    data = torch.load(path)
    elements = list(data["packed"].split(data["lengths"].tolist()))
    width = data["packed"].size(1)
    inputs = {"jagged": torch.nested.nested_tensor(elements, layout=torch.jagged)}
    if NestedTensor is not None:
        inputs["danling"] = NestedTensor(*elements)
    modules = {"norm 0": torch.nn.LayerNorm(width)}

    def seconds(name, size, peer):
        if peer not in inputs:
            raise RuntimeError(f"{peer} is not installed")
        x = inputs[peer]
        if name == "pad":
            if peer == "danling":
                x._cached_tensor_view = None  # it keeps the padded tensor
            begin = time.perf_counter()
            torch.nested.to_padded_tensor(x, 0.0) if peer == "jagged" else x.tensor
            return time.perf_counter() - begin
        key = f"{name} {size}"
        if key not in modules:
            modules[key] = torch.nn.Linear(width, int(size))
        module = modules[key]
        begin = time.perf_counter()
        for _ in range(5):
            module(x)
        return time.perf_counter() - begin

    print("ok", flush=True)
    for line in sys.stdin:
        try:
            with torch.no_grad():
                print("ok", seconds(*line.split()), flush=True)
        except Exception as error:  # the benchmark prints it
            text = " ".join(str(error).split())[:400]
            print("error", type(error).__name__, text, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
