"""Golden values of the functional metrics, for tests/metrics/golden_functional.cpp.

    python tests/golden/metrics_functional.py            writes tests/golden/data/metrics_functional.json
    python tests/golden/metrics_functional.py --check    fails when the file is not what this would write

Predictions and targets (metrics_batches.py) go through DanLing's preprocessing, then through torchmetrics, which
DanLing's metrics call, and a second time through scikit-learn, SciPy or a formula (metrics_references.py). Where the two
do not agree, DISAGREE names the one that counts and the reason, which goes into the file. A reason that no case needs is
an error, as is a metric with too few cases.
"""

import itertools
import json
import math
import sys
import warnings
from collections import Counter
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

import torch
from danling.metrics import preprocess

from metrics_batches import BATCHES, make_batches
from metrics_references import AVERAGED, CURVES, LABEL_METRICS, WITH_TOP_K, second_value, torchmetrics_value

OUTPUT = Path(__file__).parent / "data" / "metrics_functional.json"
LEAST = 30
SCORE_METRICS = ["auroc", "auprc", "roc", "precision_recall_curve", "calibration_error", "log_loss", "hinge_loss"]
REGRESSION_METRICS = "mae mse rmse mape r2_score explained_variance pearson spearman kendall concordance".split()
HALVES = ("float16", "bfloat16")
FLOATS = ("float64", "float32", *HALVES)
NAN = math.nan
DEFINED_WITHOUT_DATA = ("confusion_matrix",)
WITHOUT_DATA = "DanLing's metrics say nan where they keep predictions, and like torchmetrics 0 for an empty matrix; here nan"


class Disagreement:
    """Where the references differ: what counts, "torchmetrics", "second", a value or None for no case, and why."""

    def __init__(self, metrics, batches, counts, why, **options):
        self.metrics, self.batches, self.options = metrics.split(), batches.split(), options
        self.counts, self.why, self.used = counts, why, 0

    def names(self, case):
        return (
            any(fnmatch(case["metric"], m) for m in self.metrics)
            and any(fnmatch(case["batch"], b) for b in self.batches)
            and all(case["options"].get(k) == v for k, v in self.options.items())
        )


DISAGREE = [
    Disagreement("auroc auprc", "multilabel_label_ignored", "second",
                 "torchmetrics has no value for a label of which nothing counts; it is nan and left out of means"),
    Disagreement("roc precision_recall_curve", "multilabel_label_ignored", None, ""),
    Disagreement("auroc auprc calibration_error log_loss hinge_loss", "*_nan", NAN,
                 "a score that is nan makes the value nan; scikit-learn refuses it"),
    Disagreement("*", "multilabel_label_ignored", "torchmetrics",
                 "scikit-learn has no value for a label of which nothing counts"),
    Disagreement("balanced_accuracy", "*", "torchmetrics",
                 "scikit-learn leaves out classes that are no target; DanLing counts their recall as 0"),
    Disagreement("jaccard_index", "multiclass_ignore_1", "torchmetrics",
                 "torchmetrics, and DanLing's function, leave out the ignored class also where it is predicted; DanLing's "
                 "descriptor does not"),
    Disagreement("jaccard_index", "multilabel_all_negative", "torchmetrics",
                 "torchmetrics says nan where all weights are 0", average="weighted"),
    Disagreement("jaccard_index", "multilabel_ignore_2", "second",
                 "torchmetrics takes an ignored value below the number of labels for a label to leave out"),
    Disagreement("mcc", "*", "torchmetrics", "of a matrix with an empty row or column torchmetrics takes a limit, "
                 "scikit-learn 0"),
    Disagreement("auroc roc", "*", "torchmetrics", "without positives or negatives torchmetrics' curve stays at 0, "
                 "scikit-learn's is nan"),
    Disagreement("auprc precision_recall_curve", "multiclass*", "torchmetrics",
                 "of a class that is no target torchmetrics says nan and leaves it out of means, scikit-learn 0"),
    Disagreement("mape", "regression_ties regression_half_zero", "torchmetrics",
                 "targets near 0 count as 1.17e-6 in torchmetrics, as 2.2e-16 in scikit-learn"),
    Disagreement("*", "regression_nan_prediction", NAN, "a prediction that is nan makes the value nan; scikit-learn refuses it"),
    Disagreement("spearman", "regression_constant_* regression_one_sample", "torchmetrics",
                 "of constants torchmetrics says 0, SciPy nan"),
    Disagreement("spearman", "*", "second", "torchmetrics adds 1e-6 to the deviations"),
]

