"""Writes topology.json: coordinates, domain ranks and errors of PyPI danling 0.4.8's ParallelTopology.

Usage: python topology.py topology.json
"""

import json
import sys

from danling.runners.topology import ParallelTopology

NAMES = ("replicate", "shard", "context", "pipeline", "tensor", "expert", "expert_tensor")
DOMAINS = {
    "data": ("replicate", "shard"),
    "loss": ("replicate", "shard", "context"),
    "mixed": ("tensor", "replicate"),
    "optimizer": NAMES,
}
LAYOUTS = [
    (1, (1, 1, 1, 1, 1, 1, 1)),
    (4, (2, 2, 1, 1, 1, 1, 1)),
    (4, (1, -1, 1, 1, 1, 1, 1)),
    (8, (2, 1, 1, 2, 2, 1, 1)),
    (12, (3, -1, 1, 1, 2, 1, 1)),
    (24, (2, 3, 1, 2, 2, 1, 1)),
    (16, (1, 2, 2, 1, 2, 2, 1)),
]
WRONG = [(4, (3, 1, 1, 1, 1, 1, 1)), (4, (3, -1, 1, 1, 1, 1, 1)), (4, (-1, -1, 1, 1, 1, 1, 1)), (4, (0, 4, 1, 1, 1, 1, 1)),
         (4, (-2, 4, 1, 1, 1, 1, 1)), (2, (4, -1, 1, 1, 1, 1, 1))]


def case(world_size, degrees):
    axes = dict(zip(NAMES, degrees))
    ranks = []
    for rank in range(world_size):
        topology = ParallelTopology(world_size=world_size, rank=rank, axes=axes, domains=DOMAINS)
        ranks.append({"coordinates": dict(topology.ranks), "rank": topology.rank_from_coordinates(topology.ranks),
                      "domains": {name: topology.domain_rank(name) for name in topology.domains}})
    return {"world_size": world_size, "axes": list(degrees), "degrees": list(topology.axes.values()), "ranks": ranks,
            "domain_degrees": {name: topology.domain_degree(name) for name in topology.domains}}


def refused(world_size, degrees):
    try:
        ParallelTopology(world_size=world_size, rank=0, axes=dict(zip(NAMES, degrees)))
    except ValueError:
        return {"world_size": world_size, "axes": list(degrees)}
    raise AssertionError(f"{degrees} is accepted")


with open(sys.argv[1], "w") as out:
    json.dump({"names": NAMES, "domains": DOMAINS, "layouts": [case(*layout) for layout in LAYOUTS],
               "refused": [refused(*layout) for layout in WRONG]}, out, separators=(",", ":"))
    out.write("\n")
