"""Writes nested_reductions.json: results of DanLing's NestedTensor and their gradients, for tests/nested.

Run with danling 0.4.8 and torch installed: python tests/golden/nested_reductions.py
"""

import json
import pathlib
import warnings

import torch
from danling.tensors import NestedTensor

warnings.filterwarnings("ignore")

BATCHES = {
    "ragged": [(3, 4), (5, 4), (1, 4)],
    "ragged last": [(4, 3), (4, 2)],
    "ragged twice": [(3, 2), (2, 4)],
    "vectors": [(3,), (2,), (4,)],
}

REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "logsumexp": torch.logsumexp,
    "var": torch.var,
    "std": torch.std,
    "prod": torch.prod,
    "nansum": torch.nansum,
    "any": lambda x, dim, keepdim: torch.any(x > 1, dim, keepdim),
    "all": lambda x, dim, keepdim: torch.all(x < 1, dim, keepdim),
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "max": lambda x, dim, keepdim: torch.max(x, dim, keepdim).values,
    "min": lambda x, dim, keepdim: torch.min(x, dim, keepdim).values,
    "median": lambda x, dim, keepdim: torch.median(x, dim, keepdim).values,
}

SCANS = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": lambda x, dim: torch.cummax(x, dim).values,
    "cummin": lambda x, dim: torch.cummin(x, dim).values,
    "sort": lambda x, dim: torch.sort(x, dim).values,
    "argsort": torch.argsort,
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
}

MULTIPLE = ("sum", "mean", "amax", "logsumexp", "var", "any", "all")


def parts(value):
    """[shape, numbers] of a plain result, or of each element."""
    plain = lambda tensor: [list(tensor.shape), [float(number) for number in tensor.detach().flatten()]]
    if isinstance(value, NestedTensor):
        return {"nested": [plain(element) for element in value.unbind()]}
    return {"plain": plain(value)}


def main():
    cases = []
    for batch, shapes in BATCHES.items():
        torch.manual_seed(len(batch))
        elements = [torch.randn(shape, dtype=torch.double) for shape in shapes]
        rank = len(shapes[0]) + 1
        calls = []
        for name, function in REDUCTIONS.items():
            dims = list(range(rank)) + ([[0, 1], [1, 2]] if rank > 2 and name in MULTIPLE else [])
            calls += [(name, function, {"dim": dim, "keepdim": keepdim}) for dim in dims for keepdim in (False, True)]
        for name, function in SCANS.items():
            calls += [(name, function, {"dim": dim}) for dim in range(1, rank)]
        for name, function, arguments in calls:
            own = [element.clone().requires_grad_() for element in elements]
            try:
                result = function(NestedTensor(own), **arguments)
            except (NotImplementedError, TypeError, ValueError, RuntimeError):
                continue
            case = {"batch": batch, "name": name, **arguments, **parts(result)}
            values = result.concat if isinstance(result, NestedTensor) else result
            wrong = name == "median" and arguments["dim"] == 0  # DanLing 0.4.8 gives gradients to other elements
            if values.requires_grad and values.isfinite().all() and not wrong:
                try:
                    (values * values + values).sum().backward()
                except (RuntimeError, AttributeError):  # some of DanLing 0.4.8 lack a gradient
                    cases.append(case)
                    continue
                case["gradients"] = [
                    [float(number) for number in (e.grad if e.grad is not None else e * 0).flatten()] for e in own
                ]
            cases.append(case)
        cases.append({"batch": batch, "elements": parts(NestedTensor(elements))["nested"]})
    lines = ",\n".join(json.dumps(case) for case in cases)
    pathlib.Path(__file__).with_name("nested_reductions.json").write_text("[\n" + lines.replace("NaN", "null") + "\n]\n")


if __name__ == "__main__":
    main()
