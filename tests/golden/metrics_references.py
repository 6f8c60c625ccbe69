"""Values of metrics by torchmetrics, scikit-learn, SciPy and explicit formulas, for preprocessed predictions.

Two tables of functions (predictions, targets, options) -> value: `torchmetrics_value` and `second_value`; None where a
library has no answer of its own. All in float64, also where torchmetrics goes through float32.
"""

import contextlib
import math

import numpy as np
import torch
import torchmetrics.functional as tmf
from scipy import special, stats
from sklearn import metrics as sk
from torchmetrics.functional import classification as tmc

TORCHMETRICS_NAMES = {
    "hamming_loss": "hamming_distance",
    "mcc": "matthews_corrcoef",
    "auprc": "average_precision",
}
LABEL_METRICS = (
    "accuracy balanced_accuracy precision recall specificity f1_score fbeta_score jaccard_index hamming_loss mcc "
    "cohen_kappa confusion_matrix"
).split()
AVERAGED = set(LABEL_METRICS) - {"mcc", "cohen_kappa", "confusion_matrix"} | {"auroc", "auprc"}
WITH_TOP_K = {"accuracy", "precision", "recall", "specificity", "f1_score", "fbeta_score", "hamming_loss"}
CURVES = ("roc", "precision_recall_curve")


@contextlib.contextmanager
def in_float64():
    """torchmetrics turns counts into float32 by Tensor.float() and by the default dtype."""
    to_float, default = torch.Tensor.float, torch.get_default_dtype()
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.Tensor.float = to_float
        torch.set_default_dtype(default)


def plain(value):
    """Tensors and arrays, also in tuples and lists, as Python numbers."""
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return [plain(v) for v in value] if isinstance(value, list) else value


# torchmetrics


def torchmetrics_value(metric, task, preds, target, o):
    if metric in LABEL_METRICS and task != "multiclass" and preds.is_floating_point():
        # nan is above no threshold; in torchmetrics one nan sends all probabilities through the sigmoid.
        preds = preds.nan_to_num(nan=0.0)
    with in_float64():
        return plain(_torchmetrics(metric, task, preds, target, o))


def _torchmetrics(metric, task, preds, target, o):
    if task == "regression":
        return _torchmetrics_regression(metric, preds, target, o)
    if metric == "perplexity":
        return tmf.text.perplexity(preds[None], target[None], ignore_index=o.get("ignore_index", -100))
    if metric == "log_loss":
        return None
    if metric == "balanced_accuracy":  # as danling.metrics.functional.balanced_accuracy
        if task == "multiclass":
            return _torchmetrics("recall", task, preds, target, o)
        return 0.5 * (
            _torchmetrics("recall", task, preds, target, o) + _torchmetrics("specificity", task, preds, target, o)
        )
    if metric in ("calibration_error", "hinge_loss") and task == "multilabel":
        return None
    kwargs = {}
    if task == "multiclass":
        kwargs["num_classes"] = o["num_classes"]
        if metric == "jaccard_index":
            kwargs["ignore_index"] = o.get("ignore_index", -100)
    if task == "multilabel":
        kwargs["num_labels"] = o["num_labels"]
        kwargs["ignore_index"] = o.get("ignore_index", -100)  # the others have lost what is ignored
    if metric in LABEL_METRICS and task != "multiclass":
        kwargs["threshold"] = o.get("threshold", 0.5)
    if metric in AVERAGED and task != "binary":
        kwargs["average"] = o.get("average", "macro")
    if metric in WITH_TOP_K and task == "multiclass":
        kwargs["top_k"] = o.get("top_k", 1)
    for name in ("beta", "weights", "normalize", "n_bins", "norm", "squared", "multiclass_mode", "thresholds", "max_fpr"):
        if name in o:
            kwargs[name] = o[name]
    function = getattr(tmc, f"{task}_{TORCHMETRICS_NAMES.get(metric, metric)}")
    value = function(preds, target, validate_args=False, **kwargs)
    if metric in CURVES and task != "binary":
        x, y, thresholds = value
        value = list(zip(x, y, [thresholds] * len(x) if "thresholds" in o else thresholds))  # per class
    return value


