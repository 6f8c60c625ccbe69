#!/usr/bin/env python3
"""Trains the example on each grid, and prints a table of memory, time and loss.

Usage: table.py DANLING PROGRAM [OPTION...], as in table.py danling ./language_model_parallel --steps 40
The options are passed to the program.
"""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

GRIDS = {"one": 1, "replicate": 2, "shard": 2, "hybrid": 4, "tensor": 2, "context": 2, "pipeline": 2,
         "interleaved": 2, "3d": 8, "one_experts": 1, "experts": 2}  # fmt: skip


def worker(command):
    """Runs one rank, and prints its peak memory in MiB."""
    code = subprocess.run(command, check=False).returncode
    print(f"peak {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f}", flush=True)
    return code


def train(danling, program, grid, processes, options):
    """Peak memory of the ranks, seconds of a step, losses."""
    config = Path(__file__).resolve().parent / f"{grid}.yaml"
    with tempfile.TemporaryDirectory() as workspace:
        options = ["--config", str(config), "--workspace_root", workspace, "--num_threads", "1", *options]
        command = [sys.executable, __file__, "--worker", program, *options]
        out = subprocess.run(
            [danling, "launch", "-n", str(processes), "--", *command], check=True, capture_output=True, text=True
        ).stdout
        peaks = [int(line.split("peak ")[1]) for line in out.splitlines() if "] peak " in line or line.startswith("peak ")]
        lines = [json.loads(line) for path in Path(workspace).rglob("metrics.jsonl") for line in path.open()]
    # The line at the end of a pass has no iteration.
    last = {line["split"]: line for line in lines if "iteration" not in line}
    return peaks, last["train"]["telemetry"]["time"], last["train"]["loss"], last["val"]["loss"]


def main():
    danling, program, *options = sys.argv[1:]
    print(f"{'grid':15} processes   MiB of a rank    ms a step      train loss        val loss")
    for grid, processes in GRIDS.items():
        peaks, seconds, *losses = train(danling, program, grid, processes, options)
        memory = f"{min(peaks)} to {max(peaks)}" if min(peaks) < max(peaks) else f"{max(peaks)}"
        print(f"{grid:15} {processes:9} {memory:>15} {1000 * seconds:12.0f} {losses[0]:15.10f} {losses[1]:15.10f}", flush=True)


sys.exit(worker(sys.argv[2:]) if sys.argv[1] == "--worker" else main())
