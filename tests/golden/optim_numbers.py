"""Writes optim_numbers.json: what torch.optim, torch.nn.utils and danling's LRScheduler compute, for tests/optim.

Run with torch and danling installed: python tests/golden/optim_numbers.py
"""

import copy
import json
import pathlib

import torch
from danling.optim import LRScheduler
from torch.optim.lr_scheduler import StepLR

STEPS, SAVED_AT = 6, 3
NAMES = ["weight", "bias", "late"]
SHAPES = [(7, 11), (5,), (2, 2)]  # the first is more than two vectors of any dtype, and an odd rest
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
DIGITS = {torch.float32: 9, torch.float64: 17, torch.bfloat16: 4, torch.float16: 5}  # as many as each needs
CASES = {
    "sgd": ("SGD", {"lr": 0.05}),
    "sgd_decay": ("SGD", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    "sgd_momentum": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "sgd_nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "sgd_maximize": ("SGD", {"lr": 0.05, "momentum": 0.9, "maximize": True, "weight_decay": 0.1}),
    "adam": ("Adam", {"lr": 0.05}),
    "adam_decay": ("Adam", {"lr": 0.05, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-4}),
    "adam_amsgrad": ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True}),
    "adamw": ("AdamW", {"lr": 0.05}),
    "adamw_decay": ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "betas": (0.8, 0.95), "eps": 1e-4}),
    "adamw_amsgrad": ("AdamW", {"lr": 0.05, "amsgrad": True, "maximize": True}),
}
# Only through torch::optim, float32, in which C++ and Python have the same options.
ADAPTED = {
    "sgd_momentum": CASES["sgd_momentum"],
    "adam_decay": CASES["adam_decay"],
    "adamw_decay": CASES["adamw_decay"],
    "rmsprop": ("RMSprop", {"lr": 0.05, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    "adagrad": ("Adagrad", {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
}


def numbers(tensor):
    return [float(f"{x:.{DIGITS[tensor.dtype]}g}") for x in tensor.detach().double().flatten().tolist()]


def tree(value):
    """A state as JSON; what JSON lacks becomes an object with one key."""
    if isinstance(value, torch.Tensor):
        return {"tensor": numbers(value), "shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, dict):
        return {"map": [[key, tree(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [tree(item) for item in value]}
    if isinstance(value, list):
        return {"list": [tree(item) for item in value]}
    return value


def inputs(dtype):
    generator = torch.Generator().manual_seed(1)
    draw = lambda shape: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    params = [draw(shape) for shape in SHAPES]
    grads = [[draw(shape) for shape in SHAPES] for _ in range(STEPS)]
    # The last parameter has its first gradient in the second step, and none in the fifth.
    for step in (0, 4):
        grads[step][2] = None
    return params, grads


def run(kind, options, params, grads):
    params = [torch.nn.Parameter(param.clone()) for param in params]
    optimizer = getattr(torch.optim, kind)(zip(NAMES, params), foreach=False, **options)
    out = {}
    for step, step_grads in enumerate(grads):
        for param, grad in zip(params, step_grads):
            param.grad = None if grad is None else grad.clone()
        optimizer.step()
        if step + 1 == SAVED_AT:
            state = copy.deepcopy(optimizer.state_dict())
            for group in state["param_groups"]:
                group["foreach"] = None  # what a user who did not choose has
            out = {"state": tree(state), "saved_params": [numbers(param) for param in params]}
    out["params"] = [numbers(param) for param in params]
    return out


def optimizers():
    out = {}
    for name, dtype in DTYPES.items():
        params, grads = inputs(dtype)
        out[name] = {
            "params": [numbers(param) for param in params],
            "grads": [[None if grad is None else numbers(grad) for grad in step] for step in grads],
            # Unfused Adam divides by second moments that float16 cannot hold: no reference.
            "cases": {
                case: run(kind, options, params, grads)
                for case, (kind, options) in CASES.items()
                if name != "float16" or kind == "SGD"
            },
        }
        if name == "float32":
            out[name]["adapted"] = {case: run(kind, options, params, grads) for case, (kind, options) in ADAPTED.items()}
    return out


def clipping():
    out = {}
    for name, dtype in DTYPES.items():
        _, grads = inputs(dtype)
        case = {"grads": [numbers(grad) for grad in grads[1]], "limits": []}
        for limit in (0.5, 100.0):
            params = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]
            for param, grad in zip(params, grads[1]):
                param.grad = grad.clone()
            norm = torch.nn.utils.clip_grad_norm_(params, limit)
            by_norm = [numbers(param.grad) for param in params]
            for param, grad in zip(params, grads[1]):
                param.grad = grad.clone()
            torch.nn.utils.clip_grad_value_(params, limit)
            by_value = [numbers(param.grad) for param in params]
            case["limits"].append({"limit": limit, "norm": norm.item(), "by_norm": by_norm, "by_value": by_value})
        out[name] = case
    return out


def schedules():
    out = []
    configs = [
        {"total_steps": 40},
        {"total_steps": 40, "method": "linear", "final_lr_ratio": 1e-2},
        {"total_steps": 40, "method": "linear", "final_lr": 0.01},
        {"total_steps": 40, "method": "cosine", "final_lr": 0.01, "warmup_steps": 7, "cooldown_steps": 0},
        {"total_steps": 40, "method": "cosine", "final_lr": 0.01, "scaling": "percentile", "warmup_steps": 0},
        {"total_steps": 40, "method": "constant", "warmup_steps": 10, "cooldown_steps": 10, "min_lr": 1e-3},
        {"total_steps": 40, "method": "constant", "warmup_steps": 0, "cooldown_steps": 0},
        {"total_steps": 40, "method": "linear", "scaling": "numerical", "warmup_steps": 40, "cooldown_steps": 0},
        {"total_steps": 40, "method": "linear", "final_lr": 0.0, "min_lr": 1e-4, "cooldown_steps": 40, "warmup_steps": 0},
        {"total_steps": 1},
        {"total_steps": 3, "method": "linear", "final_lr_ratio": 0.0},
    ]
    for config in configs:
        groups = [{"params": [torch.zeros(1)], "lr": 0.1}, {"params": [torch.zeros(1)], "lr": 3.0}]
        scheduler = LRScheduler(torch.optim.SGD(groups), **config)
        lrs = []
        for _ in range(config["total_steps"]):
            lrs.append(scheduler.get_last_lr())
            scheduler.optimizer.step()
            scheduler.step()
        lrs.append(scheduler.get_last_lr())
        out.append({"config": config, "lrs": lrs})
    return out


def step_lr():
    groups = [{"params": [torch.zeros(1)], "lr": 0.1}, {"params": [torch.zeros(1)], "lr": 3.0}]
    scheduler = StepLR(torch.optim.SGD(groups), step_size=3, gamma=0.3)
    lrs = []
    for _ in range(14):
        lrs.append(scheduler.get_last_lr())
        scheduler.optimizer.step()
        scheduler.step()
    return lrs


if __name__ == "__main__":
    document = {
        "torch": torch.__version__,
        "optimizers": optimizers(),
        "clipping": clipping(),
        "schedules": schedules(),
        "step_lr": step_lr(),
    }
    path = pathlib.Path(__file__).with_name("optim_numbers.json")
    path.write_text(json.dumps(document) + "\n")
