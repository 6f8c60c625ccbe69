#!/usr/bin/env python3
"""Trains a small network on the digits 0 to 4 of examples/mnist, and writes it as TorchScript: digits_0_to_4.pt."""

import gzip
import io
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent


def read_idx(name):
    data = HERE.parent / "mnist" / "data" / name
    raw = gzip.open(f"{data}.gz").read() if Path(f"{data}.gz").exists() else data.read_bytes()
    dims = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return torch.frombuffer(bytearray(raw[4 + 4 * len(dims) :]), dtype=torch.uint8).reshape(dims)


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(16 * 7 * 7, 10)

    def forward(self, images):
        return self.head(self.features(images))


def save(model, path):
    """Without the records for debuggers, which hold the paths of this machine."""
    whole = io.BytesIO()
    torch.jit.save(torch.jit.script(model), whole)
    whole.seek(0)
    reader, writer = torch._C.PyTorchFileReader(whole), torch._C.PyTorchFileWriter(str(path))
    for name in reader.get_all_records():
        if not name.endswith(".debug_pkl") and name != "version":
            data = reader.get_record(name)
            writer.write_record(name, data, len(data))
    writer.write_end_of_file()


def main():
    torch.manual_seed(1)
    labels = read_idx("train-labels-idx1-ubyte").long()
    images = (read_idx("train-images-idx3-ubyte").float() / 255 - 0.1307) / 0.3081
    known = labels < 5
    images, labels = images[known].unsqueeze(1), labels[known]
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(10):
        for batch in torch.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    save(model.eval(), HERE / "digits_0_to_4.pt")


if __name__ == "__main__":
    main()
