"""Writes nested_operators.txt: the operators that PyTorch's own tests of jagged nested tensors call, for tests/nested.

Run with torch installed: python tests/golden/nested_operators.py
"""

import pathlib
import re
import sys
import types
import unittest

import torch
from torch.nested._internal import ops

if "expecttest" not in sys.modules:  # of which nothing here is used
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
from torch.testing._internal.opinfo.definitions.nested import njt_op_db


def main():
    known = {schema.name[6:] for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")}
    names = set()
    for op in njt_op_db:
        for name in (op.aten_name, op.name, op.name.replace(".", "_"), op.name.rsplit(".", 1)[-1]):
            if name in known:
                names.add(name)
                break
    # Those with a kernel of their own.
    names |= {name for name in re.findall(r"torch\.ops\.aten\.(\w+)", pathlib.Path(ops.__file__).read_text()) if name in known}
    kept = sorted(name for name in names if "nested" not in name and "sym_" not in name)
    pathlib.Path(__file__).with_name("nested_operators.txt").write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
