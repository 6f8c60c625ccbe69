"""The predictions and targets of metrics_functional.py.

All numbers are multiples of a power of two: exact in every dtype that a case uses.
"""

import dataclasses
import math
import random

import torch


@dataclasses.dataclass
class Batch:
    name: str
    task: str
    shape: list
    scores: list  # integers, None for nan
    scale: int
    target: list
    target_shape: list
    target_scale: int = 1
    options: dict = dataclasses.field(default_factory=dict)
    class_dim: int = None

    def tensors(self):
        scores = torch.tensor([math.nan if s is None else s for s in self.scores], dtype=torch.float64) / self.scale
        target = torch.tensor([math.nan if t is None else t for t in self.target], dtype=torch.float64)
        target = target / self.target_scale if self.task == "regression" else target.long()
        return scores.reshape(self.shape), target.reshape(self.target_shape)

    def json(self):
        out = {"shape": self.shape, "scores": self.scores, "scale": self.scale}
        out |= {"target_shape": self.target_shape, "target": self.target}
        out |= {"target_scale": self.target_scale} if self.target_scale != 1 else {}
        return out | ({"class_dim": self.class_dim} if self.class_dim is not None else {})


BATCHES = {}


def add(batch):
    assert batch.name not in BATCHES, batch.name
    assert math.prod(batch.shape) == len(batch.scores), batch.name
    assert math.prod(batch.target_shape) == len(batch.target), batch.name
    BATCHES[batch.name] = batch


# Data


def rows_of_probabilities(rng, n, classes):
    """Multiples of 1/64 that add up to 1, no two alike in a row."""
    rows = []
    while len(rows) < n:
        cuts = sorted(rng.sample(range(0, 65), classes - 1))
        row = [b - a for a, b in zip([0, *cuts], [*cuts, 64])]
        if len(set(row)) == classes:
            rows.append(row)
    return rows


def rows_of_logits(rng, n, classes):
    """Multiples of 1/8, no two alike in a row; some value of each row is outside [0, 1], so that any part shows it."""
    rows = []
    while len(rows) < n:
        row = rng.sample(range(-32, 33), classes)
        if any(k < 0 or k > 8 for k in row):
            rows.append(row)
    return rows


def binary(name, n, kind="probabilities", shape=None, ignore=None, share=0.0, positives=0.45, scores=None, target=None):
    rng = random.Random(name)
    if scores is None:
        pool = {
            "probabilities": lambda: rng.randint(0, 64),
            "logits": lambda: rng.choice([*range(-32, 0), *range(9, 33)]),
            "labels": lambda: rng.randint(0, 1),
            "quarters": lambda: 16 * rng.randint(0, 4),
        }[kind]
        scores = [pool() for _ in range(n)]
    if target is None:
        # Scores say something of targets: a metric that is always near 0.5 would hide mistakes.
        target = []
        middle = {"probabilities": 32, "logits": 0, "labels": 0.5, "quarters": 32}[kind]
        for s in scores:
            hit = rng.random() < 0.7
            target.append(int((s > middle) == hit) if rng.random() < 0.8 else int(rng.random() < positives))
    target = [ignore if rng.random() < share else t for t in target]
    scale = {"probabilities": 64, "logits": 8, "labels": 1, "quarters": 64}[kind]
    options = {} if ignore in (None, -100) else {"ignore_index": ignore}
    add(Batch(name, "binary", shape or [n], scores, scale, target, shape or [n], options=options))


