#!/usr/bin/env python3
"""Writes schedules_numbers.json: the rates of every schedule, from torch.optim.lr_scheduler and DanLing's LRScheduler.

Each case has the options of `sched` (ours), the rates and the momentum of two groups at 205 positions, and the state that
Python saved at position 100. Curves that DanLing does not have are methods of a subclass of its LRScheduler, as its
docstring advises.
"""

import json
import math
import pathlib
import warnings

import torch
from danling.optim import LRScheduler
from torch.optim import lr_scheduler as torch_lr

POSITIONS, SAVED_AT, TOTAL = 205, 100, 210
BASES = [0.1, 3.0]


class Curves(LRScheduler):
    """DanLing's LRScheduler with the curves that it lacks."""

    options = {}

    def linear(self, progress):
        return progress

    def constant(self, progress):
        return 0.0

    def polynomial(self, progress):
        return 1 - (1 - progress) ** self.options.get("power", 1)

    def inverse_sqrt(self, progress):
        step = progress * self.total_steps
        scale = self.options.get("timescale", self.warmup_steps or 10000)
        return 0.0 if step <= self.warmup_steps else 1 - math.sqrt(scale / (scale + step - self.warmup_steps))

    def wsd(self, progress):
        steps = self.options.get("decay_steps", self.total_steps // 5)
        past = progress * self.total_steps - (self.total_steps - steps)
        fraction = max(past / steps, 0.0)
        if self.options.get("decay") == "cosine":
            return (1 - math.cos(math.pi * fraction)) / 2
        return fraction


def optimizer_of(kind="sgd"):
    groups = [{"params": [torch.zeros(1)], "lr": lr} for lr in BASES]
    return torch.optim.Adam(groups) if kind == "adam" else torch.optim.SGD(groups, momentum=0.9)


def curve(options, method=None, **arguments):
    """A case of LRScheduler: `options` are ours, `arguments` those of Python where they differ."""
    names = ("total_steps", "final_lr_ratio", "final_lr", "min_lr", "warmup_steps", "cooldown_steps", "scaling")
    given = {key: value for key, value in options.items() if key in names} | arguments
    own = {key: value for key, value in options.items() if key not in names and key != "type"}
    kind = type("Curve", (Curves,), dict(Curves.__dict__, options=own, cosine=LRScheduler.cosine))
    given.setdefault("total_steps", TOTAL)
    return options, lambda optimizer: kind(optimizer, method=method or options["type"], **given)


def torch_case(options, name, **arguments):
    return options, lambda optimizer: getattr(torch_lr, name)(optimizer, **arguments)


def same(kind, name, **arguments):
    """A case whose options have the same names in Python."""
    return torch_case({"type": kind, **arguments}, name, **arguments)


def sequential(*parts):
    """Parts: (options, class, steps)."""
    chain = [{"type": kind, **options, **({"steps": steps} if steps else {})} for kind, _, options, steps in parts]
    ends = [steps for *_, steps in parts if steps]
    milestones = [sum(ends[: i + 1]) for i in range(len(parts) - 1)]

    def build(optimizer):
        made = [getattr(torch_lr, name)(optimizer, **options) for _, name, options, _ in parts]
        return torch_lr.SequentialLR(optimizer, made, milestones)

    return {"chain": chain}, build


def chained(*parts):
    chain = [{"type": kind, **options} for kind, _, options in parts]

    def build(optimizer):
        return torch_lr.ChainedScheduler([getattr(torch_lr, name)(optimizer, **options) for _, name, options in parts])

    return {"type": "chained", "chain": chain}, build


def cases():
    plateau = {"factor": 0.5, "patience": 3}
    out = [
        curve({"type": "linear"}),
        curve({"type": "cosine"}),
        curve({"type": "cosine", "final_lr": 0.01, "warmup_steps": 30, "cooldown_steps": 0, "min_lr": 1e-3}),
        curve({"type": "constant", "warmup_steps": 50, "cooldown_steps": 60}),
        curve({"type": "linear", "final_lr_ratio": 0.1, "scaling": "numerical", "warmup_steps": 0}),
        curve({"type": "polynomial"}, scaling="numerical"),
        curve({"type": "polynomial", "power": 2.5, "final_lr": 0.02, "cooldown_steps": 0}, scaling="numerical"),
        curve({"type": "polynomial", "power": 0.5, "scaling": "percentile", "warmup_steps": 3}),
        curve({"type": "exponential"}, method="linear", scaling="percentile"),
        curve({"type": "exponential", "final_lr": 0.05, "cooldown_steps": 0}, method="linear", scaling="percentile"),
        curve({"type": "inverse_sqrt"}, final_lr_ratio=0.0, scaling="numerical"),
        curve(
            {"type": "inverse_sqrt", "warmup_steps": 40, "timescale": 15, "cooldown_steps": 0},
            final_lr_ratio=0.0,
            scaling="numerical",
        ),
        curve(
            {"type": "inverse_sqrt", "warmup_steps": 0, "cooldown_steps": 0, "final_lr_ratio": 0.3}, scaling="numerical"
        ),
        curve({"type": "wsd"}, cooldown_steps=0, scaling="numerical"),
        curve({"type": "wsd", "decay_steps": 100, "decay": "cosine", "final_lr": 0.0}, cooldown_steps=0, scaling="numerical"),
        curve({"type": "wsd", "decay_steps": 21, "scaling": "percentile", "cooldown_steps": 5, "warmup_steps": 100}),
        same("step", "StepLR", step_size=7),
        same("steplr", "StepLR", step_size=30, gamma=0.5),
        same("multistep", "MultiStepLR", milestones=[30, 80, 80, 150]),
        same("multistep", "MultiStepLR", milestones=[100, 0, 20], gamma=0.7),
        same("exponential", "ExponentialLR", gamma=0.98),
        same("exponentiallr", "ExponentialLR", gamma=1.01),
        same("constantlr", "ConstantLR"),
        same("constantlr", "ConstantLR", factor=0.25, total_iters=60),
        same("linearlr", "LinearLR"),
        same("linearlr", "LinearLR", start_factor=0.9, end_factor=0.1, total_iters=120),
        same("polynomiallr", "PolynomialLR"),
        same("polynomiallr", "PolynomialLR", total_iters=150, power=2.0),
        same("cosine_annealing", "CosineAnnealingLR", T_max=210),
        same("cosine_annealing", "CosineAnnealingLR", T_max=40, eta_min=0.02),
        torch_case({"type": "cosine_annealing"}, "CosineAnnealingLR", T_max=TOTAL),
        same("cosine_warm_restarts", "CosineAnnealingWarmRestarts", T_0=50),
        same("cosine_warm_restarts", "CosineAnnealingWarmRestarts", T_0=10, T_mult=2, eta_min=0.01),
        same("cyclic", "CyclicLR", base_lr=[0.01, 0.1], max_lr=[0.2, 4.0], step_size_up=20),
        same("cyclic", "CyclicLR", base_lr=0.01, max_lr=0.5, step_size_up=30, step_size_down=13, mode="triangular2"),
        same("cyclic", "CyclicLR", base_lr=0.01, max_lr=0.5, step_size_up=17, mode="exp_range", gamma=0.99),
        same("cyclic", "CyclicLR", base_lr=0.01, max_lr=0.5, step_size_up=25, cycle_momentum=False),
        torch_case({"type": "cyclic", "max_lr": 5.0, "step_size_up": 40}, "CyclicLR", base_lr=BASES, max_lr=5.0, step_size_up=40),
        same("one_cycle", "OneCycleLR", max_lr=[0.5, 2.0], total_steps=TOTAL),
        same("one_cycle", "OneCycleLR", max_lr=0.5, total_steps=206, pct_start=0.2, anneal_strategy="linear"),
        same(
            "one_cycle", "OneCycleLR", max_lr=0.5, total_steps=205, three_phase=True, div_factor=10.0,
            final_div_factor=100.0, base_momentum=0.7, max_momentum=0.99,
        ),
        torch_case({"type": "one_cycle"}, "OneCycleLR", max_lr=BASES, total_steps=TOTAL),
        same("one_cycle", "OneCycleLR", max_lr=0.5, total_steps=TOTAL, cycle_momentum=False),
        same("reduce_on_plateau", "ReduceLROnPlateau"),
        same("reduce_on_plateau", "ReduceLROnPlateau", **plateau, cooldown=5, min_lr=0.02),
        same("reduce_on_plateau", "ReduceLROnPlateau", **plateau, threshold=0.05, threshold_mode="abs"),
        same("reduce_on_plateau", "ReduceLROnPlateau", **plateau, mode="max", threshold=0.01, eps=0.001),
        same("reduce_on_plateau", "ReduceLROnPlateau", **plateau, mode="max", threshold_mode="abs"),
        sequential(
            ("linearlr", "LinearLR", {"start_factor": 0.1, "total_iters": 20}, 20),
            ("cosine_annealing", "CosineAnnealingLR", {"T_max": 190}, None),
        ),
        sequential(
            ("constantlr", "ConstantLR", {"factor": 0.2, "total_iters": 15}, 30),
            ("exponential", "ExponentialLR", {"gamma": 0.97}, 70),
            ("step", "StepLR", {"step_size": 10, "gamma": 0.5}, 50),
            ("cosine_warm_restarts", "CosineAnnealingWarmRestarts", {"T_0": 20}, None),
        ),
        chained(
            ("constantlr", "ConstantLR", {"factor": 0.1, "total_iters": 40}),
            ("exponential", "ExponentialLR", {"gamma": 0.99}),
        ),
        chained(
            ("linearlr", "LinearLR", {"start_factor": 0.5, "total_iters": 50}),
            ("multistep", "MultiStepLR", {"milestones": [60, 120], "gamma": 0.3}),
            ("cosine_annealing", "CosineAnnealingLR", {"T_max": 300}),
        ),
    ]
    return [(*case, "sgd") for case in out] + [
        (*same("cyclic", "CyclicLR", base_lr=0.01, max_lr=0.5, step_size_up=20), "adam"),
        (*same("one_cycle", "OneCycleLR", max_lr=0.5, total_steps=TOTAL), "adam"),
    ]


def metric(position):
    """Falls, stays, and rises again; the same numbers for both directions."""
    return round(1 + math.cos(position / 23) * math.exp(-position / 150), 6)


def momentum_of(optimizer):
    return [group["betas"][0] if "betas" in group else group["momentum"] for group in optimizer.param_groups]


def plain(value):
    """A state as JSON that can hold infinity, without functions and classes of Python."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items() if key != "strategies"}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def run(options, build, kind):
    optimizer = optimizer_of(kind)
    scheduler = build(optimizer)
    needs_metric = isinstance(scheduler, torch_lr.ReduceLROnPlateau)
    lrs, momentums, state = [], [], None
    for position in range(POSITIONS):
        lrs.append([float(f"{group['lr']:.10g}") for group in optimizer.param_groups])
        momentums.append([float(f"{value:.10g}") for value in momentum_of(optimizer)])
        if position == SAVED_AT:
            state = plain(scheduler.state_dict())
        optimizer.step()
        scheduler.step(metric(position)) if needs_metric else scheduler.step()
    case = {"options": options, "optimizer": kind, "lrs": lrs, "state": state}
    if any(momentum != momentums[0] for momentum in momentums):
        case["momentums"] = momentums
    return case


def trained(kind, momentum, options, build):
    """Parameters in double precision after 100 updates whose gradients depend on them."""
    groups = [{"params": [torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)], "lr": lr} for lr in (0.05, 0.2)]
    optimizer = torch.optim.Adam(groups) if kind == "adam" else torch.optim.SGD(groups, momentum=momentum)
    scheduler = build(optimizer)
    for step in range(100):
        for group in optimizer.param_groups:
            param = group["params"][0]
            param.grad = 0.5 * param + math.sin(step)
        optimizer.step()
        scheduler.step()
    params = [group["params"][0].tolist() for group in optimizer.param_groups]
    return {"optimizer": kind, "momentum": momentum, "options": options, "params": params}


def trainings():
    one_cycle = same("one_cycle", "OneCycleLR", max_lr=0.3, total_steps=120)
    cyclic = same("cyclic", "CyclicLR", base_lr=0.01, max_lr=0.2, step_size_up=12)
    return [
        trained("sgd", 0.9, *one_cycle),
        trained("sgd", 0.0, *one_cycle),
        trained("adam", 0.9, *one_cycle),
        trained("sgd", 0.5, *cyclic),
        trained("adam", 0.9, *cyclic),
    ]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    document = {
        "torch": torch.__version__,
        "total_steps": TOTAL,
        "saved_at": SAVED_AT,
        "metrics": [metric(position) for position in range(POSITIONS)],
        "cases": [run(*case) for case in cases()],
        "trainings": trainings(),
    }
    path = pathlib.Path(__file__).with_name("schedules_numbers.json")
    path.write_text(json.dumps(document) + "\n")
