"""The Python side of bench/data.cpp: times torch.utils.data.DataLoader and readers of text files.

Usage: data_peers.py DATA

DATA is a file that torch.load opens: `images` (uint8 [N, 1, 28, 28]) and `labels`. The script reads one
command per line from stdin and answers each with one line: `ok <number>` or `error <text>`.

  time WORKERS    seconds for an epoch
  images WORKERS  the sum of all images of an epoch; `labels`: of all labels
  order           seconds per index of a shuffled epoch
  read READER THREADS FILE         seconds to read a file: READER is pandas, pyarrow, pyarrow_json or json
  rows, texts, numbers READER ...  number of rows, bytes of `text`, sum of `x`; for records only `rows` and `numbers`
"""

import json
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


def read(reader, threads, path):
    """The file as a table, or the records one after another; imports what it needs."""
    if reader == "pandas":
        import pandas

        return pandas.read_csv(path)
    if reader == "json":
        records, total = 0, 0.0
        with open(path, "rb") as file:
            for line in file:
                total += json.loads(line)["x"]
                records += 1
        return {"rows": records, "numbers": total}
    import pyarrow

    pyarrow.set_cpu_count(threads)
    if reader == "pyarrow":
        import pyarrow.csv

        return pyarrow.csv.read_csv(path, read_options=pyarrow.csv.ReadOptions(use_threads=threads > 1))
    import pyarrow.json

    return pyarrow.json.read_json(path, read_options=pyarrow.json.ReadOptions(use_threads=threads > 1))


def value_of(what, table):
    if isinstance(table, dict):
        return table[what]
    if what == "rows":
        return len(table)
    if what == "texts":
        texts = table["text"]
        return sum(len(text) for text in (texts.to_pylist() if hasattr(texts, "to_pylist") else texts))
    return sum(table["x"].to_pylist() if hasattr(table["x"], "to_pylist") else table["x"])


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
        if command in ("read", "rows", "texts", "numbers"):
            begin = time.perf_counter()
            table = read(arguments[0], int(arguments[1]), arguments[2])
            return time.perf_counter() - begin if command == "read" else value_of(command, table)
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
