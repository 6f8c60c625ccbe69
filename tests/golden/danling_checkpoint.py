#!/usr/bin/env python3
"""Writes tests/golden/data/checkpoint_danling.pth: what a TorchRunner of danling 0.4.8 saves after two epochs,
with a scheduler of its own and an EMA.

Run with torch and danling installed: python tests/golden/danling_checkpoint.py OUT
"""

import os
import pathlib
import shutil
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import danling as dl
import torch
from torch import nn


class Line(torch.utils.data.Dataset):
    """y = 2 x + 1 at four points."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        x = torch.tensor([float(index)])
        return {"input": x, "target": 2 * x + 1}


class Runner(dl.TorchRunner):
    def __init__(self, config):
        super().__init__(config)
        torch.manual_seed(0)
        self.model = nn.Linear(1, 1)
        self.criterion = nn.MSELoss()
        self.datasets["train"] = Line()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.125)
        self.scheduler = dl.optim.LRScheduler(self.optimizer, total_steps=4, method="linear")
        self.ema = torch.optim.swa_utils.AveragedModel(self.model)


def main():
    out = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)  # where experiments go
        config = dl.RunnerConfig({
            "epochs": 2, "seed": 7, "log": False, "tensorboard": False,
            "dataloader": {"batch_size": 2}, "name": "line",
        })  # fmt: skip
        runner = Runner(config)
        runner.train()
        runner.close()
        (saved,) = pathlib.Path(root).rglob("latest.pth")
        shutil.copy(saved, out)


if __name__ == "__main__":
    main()
