"""The Python programs of bench/end_to_end.cpp: one epoch of images, from the start of the process to a checkpoint.

Usage: end_to_end_peers.py plain|gather|lightning|danling DATA FOLDER

Writes checkpoints and `result.txt` to FOLDER: the end of the first step in seconds of the monotonic clock, steps,
samples, and the loss of the trained net on the first 1,000 images. Exits with 77 without the framework.
"""

import pathlib
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy
except ModuleNotFoundError as error:
    print(error)
    sys.exit(77)

batch_size = 64
name, data, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])


def read_bytes(path, header):
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8, offset=header)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, pixels):
        return self.layers(pixels.float().div_(255).sub_(0.1307).div_(0.3081))


class Count:
    """Steps, samples, and the end of the first step."""

    first_step = steps = samples = 0

    def add(self, target):
        self.steps += 1
        self.samples += len(target)
        self.first_step = self.first_step or time.monotonic()


def make_loader(images, labels):
    dataset = torch.utils.data.TensorDataset(images, labels)
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, shuffle=True)


def make_optimizer(net):
    return torch.optim.AdamW(net.parameters(), lr=1e-3)


def train_plain(net, batches, count):
    optimizer = make_optimizer(net)
    for inputs, target in batches:
        optimizer.zero_grad()
        cross_entropy(net(inputs), target).backward()
        optimizer.step()
        count.add(target)
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, folder / "checkpoint.pt")


def plain(net, images, labels, count):
    train_plain(net, make_loader(images, labels), count)


def gather(net, images, labels, count):
    order = torch.randperm(len(images)).split(batch_size)
    train_plain(net, ((images[rows], labels[rows]) for rows in order), count)


def lightning(net, images, labels, count):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch, _):
            inputs, target = batch
            loss = cross_entropy(self.net(inputs), target)
            self.log("loss", loss, prog_bar=True)
            return loss

        def on_train_batch_end(self, outputs, batch, _):
            count.add(batch[1])

        def configure_optimizers(self):
            return make_optimizer(self.net)

    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, default_root_dir=folder)
    trainer.fit(Module(), make_loader(images, labels))


def danling(net, images, labels, count):
    import danling

    config = danling.RunnerConfig()
    config.epochs = 1
    config.workspace.root = str(folder)
    config.train_splits, config.evaluate_splits = ["train"], []

    class Runner(danling.TorchRunner):
        def __init__(self, config):
            super().__init__(config)
            self.model = net
            self.criterion = nn.CrossEntropyLoss()
            self.optimizer = make_optimizer(net)
            self.dataloaders["train"] = make_loader(images, labels)

        def train_step(self, batch):
            output = super().train_step(batch)
            count.add(batch[1])
            return output

    runner = Runner(config)
    runner.train()
    runner.close()


def main():
    torch.manual_seed(1)
    images = read_bytes(data / "train-images-idx3-ubyte", 16).view(-1, 784)
    labels = read_bytes(data / "train-labels-idx1-ubyte", 8).long()
    net, count = Net(), Count()
    try:
        {"plain": plain, "gather": gather, "lightning": lightning, "danling": danling}[name](net, images, labels, count)
    except ModuleNotFoundError as error:
        print(error)
        sys.exit(77)
    with torch.no_grad():
        loss = cross_entropy(net(images[:1000]), labels[:1000]).item()
    (folder / "result.txt").write_text(f"{count.first_step} {count.steps} {count.samples} {loss}\n")


main()
