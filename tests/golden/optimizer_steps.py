"""A hundred updates of every optimizer, as Python computes them, for tests/optim/optimizer_steps.cpp.

make          writes optimizer_steps.json (needs torch 2.13 and numpy)
spread        prints how far Python's own implementations (for-loop, foreach, fused) are apart
resume DIR    compares the states that the C++ test wrote after step 50 with Python's, loads them into Python's
              optimizers, goes on to step 100 and compares with Python's own hundred steps

torch.optim has neither Lion (Chen et al. 2023, algorithm 2) nor LAMB (You et al. 2020, algorithm 2, with bias correction
and phi(z) = z): they are written here from the papers, in float64.
"""

import copy
import json
import math
import pathlib
import sys

import numpy as np
import torch

PATH = pathlib.Path(__file__).with_name("optimizer_steps.json")
STEPS, SAVED_AT = 100, 50
SHAPES = [(3, 11), (5,), (), (0, 3)]  # the first is two vectors of float32 and one number
MATRICES = [(3, 11), (7, 4), (5, 5)]
NAMES = ["weight", "bias", "scale", "none"]
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
DIGITS = {torch.float32: 9, torch.float64: 13, torch.bfloat16: 4}
# In these steps the second parameter has no gradient, in cases with "gaps".
GAPS = lambda step: step < 3 or step % 7 == 3

