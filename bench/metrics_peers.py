"""The Python side of bench/metrics.cpp: updates meters and metrics on command and prints the seconds.

Usage: metrics_peers.py DATA

DATA is a file that torch.load opens: `logits` [batches, 64, 10], `labels` [batches, 64], `scores` and `targets` of
AUROC, `predicted` and `values` of regression, `words` and `word_ids` of perplexity. The script reads one command per line from
stdin and answers each with one line: `ok <number>` or `error <text>`.

  time NAME CALLS  seconds per call
  value NAME       the value of NAME over all of the data
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
    import danling
    from danling.metrics import AverageMeter
    from danling.metrics.functional import multiclass_accuracy
except ImportError:
    danling = None
try:
    import torchmetrics
except ImportError:
    torchmetrics = None
try:
    import sklearn.metrics
    from sklearn.metrics import roc_auc_score
except ImportError:
    roc_auc_score = None
try:
    import scipy.stats
except ImportError:
    scipy = None

torch.set_num_threads(1)


class Scalar:
    """A meter that takes one value again and again."""

    def __init__(self, make, update, read):
        self.make, self.update, self.read = make, update, read

    def time(self, calls):
        meter, update = self.make(), self.update
        begin = time.perf_counter()
        for _ in range(calls):
            update(meter)
        return (time.perf_counter() - begin) / calls

    def value(self):
        meter = self.make()
        for _ in range(10):
            self.update(meter)
        return self.read(meter)


class Batches:
    """Metrics that take the batches in turn."""

    def __init__(self, data, make, read):
        self.pairs = list(zip(data["logits"], data["labels"]))
        self.make, self.read = make, read

    def time(self, calls):
        metrics, pairs = self.make(), self.pairs
        begin = time.perf_counter()
        for call in range(calls):
            metrics.update(*pairs[call % len(pairs)])
        return (time.perf_counter() - begin) / calls

    def value(self):
        metrics = self.make()
        for pair in self.pairs:
            metrics.update(*pair)
        return self.read(metrics)


class Once:
    """A function of all data."""

    def __init__(self, compute):
        self.compute = compute

    def time(self, calls):
        begin = time.perf_counter()
        for _ in range(calls):
            self.compute()
        return (time.perf_counter() - begin) / calls

    def value(self):
        return self.compute()


def cases(data):
    """The contestants that this Python has."""
    found = {}
    scalar = torch.tensor(0.5)
    if danling is not None:

        def average(name):
            return lambda metrics: float(metrics.average()[name])

        def average_sum(metrics):
            return sum(float(value) for value in metrics.average().values())

        def factory(mode, *funcs):
            return lambda: danling.metrics.multiclass_metrics(10, "macro", *funcs, mode=mode)

        micro = multiclass_accuracy(num_classes=10, average="micro")
        found["danling_number"] = Scalar(AverageMeter, lambda m: m.update(0.5, 64), lambda m: float(m.avg))
        found["danling_tensor"] = Scalar(AverageMeter, lambda m: m.update(scalar, 64), lambda m: float(m.avg))
        found["danling_accuracy"] = Batches(data, factory("stream", micro), average("acc"))
        found["danling_stream"] = Batches(data, factory("stream"), average_sum)
        found["danling_global"] = Batches(data, factory("global"), average_sum)
    if torchmetrics is not None:
        classification = torchmetrics.classification
        functional = torchmetrics.functional.classification

        def number(metrics):
            return float(metrics.compute())

        def five():
            return torchmetrics.MetricCollection(
                {
                    "auroc": classification.MulticlassAUROC(10),
                    "auprc": classification.MulticlassAveragePrecision(10),
                    "acc": classification.MulticlassAccuracy(10),
                    "f1": classification.MulticlassF1Score(10),
                    "mcc": classification.MulticlassMatthewsCorrCoef(10),
                }
            )

        def total(metrics):
            return sum(float(value) for value in metrics.compute().values())

        mean = torchmetrics.MeanMetric
        found["torchmetrics_number"] = Scalar(mean, lambda m: m.update(0.5, 64), number)
        found["torchmetrics_tensor"] = Scalar(mean, lambda m: m.update(scalar, 64), number)
        found["torchmetrics_accuracy"] = Batches(
            data, lambda: classification.MulticlassAccuracy(10, average="micro"), number
        )
        found["torchmetrics_global"] = Batches(data, five, total)
        found["torchmetrics_auroc"] = Once(lambda: float(functional.binary_auroc(data["scores"], data["targets"])))
    if roc_auc_score is not None:
        scores, targets = data["scores"].numpy(), data["targets"].numpy()
        found["sklearn_auroc"] = Once(lambda: float(roc_auc_score(targets, scores)))
    add_once(found, data)
    return found


def once(function, *data, **options):
    return Once(lambda: float(function(*data, **options)))


def add_once(found, data):
    """Functions of all data, and of the first 10,000 samples."""
    for end, size in (("_few", 10_000), ("_all", len(data["values"]))):
        pair = data["predicted"][:size], data["values"][:size]
        ties = tuple((values * 10).floor() for values in pair)
        ranking = data["scores"][:size], data["targets"][:size]
        if torchmetrics is not None:
            functional = torchmetrics.functional
            for name, function in (
                ("mae", functional.mean_absolute_error),
                ("mse", functional.mean_squared_error),
                ("mape", functional.mean_absolute_percentage_error),
                ("r2", functional.r2_score),
                ("variance", functional.explained_variance),
            ):
                found[f"torchmetrics_{name}{end}"] = once(function, *pair)
            found["torchmetrics_rmse" + end] = once(functional.mean_squared_error, *pair, squared=False)
            found["torchmetrics_spearman" + end] = once(functional.spearman_corrcoef, *ties)
            partial = functional.classification.binary_auroc
            found["torchmetrics_partial" + end] = once(partial, *ranking, max_fpr=0.1)
        predicted, values = (each.numpy() for each in pair)
        if roc_auc_score is not None:
            for name, function in (
                ("mae", sklearn.metrics.mean_absolute_error),
                ("mse", sklearn.metrics.mean_squared_error),
                ("rmse", sklearn.metrics.root_mean_squared_error),
                ("mape", sklearn.metrics.mean_absolute_percentage_error),
                ("r2", sklearn.metrics.r2_score),
                ("variance", sklearn.metrics.explained_variance_score),
            ):
                found[f"sklearn_{name}{end}"] = once(function, values, predicted)
            scores, labels = (each.numpy() for each in ranking)
            found["sklearn_partial" + end] = once(roc_auc_score, labels, scores, max_fpr=0.1)
        if scipy is not None:
            x, y = (each.numpy() for each in ties)
            found["scipy_spearman" + end] = Once(lambda x=x, y=y: float(scipy.stats.spearmanr(x, y).statistic))
            found["scipy_kendall" + end] = Once(lambda x=x, y=y: float(scipy.stats.kendalltau(x, y).statistic))
    if torchmetrics is not None:
        perplexity = torchmetrics.functional.text.perplexity
        words, ids = data["words"].unsqueeze(0), data["word_ids"].unsqueeze(0)
        found["torchmetrics_perplexity"] = once(perplexity, words, ids)
        found["torchmetrics_perplexity_wide"] = once(perplexity, words.float(), ids)


def main():
    found = cases(torch.load(sys.argv[1], weights_only=True))
    print("ok", flush=True)
    for line in sys.stdin:
        command, name, *rest = line.split()
        try:
            if name not in found:
                raise LookupError(f"this Python has no {name.split('_')[0]}")
            answer = found[name].time(int(rest[0])) if command == "time" else found[name].value()
            print("ok", repr(answer), flush=True)
        except Exception as error:
            print("error", type(error).__name__, " ".join(str(error).split())[:200], flush=True)


main()