def multiclass(name, n, classes=5, kind="probabilities", inner=(), class_dim=1, ignore=None, share=0.0, allowed=None,
               rows=None, target=None, tell=False):
    """`inner`: dimensions behind the samples; the classes are put at `class_dim`."""
    rng = random.Random(name)
    count = n * math.prod(inner)
    make = {"probabilities": rows_of_probabilities, "logits": rows_of_logits}.get(kind)
    if rows is None:
        rows = make(rng, count, classes) if make else [[rng.choice(allowed or range(classes))] for _ in range(count)]
    if target is None:
        target = []
        for row in rows:
            best = row.index(max(row)) if make else row[0]
            target.append(best if rng.random() < 0.5 else rng.choice(allowed or range(classes)))
        target = [t if allowed is None or t in allowed else rng.choice(allowed) for t in target]
    target = [ignore if rng.random() < share else t for t in target]
    target_shape = [n, *inner]
    scores = torch.tensor([[math.nan if k is None else k for k in row] for row in rows], dtype=torch.float64)
    if make:
        scores = scores.reshape([*target_shape, classes]).movedim(-1, class_dim)
    else:
        scores = scores.reshape(target_shape)
    options = {"num_classes": classes}
    if tell:
        options["class_dim"] = class_dim
    if ignore not in (None, -100):
        options["ignore_index"] = ignore
    scale = {"probabilities": 64, "logits": 8, "labels": 1}[kind]
    flat = [None if math.isnan(k) else int(k) for k in scores.flatten().tolist()]
    add(Batch(name, "multiclass", list(scores.shape), flat, scale, target, target_shape, options=options,
              class_dim=class_dim if make else None))


def multilabel(name, n, labels=4, kind="probabilities", inner=(), ignore=None, share=0.0, target=None, scores=None):
    rng = random.Random(name)
    count = n * math.prod(inner) * labels
    pool = {
        "probabilities": lambda: rng.randint(0, 64),
        "logits": lambda: rng.choice([*range(-32, 0), *range(9, 33)]),
        "labels": lambda: rng.randint(0, 1),
    }[kind]
    scores = [pool() for _ in range(count)] if scores is None else scores
    middle = {"probabilities": 32, "logits": 0, "labels": 0.5}[kind]
    if target is None:
        target = [int((s > middle) == (rng.random() < 0.7)) for s in scores]
    target = [ignore if rng.random() < share else t for t in target]
    options = {"num_labels": labels}
    if ignore not in (None, -100):
        options["ignore_index"] = ignore
    scale = {"probabilities": 64, "logits": 8, "labels": 1}[kind]
    shape = [n, *inner, labels]
    add(Batch(name, "multilabel", shape, scores, scale, target, shape, options=options))


def regression(name, shape, scale=64, span=8, offset=0, nan=0.0, scores=None, target=None, noise=0.5, outputs=1):
    rng = random.Random(name)
    n = math.prod(shape)
    if target is None:
        target = [rng.randint(-span * scale, span * scale) + offset * scale for _ in range(n)]
    if scores is None:
        wide = int(noise * span * scale)
        scores = [t + rng.randint(-wide, wide) for t in target]
    target = [None if rng.random() < nan else t for t in target]
    options = {} if outputs == 1 else {"num_outputs": outputs}
    add(Batch(name, "regression", list(shape), scores, scale, target, list(shape), scale, options))


