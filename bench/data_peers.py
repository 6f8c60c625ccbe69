"""The peer in bench/data.cpp: torch.utils.data.DataLoader as users write it, and how long it takes.

Usage: data_peers.py DATA

DATA is a file that torch.load opens: `images` (uint8 [N, 1, 28, 28]) and `labels`. Commands come on stdin, one a line,
and each gets one line of answer: `ok <number>` or `error <text>`.

  time WORKERS    seconds for an epoch
  images WORKERS  the sum of all images that an epoch delivers; `labels` the same of its labels
  order           seconds for an index of a shuffled epoch
"""

import os
import sys
import time
import warnings

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
warnings.filterwarnings("ignore")

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

torch.set_num_threads(1)


class Images(Dataset):
    """Images in [0, 1] that are normalised one by one."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return (self.images[index] - 0.1307) / 0.3081, self.labels[index]


def main():
    data = torch.load(sys.argv[1], weights_only=True)
    dataset = Images(data["images"].float() / 255, data["labels"])
    loaders = {}

    def loader(workers):
        if workers not in loaders:
            loaders[workers] = DataLoader(
                dataset, batch_size=64, shuffle=True, num_workers=workers, persistent_workers=workers > 0
            )
        return loaders[workers]

    def answer(command, *arguments):
        if command == "order":
            begin = time.perf_counter()
            for _ in RandomSampler(dataset):
                pass
            return (time.perf_counter() - begin) / len(dataset)
        workers = int(arguments[0])
        if command == "time":
            begin = time.perf_counter()
            for _ in loader(workers):
                pass
            return time.perf_counter() - begin
        which = ["images", "labels"].index(command)
        return sum(float(batch[which].sum(dtype=torch.float64)) for batch in loader(workers))

    print("ok", flush=True)
    for line in sys.stdin:
        try:
            print("ok", repr(answer(*line.split())), flush=True)
        except Exception as error:
            print("error", type(error).__name__, " ".join(str(error).split())[:200], flush=True)


if __name__ == "__main__":
    main()
