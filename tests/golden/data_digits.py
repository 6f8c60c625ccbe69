"""Reads the bundled digits with Python's own gzip and struct and prints what tests/data/mnist.cpp expects."""

import gzip
import hashlib
import pathlib
import struct

root = pathlib.Path(__file__).resolve().parents[2] / "examples" / "mnist" / "data"
for prefix in ("train", "t10k"):
    images = gzip.open(root / f"{prefix}-images-idx3-ubyte.gz").read()
    magic, count, rows, columns = struct.unpack(">IIII", images[:16])
    pixels = images[16:]
    assert magic == 2051 and len(pixels) == count * rows * columns
    labels = gzip.open(root / f"{prefix}-labels-idx1-ubyte.gz").read()
    label_magic, label_count = struct.unpack(">II", labels[:8])
    assert label_magic == 2049 and label_count == count == len(labels) - 8
    labels = labels[8:]
    size = rows * columns
    print(prefix, (count, rows, columns))
    print("  sum of pixels", sum(pixels), "of image 7", sum(pixels[7 * size : 8 * size]))
    print("  weighted sum", sum((i % 251) * p for i, p in enumerate(pixels)))
    print("  histogram", [labels.count(digit) for digit in range(10)])
    print("  first labels", list(labels[:12]))
    print("  sha256", hashlib.sha256(pixels).hexdigest())
