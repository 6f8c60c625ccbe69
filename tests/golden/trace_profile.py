#!/usr/bin/env python3
"""Profiles a small model by torch.profiler, for the test of `danling profile`.

Usage: trace_profile.py TRACE.json EXPECTED.json

Writes the trace, and key_averages() of the same run: what the command must compute from the trace alone.
"""

import json
import os
import sys

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # read when torch is imported

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule


def main(trace, expected):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(96, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options = {"record_shapes": True, "profile_memory": True, "with_flops": True}
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=3), **options) as profiler:
        for _ in range(5):
            with record_function("my.data"):
                images, labels = torch.randn(16, 3, 8, 8), torch.randint(10, (16,))
            with record_function("my.forward"):
                loss = torch.nn.functional.cross_entropy(model(images), labels) + torch.bmm(
                    torch.ones(2, 3, 4), torch.ones(2, 4, 5)
                ).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(trace)
    rows = [
        {
            "name": event.key,
            "self_us": event.self_cpu_time_total,
            "total_us": event.cpu_time_total,
            "count": event.count,
            "flops": event.flops,
            "self_bytes": event.self_cpu_memory_usage,
        }
        for event in profiler.key_averages()
        if event.key != "[memory]"
    ]
    with open(expected, "w", encoding="utf-8") as file:
        json.dump(rows, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
