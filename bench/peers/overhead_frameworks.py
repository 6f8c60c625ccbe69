"""The loops of bench/overhead_peers.py: a plain loop, and one per framework, written as the framework's guide does.

Each function trains the net over the batches of `work.feed`. Returns the loss of the last step and, if `work.logged` and the
framework keeps it, the accuracy over all steps.
"""

import importlib.abc
import importlib.machinery
import itertools
import os
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

batch_size, num_batches, hidden, log_interval = 64, 256, 128, 50


def make_batches():
    """The batches of overhead_work.hpp."""
    torch.manual_seed(2)
    prototypes = torch.randn(10, 784)
    target = torch.randint(10, (num_batches * batch_size,))
    inputs = prototypes.index_select(0, target).add_(torch.randn(num_batches * batch_size, 784), alpha=2)
    return list(zip(inputs.split(batch_size), target.split(batch_size)))


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def make_accuracy():
    from torchmetrics.classification import MulticlassAccuracy

    return MulticlassAccuracy(10, average="micro")


def make_optimizer(optim, net):
    if optim == "sgd":
        return torch.optim.SGD(net.parameters(), lr=0.01)
    return torch.optim.AdamW(net.parameters(), lr=1e-3)


class PlainLoop:
    """The loop without any framework, metrics or logs, which trains some steps at a time."""

    def __init__(self, batches, optim):
        self.net = make_net()
        self.optimizer = make_optimizer(optim, self.net)
        self.net.train()
        self.batches = itertools.cycle(batches)

    @torch.enable_grad()
    def train(self, steps):
        """Returns the seconds per step."""
        begin = time.perf_counter()
        for inputs, target in itertools.islice(self.batches, steps):
            self.optimizer.zero_grad()
            loss = cross_entropy(self.net(inputs), target)
            loss.backward()
            self.optimizer.step()
        self.loss = loss
        return (time.perf_counter() - begin) / steps


class Feed:
    """The batches in order, repeated. Before each block of steps it trains as many by the plain loop."""

    batch_size = batch_size
    sampler = batch_sampler = None
    num_workers = 0

    def __init__(self, batches, plain_loop, blocks):
        self.batches, self.plain_loop, self.blocks = batches, plain_loop, blocks
        self.dataset = range(batch_size * len(self))
        self.seconds, self.plain_seconds = [], []  # per step, by blocks

    def __len__(self):
        return self.blocks * log_interval

    def __iter__(self):
        for block in range(self.blocks):
            self.plain_seconds.append(self.plain_loop.train(log_interval))
            begin = time.perf_counter()
            for step in range(block * log_interval, (block + 1) * log_interval):
                yield self.batches[step % num_batches]
            self.seconds.append((time.perf_counter() - begin) / log_interval)


class FeedDataset(torch.utils.data.IterableDataset):
    def __init__(self, feed):
        self.feed = feed

    def __iter__(self):
        return iter(self.feed)

    def __len__(self):
        return len(self.feed)


def loader(feed):
    return torch.utils.data.DataLoader(FeedDataset(feed), batch_size=None)


class Work:
    """The work of a loop; `folder` is for its files."""

    def __init__(self, feed, mode, optim, folder):
        self.feed = feed
        self.logged = {"bare": False, "logged": True}[mode]
        self.optim = optim
        self.folder = str(folder)

    def make_optimizer(self, net):
        return make_optimizer(self.optim, net)


def plain(work):
    """A loop without a framework; logged: with tqdm, TensorBoard and torchmetrics, as one adds them by hand."""
    if not work.logged:
        net = make_net()
        optimizer = work.make_optimizer(net)
        net.train()
        for inputs, target in work.feed:
            optimizer.zero_grad()
            loss = cross_entropy(net(inputs), target)
            loss.backward()
            optimizer.step()
        return loss, None
    from torch.utils.tensorboard import SummaryWriter
    from tqdm import tqdm

    writer, accuracy = SummaryWriter(work.folder), make_accuracy()
    net = make_net()
    optimizer = work.make_optimizer(net)
    net.train()
    for step, (inputs, target) in enumerate(tqdm(work.feed)):
        optimizer.zero_grad()
        prediction = net(inputs)
        loss = cross_entropy(prediction, target)
        loss.backward()
        optimizer.step()
        accuracy.update(prediction, target)
        if step % log_interval == 0:
            writer.add_scalar("loss", loss.item(), step)
    writer.close()
    return loss, accuracy.compute()


def lightning(work):
    import lightning
    from lightning.pytorch.loggers import CSVLogger

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make_net()
            self.accuracy = make_accuracy()

        def training_step(self, batch, _):
            inputs, target = batch
            prediction = self.net(inputs)
            loss = cross_entropy(prediction, target)
            if work.logged:
                self.log("loss", loss, prog_bar=True)
                self.accuracy(prediction, target)
                self.log("acc", self.accuracy)
            self.last = loss
            return loss

        def on_train_epoch_end(self):
            self.total = self.accuracy.compute() if work.logged else None

        def configure_optimizers(self):
            return work.make_optimizer(self.net)

    module = Module()
    options = {"logger": CSVLogger(work.folder)} if work.logged else {
        "logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
    lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, log_every_n_steps=log_interval,
                      default_root_dir=work.folder, **options).fit(module, work.feed)
    return module.last, module.total