def _torchmetrics_regression(metric, preds, target, o):
    average = o.get("multioutput", "uniform_average")
    if metric in ("mae", "mse", "rmse", "mape") and preds.ndim == 2:
        values = [_torchmetrics_regression(metric, preds[:, i], target[:, i], {}) for i in range(preds.shape[1])]
        return torch.stack(values)
    if metric == "mae":
        return tmf.mean_absolute_error(preds, target)
    if metric == "mse":
        return tmf.mean_squared_error(preds, target)
    if metric == "rmse":
        return tmf.mean_squared_error(preds, target, squared=False)
    if metric == "mape":
        return tmf.mean_absolute_percentage_error(preds, target)
    if metric == "r2_score":
        return tmf.r2_score(preds, target, multioutput=average) if len(preds) > 1 else torch.tensor(math.nan)
    if metric == "explained_variance":
        return tmf.explained_variance(preds, target, multioutput=average)
    function = {
        "pearson": tmf.pearson_corrcoef,
        "spearman": tmf.spearman_corrcoef,
        "kendall": tmf.kendall_rank_corrcoef,
        "concordance": tmf.concordance_corrcoef,
    }[metric]
    values = function(preds, target, variant=o["variant"]) if "variant" in o else function(preds, target)
    values = values.squeeze() if preds.ndim == 1 else values
    return torch.as_tensor(_over_outputs(plain(values), target, average))


def _over_outputs(values, target, average):
    """danling.metrics.functional.regression._reduce_correlation"""
    if not isinstance(values, list) or average == "raw_values":
        return values
    if average == "uniform_average":
        return sum(values) / len(values)
    weights = target.double().var(dim=0, correction=0)
    if weights.sum() <= 0:
        return sum(values) / len(values)
    return float((torch.tensor(values, dtype=torch.float64) * weights).sum() / weights.sum())


# scikit-learn, SciPy, and formulas where they have nothing


def second_value(metric, task, preds, target, o):
    if "thresholds" in o or o.get("variant") == "a":
        return None
    with np.errstate(all="ignore"):
        if task == "regression":
            return plain(_regression(metric, preds.numpy(), target.numpy(), o))
        return plain(_classification(metric, task, preds.numpy(), target.numpy(), o))


def _binary_of_labels(metric, y, z, o):
    """One value for 0/1 targets y and predictions z."""
    if metric == "accuracy":
        return sk.accuracy_score(y, z)
    if metric == "balanced_accuracy":
        return sk.balanced_accuracy_score(y, z)
    if metric == "precision":
        return sk.precision_score(y, z, zero_division=0)
    if metric == "recall":
        return sk.recall_score(y, z, zero_division=0)
    if metric == "specificity":
        return sk.recall_score(y, z, pos_label=0, zero_division=0)
    if metric in ("f1_score", "fbeta_score"):
        return sk.fbeta_score(y, z, beta=o.get("beta", 1.0), zero_division=0)
    if metric == "jaccard_index":
        return sk.jaccard_score(y, z, zero_division=0)
    if metric == "hamming_loss":
        return sk.hamming_loss(y, z)
    if metric == "mcc":
        return sk.matthews_corrcoef(y, z)
    if metric == "cohen_kappa":
        return sk.cohen_kappa_score(y, z, labels=[0, 1], weights=o.get("weights"))
    if metric == "confusion_matrix":
        return sk.confusion_matrix(y, z, labels=[0, 1], normalize=o.get("normalize"))
    raise KeyError(metric)


def _binary_of_scores(metric, y, p, o):
    if metric == "auroc":
        return sk.roc_auc_score(y, p, max_fpr=o.get("max_fpr"))
    if metric == "auprc":
        return sk.average_precision_score(y, p)
    if metric == "roc":
        fpr, tpr, thresholds = sk.roc_curve(y, p, drop_intermediate=False)
        thresholds[0] = 1.0  # scikit-learn begins at infinity
        return fpr, tpr, thresholds
    if metric == "precision_recall_curve":
        return sk.precision_recall_curve(y, p)
    if metric == "calibration_error":
        return _calibration_error(p, y, o)
    if metric == "log_loss":
        return sk.log_loss(y, _clipped(p, o), labels=[0, 1])
    if metric == "hinge_loss":
        margin = np.maximum(0, 1 - np.where(y == 1, p, -p))
        one_class = (y == y[0]).all()  # of which scikit-learn makes the negative one
        return (margin**2).mean() if o.get("squared") else margin.mean() if one_class else sk.hinge_loss(y, p)
    raise KeyError(metric)


