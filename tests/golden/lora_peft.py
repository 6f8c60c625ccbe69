#!/usr/bin/env python3
"""Adapters trained and saved by PEFT, for tests/nn/lora.cpp (needs torch, peft).

Usage: lora_peft.py make DIR     writes DIR/adapter (PEFT's files) and DIR/lora.json (in tests/golden/data/lora)
       lora_peft.py check DIR    opens DIR, written by C++, in PEFT; prints the outputs of the merged model as JSON
"""

import json
import sys
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model


class Net(torch.nn.Module):
    """Two layers with numbers in closed form."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 8)
        self.head = torch.nn.Linear(8, 3)
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(torch.linspace(-0.5, 0.5, value.numel()).reshape(value.shape))

    def forward(self, x):
        return self.head(torch.tanh(self.fc(x)))


def inputs():
    return torch.linspace(-1, 1, 24).reshape(6, 4), torch.arange(6) % 3


def make(directory):
    config = LoraConfig(r=2, lora_alpha=6, target_modules=["fc"], bias="lora_only", modules_to_save=["head"])
    net = get_peft_model(Net(), config)
    trained = {name: value for name, value in net.named_parameters() if value.requires_grad}
    with torch.no_grad():
        for name, value in trained.items():
            if "lora_A" in name:
                value.copy_(torch.linspace(-0.4, 0.6, value.numel()).reshape(value.shape))
    optimizer = torch.optim.SGD(trained.values(), lr=0.1, momentum=0.9)
    x, y = inputs()
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    net.save_pretrained(directory / "adapter")
    (directory / "adapter" / "README.md").unlink(missing_ok=True)
    merged = net.merge_and_unload()
    numbers = {"losses": losses, "outputs": merged(x).tolist()}
    numbers |= {name: value.tolist() for name, value in merged.state_dict().items()}
    (directory / "lora.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def check(directory):
    net = PeftModel.from_pretrained(Net(), directory).merge_and_unload()
    print(json.dumps(net(inputs()[0]).tolist()))


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](Path(sys.argv[2]))
