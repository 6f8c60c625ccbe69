#!/usr/bin/env python3
"""Expected values of tests/data/splits.cpp: the sizes of torch's random_split, and the records that ours gives, by the
definition of data::Permutation (include/danling/data/permutation.hpp) in whole numbers of Python."""

from math import isqrt

import torch
from torch.utils.data import random_split

MASK = (1 << 64) - 1
GOLDEN_RATIO = 0x9E3779B97F4A7C15


def mix(x):
    for _ in range(2):
        x = ((x ^ (x >> 32)) * 0xD6E8FEB86659FD93) & MASK
    return x ^ (x >> 32)


def order_key(seed, epoch, split):
    name = 0xCBF29CE484222325
    for byte in split.encode():
        name = ((name ^ byte) * 0x100000001B3) & MASK
    key = mix((seed + GOLDEN_RATIO) & MASK)
    key = mix(key ^ ((epoch + GOLDEN_RATIO) & MASK))
    return mix(key ^ ((name + GOLDEN_RATIO) & MASK))


def permutation(size, key):
    num_rounds = 24 if size < 1024 else 8
    rows = isqrt(size - 1) + 1 if size > 0 else 0
    rows = 2 if rows < 2 else rows + rows % 2
    columns = (size + rows - 1) // rows
    keys = []
    for _ in range(24):
        key = (key + GOLDEN_RATIO) & MASK
        keys.append(mix(key))

    def at(cell):
        while True:
            row, column = divmod(cell, columns)
            for i in range(0, num_rounds, 2):
                row = (row + ((mix(column ^ keys[i]) * rows) >> 64)) % rows
                column = (column + ((mix(row ^ keys[i + 1]) * columns) >> 64)) % columns
            cell = row * columns + column
            if cell < size:
                return cell

    return at


def main():
    for size, fractions in [
        (1437, [0.7, 0.2, 0.1]),
        (10, [1 / 3] * 3),
        (3, [0.9, 0.1]),
        (1, [0.5, 0.5]),
        (0, [0.5, 0.5]),
        (7, [0.1] * 10),
        (29, [0.29, 0.71]),
    ]:
        parts = random_split(range(size), fractions, torch.Generator().manual_seed(0))
        print("sizes of", size, "by", fractions, [len(part) for part in parts])
    for size, seed in [(10, 0), (10, 1), (1437, 7), (10**12, 2**64 - 1)]:
        at = permutation(size, order_key(seed, 0, "danling.data.split"))
        print("first records of", size, "with seed", seed, [at(i) for i in range(min(size, 10))])


if __name__ == "__main__":
    main()
