#!/usr/bin/env python3
"""Compares the figures of README.md and of the text of bench/README.md with the results that bench/results holds.

bench/check_test.py compares the generated table of bench/README.md. Not in a result, hence not compared: intervals of
added times, and the lowest and highest times of checkpoints.
"""

import json
import math
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README, BENCH = "README.md", "bench/README.md"


class Results(dict):
    """The ratios and values of a benchmark by name; the ends of a ratio's interval by "low NAME" and "high NAME"."""

    def __init__(self, name):
        results = json.loads((ROOT / "bench/results" / f"{name}.json").read_text(encoding="utf-8"))
        self.update((value["name"], value["value"]) for value in results["values"])
        for ratio in results["ratios"]:
            self[ratio["name"]] = ratio["value"]
            self["low " + ratio["name"]], self["high " + ratio["name"]] = ratio["low"], ratio["high"]

    def with_interval(self, name):
        return [self[name], self["low " + name], self["high " + name]]


def overhead():
    of = Results("overhead")
    added = {mode: of[f"the runner adds: sgd, 32 hidden, {mode}"] for mode in ("nothing on", "accuracy, console, jsonl")}
    step = added["nothing on"] / (of["step of the runner to a bare loop: sgd, 32 hidden, nothing on"] - 1)
    yield (
        README,
        "adds {:.1f} µs to a step of {:.0f} µs; {:.1f} µs with accuracy",
        [added["nothing on"], step, added["accuracy, console, jsonl"]],
    )

    def user(optim, hidden):
        return of.with_interval(f"steps per second, runner to torch::optim: {optim}, {hidden} hidden, as users write it")

    yield (
        README,
        "SGD: {:.2f} times the steps per second; AdamW: {:.1f} times",
        [user("sgd", 32)[0], user("adamw", 32)[0]],
    )
    yield (
        BENCH,
        "{:.3f} [{:.3f}, {:.3f}] and {:.3f} [{:.3f}, {:.3f}] times as fast with SGD",
        user("sgd", 128) + user("sgd", 32),
    )
    yield (
        BENCH,
        "{:.2f} [{:.2f}, {:.2f}] and {:.2f} [{:.2f}, {:.2f}] times with AdamW",
        user("adamw", 128) + user("adamw", 32),
    )

    def peers(*names):
        mode = "adamw, accuracy each step, logger every 50"
        return [of[f"steps per second, danling (C++) to {name}: {mode}"] for name in names]

    yield README, "log every 50 | {:.1f} times the steps per second", peers("plain loop in Python")
    yield README, "DanLing (Python) | the same | {:.1f}, {:.1f}, {:.1f}, {:.1f}, {:.1f}, {:.1f} times |", peers(
        "Lightning Fabric", "TorchTNT TrainUnit", "TorchTNT AutoUnit", "Ignite", "Accelerate", "DanLing (Python)"
    )
    yield README, "Composer | the same | {:.1f}, {:.1f}, {:.1f} times |", peers("HF Trainer", "Lightning", "Composer")


def steps():
    of = Results("steps")

    def row(text, added, case, kind):
        names = [f"{kind} {part} the {loop} loop" for loop in ("bare", "tuned") for part in ("of", "that the runner adds to")]
        form = " | ".join(["{:,.0f}", added] * 2)
        return BENCH, f"| {kind}, {text} | {form} |", [of[f"{case}: {name}"] for name in names]

    everything = "accuracy each step; console and `metrics.jsonl` every 50"
    yield row("no metrics, no logs, SGD", "{:,.0f}", "nothing on, SGD", "instructions")
    yield row("no metrics, no logs, AdamW", "{:,.0f}", "nothing on, AdamW", "instructions")
    yield row(everything, "{:,.0f}", "everything, AdamW", "instructions")
    yield row("no metrics, no logs", "{:.0f}", "nothing on, AdamW", "allocations")
    yield row(everything, "{:.1f}", "everything, AdamW", "allocations")


