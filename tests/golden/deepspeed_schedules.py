#!/usr/bin/env python3
"""Writes deepspeed_schedules.json: the rates and betas that DeepSpeed's own schedules set, update by update.

Usage: deepspeed_schedules.py DIRECTORY, the unpacked source of DeepSpeed (`pip download --no-deps deepspeed`, 0.19.8).
Only deepspeed/runtime/lr_schedules.py is run, which needs no build: the logger that it imports is replaced.
"""

import importlib.util
import json
import logging
import pathlib
import sys
import types

import torch

UPDATES = 40
BASES = [0.1, 3.0]

CASES = [
    ("WarmupLR", {}),
    ("WarmupLR", {"warmup_min_lr": 0.001, "warmup_max_lr": 0.2, "warmup_num_steps": 10}),
    ("WarmupLR", {"warmup_num_steps": 10, "warmup_type": "linear"}),
    ("WarmupLR", {"warmup_num_steps": 1}),
    ("WarmupLR", {"warmup_min_lr": [0.0, 0.5], "warmup_max_lr": [0.1, 2.0], "warmup_num_steps": 7}),
    ("WarmupDecayLR", {"total_num_steps": 30, "warmup_num_steps": 10}),
    ("WarmupDecayLR", {"total_num_steps": 30, "warmup_num_steps": 5, "warmup_min_lr": 0.01, "warmup_max_lr": 0.3,
                       "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 5, "warmup_num_steps": 8}),
    ("WarmupCosineLR", {"total_num_steps": 30, "warmup_num_steps": 10}),
    ("WarmupCosineLR", {"total_num_steps": 25, "warmup_num_steps": 4, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.02,
                        "warmup_type": "linear"}),
    ("WarmupCosineLR", {"total_num_steps": 6, "warmup_num_steps": 9}),
    ("LRRangeTest", {}),
    ("LRRangeTest", {"lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 7, "lr_range_test_step_rate": 2.5}),
    ("LRRangeTest", {"lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 7, "lr_range_test_staircase": True}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 10}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 10, "cycle_second_step_size": 15,
                  "decay_step_size": 4, "decay_lr_rate": 0.5, "decay_mom_rate": 0.01, "cycle_min_mom": 0.7,
                  "cycle_max_mom": 0.95}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 9, "cycle_second_step_size": 12,
                  "cycle_first_stair_count": 3, "cycle_second_stair_count": 4}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 8, "cycle_momentum": False,
                  "decay_step_size": 3}),
]


def load_schedules(source):
    utils = types.ModuleType("deepspeed.utils")
    utils.logger = logging.getLogger("deepspeed")
    utils.logger.setLevel(logging.CRITICAL)
    sys.modules["deepspeed"] = types.ModuleType("deepspeed")
    sys.modules["deepspeed.utils"] = utils
    spec = importlib.util.spec_from_file_location("lr_schedules", source / "deepspeed/runtime/lr_schedules.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(schedules, name, params):
    optimizer = torch.optim.AdamW([{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in BASES])
    schedule = getattr(schedules, name)(optimizer, **params)
    lrs, betas = [], []
    for _ in range(UPDATES):
        lrs.append([group["lr"] for group in optimizer.param_groups])
        betas.append(list(optimizer.param_groups[1]["betas"]))
        schedule.step()
    return {"type": name, "params": params, "lrs": lrs, "betas": betas}


def main():
    source = pathlib.Path(sys.argv[1])
    version = (source / "version.txt").read_text().strip()
    schedules = load_schedules(source)
    out = {"deepspeed": version, "bases": BASES, "cases": [run(schedules, *case) for case in CASES]}
    path = pathlib.Path(__file__).with_name("deepspeed_schedules.json")
    path.write_text(json.dumps(out) + "\n")
    print(f"wrote {path.name}: {len(CASES)} schedules of DeepSpeed {version}")


if __name__ == "__main__":
    main()
