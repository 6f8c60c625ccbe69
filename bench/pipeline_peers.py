"""The Python side of bench/pipeline.cpp: one rank of torch.distributed.pipelining, which trains on command.

Arguments: a JSON object with `folder`, `schedule`, `stages_per_rank`, `width`, `layers`, `micro_batches`,
`micro_batch_size` and `batches`. Rank and world size are in the environment.

Answers `ok` when it is ready, then each line of the standard input, a number of steps, with
`ok <seconds> <seconds of CPU time> <bytes written> <voluntary switches> <loss of the last step>`; after a negative
number the squares of this rank's gradients in place of the loss, which only the rank of the last stage has.
"""

import datetime
import json
import os
import resource
import sys
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
import torch.distributed
from torch.distributed import pipelining
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.nn import Linear, ReLU, Sequential
from torch.nn.functional import mse_loss


def build_stage(work, first, count):
    width = work["width"]
    size = width * width + width
    values = torch.from_file(f"{work['folder']}/weights", size=work["layers"] * size, dtype=torch.float32)
    layers = []
    for layer in range(first, first + count):
        linear = Linear(width, width)
        with torch.no_grad():
            linear.weight.copy_(values[layer * size :][: width * width].view(width, width))
            linear.bias.copy_(values[layer * size + width * width :][:width])
        layers += [linear, ReLU()]
    return Sequential(*layers)


def stages_of(work, rank, ranks):
    per_rank = work["stages_per_rank"]
    if work["schedule"] == "ZBVZeroBubble":
        return [rank, 2 * ranks - 1 - rank]
    return [rank + ranks * local for local in range(per_rank)]


def written_bytes():
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("wchar"))


def main():
    work = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    count = ranks * work["stages_per_rank"]
    indices = stages_of(work, rank, ranks)
    modules = [build_stage(work, index * (work["layers"] // count), work["layers"] // count) for index in indices]
    device = torch.device("cpu")
    stages = [pipelining.PipelineStage(module, index, count, device) for module, index in zip(modules, indices)]
    number = work["micro_batches"]
    kind = get_schedule_class(work["schedule"])
    schedule = kind(
        stages[0] if work["schedule"] in ("GPipe", "1F1B") else stages,
        n_microbatches=number,
        loss_fn=lambda output, target: mse_loss(output, target) / number,
        scale_grads=False,
    )
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01, fused=True)
    rows = number * work["micro_batch_size"]
    total = work["batches"] * rows * work["width"]
    inputs, targets = (
        torch.from_file(f"{work['folder']}/{name}", size=total, dtype=torch.float32)
        .view(work["batches"], rows, work["width"])
        .unbind(0)
        for name in ("input", "target")
    )
    first, last = 0 in indices, count - 1 in indices
    print("ok", flush=True)
    step = 0
    for line in sys.stdin:
        written, used, begin = written_bytes(), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        losses = []
        for _ in range(abs(int(line))):
            batch, target = inputs[step % len(inputs)], targets[step % len(targets)]
            step += 1
            optimizer.zero_grad(set_to_none=True)
            losses = []
            schedule.step(*([batch] if first else []), **({"target": target, "losses": losses} if last else {}))
            optimizer.step()
        wall = time.perf_counter() - begin
        now = resource.getrusage(resource.RUSAGE_SELF)
        cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        if int(line) > 0:
            value = sum(loss.item() for loss in losses)
        else:
            value = sum(parameter.grad.square().sum().item() for parameter in parameters)
        print("ok", wall, cpu, written_bytes() - written, now.ru_nvcsw - used.ru_nvcsw, value, flush=True)
    sys.stdout.flush()
    os._exit(0)


main()
