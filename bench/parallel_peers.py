"""The Python side of bench/parallel.cpp: one rank of FSDP2 or DistributedDataParallel, which trains on command.

Arguments: a JSON object with `folder`, `batch_size`, `optim` (adamw or sgd), `lr`, `kind` (fsdp2, ddp or none), and for
fsdp2 `units` (whether each Linear is a unit) and `reshard`. Rank and world size are in the environment.

Answers `ok` when it is ready, then each line of the standard input, a number of steps, with
`ok <seconds> <seconds of CPU time> <bytes written> <voluntary switches> <loss of the last step>`.
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
from torch.nn import Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy

num_samples = 3840


def build(folder):
    model = Sequential(Linear(784, 1024), ReLU(), Linear(1024, 1024), ReLU(), Linear(1024, 10))
    params = list(model.parameters())
    weights = torch.from_file(f"{folder}/weights", size=sum(p.numel() for p in params), dtype=torch.float32)
    with torch.no_grad():
        for param, values in zip(params, weights.split([p.numel() for p in params])):
            param.copy_(values.view_as(param))
    inputs = torch.from_file(f"{folder}/input", size=num_samples * 784, dtype=torch.float32).view(num_samples, 784)
    return model, inputs, torch.from_file(f"{folder}/target", size=num_samples, dtype=torch.int64)


def shard(model, work):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    options = {"mesh": init_device_mesh("cpu", (torch.distributed.get_world_size(),))}
    options["reshard_after_forward"] = work["reshard"]
    if work["units"]:
        for module in model:
            if isinstance(module, Linear):
                fully_shard(module, **options)
    return fully_shard(model, **options)


def written_bytes():
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("wchar"))


def main():
    work = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    model, inputs, targets = build(work["folder"])
    rank, world_size = 0, 1
    if work["kind"] != "none":
        torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if work["kind"] == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(
            model, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True
        )
    elif work["kind"] == "fsdp2":
        model = shard(model, work)
    model.train()
    kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[work["optim"]]
    # FSDP2's parameters are distributed tensors, which AdamW's fused kernel takes and SGD's does not.
    fast = {"foreach": True} if work["kind"] == "fsdp2" and kind is torch.optim.SGD else {"fused": True}
    optimizer = kind(model.parameters(), lr=work["lr"], weight_decay=0.01, **fast)
    size = work["batch_size"]
    starts = range(rank * size, num_samples, world_size * size)
    batches = [(inputs[start : start + size], targets[start : start + size]) for start in starts]
    print("ok", flush=True)
    step = 0
    for line in sys.stdin:
        written, used, begin = written_bytes(), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        for _ in range(int(line)):
            batch, target = batches[step % len(batches)]
            step += 1
            optimizer.zero_grad(set_to_none=True)
            loss = cross_entropy(model(batch), target)
            loss.backward()
            optimizer.step()
        wall = time.perf_counter() - begin
        now = resource.getrusage(resource.RUSAGE_SELF)
        cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        print("ok", wall, cpu, written_bytes() - written, now.ru_nvcsw - used.ru_nvcsw, loss.item(), flush=True)
    sys.stdout.flush()
    os._exit(0)


main()