def processes():
    of, fsdp, pipes, recorded = (Results(name) for name in ("ddp", "parallel", "pipeline", "recorded"))
    best = "danling to the best of DistributedDataParallel"
    ddp = [of[f"{optim}, 784-1024-1024-10, batch 64 a process, 2 processes: {best}"] for optim in ("adamw", "sgd")]
    encoder = of[f"adamw, encoder of 2 layers, width 128, 32 tokens, batch 16 a process, 2 processes: {best}"]
    small = of[f"adamw, 784-32-10, batch 64 a process, 2 processes: {best}"]
    yield README, "784-1024-1024-10, AdamW | {:.1f} times the steps per second", ddp[:1]
    yield (
        BENCH,
        "makes {:.2f} times as many steps per second with 784-1024-1024-10 and AdamW, {:.2f} times with SGD",
        ddp,
    )
    yield BENCH, "{:.2f} times with a small encoder and {:.1f} times with 784-32-10", [encoder, small]
    sharded = [fsdp[f"{optim}, 784-1024-1024-10, 2 processes: danling to the best of FSDP2"] for optim in ("adamw", "sgd")]
    yield README, "the same net | {:.1f} times the steps per second through shared memory", sharded[:1]
    yield BENCH, "is {:.1f} times (AdamW) and {:.1f} times (SGD) as fast as FSDP2's", sharded
    names = [f"danling to Python, {name}" for name in ("1F1B", "GPipe", "Interleaved1F1B", "ZBVZeroBubble")]
    one, gpipe, interleaved, zero = (pipes[name] for name in names)
    yield README, "1F1B {:.1f}, GPipe {:.1f}, Interleaved1F1B {:.1f} ({:.1f} to {:.1f}), ZBVZeroBubble {:.1f} times", [
        one, gpipe, *pipes.with_interval(names[2]), zero
    ]  # fmt: skip
    yield (
        BENCH,
        "take {:.2f} (1F1B), {:.2f} (GPipe), {:.2f} (Interleaved1F1B) and {:.2f} times (ZBVZeroBubble)",
        [one, gpipe, interleaved, zero],
    )
    eager = [recorded[f"{work}: recorded runner to eager runner"] for work in ("mlp16", "mlp16-8", "net", "encoder")]
    yield (
        README,
        "makes {:.1f} times as many steps per second at batch 64 and {:.1f} times as many at batch 8; "
        "the net of this example makes {:.1f} times as many, a small encoder {:.1f} times",
        eager,
    )


def data():
    of = Results("data")
    mnist = "MNIST's images from memory, batches of 64, shuffled: "
    yield (
        README,
        "shuffled MNIST | {:.0f} times the samples per second",
        [of[mnist + "danling (C++) to torch.utils.data.DataLoader"]],
    )

    def samples(name, unit):
        return of[mnist + name] / unit

    python, libtorch = "torch.utils.data.DataLoader", "LibTorch torch::data::DataLoader"
    copy = "plain: memcpy of 64 images in a row, then normalise"
    yield BENCH, "| no workers | {:.1f} M | {:.0f} k | {:.0f} k | {:.1f} M |", [
        samples("danling (C++)", 1e6), samples(python, 1e3), samples(libtorch, 1e3), samples(copy, 1e6)
    ]  # fmt: skip
    yield BENCH, "| 2 workers | {:.1f} M | {:.0f} k | {:.0f} k | |", [
        samples("danling (C++), 2 workers", 1e6),
        samples(python + ", 2 workers", 1e3),
        samples(libtorch + ", 2 workers", 1e3),
    ]
    order = "order: an index of a shuffled epoch, the beginning of the epoch included: "
    index = of[order + "danling (C++) RandomSampler, 10^12 records"]
    resume = of["resume: load a state in the middle of 10^12 shuffled records, and the first batch: danling (C++)"]
    yield BENCH, "records costs {:.0f} ns and no memory. Resuming in its middle takes {:.0f} µs", [1e3 * index, resume]
    busy = "512 samples, a transform that is busy for 1 ms per sample: "
    yield BENCH, "two workers reach {:.2f} of the speed of two processes", [
        of[busy + "two workers to two processes, each half of the records on one thread"]
    ]
    waiting = "waiting for data, steps of 4 ms: batches of 2 ms, the host busy with the step, "
    waits = [of[waiting + "1 worker"], of[waiting + "2 workers"]]
    yield BENCH, "a step waits for data {:.1f} % of the time with one worker, and {:.1f} %", waits
    csv = "CSV {}, 1 thread: danling (C++) read_csv to "
    peers = ("pyarrow.csv.read_csv", "pandas.read_csv (1 thread)")
    quoted = [of[csv.format("with texts, some in quotes") + peer] for peer in peers]
    numbers = [of[csv.format("of numbers") + peer] for peer in peers]
    yield README, "a CSV file of numbers | {:.2f} times the time", [1 / numbers[1]]
    yield (
        BENCH,
        "is read {:.1f} times as fast as by pyarrow and {:.1f} times as fast as by pandas; CSV "
        "with numbers {:.1f} and {:.1f} times",
        quoted + numbers,
    )
    yield BENCH, "JSON lines are read {:.1f} times as fast as by pyarrow", [
        of["JSON lines, flat, 1 thread: danling (C++) read_json_lines to pyarrow.json.read_json"]
    ]
    lines = "JSON lines, {}, record by record: danling (C++) JsonLines::get to nlohmann::json::parse of each line"
    yield BENCH, "parsed {:.1f} times as fast as by nlohmann_json, with objects and lists in objects {:.1f} times", [
        of[lines.format(kind)] for kind in ("flat", "objects and lists in objects")
    ]


