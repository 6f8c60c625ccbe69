"""The Python side of bench/overhead_peers.cpp: a plain loop and a framework train the same net on command.

Usage: overhead_peers.py FRAMEWORK FOLDER

Answers `ok` when the framework is imported, else `error <text>`. Then reads one command per line from stdin and answers
each with one line, `ok <number>` or `error <text>`:

  train MODE OPTIM BLOCKS  trains by the framework and, in turn with it, by a plain loop, in blocks of 50 steps; the
                           microseconds per step that the framework adds. MODE is bare (no metrics, no logs) or logged
                           (accuracy each step, progress bar, logger of the framework every 50 steps); the plain loop is
                           always bare. OPTIM is sgd or adamw.
  step, plain              microseconds per step of the framework and of the plain loop in the last `train`
  loss, plain_loss         loss of the last step
  accuracy                 accuracy over all steps; -1 if the framework keeps none

Times are medians of all blocks but the first.
"""

import importlib.util
import logging
import os
import pathlib
import shutil
import statistics
import sys
import warnings

os.environ.update(
    CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", WANDB_DISABLED="true"
)
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

modules = {
    "plain": ["torchmetrics", "tensorboard", "tqdm"],
    "ignite": ["ignite", "tensorboard", "tqdm"],
    "fabric": ["lightning.fabric", "torchmetrics", "tqdm"],
    "torchtnt_unit": ["torchtnt.framework.train", "torchmetrics", "tensorboard", "tqdm"],
    "torchtnt_auto_unit": ["torchtnt.framework.auto_unit", "torchmetrics", "tensorboard", "tqdm"],
    "danling": ["danling", "tensorboard"],
    "accelerate": ["accelerate", "torchmetrics", "tensorboard", "tqdm"],
    "lightning": ["lightning", "torchmetrics"],
    "hf_trainer": ["transformers", "accelerate", "torchmetrics", "tensorboard"],
    "composer": ["composer", "torchmetrics", "tensorboard"],
}


def load(framework):
    """Returns overhead_frameworks.py, after importing the modules of a framework."""
    for name in ("torch", *modules[framework]):  # before a second is spent on importing torch
        if importlib.util.find_spec(name.split(".")[0]) is None:
            raise ModuleNotFoundError(f"no module {name.split('.')[0]}")
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
    import overhead_frameworks
    import torch

    torch.set_num_threads(1)
    if framework == "composer":
        sys.meta_path.append(overhead_frameworks.EmptyPackages())
    for name in modules[framework]:
        importlib.import_module(name)
    return overhead_frameworks


class Pair:
    """A framework and a plain loop."""

    def __init__(self, framework, folder):
        self.loops, self.folder = load(framework), pathlib.Path(folder)
        self.function = getattr(self.loops, framework)
        self.batches = self.loops.make_batches()
        self.numbers = {}

    def train(self, mode, optim, blocks):
        self.folder.mkdir(parents=True)
        os.chdir(self.folder)  # some frameworks write to the working directory
        plain = self.loops.PlainLoop(self.batches, optim)
        feed = self.loops.Feed(self.batches, plain, int(blocks))
        loss, accuracy = self.function(self.loops.Work(feed, mode, optim, self.folder))
        os.chdir("/")
        shutil.rmtree(self.folder)
        pairs = list(zip(feed.seconds, feed.plain_seconds))[1:]
        self.numbers = {
            "step": 1e6 * statistics.median(step for step, _ in pairs),
            "plain": 1e6 * statistics.median(step for _, step in pairs),
            "loss": float(loss),
            "plain_loss": float(plain.loss),
            "accuracy": -1 if accuracy is None else float(accuracy),
        }
        return 1e6 * statistics.median(step - of_plain for step, of_plain in pairs)

    def execute(self, command, *arguments):
        return self.train(*arguments) if command == "train" else self.numbers[command]


def main():
    # Frameworks print to stdout, which the answers need.
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)

    def answer(function):
        """Returns whether the function succeeds."""
        try:
            number = function()
            print("ok" if number is None else f"ok {number!r}", file=answers, flush=True)
            return True
        except (Exception, SystemExit) as error:
            print("error", type(error).__name__, " ".join(str(error).split())[:200], file=answers, flush=True)
            return False

    pairs = []
    if answer(lambda: pairs.append(Pair(*sys.argv[1:]))):
        for line in sys.stdin:
            answer(lambda: pairs[0].execute(*line.split()))
    os._exit(0)  # without waiting for the frameworks' threads


main()