def _clipped(p, o):
    """scikit-learn clips at the epsilon of the probabilities' dtype."""
    epsilon = np.finfo(np.float64 if o["dtype"] == "float64" else np.float32).eps
    return np.clip(p, epsilon, 1 - epsilon)


def _calibration_error(confidence, right, o):
    """Guo et al. 2017: bins [i / n, (i + 1) / n), one more for confidence 1."""
    n = o.get("n_bins", 15)
    edges = np.linspace(0, 1, n + 1)
    bins = np.searchsorted(edges, confidence, side="right") - 1
    gaps, shares = [], []
    for b in set(bins.tolist()):
        inside = bins == b
        gaps.append(abs(right[inside].mean() - confidence[inside].mean()))
        shares.append(inside.mean())
    gaps, shares = np.array(gaps), np.array(shares)
    norm = o.get("norm", "l1")
    return {"l1": (gaps * shares).sum(), "l2": math.sqrt((gaps**2 * shares).sum()), "max": gaps.max()}[norm]


def _averaged(values, support, average, micro):
    values, support = np.array(values, dtype=float), np.array(support, dtype=float)
    if average == "none":
        return values
    if average == "micro":
        return micro()
    if average == "weighted":
        return (values * support).sum() / support.sum() if support.sum() > 0 else 0.0
    return values.mean() if len(values) else math.nan


def _classification(metric, task, p, y, o):
    average = o.get("average", "macro")
    labels = metric in LABEL_METRICS
    if metric == "perplexity":
        rows = special.log_softmax(p, axis=1)
        return math.exp(-rows[np.arange(len(y)), y].mean())
    if task == "binary":
        if labels:
            return _binary_of_labels(metric, y, _decided(p, o), o)
        return _binary_of_scores(metric, y, p, o)
    if task == "multilabel":
        return _multilabel(metric, p, y, o, average, labels)
    if labels:
        return _multiclass_of_labels(metric, y, p, o, average)
    return _multiclass_of_scores(metric, y, p, o, average)


def _decided(p, o):
    return (p > o.get("threshold", 0.5)).astype(int) if p.dtype.kind == "f" else p


def _multilabel(metric, p, y, o, average, labels):
    z = _decided(p, o) if labels else p
    one = _binary_of_labels if labels else _binary_of_scores
    ignore = o.get("ignore_index", -100)
    kept = np.ones_like(y, dtype=bool) if ignore is None else y != ignore
    columns = [(y[kept[:, i], i], z[kept[:, i], i]) for i in range(y.shape[1])]
    if metric == "mcc":
        return one(metric, y[kept], z[kept], o)
    if metric == "confusion_matrix" and o.get("normalize") == "all":
        return None  # torchmetrics divides by all decisions of all labels
    if metric in CURVES or metric == "confusion_matrix":
        return [one(metric, a, b, o) for a, b in columns]
    if metric in ("calibration_error", "log_loss", "hinge_loss"):
        average = o.get("average", "macro")
    if not labels:  # a label of which nothing counts has no value
        values = [one(metric, a, b, o) if len(a) else math.nan for a, b in columns]
        if average != "none":
            columns, values = zip(*[(c, v) for c, v in zip(columns, values) if not math.isnan(v)])
    else:
        values = [one(metric, a, b, o) for a, b in columns]
    return _averaged(values, [(a == 1).sum() for a, _ in columns], average, lambda: one(metric, y[kept], z[kept], o))


