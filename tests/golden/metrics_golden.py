"""Accuracy by DanLing 0.4.8 and torchmetrics, for tests/metrics.

    python tests/golden/metrics_golden.py > tests/metrics/golden.hpp

The scores are multiples of 1/64 and so exact in every floating type. No two in a row are equal: which of equal scores
torch.topk takes is not defined.
"""

import random
from importlib.metadata import version

import torch
from danling.metrics import StreamMetrics
from danling.metrics.functional import binary_accuracy, multiclass_accuracy
from danling.metrics.preprocess import preprocess_binary, preprocess_multiclass

NUM_CLASSES = 6
BATCHES = (8, 5, 7)
IGNORE = -100


def cpp(values):
    return "{" + ", ".join(repr(v) for v in values) + "}"


def multiclass_batches(rng):
    for size in BATCHES:
        scores = [[x / 64 for x in rng.sample(range(-128, 128), NUM_CLASSES)] for _ in range(size)]
        labels = [IGNORE if rng.random() < 0.2 else rng.randrange(NUM_CLASSES) for _ in range(size)]
        yield scores, labels


def binary_batches(rng):
    for index, size in enumerate(BATCHES):
        low, high = ((0, 64), (-128, 128), (0, 64))[index]  # the middle batch holds logits
        scores = [x / 64 for x in rng.sample(range(low, high), size)]
        labels = [IGNORE if rng.random() < 0.2 else rng.randrange(2) for _ in range(size)]
        yield scores, labels


def emit(name, batches, metrics):
    for index, (scores, labels) in enumerate(batches):
        metrics.update(torch.tensor(scores), torch.tensor(labels))
        flat = [x for row in scores for x in row] if isinstance(scores[0], list) else scores
        rows = [
            f"{{{cpp([float(metrics.val[k]), float(metrics.avg[k]), int(metrics.n[k]), int(metrics.count[k])])}}}"
            for k in metrics
        ]
        print(f"inline const std::vector<float> {name}_scores_{index} = {cpp(flat)};")
        print(f"inline const std::vector<std::int64_t> {name}_labels_{index} = {cpp(labels)};")
        print(f"inline const std::vector<GoldenRow> {name}_rows_{index} = {{{', '.join(row[1:-1] for row in rows)}}};")


def main():
    rng = random.Random(3)
    used = ", ".join(f"{name} {version(package)}" for name, package in (("DanLing", "danling"), ("torch", "torch")))
    print(f"// Written by tests/golden/metrics_golden.py with {used}, torchmetrics {version('torchmetrics')}")
    print("// clang-format off\n#pragma once\n\n#include <cstdint>\n#include <vector>\n\nnamespace {\n")
    print("struct GoldenRow {\n  double val;\n  double avg;\n  std::int64_t n;\n  std::int64_t count;\n};\n")
    emit(
        "multiclass",
        multiclass_batches(rng),
        StreamMetrics(
            **{
                name: multiclass_accuracy(NUM_CLASSES, average="micro", k=k, ignore_index=IGNORE)
                for name, k in (("acc", 1), ("acc2", 2), ("acc4", 4))
            },
            preprocess=lambda p, t: preprocess_multiclass(p, t, num_classes=NUM_CLASSES, ignore_index=IGNORE),
        ),
    )
    print()
    emit("binary", binary_batches(rng), StreamMetrics(binary_accuracy(), preprocess=preprocess_binary))
    print("\n}  // namespace")


main()
