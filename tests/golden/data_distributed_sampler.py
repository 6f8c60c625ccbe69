"""Writes data/distributed_sampler.txt: what torch's DistributedSampler gives each rank, for tests/data/samplers.cpp.

A line: records, processes, drop_last, rank, then the indices. Run with torch installed.
"""

import pathlib

from torch.utils.data.distributed import DistributedSampler

lines = []
for size in (1, 2, 3, 4, 5, 7, 10, 16, 29, 64):
    for world_size in (1, 2, 3, 4, 5, 6, 7):
        for drop_last in (False, True):
            for rank in range(world_size):
                sampler = DistributedSampler(range(size), world_size, rank, shuffle=False, drop_last=drop_last)
                lines.append(" ".join(map(str, [size, world_size, int(drop_last), rank, *sampler])))
path = pathlib.Path(__file__).parent / "data" / "distributed_sampler.txt"
path.write_text("\n".join(lines) + "\n")
