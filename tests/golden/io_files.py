#!/usr/bin/env python3
"""Reads what tests/checkpoint/io.cpp saved to DIR, compares it with NumPy's own, and writes NumPy's and Python's files.

Usage: io_files.py DIR    (needs numpy; YAML is compared where there is PyYAML)
"""

import json
import pickle
import sys
from pathlib import Path

import numpy as np

ARRAYS = {
    "float": np.arange(6, dtype="float32").reshape(2, 3) * np.float32(0.5),
    "scalar": np.array(7),
    "flags": np.array([True, False, True]),
    "half": np.ones(3, dtype="float16"),
    "empty": np.ones((0, 4)),
    "columns": np.arange(6, dtype="int16").reshape(2, 3).T,
}
VALUES = {
    "none": None,
    "flag": True,
    "count": -3,
    "rate": 1e-5,
    "whole": 2.0,
    "text": 'a "quoted" line\n\tand ümlaut',
    "numeric text": "0123",
    "list": [1, 2.5, "three", [], {}],
    "map": {"inner": "null"},
    "far": float("inf"),
}


def same(ours, expected):
    return ours.dtype == expected.dtype and ours.shape == expected.shape and (ours == expected).all()


def main(directory):
    archive = np.load(directory / "ours.npz")
    for name, array in ARRAYS.items():
        assert same(np.load(directory / f"ours-{name}.npy"), array), name
        assert same(archive[name], array), name
        np.save(directory / f"theirs-{name}.npy", array)
    np.savez(directory / "theirs.npz", **ARRAYS)
    assert json.loads((directory / "ours.json").read_text(encoding="utf-8")) == VALUES
    (directory / "theirs.json").write_text(json.dumps(VALUES), encoding="utf-8")
    with open(directory / "ours.pkl", "rb") as file:
        assert pickle.load(file) == VALUES
    with open(directory / "theirs.pkl", "wb") as file:
        pickle.dump(VALUES, file)
    try:
        import yaml
    except ImportError:
        return
    assert yaml.safe_load((directory / "ours.yaml").read_text(encoding="utf-8")) == VALUES
    (directory / "theirs.yaml").write_text(yaml.safe_dump(VALUES, sort_keys=False, allow_unicode=True), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
