"""Writes grad_scaler.json: what torch.amp.GradScaler computes over 200 steps with overflows, for tests/optim.

Run with torch installed: python tests/golden/grad_scaler.py
With a file as argument it is the other side of a test: it loads the state that C++ saved there into a GradScaler,
takes two more steps, of which the second overflows, and saves the state in its place.
"""

import json
import math
import pathlib
import sys

import torch

STEPS, SIZE, EVERY = 200, 5, 20
CASES = {
    "defaults": {"options": {}, "overflows": [0, 1, 50, 51, 52, 199], "clip": None},
    "growing": {
        "options": {"init_scale": 8.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7},
        "overflows": [6, 40, 80, 81, 150],
        "clip": None,
    },
    "clipped": {
        "options": {"init_scale": 1024.0, "growth_interval": 10},
        "overflows": [25, 99, 100, 101, 160],
        "clip": 0.5,
    },
}


def gradient(step, overflows):
    values = [math.sin(0.3 * (step + index)) for index in range(SIZE)]
    if step in overflows:
        values[step % SIZE] = math.inf if step % 2 else math.nan
    return torch.tensor(values)


def run(options, overflows, clip):
    weight = torch.arange(SIZE, dtype=torch.float32).requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=0.05)
    scaler = torch.amp.GradScaler("cpu", **options)
    out = {"options": options, "overflows": overflows, "clip": clip, "scales": [], "trackers": [], "weights": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        scaler.scale((weight * gradient(step, overflows)).sum()).backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([weight], clip)
        scaler.step(optimizer)
        scaler.update()
        state = scaler.state_dict()
        out["scales"].append(state["scale"])
        out["trackers"].append(state["_growth_tracker"])
        if (step + 1) % EVERY == 0:
            out["weights"].append([float(f"{value:.9g}") for value in weight.tolist()])
    out["state"] = list(scaler.state_dict().items())
    return out


def continue_from(path):
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(torch.load(path, weights_only=True))
    weight = torch.ones(SIZE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for step in range(2):
        optimizer.zero_grad()
        scaler.scale((weight * gradient(step, [1])).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.save(scaler.state_dict(), path)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        continue_from(sys.argv[1])
    else:
        numbers = {name: run(**case) for name, case in CASES.items()}
        path = pathlib.Path(__file__).with_name("grad_scaler.json")
        path.write_text(json.dumps({"torch": torch.__version__.split("+")[0], "cases": numbers}) + "\n")