def make_batches():
    binary("binary", 37)
    binary("binary_logits", 29, "logits")
    binary("binary_2d", 40, shape=[8, 5])
    binary("binary_3d_logits", 24, "logits", shape=[4, 2, 3])
    binary("binary_labels", 23, "labels")
    binary("binary_ties", 31, "quarters")
    binary("binary_ignored", 33, ignore=-100, share=0.3)
    binary("binary_ignored_logits", 33, "logits", ignore=-100, share=0.3)
    binary("binary_ignore_2", 26, ignore=2, share=0.25)
    binary("binary_ignore_0", 26, ignore=0, share=0.25)
    binary("binary_one_positive_sample", 1, scores=[40], target=[1])
    binary("binary_one_negative_sample", 1, scores=[40], target=[0])
    binary("binary_two_samples", 2, scores=[40, 10], target=[1, 0])
    binary("binary_no_positives", 9, target=[0] * 9)
    binary("binary_no_negatives", 9, target=[1] * 9)
    binary("binary_all_predicted", 9, scores=[33, 40, 64, 50, 51, 52, 60, 61, 62])
    binary("binary_none_predicted", 9, scores=[32, 4, 0, 5, 15, 25, 6, 16, 26])
    binary("binary_constant", 8, scores=[48] * 8, target=[0, 1] * 4)
    binary("binary_perfect", 10, scores=[3, 60, 5, 50, 51, 12, 64, 0, 40, 20], target=[0, 1, 0, 1, 1, 0, 1, 0, 1, 0])
    binary("binary_inverted", 10, scores=[3, 60, 5, 50, 51, 12, 64, 0, 40, 20], target=[1, 0, 1, 0, 0, 1, 0, 1, 0, 1])
    binary("binary_perfect_no_positives", 6, scores=[1, 2, 3, 4, 5, 6], target=[0] * 6)
    binary("binary_nan", 12, scores=[None, 40, 50, None, 10, 64, 0, 33, None, 31, 20, 60], target=[1, 1, 0, 0, 0, 1] * 2)
    binary("binary_empty", 0)
    binary("binary_all_ignored", 5, ignore=-100, share=1.1)

    multiclass("multiclass", 41)
    multiclass("multiclass_logits", 33, kind="logits")
    multiclass("multiclass_two", 21, classes=2, kind="logits")
    multiclass("multiclass_classes_middle", 7, 4, "logits", inner=(3,), class_dim=1)
    multiclass("multiclass_classes_last", 7, 4, inner=(3,), class_dim=2)
    multiclass("multiclass_classes_told", 6, 4, "logits", inner=(4,), class_dim=1, tell=True)
    multiclass("multiclass_image", 5, 3, inner=(2, 4), class_dim=1)
    multiclass("multiclass_labels", 30, kind="labels")
    multiclass("multiclass_ignored", 36, ignore=-100, share=0.3)
    multiclass("multiclass_ignored_logits", 30, kind="logits", ignore=-100, share=0.3)
    multiclass("multiclass_ignored_image", 4, 3, "logits", inner=(5,), class_dim=1, ignore=-100, share=0.3)
    multiclass("multiclass_ignore_255", 24, ignore=255, share=0.2)
    multiclass("multiclass_ignore_1", 32, ignore=1, share=0.2)
    multiclass("multiclass_absent", 25, allowed=[0, 1, 3])  # 2 and 4 are predicted, never right
    multiclass("multiclass_unseen_labels", 18, classes=6, kind="labels", allowed=[0, 2, 5])  # nor predicted
    multiclass("multiclass_one_class", 7, target=[2] * 7)
    multiclass("multiclass_constant", 8, rows=[[10, 30, 5, 15, 4]] * 8)
    multiclass("multiclass_ties", 12, classes=4, rows=[[16] * 4, [32, 0, 32, 0], [0, 32, 0, 32], [8, 24, 24, 8]] * 3,
               target=[0, 1, 2, 3, 0, 2, 1, 1, 3, 0, 3, 2])
    multiclass("multiclass_perfect", 6, classes=3, rows=[[40, 20, 4], [4, 40, 20], [20, 4, 40]] * 2, target=[0, 1, 2] * 2)
    multiclass("multiclass_wrong", 6, classes=3, rows=[[40, 20, 4], [4, 40, 20], [20, 4, 40]] * 2, target=[1, 2, 0] * 2)
    multiclass("multiclass_nan", 6, classes=3, rows=[[40, None, 4], [4, 40, 20], [20, 4, 40], [None] * 3, [1, 2, 61],
               [50, 4, None]], target=[1, 1, 2, 0, 2, 0])
    multiclass("multiclass_one_sample", 1)
    multiclass("multiclass_empty", 0)
    multiclass("multiclass_all_ignored", 4, ignore=-100, share=1.1)

    multilabel("multilabel", 27)
    multilabel("multilabel_logits", 25, kind="logits")
    multilabel("multilabel_labels", 19, kind="labels")
    multilabel("multilabel_inner", 6, 3, inner=(4,))
    multilabel("multilabel_ignored", 24, ignore=-100, share=0.3)
    multilabel("multilabel_ignored_logits", 24, kind="logits", ignore=-100, share=0.3)
    multilabel("multilabel_ignore_2", 18, ignore=2, share=0.2)
    multilabel("multilabel_rows_ignored", 8, 3, target=[-100, -100, -100, 1, 0, 1, 0, 1, -100, 1, 1, 0] * 2)
    multilabel("multilabel_no_positives", 8, 3, target=[0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1] * 2)
    multilabel("multilabel_label_ignored", 8, 3, target=[-100, 1, 1, -100, 0, 1, -100, 1, 0, -100, 0, 1] * 2)
    multilabel("multilabel_all_positive", 6, 3, target=[1] * 18)
    multilabel("multilabel_all_negative", 6, 3, target=[0] * 18)
    multilabel("multilabel_constant", 8, 2, scores=[48, 16] * 8)
    multilabel("multilabel_nan", 6, 2, scores=[None, 10, 50, None, 40, 33, 10, None, 20, 60, None, 0], target=[1, 0] * 6)
    multilabel("multilabel_one_sample", 1)
    multilabel("multilabel_perfect", 4, 2, scores=[60, 10, 5, 50, 40, 40, 1, 2], target=[1, 0, 0, 1, 1, 1, 0, 0])
    multilabel("multilabel_empty", 0)
    multilabel("multilabel_all_ignored", 4, ignore=-100, share=1.1)

    regression("regression", [43])
    regression("regression_coarse", [38], scale=8, span=8)  # exact in bfloat16, with ties
    regression("regression_2d", [9, 4])
    regression("regression_3d", [4, 2, 3])
    regression("regression_column", [21, 1])
    regression("regression_outputs", [17, 3], outputs=3)
    regression("regression_outputs_nan", [19, 2], outputs=2, nan=0.2)
    regression("regression_nan", [32], nan=0.25)
    regression("regression_offset", [28], offset=4096, span=2)
    regression("regression_ties", [30], scale=1, span=3)
    regression("regression_noise", [35], noise=4)
    regression("regression_against", [20], scores=[3 * i * i for i in range(20)], target=[-64 * i for i in range(20)])
    regression("regression_monotone", [20], scores=[i * i * i for i in range(20)], target=[16 * i for i in range(20)])
    regression("regression_exact", [12], noise=0)
    regression("regression_half_zero", [12], scores=[5 * i for i in range(12)], target=[0, 64, 0, -32] * 3)
    regression("regression_constant_target", [10], target=[96] * 10)
    regression("regression_constant_prediction", [10], scores=[96] * 10)
    regression("regression_constant_both", [10], scores=[96] * 10, target=[32] * 10)
    regression("regression_constant_exact", [10], scores=[96] * 10, target=[96] * 10)
    regression("regression_nan_prediction", [9], scores=[1, 70, None, 30, 20, -64, 7, 8, 99])
    regression("regression_one_sample", [1])
    regression("regression_two_samples", [2], scores=[10, 90], target=[64, 128])
    regression("regression_three_samples", [3], scores=[10, 90, 50], target=[64, 128, 256])
    regression("regression_empty", [0])
    regression("regression_all_nan", [5], nan=1.1)

    multiclass("tokens", 4, 11, "logits", inner=(6,), class_dim=2)
    multiclass("tokens_padded", 4, 7, "logits", inner=(5,), class_dim=2, ignore=-100, share=0.3)
    multiclass("tokens_padding_0", 4, 7, "logits", inner=(5,), class_dim=2, ignore=0, share=0.3)
    multiclass("tokens_flat", 19, 8, "logits")
    multiclass("tokens_two", 16, 2, "logits")
    multiclass("tokens_uniform", 3, 4, "logits", inner=(2,), class_dim=2, rows=[[16] * 4] * 6)
    multiclass("tokens_certain", 2, 3, "logits", inner=(2,), class_dim=2, rows=[[240, 0, 0]] * 4, target=[0] * 4)
    multiclass("tokens_surprised", 2, 3, "logits", inner=(2,), class_dim=2, rows=[[80, 0, -80]] * 4, target=[2, 1, 0, 2])
    multiclass("tokens_one", 1, 9, "logits", inner=(1,), class_dim=2)
    multiclass("tokens_empty", 0, 9, "logits", inner=(3,), class_dim=2)
    multiclass("tokens_ignored", 2, 5, "logits", inner=(3,), class_dim=2, ignore=-100, share=1.1)