# Cases


def label_recipes():
    yield from ((f"{b}", d, {}) for b, d in itertools.product(("binary", "multiclass", "multilabel"), FLOATS))
    for name, batch in BATCHES.items():
        if batch.task != "regression" and not name.startswith("tokens"):
            yield name, "int64" if name.endswith("_labels") else "float64", {}
    for name in ("binary_logits", "binary_3d_logits", "multiclass_logits", "multiclass_classes_middle", "multilabel_logits"):
        for dtype in ("float32", "bfloat16"):
            yield name, dtype, {}
    for name, threshold in itertools.product(("binary", "binary_logits", "multilabel", "multilabel_logits"), (0.25, 0.7)):
        yield name, "float32", {"threshold": threshold}
    for name in ("multiclass", "multiclass_ignored_logits", "multiclass_absent", "multiclass_unseen_labels", "multiclass_ignore_1",
                 "multilabel", "multilabel_ignored", "multilabel_no_positives", "multilabel_label_ignored"):
        for average in ("micro", "weighted", "none"):
            yield name, "int64" if name.endswith("_labels") else "float64", {"average": average}
    for name, k in itertools.product(("multiclass", "multiclass_logits"), (2, 3)):
        for average in ("micro", "macro", "weighted", "none"):
            yield name, "float32", {"top_k": k, "average": average}
    yield "multilabel_all_negative", "float64", {"average": "weighted"}
    yield "multiclass_ignored", "float64", {"top_k": 2}
    yield "multiclass", "float64", {"top_k": 5}


def score_recipes():
    yield from label_recipes()
    yield "multilabel_ignored_logits", "float32", {"average": "micro"}
    yield "multilabel", "float32", {"average": "micro"}


VARIANTS = {  # options that one metric alone has, for the first batches of each task
    "fbeta_score": [{"beta": 2.0}, {"beta": 0.5}],
    "cohen_kappa": [{"weights": "linear"}, {"weights": "quadratic"}],
    "confusion_matrix": [{"normalize": "true"}, {"normalize": "pred"}, {"normalize": "all"}],
    "auroc": [{"thresholds": 11}, {"max_fpr": 0.4}, {"max_fpr": 1.0}],
    "auprc": [{"thresholds": 11}],
    "roc": [{"thresholds": 9}],
    "precision_recall_curve": [{"thresholds": 9}],
    "kendall": [{"variant": "a"}, {"variant": "c"}],
    "calibration_error": [{"norm": "l2"}, {"norm": "max"}, {"n_bins": 7}],
    "hinge_loss": [{"squared": True}, {"multiclass_mode": "one-vs-all"}, {"squared": True, "multiclass_mode": "one-vs-all"}],
}
TASKS = {
    "cohen_kappa": ("binary", "multiclass"),
    "calibration_error": ("binary", "multiclass"),
    "hinge_loss": ("binary", "multiclass"),
}