def fabric(work):
    from lightning.fabric import Fabric
    from lightning.fabric.loggers import CSVLogger
    from tqdm import tqdm

    run = Fabric(accelerator="cpu", devices=1, loggers=[CSVLogger(work.folder)] if work.logged else [])
    run.launch()
    accuracy = make_accuracy()
    net = make_net()
    net, optimizer = run.setup(net, work.make_optimizer(net))
    net.train()
    batches = run.setup_dataloaders(loader(work.feed))
    for step, (inputs, target) in enumerate(tqdm(batches) if work.logged else batches):
        optimizer.zero_grad()
        prediction = net(inputs)
        loss = cross_entropy(prediction, target)
        run.backward(loss)
        optimizer.step()
        if work.logged:
            accuracy.update(prediction, target)
            if step % log_interval == 0:
                run.log("loss", loss, step)
    return loss, accuracy.compute() if work.logged else None


def accelerate(work):
    from accelerate import Accelerator
    from accelerate.utils import tqdm

    options = {"log_with": "tensorboard", "project_dir": work.folder} if work.logged else {}
    run = Accelerator(cpu=True, **options)
    if work.logged:
        run.init_trackers("bench")
    accuracy = make_accuracy()
    net = make_net()
    net, optimizer, batches = run.prepare(net, work.make_optimizer(net), loader(work.feed))
    net.train()
    for step, (inputs, target) in enumerate(tqdm(batches) if work.logged else batches):
        with run.accumulate(net):
            optimizer.zero_grad()
            prediction = net(inputs)
            loss = cross_entropy(prediction, target)
            run.backward(loss)
            optimizer.step()
        if work.logged:
            accuracy.update(prediction, target)
            if step % log_interval == 0:
                run.log({"loss": loss.item()}, step=step)
    if work.logged:
        run.end_training()
    return loss, accuracy.compute() if work.logged else None


def ignite(work):
    from ignite.engine import Engine, Events
    from ignite.handlers.tensorboard_logger import TensorboardLogger
    from ignite.handlers.tqdm_logger import ProgressBar
    from ignite.metrics import Accuracy, RunningAverage

    net = make_net()
    optimizer = work.make_optimizer(net)
    net.train()

    def step(_, batch):
        inputs, target = batch
        optimizer.zero_grad()
        prediction = net(inputs)
        loss = cross_entropy(prediction, target)
        loss.backward()
        optimizer.step()
        return (prediction, target, loss.item()) if work.logged else loss

    engine = Engine(step)
    if not work.logged:
        engine.run(work.feed, max_epochs=1)
        return engine.state.output, None
    Accuracy(output_transform=lambda output: output[:2]).attach(engine, "acc")
    RunningAverage(output_transform=lambda output: output[2]).attach(engine, "loss")
    ProgressBar().attach(engine, ["loss"])
    logger = TensorboardLogger(log_dir=work.folder)
    logger.attach_output_handler(engine, event_name=Events.ITERATION_COMPLETED(every=log_interval), tag="train",
                                 output_transform=lambda output: {"loss": output[2]})
    engine.run(work.feed, max_epochs=1)
    logger.close()
    return engine.state.output[2], engine.state.metrics["acc"]


def hf_trainer(work):
    """Its default of clipping gradients to the norm 1 is off, since the other loops do not clip."""
    from transformers import PrinterCallback, Trainer, TrainingArguments

    accuracy = make_accuracy()

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make_net()

        def forward(self, inputs, labels=None):
            prediction = self.net(inputs)
            self.last = cross_entropy(prediction, labels)
            if work.logged:
                accuracy.update(prediction, labels)
            return {"loss": self.last, "logits": prediction}

    class Fed(Trainer):
        def get_train_dataloader(self):
            return self.accelerator.prepare(loader(work.feed))

    work.feed.batches = [{"inputs": inputs, "labels": target} for inputs, target in work.feed.batches]
    module = Module()
    logs = {"logging_steps": log_interval, "report_to": ["tensorboard"]} if work.logged else {
        "logging_strategy": "no", "report_to": [], "disable_tqdm": True}
    arguments = TrainingArguments(
        output_dir=work.folder, max_steps=len(work.feed), per_device_train_batch_size=batch_size, use_cpu=True,
        max_grad_norm=0.0, save_strategy="no", lr_scheduler_type="constant", dataloader_pin_memory=False, **logs)
    optimizer = work.make_optimizer(module)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = Fed(model=module, args=arguments, train_dataset=FeedDataset(work.feed), optimizers=(optimizer, constant))
    if not work.logged:
        trainer.remove_callback(PrinterCallback)
    trainer.train()
    return module.last, accuracy.compute() if work.logged else None