def metrics():
    of = Results("metrics")
    accuracy = "accuracy of a batch of 64x10: "
    yield README, "1/{:.0f} of the time", [of[accuracy + "danling (C++) to torchmetrics update"]]

    def row(begin, unit, *names):
        return [of[f"{begin}: {name}"] / unit for name in names]

    stream, update = "StreamMetrics.update", "GlobalMetrics.update"
    contestants = ("danling (C++)", "DanLing", "torchmetrics MeanMetric")
    meter = row("AverageMeter.update of a number", 1, *contestants)
    yield BENCH, "a number | {:.1f} ns | {:.0f} ns | {:.0f} µs |", [*meter[:2], meter[2] / 1e3]
    meter = row("AverageMeter.update of a scalar tensor on the host", 1, *contestants)
    yield BENCH, "on the host | {:.1f} ns | {:.0f} ns | {:.0f} µs |", [*meter[:2], meter[2] / 1e3]
    yield BENCH, "64x10 | {:.2f} µs | {:.0f} µs | {:.0f} µs |", row(
        accuracy[:-2], 1e3, f"danling (C++) {stream}", f"DanLing {stream}", "torchmetrics update"
    )
    five = "auroc, auprc, acc, f1, mcc of a batch of 64x10, averaged over batches"
    ours, theirs = row(five, 1e3, f"danling (C++) {stream}", f"DanLing {stream}")
    yield BENCH, "averaged | {:.0f} µs | {:.1f} ms |", [ours, theirs / 1e3]
    yield BENCH, "(`GlobalMetrics.update`) | {:.1f} µs | {:.0f} µs | {:.0f} µs |", row(
        "the same of all data",
        1e3,
        f"danling (C++) {update}",
        f"DanLing {update}",
        "torchmetrics MetricCollection.update",
    )
    yield BENCH, "1,000,000 samples | {:.1f} ms | | {:.0f} ms | {:.0f} ms |", row(
        "AUROC of 1000000 samples",
        1e6,
        "danling (C++) metrics::auroc",
        "torchmetrics binary_auroc",
        "scikit-learn roc_auc_score",
    )
    yield BENCH, "bf16 | {:.1f} ms | | {:.1f} ms |", row(
        "perplexity of 256 words of 32000, bf16", 1e6, "danling (C++)", "torchmetrics"
    )
    memory = max(of[f"memory of GlobalMetrics to that of its data, batches of {rows}"] for rows in (64, 1024))
    yield BENCH, "uses at most {:.2f} times the bytes", [math.ceil(100 * memory) / 100]