def allowed(metric, name, dtype, options):
    task = BATCHES[name].task
    if task not in TASKS.get(metric, (task,)):
        return False
    if "average" in options and metric not in AVERAGED:
        return False
    if "top_k" in options and metric not in WITH_TOP_K:
        return False
    if metric == "balanced_accuracy" and task == "multiclass" and options.get("average", "macro") != "macro":
        return False
    if metric in SCORE_METRICS:
        if "threshold" in options or dtype == "int64":
            return False
        if options.get("average") == "micro" and task == "multiclass":
            return False  # torchmetrics has none
        if name.endswith("_nan") and (metric in CURVES or "average" in options):
            return False
        if metric in CURVES and name in ("binary_3d_logits", "multiclass_image", "multiclass_logits", "multilabel_inner"):
            return dtype == "float32"  # curves are long
    if "multiclass_mode" in options and task != "multiclass" or "max_fpr" in options and task != "binary":
        return False
    return True


def regression_recipes():
    for name, batch in BATCHES.items():
        if batch.task == "regression":
            yield name, "float64", {}
            if name in ("regression", "regression_2d", "regression_outputs", "regression_offset", "regression_nan"):
                yield name, "float32", {}
    for dtype in FLOATS[1:]:
        yield "regression_coarse", dtype, {}
    for name in ("regression_outputs", "regression_outputs_nan"):
        for multioutput in ("raw_values", "variance_weighted"):
            yield name, "float64", {"multioutput": multioutput}


def perplexity_recipes():
    for name in BATCHES:
        if name.startswith("tokens"):
            for dtype in FLOATS[: 2 if name in ("tokens_empty", "tokens_ignored", "tokens_certain") else 4]:
                yield name, dtype, {}


def cases():
    seen = set()
    for metric in LABEL_METRICS + SCORE_METRICS + REGRESSION_METRICS + ["perplexity"]:
        if metric in REGRESSION_METRICS:
            recipes = list(regression_recipes())
            if metric in ("mae", "mse", "rmse", "mape"):
                recipes = [r for r in recipes if "multioutput" not in r[2]]
            for extra, name in itertools.product(
                VARIANTS.get(metric, []), ("regression", "regression_ties", "regression_outputs", "regression_half_zero")
            ):
                recipes.append((name, "float64", extra))
        elif metric == "perplexity":
            recipes = list(perplexity_recipes())
        else:
            recipes = list(label_recipes() if metric in LABEL_METRICS else score_recipes())
            for extra, name in itertools.product(
                VARIANTS.get(metric, []), ("binary", "binary_ignored_logits", "multiclass_ignored", "multiclass", "multilabel")
            ):
                recipes.append((name, "float64", extra))
        for name, dtype, options in recipes:
            if metric != "perplexity" and metric not in REGRESSION_METRICS and not allowed(metric, name, dtype, options):
                continue
            key = (metric, name, dtype, tuple(sorted(options.items())))
            if key not in seen:
                seen.add(key)
                if metric == "fbeta_score":
                    options = {"beta": 2.0} | options
                yield {"metric": metric, "batch": name, "dtype": dtype, "options": BATCHES[name].options | options}


# Values


def preprocessed(metric, batch, options, dtype):
    scores, target = batch.tensors()
    if dtype in HALVES and batch.task != "regression" and metric != "perplexity":
        # Logits of half types become probabilities of the same type, in DanLing too: the one place that rounds.
        return [t.double() if t.is_floating_point() else t
                for t in to_task(metric, batch, options, scores.to(getattr(torch, dtype)), target)]
    return to_task(metric, batch, options, scores, target)


def to_task(metric, batch, options, scores, target):
    ignore = options.get("ignore_index", -100)
    if batch.task == "regression":
        return preprocess.preprocess_regression(scores, target, num_outputs=options.get("num_outputs", 1))
    if batch.task == "binary":
        return preprocess.preprocess_binary(scores, target, ignore_index=ignore)
    if batch.task == "multilabel":
        return preprocess.preprocess_multilabel(scores, target, num_labels=options["num_labels"], ignore_index=ignore)
    if scores.shape == target.shape:  # labels: DanLing takes scores only
        kept = target != ignore
        return scores[kept], target[kept]
    if metric == "perplexity":  # logits stay logits
        kept = target != ignore
        return scores[kept], target[kept]
    return preprocess.preprocess_multiclass(
        scores, target, num_classes=options["num_classes"], ignore_index=ignore, class_dim=options.get("class_dim")
    )


