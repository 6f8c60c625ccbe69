#!/usr/bin/env python3
"""Checkpoints between Python and C++.

make DIR         writes with torch.save what tests/checkpoint/interop.cpp expects to read
check FILE       loads FILE, written by the C++ test, in every way Python has, and compares it with reference()
large FILE       checks the file of tests/formats/large.cpp, which is above 4 GiB, through a mapping
resave IN OUT    loads IN with weights_only and saves it to OUT

tests/golden/data/checkpoint_*.pth are the small files of `make`, so that the reading side needs no Python.
"""

import os
import pathlib
import sys
from collections import OrderedDict

os.environ["TORCH_SERIALIZATION_DEBUG"] = "1"  # Python compares computed and real offsets of storages

import torch

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64",
    "bool", "complex32", "complex64", "complex128",
]  # fmt: skip


def pattern(dtype_name):
    """Six elements whose bytes count up; bools alternate."""
    dtype = getattr(torch, dtype_name)
    if dtype is torch.bool:
        return (torch.arange(6) % 2 == 1).reshape(2, 3)
    return torch.arange(6 * dtype.itemsize, dtype=torch.uint8).view(dtype).reshape(2, 3)


def reference():
    base = torch.arange(12, dtype=torch.float32)
    state = {"dtypes": {name: pattern(name) for name in DTYPES}}
    state["views"] = {
        "base": base,
        "transposed": base.reshape(3, 4).t(),
        "strided": base[1::3],
        "expanded": base[2:3].expand(4),
        "conjugate": torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).conj(),
        "negative": torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).conj().imag,
    }
    state["shapes"] = {
        "empty": torch.empty(0),
        "empty_matrix": torch.empty(0, 3, dtype=torch.int64),
        "scalar": torch.tensor(2.5),
        "trained": torch.ones(2, requires_grad=True),
    }
    state["plain"] = {
        "none": None,
        "true": True,
        "false": False,
        "integers": [0, 1, -1, 255, 256, 65535, 65536, -129, 2**31 - 1, -(2**31), 2**31, 2**40, -(2**40)]
        + [2**63 - 1, -(2**63), 127, 128, -128],
        "floats": [0.0, -0.0, 0.1, float("inf"), -float("inf"), 1e-310],
        "text": "schöne Grüße, 世界 \U0001f600",
        "empty_text": "",
        "bytes": bytes(range(256)),
        "empty_bytes": b"",
        "tuple": (1, "a", (2.5,), ()),
        "list": [[], {}, [None]],
        3: {-7: "integer keys"},
    }
    return state


def same(a, b, path="state"):
    """The first difference, or None."""
    if type(a) is not type(b):
        return f"{path}: {type(a)} and {type(b)}"
    if isinstance(a, dict):
        if list(a) != list(b):
            return f"{path}: keys {list(a)} and {list(b)}"
        return next((d for k in a if (d := same(a[k], b[k], f"{path}[{k!r}]"))), None)
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{path}: {len(a)} and {len(b)} items"
        return next((d for i in range(len(a)) if (d := same(a[i], b[i], f"{path}[{i}]"))), None)
    if isinstance(a, torch.Tensor):
        for what in ("dtype", "shape", "requires_grad"):
            if getattr(a, what) != getattr(b, what):
                return f"{path}: {what} {getattr(a, what)} and {getattr(b, what)}"
        if a.numel() and a.stride() != b.stride():
            return f"{path}: strides {a.stride()} and {b.stride()}"
        if (a.storage_offset(), a.is_conj(), a.is_neg()) != (b.storage_offset(), b.is_conj(), b.is_neg()):
            return f"{path}: offset or lazy conjugation"
        if bytes(a.untyped_storage()) != bytes(b.untyped_storage()):
            return f"{path}: bytes"
        return None
    equal = repr(a) == repr(b)
    return None if equal else f"{path}: {a!r} and {b!r}"


def module():
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    with torch.no_grad():
        for i, parameter in enumerate(net.parameters()):
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + i)
    return net


def make(directory):
    def save(name, value, **options):
        torch.save(value, os.path.join(directory, f"checkpoint_{name}.pth"), **options)

    save("reference", reference())
    net = module()
    save("module", net.state_dict())  # an OrderedDict with _metadata
    save("parameters", OrderedDict(net.named_parameters()))  # torch.nn.Parameter
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.125)
    net(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    save("optimizer", {"optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()[:16].clone()})
    plain = {"plain": reference()["plain"], "size": torch.Size([2, 3]), "bytearray": bytearray(b"a\xff")}
    for protocol in (2, 3, 4, 5):
        save(f"protocol{protocol}", {**plain, "tensor": pattern("float32")}, pickle_protocol=protocol)
    shared = ["one list"]
    save("aliases", {"a": shared, "b": shared})
    save("forbidden", {"path": pathlib.PurePosixPath("x")})
    save("legacy", {"a": 1}, _use_new_zipfile_serialization=False)
    rows = torch.arange(10.0).reshape(5, 2)
    torch.serialization.set_crc32_options(False)
    save("unchecked", {"rows": rows, "behind": rows[5:, 1:]})  # begins behind the last element, and has none
    torch.serialization.set_crc32_options(True)


def check(path):
    from torch.utils.serialization import config

    expected = reference()
    config.load.calculate_storage_offsets = True
    for options in ({"weights_only": True}, {"weights_only": True, "mmap": True}, {"weights_only": False}):
        loaded = torch.load(path, **options)
        difference = same(loaded, expected)
        if difference:
            sys.exit(f"{options}: {difference}")
        views = loaded["views"]
        if not all(
            views[name].untyped_storage().data_ptr() == views["base"].untyped_storage().data_ptr()
            for name in ("transposed", "strided", "expanded")
        ):
            sys.exit(f"{options}: views no longer share their storage")
        views["base"][3] = 99.0
        if views["transposed"][3, 0] != 99.0:
            sys.exit(f"{options}: views do not see writes")


def large(path):
    loaded = torch.load(path, mmap=True, weights_only=True)
    if loaded["large"].numel() != 2**32 + 100 or loaded["large"][-3:].tolist() != [0, 0, 7]:
        sys.exit("the storage above 4 GiB differs")
    if loaded["behind"].tolist() != [1, 2, 3]:
        sys.exit("the storage behind 4 GiB differs")


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "make":
        make(*arguments)
    elif command == "check":
        check(*arguments)
    elif command == "large":
        large(*arguments)
    elif command == "resave":
        torch.save(torch.load(arguments[0], weights_only=True), arguments[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
