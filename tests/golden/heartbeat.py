"""Writes the heartbeat file of DanLing's RunnerSupervisor for a runner with given numbers.

Usage: heartbeat.py DIRECTORY    writes DIRECTORY/heartbeats/rank-00003.json; exits with 77 without danling
"""

import sys
from enum import Enum
from types import SimpleNamespace

try:
    from danling.runners.supervisor import RunnerSupervisor
except ImportError:
    sys.exit(77)


class Mode(Enum):
    train = "train"


class Runner(SimpleNamespace):
    def get(self, key):
        return {"enabled": True, "interval_seconds": 1000.0} if key == "heartbeat" else None


runner = Runner(
    workspace=SimpleNamespace(dir=sys.argv[1]),
    id="abc",
    name="lin-exp",
    rank=3,
    local_rank=1,
    world_size=4,
    mode=Mode.train,
    split="train",
    train_state=SimpleNamespace(global_step=30, micro_step=60, epoch=2),
    elastic_state=SimpleNamespace(restart_count=1),
    steps=120,
    epochs=8,
    progress=0.25,
)
runner.config = runner
supervisor = RunnerSupervisor(runner)
supervisor.init_heartbeat()
supervisor.stop_heartbeat(status="closed", event="shutdown")