# name: type, options of each group, and what else changes. Two groups: the first two parameters, and the others.
MIXED = {"gaps": True, "lr_factors": {"31": 0.5, "71": 3.0}}
CASES = {
    "sgd": ("SGD", [{"lr": 0.05}], {}),
    "sgd_momentum": ("SGD", [{"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}], {}),
    "sgd_mixed": (
        "SGD",
        [{"lr": 0.05, "momentum": 0.9, "nesterov": True, "maximize": True}, {"lr": 0.02, "weight_decay": 0.1}],
        MIXED,
    ),
    "asgd": ("ASGD", [{}], {}),
    "asgd_average": ("ASGD", [{"lr": 0.05, "lambd": 0.01, "alpha": 0.6, "t0": 10.0, "weight_decay": 0.1}], {}),
    "asgd_mixed": ("ASGD", [{"lr": 0.05, "maximize": True, "t0": 20.0}, {"lr": 0.02, "lambd": 0.1}], MIXED),
    "adam": ("Adam", [{"lr": 0.02}], {}),
    "adam_decay": ("Adam", [{"lr": 0.02, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-4}], {}),
    "adam_decoupled": ("Adam", [{"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}], {}),
    "adam_mixed": ("Adam", [{"lr": 0.02, "amsgrad": True, "maximize": True}, {"lr": 0.01, "betas": (0.7, 0.9)}], MIXED),
    "adamw": ("AdamW", [{"lr": 0.02}], {}),
    "adamw_decay": ("AdamW", [{"lr": 0.02, "weight_decay": 0.3, "betas": (0.8, 0.95), "eps": 1e-4}], {}),
    "adamw_mixed": ("AdamW", [{"lr": 0.02, "amsgrad": True, "maximize": True}, {"lr": 0.01, "eps": 1e-5}], MIXED),
    "adadelta": ("Adadelta", [{}], {}),
    "adadelta_decay": ("Adadelta", [{"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}], {}),
    "adadelta_mixed": ("Adadelta", [{"maximize": True}, {"lr": 0.3, "rho": 0.95}], MIXED),
    "adagrad": ("Adagrad", [{}], {}),
    "adagrad_decay": (
        "Adagrad",
        [{"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-6}],
        {},
    ),
    "adagrad_mixed": ("Adagrad", [{"lr": 0.1, "maximize": True}, {"lr": 0.05, "lr_decay": 0.01}], MIXED),
    "adamax": ("Adamax", [{}], {}),
    "adamax_decay": ("Adamax", [{"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}], {}),
    "adamax_mixed": ("Adamax", [{"lr": 0.02, "maximize": True}, {"lr": 0.01}], MIXED),
    "nadam": ("NAdam", [{}], {}),
    "nadam_decay": (
        "NAdam",
        [{"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1, "momentum_decay": 0.01}],
        {},
    ),
    "nadam_mixed": (
        "NAdam",
        [{"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}, {"lr": 0.01, "maximize": True}],
        MIXED,
    ),
    "radam": ("RAdam", [{}], {}),
    "radam_decay": ("RAdam", [{"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}], {}),
    "radam_mixed": (
        "RAdam",
        [{"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}, {"lr": 0.01, "maximize": True}],
        MIXED,
    ),
    "rmsprop": ("RMSprop", [{}], {}),
    "rmsprop_momentum": ("RMSprop", [{"momentum": 0.9, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1}], {}),
    "rmsprop_centered": ("RMSprop", [{"alpha": 0.9, "centered": True}], {}),
    "rmsprop_mixed": (
        "RMSprop",
        [{"alpha": 0.9, "centered": True, "momentum": 0.5, "maximize": True}, {"lr": 0.02}],
        MIXED,
    ),
    "rprop": ("Rprop", [{}], {}),
    "rprop_bounds": ("Rprop", [{"lr": 0.02, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.05)}], {}),
    "rprop_mixed": ("Rprop", [{"lr": 0.02, "maximize": True}, {"lr": 0.01}], {"gaps": True}),
    "adafactor": ("Adafactor", [{}], {}),
    "adafactor_decay": ("Adafactor", [{"lr": 0.1, "beta2_decay": -0.5, "d": 1.5, "weight_decay": 0.1}], {}),
    "adafactor_mixed": (
        "Adafactor",
        [{"lr": 0.1, "eps": 1e-2, "eps2": 0.1, "maximize": True}, {"lr": 0.05}],
        MIXED,
    ),
    "muon": ("Muon", [{"lr": 0.02}], {"matrices": True}),
    "muon_plain": ("Muon", [{"lr": 0.02, "momentum": 0.8, "nesterov": False, "weight_decay": 0.0}], {"matrices": True}),
    "muon_rms": (
        "Muon",
        [
            {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw", "eps": 1e-3},
            {"lr": 0.01, "ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": 8},
        ],
        {"matrices": True, **MIXED},
    ),
    "lion": ("Lion", [{"lr": 0.01}], {}),
    "lion_decay": ("Lion", [{"lr": 0.02, "betas": (0.8, 0.95), "weight_decay": 0.1}], {}),
    "lion_mixed": ("Lion", [{"lr": 0.01, "maximize": True}, {"lr": 0.005, "weight_decay": 0.3}], MIXED),
    "lamb": ("Lamb", [{"lr": 0.02}], {}),
    "lamb_decay": ("Lamb", [{"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}], {}),
    "lamb_mixed": ("Lamb", [{"lr": 0.02, "maximize": True}, {"lr": 0.05, "weight_decay": 0.0}], MIXED),
}
# Minimised by closures: the function that objective() computes.
CLOSURES = {
    "lbfgs": {"lr": 0.5, "max_iter": 4},
    "lbfgs_history": {"lr": 0.4, "max_iter": 5, "max_eval": 4, "history_size": 2},
    "lbfgs_wolfe": {"lr": 1.0, "max_iter": 4, "line_search_fn": "strong_wolfe"},
    "lbfgs_tolerance": {"max_iter": 7, "line_search_fn": "strong_wolfe", "tolerance_grad": 0.5, "tolerance_change": 0.1},
}
CLOSURE_SHAPES = [(2, 3), (), (5,)]


def start(index, shape, dtype):
    """The first value of parameter `index`: no zeros, both signs."""
    count = math.prod(shape)
    return torch.tensor([math.cos(0.9 * i + index) for i in range(count)], dtype=torch.float64).to(dtype).reshape(shape)


def gradient(index, step, shape, dtype):
    """The gradient of parameter `index` in `step`, counted from 1."""
    count = math.prod(shape)
    phase = 0.3 * step * (1 + 0.1 * index) + index
    return torch.tensor([math.sin(1.7 * i + phase) for i in range(count)], dtype=torch.float64).to(dtype).reshape(shape)


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


class Reference(torch.optim.Optimizer):
    """An optimizer written with numpy, in float64 whatever the dtype of its parameters; `rounds`: in float32, like ours."""

    rounds = False

    def __init__(self, params, **options):
        super().__init__(params, {**self.defaults_, **options})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    wide = torch.float32 if self.rounds and param.dtype != torch.float64 else torch.float64
                    grad = param.grad.to(wide).numpy() * (-1 if group["maximize"] else 1)
                    value = param.to(wide).numpy() if self.rounds or not hasattr(param, "exact") else param.exact
                    param.exact = self.update(value, grad, self.state[param], group)
                    param.copy_(torch.from_numpy(np.asarray(param.exact)))


class Lion(Reference):
    defaults_ = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "maximize": False}

    def update(self, value, grad, state, group):
        beta1, beta2 = group["betas"]
        momentum = state.get("exp_avg", np.zeros_like(value))
        mixed = beta1 * momentum + (1 - beta1) * grad
        assert np.all(np.abs(mixed) > 1e-5), "a sign that rounding decides"
        state["exp_avg"] = beta2 * momentum + (1 - beta2) * grad
        return value * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * np.sign(mixed)


class Lamb(Reference):
    defaults_ = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "maximize": False}

    def update(self, value, grad, state, group):
        beta1, beta2 = group["betas"]
        state["step"] = state.get("step", 0) + 1
        state["exp_avg"] = beta1 * state.get("exp_avg", 0 * value) + (1 - beta1) * grad
        state["exp_avg_sq"] = beta2 * state.get("exp_avg_sq", 0 * value) + (1 - beta2) * grad * grad
        first = state["exp_avg"] / (1 - beta1 ** state["step"])
        second = state["exp_avg_sq"] / (1 - beta2 ** state["step"])
        update = first / (np.sqrt(second) + group["eps"]) + group["weight_decay"] * value
        sizes = np.linalg.norm(value), np.linalg.norm(update)
        trust = sizes[0] / sizes[1] if sizes[0] > 0 and sizes[1] > 0 else 1.0
        return value - group["lr"] * trust * update


def python_options(kind, options):
    """Options under the names of the class; ours has one number for each of Adafactor's eps."""
    options = dict(options)
    if kind == "Adafactor":
        options["eps"] = (options.pop("eps", None), options.pop("eps2", 1e-3))
    return options


def shapes_of(case):
    kind, _, extra = CASES[case]
    if extra.get("matrices"):
        return MATRICES
    return SHAPES[:3] if kind == "Adafactor" else SHAPES  # Python's divides by the number of elements


def build(case, params, **how):
    kind, groups, extra = CASES[case]
    known = {"Lion": Lion, "Lamb": Lamb}
    if kind not in known and kind != "Muon":
        how = {"foreach": False, **how}
    else:
        how = {}
    make = known.get(kind) or getattr(torch.optim, kind)
    groups = [python_options(kind, options) for options in groups]
    if len(groups) == 1:
        return make(list(zip(NAMES, params)), **groups[0], **how)  # Adagrad ignores the accumulator's value in a group
    parts = [list(zip(NAMES[:2], params[:2])), list(zip(NAMES[2:], params[2:]))]
    return make([{"params": part, **options} for part, options in zip(parts, groups)], **how)


def advance(case, optimizer, params, step):
    extra = CASES[case][2]
    for index, param in enumerate(params):
        missing = extra.get("gaps") and index == 1 and GAPS(step)
        param.grad = None if missing else gradient(index, step, tuple(param.shape), param.dtype)
    factor = extra.get("lr_factors", {}).get(str(step), 1.0)
    for group in optimizer.param_groups:
        group["lr"] *= factor
    optimizer.step()


def saved(optimizer, dtype):
    """The state as a user has it who chose no implementation and gave the options to the optimizer."""
    state = copy.deepcopy(optimizer.state_dict())
    for group in state["param_groups"]:
        if "foreach" in group:
            group["foreach"] = None
        for key in ["param_names", *optimizer.defaults, "params"]:
            group[key] = group.pop(key)
    state["state"] = dict(sorted(state["state"].items()))
    for entry in state["state"].values():
        for key, value in entry.items():
            if isinstance(value, (np.ndarray, np.float64)):
                entry[key] = torch.from_numpy(np.asarray(value)).to(dtype)
            elif key == "step" and isinstance(value, int):
                entry[key] = torch.tensor(float(value))
    return state


def run(case, dtype, kept, **how):
    params = [torch.nn.Parameter(start(i, shape, dtype)) for i, shape in enumerate(shapes_of(case))]
    optimizer = build(case, params, **how)
    out = {"params": {}, "exact": []}
    for step in range(1, max(kept) + 1):
        advance(case, optimizer, params, step)
        if step in kept:
            out["params"][str(step)] = [numbers(param) for param in params]
            out["exact"].append([param.detach().double().clone() for param in params])
        if step == SAVED_AT and dtype == torch.float32:
            out["state"] = tree(saved(optimizer, dtype))
    return out


def rounding(rounded, exact):
    """By kept step, how far Python's numbers are from those of float64, relative to each parameter's largest ever."""
    largest = [max(value.abs().max().item() if value.numel() else 0 for value in values) for values in zip(*exact["exact"])]
    return [
        float(f"{max((a - b).abs().max().item() / size for a, b, size in zip(*pair, largest) if b.numel()):.2g}")
        for pair in zip(rounded["exact"], exact["exact"])
    ]


def objective(params):
    """A chain of banana valleys with a quartic term; sets the gradients and returns the value."""
    flat = torch.cat([param.detach().reshape(-1) for param in params])
    a, b = flat[:-1], flat[1:]
    bend = b - a * a
    value = (4 * bend**2 + (1 - a) ** 2).sum() + 0.1 * (flat**4).sum()
    grad = 0.4 * flat**3
    grad[:-1] += -16 * bend * a - 2 * (1 - a)
    grad[1:] += 8 * bend
    offset = 0
    for param in params:
        param.grad = grad[offset : offset + param.numel()].reshape(param.shape).clone()
        offset += param.numel()
    return value


def run_closure(case, dtype, kept, saved_at):
    params = [torch.nn.Parameter(start(i, shape, dtype)) for i, shape in enumerate(CLOSURE_SHAPES)]
    optimizer = torch.optim.LBFGS(zip(NAMES, params), **CLOSURES[case])
    out = {"params": {}, "losses": [], "evaluations": []}
    for step in range(1, max(kept) + 1):
        with torch.no_grad():
            out["losses"].append(float(f"{float(optimizer.step(lambda: objective(params))):.13g}"))
        out["evaluations"].append(optimizer.state[params[0]]["func_evals"])
        if step in kept:
            out["params"][str(step)] = [numbers(param) for param in params]
        if step == saved_at and dtype == torch.float64:
            out["state"] = tree(copy.deepcopy(optimizer.state_dict()))
    return out


def make():
    document = {"torch": torch.__version__, "shapes": SHAPES, "matrices": MATRICES, "names": NAMES, "cases": {}}
    for case, (kind, groups, extra) in CASES.items():
        entry = {"type": kind.lower(), "groups": groups, **extra, "shapes": shapes_of(case)}
        for name, kept in (("float32", (1, 2, 10, 50, 100)), ("bfloat16", (1, 10)), ("float64", (1, 10, 100))):
            entry[name] = run(case, DTYPES[name], kept)
            Reference.rounds = True
            entry[name]["rounding"] = rounding(run(case, DTYPES[name], kept), run(case, torch.float64, kept))
            Reference.rounds = False
            del entry[name]["exact"]
        document["cases"][case] = entry
    document["closures"] = {
        case: {
            "options": options,
            "float64": run_closure(case, torch.float64, (1, 2, 3, 6), 3),
            "float32": run_closure(case, torch.float32, (1, 2), None),
        }
        for case, options in CLOSURES.items()
    }
    document["closure_shapes"] = CLOSURE_SHAPES
    PATH.write_text(json.dumps(document, separators=(",", ":")) + "\n")


def spread():
    for case, (kind, _, _) in CASES.items():
        line = f"{case:18}"
        for name, dtype, steps in (("float32", torch.float32, 100), ("bfloat16", torch.bfloat16, 10)):
            exact = run(case, torch.float64, (steps,))
            for how in ({"foreach": False}, {"foreach": True}, {"foreach": None, "fused": True}):
                if kind in ("Lion", "Lamb", "Muon") and how != {"foreach": False}:
                    continue
                if "fused" in how and kind not in ("SGD", "Adam", "AdamW", "Adagrad"):
                    continue
                try:
                    worst = rounding(run(case, dtype, (steps,), **how), exact)[0]
                except Exception as error:
                    line += f"  {type(error).__name__}"
                    continue
                line += f"  {worst:.1e}"
            line += "  |"
        print(line)


def differ(got, want, path, tolerance):
    """The first difference of two states, or None."""
    if isinstance(want, dict) and isinstance(got, dict):
        if list(got) != list(want):
            return f"{path}: keys {list(got)} and {list(want)}"
        return next((d for k in want if k != "fused" and (d := differ(got[k], want[k], f"{path}[{k!r}]", tolerance))), None)
    if isinstance(want, (list, tuple)) and type(got) is type(want):
        if len(got) != len(want):
            return f"{path}: {len(got)} and {len(want)} items"
        return next((d for i in range(len(want)) if (d := differ(got[i], want[i], f"{path}[{i}]", tolerance))), None)
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            return f"{path}: {got.dtype} {got.shape} and {want.dtype} {want.shape}"
        scale = want.double().abs().max().item() if want.numel() else 0
        near = torch.allclose(got.double(), want.double(), rtol=tolerance, atol=tolerance * scale)
        return None if near else f"{path}: {got} and {want}"
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (got, want)):
        return None if math.isclose(got, want, rel_tol=tolerance) else f"{path}: {got} and {want}"
    return None if type(got) is type(want) and got == want else f"{path}: {got!r} and {want!r}"


def resume(directory):
    document = json.loads(PATH.read_text())
    compared = 0
    for case, (kind, groups, extra) in CASES.items():
        if not hasattr(torch.optim, kind):
            continue
        loaded = torch.load(pathlib.Path(directory) / f"{case}.pth", weights_only=True)
        params = [torch.nn.Parameter(start(i, shape, torch.float32)) for i, shape in enumerate(shapes_of(case))]
        mine = build(case, params)
        for step in range(1, SAVED_AT + 1):
            advance(case, mine, params, step)
        if difference := differ(loaded["optimizer"], saved(mine, torch.float32), case, 1e-5):
            sys.exit(difference)
        expected = params
        params = [torch.nn.Parameter(value.clone()) for value in loaded["params"]]
        optimizer = build(case, params)
        optimizer.load_state_dict(loaded["optimizer"])
        for step in range(SAVED_AT + 1, STEPS + 1):
            advance(case, optimizer, params, step)
            advance(case, mine, expected, step)
        for index, pair in enumerate(zip(params, expected)):
            if not torch.allclose(*[param.detach() for param in pair], rtol=1e-5, atol=1e-5):
                sys.exit(f"{case}, parameter {index} after the last step: {pair}")
        compared += 1
    for case, options in CLOSURES.items():
        loaded = torch.load(pathlib.Path(directory) / f"{case}.pth", weights_only=True)
        params = [torch.nn.Parameter(value.clone()) for value in loaded["params"]]
        optimizer = torch.optim.LBFGS(zip(NAMES, params), **options)
        optimizer.load_state_dict(loaded["optimizer"])
        for _ in range(3):
            with torch.no_grad():
                optimizer.step(lambda: objective(params))
        for index, (param, numbers_) in enumerate(zip(params, document["closures"][case]["float64"]["params"]["6"])):
            expected = torch.tensor(numbers_, dtype=torch.float64).reshape(param.shape)
            if difference := differ(param.detach(), expected, f"{case}, parameter {index}", 1e-6):
                sys.exit(difference)
        compared += 1
    print(f"{compared} optimizers went on from our states")


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    {"make": make, "spread": spread, "resume": resume}[command](*arguments)