def torchtnt(work, make_unit):
    from torchtnt.framework.callbacks import TQDMProgressBar
    from torchtnt.framework.train import train
    from torchtnt.utils.loggers import TensorBoardLogger

    unit = make_unit()
    if work.logged:
        unit.accuracy, unit.logger = make_accuracy(), TensorBoardLogger(work.folder)
    train(unit, work.feed, max_epochs=1, callbacks=[TQDMProgressBar()] if work.logged else [])
    return unit.last, unit.accuracy.compute() if work.logged else None


def torchtnt_unit(work):
    from torchtnt.framework.unit import TrainUnit

    class Unit(TrainUnit):
        def __init__(self):
            super().__init__()
            self.net = make_net()
            self.optimizer = work.make_optimizer(self.net)

        def train_step(self, state, batch):
            inputs, target = batch
            self.optimizer.zero_grad()
            prediction = self.net(inputs)
            loss = self.last = cross_entropy(prediction, target)
            loss.backward()
            self.optimizer.step()
            if work.logged:
                self.accuracy.update(prediction, target)
                step = self.train_progress.num_steps_completed
                if step % log_interval == 0:
                    self.logger.log("loss", loss.item(), step)
            return loss

    return torchtnt(work, Unit)


def torchtnt_auto_unit(work):
    from torchtnt.framework.auto_unit import AutoUnit

    class Unit(AutoUnit):
        def compute_loss(self, state, batch):
            inputs, target = batch
            prediction = self.module(inputs)
            self.last = cross_entropy(prediction, target)
            return self.last, prediction

        def configure_optimizers_and_lr_scheduler(self, module):
            return work.make_optimizer(module), None

        def on_train_step_end(self, state, batch, step, results):
            if work.logged:
                self.accuracy.update(results.outputs, batch[1])
                if step % log_interval == 0:
                    self.logger.log("loss", results.loss.item(), step)

    return torchtnt(work, lambda: Unit(module=make_net(), device=torch.device("cpu")))


def composer(work):
    from composer import Trainer
    from composer.loggers import TensorboardLogger
    from composer.models import ComposerModel

    class Module(ComposerModel):
        def __init__(self):
            super().__init__()
            self.net = make_net()
            self.accuracy = make_accuracy()

        def forward(self, batch):
            return self.net(batch[0])

        def loss(self, outputs, batch):
            self.last = cross_entropy(outputs, batch[1])
            return self.last

        def get_metrics(self, is_train):
            return {"acc": self.accuracy} if work.logged else {}

        def update_metric(self, batch, outputs, metric):
            metric.update(outputs, batch[1])

    # Composer copies each batch together with the memory that it is a part of.
    work.feed.batches = [(inputs.clone(), target.clone()) for inputs, target in work.feed.batches]
    module = Module()
    loggers = [TensorboardLogger(log_dir=work.folder, flush_interval=log_interval)] if work.logged else []
    trainer = Trainer(model=module, train_dataloader=work.feed, max_duration="1ep",
                      optimizers=work.make_optimizer(module), device="cpu", run_name="bench", seed=0,
                      progress_bar=work.logged, loggers=loggers)
    trainer.fit()
    trainer.close()
    return module.last, None  # Composer clears the accuracy before each step


def danling(work):
    import danling
    from danling.metrics.functional import multiclass_accuracy

    config = danling.RunnerConfig()
    config.epochs = 1
    config.logging.enabled = config.tensorboard.enabled = config.ckpt.enabled = work.logged
    config.logging.interval = log_interval if work.logged else 10**9
    config.workspace.root = work.folder
    config.train_splits, config.evaluate_splits = ["train"], []

    class Runner(danling.TorchRunner):
        def __init__(self, config):
            super().__init__(config)
            self.model = make_net()
            self.criterion = nn.CrossEntropyLoss()
            self.optimizer = work.make_optimizer(self.model)
            self.dataloaders["train"] = work.feed
            if work.logged:
                accuracy = multiclass_accuracy(num_classes=10, average="micro")
                self.train_metrics = danling.metrics.multiclass_metrics(10, "micro", accuracy, mode="stream")

        def train_step(self, batch):
            output = super().train_step(batch)
            self.last = output[1]
            return output

    runner = Runner(config)
    runner.train()
    accuracy = next(iter(dict(runner.train_metrics.average()).values())) if work.logged else None
    runner.close()
    return runner.last, accuracy


class EmptyPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports torchvision and mcli as packages of empty classes: Composer imports both but the benchmark uses neither."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torchvision", "mcli"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        class Module(type(os)):
            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return type(name, (), {})

        return Module(spec.name)

    def exec_module(self, module):
        module.__version__ = "0"
