"""Prints config ids as DanLing defines them: the golden values of tests/config/tree.cpp."""

import hashlib

TEXTS = ["", "abc", "accum_steps: 1\noptim:\n  lr: 0.1\n  type: sgd\n", "a" * 55, "a" * 56, "a" * 64, "a" * 1000]

for text in TEXTS:
    digest = hashlib.sha1(text.encode("utf-8")).digest()
    value = int.from_bytes(digest[:8], byteorder="big") & ((1 << 48) - 1)
    print(format(value, "012x"), repr(text if len(text) < 80 else f"{text[:3]}... ({len(text)})"))
