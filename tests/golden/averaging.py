"""Writes averaging.json: what torch.optim.swa_utils computes, for tests/optim and tests/runner.

Run with torch installed: python tests/golden/averaging.py
"""

import json
import pathlib

import torch
from torch.optim.lr_scheduler import StepLR
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

STEPS = 8


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().double().flatten().tolist()]


def state(module):
    return {name: numbers(tensor) for name, tensor in module.state_dict().items()}


def warm_up(decay, warmup):
    """TensorFlow's and Diffusers' rule for a young average."""

    @torch.no_grad()
    def update(averages, values, averaged):
        n = int(averaged)
        torch._foreach_lerp_(averages, values, 1 - min(decay, (1 + n) / (warmup + n)))

    return update


def layers():
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def averages():
    """The averages of weights that move at random, after each of them."""
    generator = torch.Generator().manual_seed(1)
    path = []
    for step in range(STEPS):
        values = {}
        for name, tensor in layers().state_dict().items():
            number = name.endswith("num_batches_tracked")
            values[name] = torch.tensor(step + 1) if number else torch.randn(tensor.shape, generator=generator)
        path.append(values)
    cases = {
        "ema": dict(multi_avg_fn=get_ema_multi_avg_fn(0.9)),
        "ema_buffers": dict(multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True),
        "ema_warmup": dict(multi_avg_fn=warm_up(0.5, 10)),
        "swa": dict(),
    }
    out = {"path": [{name: numbers(value) for name, value in values.items()} for values in path]}
    for case, options in cases.items():
        model = layers()
        averaged = AveragedModel(model, **options)
        out[case] = []
        for values in path:
            model.load_state_dict(values)
            averaged.update_parameters(model)
            out[case].append(state(averaged.module))
    return out


def rates():
    """The recipe of torch's documentation: a schedule, then SWALR."""
    out = {}
    for name, anneal, strategy in [("cos", 4, "cos"), ("linear", 3, "linear"), ("at_once", 0, "cos")]:
        parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
        optimizer = torch.optim.SGD([{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:], "lr": 0.01}])
        schedule = StepLR(optimizer, step_size=2, gamma=0.5)
        swa = None
        seen = []
        for epoch in range(10):
            seen.append([group["lr"] for group in optimizer.param_groups])
            optimizer.step()
            if swa is None:
                schedule.step()
                if epoch == 2:
                    swa = SWALR(optimizer, swa_lr=0.05, anneal_epochs=anneal, anneal_strategy=strategy)
            else:
                swa.step()
        out[name] = seen
    return out


def statistics():
    generator = torch.Generator().manual_seed(2)
    batches = [torch.randn(size, 3, generator=generator) for size in (4, 4, 3)]
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    update_bn(batches, model)
    return {"batches": [numbers(batch) for batch in batches], "state": state(model)}


def run():
    """A run of six epochs with both averages, each evaluated after every epoch."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(12, 3, generator=generator)
    targets = inputs.sum(1, keepdim=True).sin() + 0.1 * torch.randn(12, 1, generator=generator)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    out = {"inputs": numbers(inputs), "targets": numbers(targets), "initial": state(model), "rows": []}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = StepLR(optimizer, step_size=2, gamma=0.5)
    ema = AveragedModel(model, multi_avg_fn=warm_up(0.9, 10))
    swa = AveragedModel(model)
    swa_schedule = None
    mse = torch.nn.functional.mse_loss
    batches = [(inputs[i : i + 4], targets[i : i + 4]) for i in range(0, 12, 4)]

    def loss_of(module):
        module.eval()
        with torch.no_grad():
            loss = mse(module(inputs), targets).item()
        module.train()
        return loss

    for epoch in range(6):
        rate = optimizer.param_groups[0]["lr"]
        for x, y in batches:
            optimizer.zero_grad()
            mse(model(x), y).backward()
            optimizer.step()
            ema.update_parameters(model)
        if epoch + 1 > 3:
            swa.update_parameters(model)
            update_bn(batches, swa)
            swa_schedule.step()
        else:
            schedule.step()
            if epoch + 1 == 3:
                swa_schedule = SWALR(optimizer, swa_lr=0.03, anneal_epochs=2)
        row = {"lr": rate, "model": loss_of(model), "ema": loss_of(ema)}
        if epoch + 1 > 3:
            row["swa"] = loss_of(swa)
        out["rows"].append(row)
    return out | {"model": state(model), "ema": state(ema.module), "swa": state(swa.module)}


if __name__ == "__main__":
    document = {"averages": averages(), "rates": rates(), "statistics": statistics(), "run": run()}
    path = pathlib.Path(__file__).with_name("averaging.json")
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