def checkpoint():
    of = Results("checkpoint")
    save, load = "save: danling::save_file to ", "load: danling::load_file, verified to "
    torch_save, wait = of[save + "torch.save + fsync"], "wait of training: danling::FileCheckpointManager, async"
    yield README, "500 MB, on disk | {:.1f} of the time", [1 / torch_save]
    mapped = [of[load + f"{peer}, a read of every page"] for peer in ("safetensors load_file", "torch.load(mmap=True)")]
    yield README, "not verified | {:.1f}, {:.1f} times the time", [1 / ratio for ratio in mapped]
    yield (
        BENCH,
        "`save_file` is {:.1f} times as fast as plain writing and {:.1f} times as fast as `torch.save`",
        [of[save + "write + fsync"], torch_save],
    )
    yield BENCH, "`load_file` {:.1f} times as fast as `torch.load`", [of[load + "torch.load, not verified"]]
    yield BENCH, "training waits {:.2f} times a memcpy", [1 / of[wait + " to one memcpy of the bytes"]]
    for text, name in (
        ("plain write and fsync", "save: write + fsync"),
        ("`save_file`: hashed, on disk", "save: danling::save_file"),
        ("the same again", "save: danling::save_file, control"),
        ("`torch.save` and fsync", "save: torch.save + fsync"),
        ("safetensors `save_file` and fsync", "save: safetensors save_file + fsync"),
        ("`torch.distributed.checkpoint.save`", "save: torch.distributed.checkpoint.save, synced"),
        ("one memcpy of the bytes", "wait of training: one memcpy of the bytes"),
        ("asynchronous save: time that training waits", wait),
        ("`torch.load`, not verified", "load: torch.load, not verified"),
        ("`torch.load(mmap=True)`, each page read", "load: torch.load(mmap=True), a read of every page"),
        ("safetensors `load_file`, each page read", "load: safetensors load_file, a read of every page"),
        ("`load_file`, verified", "load: danling::load_file, verified"),
        ("`torch.distributed.checkpoint.load`", "load: torch.distributed.checkpoint.load"),
    ):
        yield BENCH, f"| {text} | {{:.3f}} |", [of[name] / 1e3]


def end_to_end():
    of = Results("end_to_end")
    loop = [1 / of[f"{figure}, loop over LibTorch to danling (C++)"] for figure in ("wall time", "peak memory")]
    yield README, "to a saved checkpoint | {:.2f} of the time, {:.2f} times the memory", loop
    for text, name in (
        ("danling", "danling (C++)"),
        ("a loop over LibTorch", "loop over LibTorch"),
        ("PyTorch, `DataLoader`", "PyTorch, DataLoader"),
        ("PyTorch, gathered batches", "PyTorch, gathered batches"),
        ("Lightning", "Lightning"),
        ("DanLing (Python)", "DanLing (Python)"),
    ):
        ratio = "" if text == "danling" else "{:.2f} [{:.2f}, {:.2f}] "
        numbers = of.with_interval(f"wall time, {name} to danling (C++)") if ratio else []
        memory, first = of[name + ": peak memory"], of[name + ": time to the first step"]
        row = f"| {text} | {{:.2f}} s | {ratio}| {{:.0f}} MiB | {{:.2f}} s |"
        yield BENCH, row, [of[name + ": wall time"], *numbers, memory, first]


def nested():
    of = Results("nested")
    yield README, "of 4 values | {:.1f} times the time", [1 / of["relu of 4 values: NestedTensor to plain tensor"]]


def dates():
    table = (ROOT / README).read_text(encoding="utf-8").split("## How fast")[1].split("\n## ")[0]
    names = set(re.findall(r"`./dev bench (\w+)`", table))
    of_results = {json.loads((ROOT / f"bench/results/{name}.json").read_text(encoding="utf-8"))["date"] for name in names}
    yield README, "The rows are from {}, with results in", [" and ".join(sorted(of_results))]


def expected_texts():
    """Yields (page, text with the figures of the results)."""
    for part in (dates, overhead, steps, processes, data, metrics, checkpoint, end_to_end, nested):
        for page, template, numbers in part():
            yield page, template.format(*numbers)


def on_one_line(text):
    return re.sub(r"\s+", " ", text)


class Figures(unittest.TestCase):
    def test_the_pages_have_the_figures_of_the_results(self):
        pages = {page: on_one_line((ROOT / page).read_text(encoding="utf-8")) for page in (README, BENCH)}
        for page, text in expected_texts():
            with self.subTest(page=page, text=text):
                self.assertTrue(text in pages[page], f"{page}: expected the figures of bench/results, got none: {text}")

    def test_each_row_of_the_table_of_readme_is_compared(self):
        table = (ROOT / README).read_text(encoding="utf-8").split("## How fast")[1].split("\n## ")[0]
        rows = [line for line in table.splitlines() if "`./dev bench" in line]
        texts = [text for page, text in expected_texts() if page == README]
        self.assertGreater(len(rows), 8)
        for row in rows:
            self.assertTrue(any(text in row for text in texts), f"expected the figures of this row in figures_test.py: {row}")


if __name__ == "__main__":
    unittest.main()