def alike(a, b):
    if a is None or b is None:
        return a is b
    if isinstance(a, list) or isinstance(b, list):
        return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(map(alike, a, b))
    return math.isnan(a) and math.isnan(b) or a == b or abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))


def rounded(value):
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    value = float(f"{value:.13g}") + 0.0  # no -0
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def empty_value(metric, options):
    """Zeros for a confusion matrix, nan for the others."""
    if metric in DEFINED_WITHOUT_DATA:
        n = options.get("num_classes", 2)
        matrix = [[0] * n for _ in range(n)]
        return [[[0, 0], [0, 0]] for _ in range(options["num_labels"])] if "num_labels" in options else matrix
    return NAN


def evaluate(case, trouble):
    metric, options, batch = case["metric"], case["options"], BATCHES[case["batch"]]
    scores, target = preprocessed(metric, batch, options, case["dtype"])
    if case["dtype"] == "int64":
        scores = scores.long()
    if target.numel() == 0:
        if metric in CURVES:
            return False
        case["expected"] = rounded(empty_value(metric, options))
        if metric not in DEFINED_WITHOUT_DATA:
            case["why"] = WITHOUT_DATA
        return True
    values = {}
    for which, function in (("torchmetrics", torchmetrics_value), ("second", second_value)):
        try:
            values[which] = function(metric, batch.task, scores, target, {**options, "dtype": case["dtype"]})
        except (ValueError, RuntimeError, IndexError) as error:  # it refuses the input
            values[which] = f"refuses: {error}"
    first, second = values["torchmetrics"], values["second"]
    refuses = [isinstance(v, str) for v in (first, second)]
    if not any(refuses) and (first is None or second is None or alike(first, second)):
        case["expected"] = rounded(first if first is not None else second)
        return True
    for entry in DISAGREE:
        if entry.names(case):
            entry.used += 1
            value = values.get(entry.counts, entry.counts)
            if value is None:
                return False
            case["expected"], case["why"] = rounded(value), entry.why
            return True
    trouble.append(f"{metric} {case['batch']} {case['dtype']} {case['options']}\n    {str(first)[:300]}\n    {str(second)[:300]}")
    return False


def document(all_cases):
    packages = ("danling", "torch", "torchmetrics", "scikit-learn", "scipy", "numpy")
    used = {case["batch"] for case in all_cases}
    lines = ["{"]
    lines.append('"written by": "tests/golden/metrics_functional.py",')
    lines.append(f'"versions": {json.dumps({name: version(name) for name in packages})},')
    compact = {"separators": (",", ":")}
    lines.append('"batches": {')
    lines.append(",\n".join(f'"{n}": {json.dumps(b.json(), **compact)}' for n, b in BATCHES.items() if n in used) + "},")
    lines.append('"cases": [')
    lines.append(",\n".join(json.dumps(case, **compact) for case in all_cases) + "]}")
    return "\n".join(lines) + "\n"


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    make_batches()
    trouble, good = [], []
    for case in cases():
        if evaluate(case, trouble):
            good.append({**case, "task": BATCHES[case["batch"]].task})
    trouble += [f"no case needs: {e.why} ({' '.join(e.metrics)}; {' '.join(e.batches)})" for e in DISAGREE if not e.used]
    counts = Counter(case["metric"] for case in good)
    trouble += [f"{metric}: {n} cases" for metric, n in counts.items() if n < LEAST]
    if trouble:
        sys.exit("\n".join(trouble) + f"\n{len(trouble)} of {len(good)}")
    text = document(good)
    if "--check" in sys.argv[1:]:
        if OUTPUT.read_text() != text:
            sys.exit(f"{OUTPUT} is not what this script writes")
        return
    OUTPUT.write_text(text)
    print(f"{len(good)} cases, {len(text)} bytes: {', '.join(f'{m} {n}' for m, n in counts.items())}")


main()
