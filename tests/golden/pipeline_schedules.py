"""Writes pipeline_schedules.json: the actions of PyTorch's pipeline schedules (torch.distributed.pipelining).

Usage: python pipeline_schedules.py pipeline_schedules.json
"""

import json
import sys

from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.stage import _PipelineStageBase

CASES = [
    ("GPipe", [(1, 1, 3), (2, 1, 4), (4, 1, 2), (4, 1, 8)]),
    ("1F1B", [(1, 1, 3), (2, 1, 4), (3, 1, 7), (4, 1, 4), (4, 1, 8)]),
    ("LoopedBFS", [(2, 2, 3), (3, 2, 4), (4, 3, 8)]),
    ("Interleaved1F1B", [(2, 2, 4), (2, 3, 6), (4, 2, 8), (4, 2, 3), (4, 2, 10), (3, 2, 3), (4, 4, 12)]),
    ("InterleavedZeroBubble", [(2, 1, 4), (4, 1, 8), (2, 2, 4), (4, 2, 8), (4, 2, 3), (4, 2, 10), (3, 3, 9)]),
    ("ZBVZeroBubble", [(1, 2, 3), (2, 2, 4), (3, 2, 3), (4, 2, 8), (4, 2, 1), (4, 2, 16)]),
]
REFUSED = [("Interleaved1F1B", 4, 2, 11), ("InterleavedZeroBubble", 2, 2, 5), ("ZBVZeroBubble", 2, 3, 4),
           ("ZBVZeroBubble", 2, 1, 4)]


class Stage(_PipelineStageBase):
    """The members of a stage that a schedule reads for its order of actions."""

    def __init__(self, index, ranks, stages):
        self.stage_index, self.group_size, self.num_stages, self.group_rank = index, ranks, stages, 0
        self.has_backward = True
        self.group = None
        self.submod = None
        self.stage_index_to_group_rank = {stage: stage % ranks for stage in range(stages)}

    def _create_grad_recv_info(self, *args, **kwargs):
        raise NotImplementedError

    def _prepare_forward_infra(self, *args, **kwargs):
        raise NotImplementedError

    def _prepare_backward_infra(self, *args, **kwargs):
        raise NotImplementedError


def order_of(name, ranks, local, micro_batches):
    kind = schedules.get_schedule_class(name)
    stages = [Stage(index * ranks, ranks, ranks * local) for index in range(local)]
    if issubclass(kind, schedules.PipelineScheduleSingle):
        order = kind(stages[0], micro_batches)._get_pipeline_order()
    else:
        order = kind(stages, micro_batches, loss_fn=lambda output, target: output).pipeline_order
    kept = ("F", "B", "I", "W")
    orders = [[action for action in order[rank] if action is not None and action.computation_type.value in kept]
              for rank in range(ranks)]
    if name == "1F1B":  # what PyTorch prints for the last rank begins with micro-batch 1; what it runs begins with 0
        assert orders[-1][0].microbatch_index == 1
        orders[-1] = [action._replace(microbatch_index=action.microbatch_index - (action.computation_type.value == "F"))
                      for action in orders[-1]]
    return [[str(action) for action in actions] for actions in orders]


def refused(name, ranks, local, micro_batches):
    try:
        order_of(name, ranks, local, micro_batches)
    except ValueError:
        return {"name": name, "ranks": ranks, "stages_per_rank": local, "micro_batches": micro_batches}
    raise AssertionError(f"{name} {ranks} {local} {micro_batches} is accepted")


with open(sys.argv[1], "w") as out:
    json.dump({"orders": [{"name": name, "ranks": ranks, "stages_per_rank": local, "micro_batches": count,
                           "actions": [" ".join(actions) for actions in order_of(name, ranks, local, count)]}
                          for name, cases in CASES for ranks, local, count in cases],
               "refused": [refused(*case) for case in REFUSED]}, out, indent=0)
    out.write("\n")
