#!/usr/bin/env python3
"""The layouts in which programs of Python save weights, for tests/checkpoint/pretrained.cpp (needs torch, safetensors).

Usage: pretrained_layouts.py DIR    (the files are in tests/golden/data)
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file, save_model


class Net(torch.nn.Module):
    """An embedding tied to the head, and a norm with buffers."""

    def __init__(self, sign):
        super().__init__()
        self.embed = torch.nn.Embedding(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.head = torch.nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight
        with torch.no_grad():
            for number, value in enumerate(self.state_dict().values()):
                numbers = torch.arange(value.numel()).reshape(value.shape) * 0.5 + min(number, 5)
                value.copy_(numbers * sign)


def main(directory):
    net, average = Net(1), Net(-1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    averaged = torch.optim.swa_utils.AveragedModel(average)
    weights = net.state_dict()
    files = {
        "plain": weights,
        "parallel": {"epoch": 3, "state_dict": torch.nn.DataParallel(net).state_dict(), "best_acc": 0.5},
        "compiled": {"model": torch.compile(net).state_dict(), "optimizer": optimizer.state_dict()},
        "compiled_parallel": torch.compile(torch.nn.DataParallel(net)).state_dict(),
        # As lightning.pytorch.Trainer.save_checkpoint writes a module that holds the net as `self.model`.
        "lightning": {
            "epoch": 3,
            "global_step": 70,
            "pytorch-lightning_version": "2.5.0",
            "state_dict": {f"model.{name}": value for name, value in weights.items()},
            "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 3}}}},
            "callbacks": {},
            "optimizer_states": [optimizer.state_dict()],
            "lr_schedulers": [],
        },
        "danling": {
            "runner": {"seed": 1},
            "state": {"train": {"epoch": 2}},
            "model": weights,
            "ema": averaged.state_dict(),
            "optimizer": optimizer.state_dict(),
        },
        "danling_no_ema": {"runner": {"seed": 1}, "ema": None, "model": weights},
        # timm.utils.CheckpointSaver
        "timm": {
            "epoch": 3,
            "arch": "net",
            "state_dict": weights,
            "state_dict_ema": average.state_dict(),
            "version": 2,
        },
        "deepspeed": {"module": weights, "global_steps": 70, "ds_config": {"train_batch_size": 8}},
        "teacher": {"student": {"backbone": weights}, "teacher": {"backbone": average.state_dict()}},
    }
    for name, content in files.items():
        torch.save(content, directory / f"pretrained_{name}.pth")
    save_model(Net(1).half(), str(directory / "pretrained_half.safetensors"))
    once = {name: value.contiguous() for name, value in Net(1).state_dict().items() if name != "head.weight"}
    save_file(once, directory / "pretrained_tied.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
