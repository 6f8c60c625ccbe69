"""Writes powersgd.json: what torch's powerSGD_hook makes of known gradients on two ranks, for tests/distributed.

Run with torch and numpy installed: python tests/golden/powersgd.py
"""

import json
import math
import os
import pathlib
import tempfile

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

RANKS, ROWS, COLUMNS, STEPS = 2, 12, 9, 5
CASES = {
    "defaults": {},
    "two columns": {"matrix_approximation_rank": 2, "min_compression_rate": 1},
    "epsilon": {"matrix_approximation_rank": 2, "min_compression_rate": 1, "orthogonalization_epsilon": 0.1},
    "no feedback": {"use_error_feedback": False},
}


def gradient(rank, step):
    """Of full rank, and different on each rank and step."""
    values = [
        math.sin(1 + row * column + 0.7 * rank * row + 0.3 * step * (column + 1)) + (row + 1) * 0.1 * (rank + 1)
        for row in range(ROWS)
        for column in range(COLUMNS)
    ]
    return torch.tensor(values, dtype=torch.float64).view(ROWS, COLUMNS)


def initial_factor(columns):
    """The first Q, as the hook draws it."""
    seed = numpy.random.RandomState(0).randint(1_000_000_000)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.randn(1, COLUMNS, columns, dtype=torch.float64)[0]


def rounded(tensor):
    return [float(f"{value:.12g}") for value in tensor.flatten().tolist()]


class Weight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(ROWS, COLUMNS, dtype=torch.float64))

    def forward(self, factor):
        return (self.weight * factor).sum()


def run(rank, store, results):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    out = {}
    for name, options in CASES.items():
        model = torch.nn.parallel.DistributedDataParallel(Weight())
        state = powersgd.PowerSGDState(None, start_powerSGD_iter=2, **options)
        model.register_comm_hook(state, powersgd.powerSGD_hook)
        sums = []
        for step in range(STEPS):
            model.zero_grad()
            model(gradient(rank, step)).backward()
            sums.append(rounded(model.module.weight.grad * RANKS))
        columns = options.get("matrix_approximation_rank", 1)
        out[name] = {"factor": rounded(initial_factor(columns)), "sums": sums}
    if rank == 0:
        pathlib.Path(results).write_text(json.dumps(out) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(__file__).with_suffix(".json")
        processes.spawn(run, args=(os.path.join(folder, "store"), str(target)), nprocs=RANKS)
