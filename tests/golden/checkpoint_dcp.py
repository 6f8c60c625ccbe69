"""Directories of torch.distributed.checkpoint, for tests of sharded checkpoints.

Usage: checkpoint_dcp.py make DIRECTORY      one process writes the reference state
       checkpoint_dcp.py mesh DIRECTORY      four processes write DTensors, two by two
       checkpoint_dcp.py check DIRECTORY     reads what danling wrote of the reference state, and compares
       checkpoint_dcp.py flat DIRECTORY      reads the tensor `w` = 0 .. 34 in sizes [7, 5], and compares
"""

import os
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

warnings.filterwarnings("ignore")


def reference():
    return {
        "model": {
            "weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
            "half": torch.arange(5).to(torch.bfloat16) / 4,
            "mask": torch.tensor([True, False, True]),
            "scalar": torch.tensor(2.5, dtype=torch.float64),
            "empty": torch.zeros(0, 3),
            "turned": torch.arange(6, dtype=torch.int64).reshape(2, 3).t(),
        },
        "optimizer": {
            "state": {"0": {"step": torch.tensor(4.0), "exp_avg": torch.full((3, 4), 0.5)}},
            "param_groups": [{"lr": 0.125, "params": [0, 1]}],
        },
        "epoch": 3,
        "name": "run",
        "pair": (1, "x"),
        "nothing": None,
    }


def equal(a, b, where=""):
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor), (where, type(b))
        assert a.dtype == b.dtype and a.shape == b.shape, (where, a.dtype, b.dtype, a.shape, b.shape)
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert list(a) == [key for key in b if key != "danling.tree"], (where, list(a), list(b))
        for key in a:
            equal(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            equal(x, y, f"{where}.{i}")
    else:
        assert a == b, (where, a, b)


def check(directory):
    want = reference()
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        dcp_to_torch_save(directory, file.name)
        got = torch.load(file.name, weights_only=True)
    equal({key: got[key] for key in want}, want)
    # Into tensors of the program's own.
    model = {name: torch.full_like(tensor, 0) for name, tensor in want["model"].items()}
    state = {"model": model, "epoch": 0}
    dcp.load(state, checkpoint_id=directory, no_dist=True)
    equal(state["model"], want["model"])
    assert state["epoch"] == 3


def flat(directory):
    state = {"w": torch.zeros(7, 5)}
    dcp.load(state, checkpoint_id=directory, no_dist=True)
    assert torch.equal(state["w"], torch.arange(35.0).reshape(7, 5)), state


def rank_of_mesh(rank, directory, store):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))
    whole = torch.arange(35.0).reshape(7, 5)
    dcp.save(
        {
            "rows": distribute_tensor(whole, mesh, [Replicate(), Shard(0)]),
            "grid": distribute_tensor(whole, mesh, [Shard(0), Shard(1)]),
            "plain": torch.ones(2, dtype=torch.float64),
            "few": distribute_tensor(torch.arange(1.0), mesh, [Shard(0), Replicate()]),
            "fewest": distribute_tensor(torch.arange(1.0), mesh, [Shard(0), Shard(0)]),
            "step": 7,
        },
        checkpoint_id=directory,
    )
    dist.destroy_process_group()


def main():
    mode, directory = sys.argv[1:]
    if mode == "make":
        dcp.save(reference(), checkpoint_id=directory, no_dist=True)
    elif mode == "mesh":
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(rank_of_mesh, (directory, os.path.join(folder, "store")), nprocs=4)
    elif mode == "check":
        check(directory)
    else:
        flat(directory)


if __name__ == "__main__":
    main()