def _multiclass_of_labels(metric, y, p, o, average):
    if o.get("top_k", 1) != 1:
        if metric == "accuracy" and average == "micro":
            return sk.top_k_accuracy_score(y, p, k=o["top_k"], labels=range(o["num_classes"]))
        return None
    classes = list(range(o["num_classes"]))
    z = p.argmax(1) if p.dtype.kind == "f" else p
    if metric == "mcc":
        return sk.matthews_corrcoef(y, z)
    if metric == "cohen_kappa":
        return sk.cohen_kappa_score(y, z, labels=classes, weights=o.get("weights"))
    if metric == "confusion_matrix":
        return sk.confusion_matrix(y, z, labels=classes, normalize=o.get("normalize"))
    if metric == "balanced_accuracy":
        return sk.balanced_accuracy_score(y, z)
    sk_average = None if average == "none" else average
    which = classes if average == "none" else None  # by default the classes that are in y or z
    if metric in ("accuracy", "recall"):
        if average == "micro" and metric == "accuracy":
            return sk.accuracy_score(y, z)
        return sk.recall_score(y, z, labels=which, average=sk_average, zero_division=0)
    if metric == "precision":
        return sk.precision_score(y, z, labels=which, average=sk_average, zero_division=0)
    if metric in ("f1_score", "fbeta_score"):
        beta = o.get("beta", 1.0)
        return sk.fbeta_score(y, z, beta=beta, labels=which, average=sk_average, zero_division=0)
    if metric == "jaccard_index":
        return sk.jaccard_score(y, z, labels=which, average=sk_average, zero_division=0)
    if metric == "hamming_loss" and average == "micro":
        return sk.hamming_loss(y, z)
    if metric == "hamming_loss":
        return 1 - np.array(sk.recall_score(y, z, labels=which, average=sk_average, zero_division=0))
    matrix = sk.multilabel_confusion_matrix(y, z, labels=which)  # specificity
    support, tn, fp = matrix[:, 1].sum(1), matrix[:, 0, 0], matrix[:, 0, 1]
    values = np.divide(tn, tn + fp, out=np.zeros(len(tn)), where=tn + fp > 0)
    whole = sk.multilabel_confusion_matrix(y, z, labels=classes).sum(0)
    return _averaged(values, support, average, lambda: whole[0, 0] / whole[0].sum() if whole[0].sum() else 0.0)


def _multiclass_of_scores(metric, y, p, o, average):
    classes = np.arange(o["num_classes"])
    if metric == "log_loss":
        return sk.log_loss(y, _clipped(p, o), labels=classes)
    if metric == "calibration_error":
        return _calibration_error(p.max(1), (p.argmax(1) == y).astype(float), o)
    if metric == "hinge_loss":
        one_hot = classes == y[:, None]
        if o.get("multiclass_mode") == "one-vs-all":
            losses = np.maximum(0, 1 - np.where(one_hot, p, -p))
        else:
            losses = np.maximum(0, 1 - p[one_hot] + np.where(one_hot, -np.inf, p).max(1))
        return (losses**2 if o.get("squared") else losses).mean(0)
    values = [_binary_of_scores(metric, (y == c).astype(int), p[:, c], o) for c in classes]
    if metric in CURVES:
        return values
    one_hot = (classes == y[:, None]).astype(int)
    return _averaged(
        values, one_hot.sum(0), average, lambda: _binary_of_scores(metric, one_hot.ravel(), p.ravel(), o)
    )


def _regression(metric, p, y, o):
    average = o.get("multioutput", "uniform_average")
    raw = "raw_values" if p.ndim == 2 else "uniform_average"
    if metric == "mae":
        return sk.mean_absolute_error(y, p, multioutput=raw)
    if metric == "mse":
        return sk.mean_squared_error(y, p, multioutput=raw)
    if metric == "rmse":
        return sk.root_mean_squared_error(y, p, multioutput=raw)
    if metric == "mape":
        return sk.mean_absolute_percentage_error(y, p, multioutput=raw)
    if metric == "r2_score":
        return sk.r2_score(y, p, multioutput=average) if len(y) > 1 else math.nan
    if metric == "explained_variance":
        return sk.explained_variance_score(y, p, multioutput=average)
    if p.ndim == 2:
        values = [_regression(metric, p[:, i], y[:, i], o) for i in range(p.shape[1])]
        return _over_outputs([float(v) for v in values], torch.from_numpy(y), average)
    if metric == "concordance":  # Lin 1989, with the sample variance as in torchmetrics
        covariance = np.cov(p, y) if len(p) > 1 else np.full((2, 2), math.nan)
        bottom = covariance[0, 0] + covariance[1, 1] + (p.mean() - y.mean()) ** 2
        return 2 * covariance[0, 1] / bottom if min(covariance[0, 0], covariance[1, 1]) > 0 else math.nan
    if len(p) < 2:
        return math.nan
    function = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}[metric]
    kwargs = {"variant": o["variant"]} if "variant" in o else {}
    return function(p, y, **kwargs).statistic
