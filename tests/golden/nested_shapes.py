"""Golden values of NestedTensor's construction, masks, indices and shapes, for tests/nested/golden_shapes.cpp.

    python tests/golden/nested_shapes.py            writes tests/golden/data/nested_shapes.json
    python tests/golden/nested_shapes.py --check    fails when the file is not what this would write

Each case is a batch of tensors that count up from 0 with a stride of the element's number, and the name of an operation that
the test repeats. DanLing's result is written as its elements, or as one tensor.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from danling.tensors import NestedTensor

OUTPUT = Path(__file__).parent / "data" / "nested_shapes.json"
BATCHES = {
    "lists": [(3,), (0,), (5,)],
    "tokens": [(3, 4), (1, 4), (5, 4)],
    "channels": [(4, 3), (4, 1), (4, 5)],
    "images": [(3, 4, 2), (2, 2, 2), (1, 3, 2)],
    "same": [(3, 4), (3, 4)],
    "one": [(4, 2)],
}
RANK_2 = ("tokens", "channels", "same", "one")
OPERATIONS = {
    "tensor": (lambda x: x.tensor, BATCHES),
    "mask": (lambda x: x.mask, BATCHES),
    "concat": (lambda x: x.concat, BATCHES),
    "first": (lambda x: x[0], BATCHES),
    "last": (lambda x: x[-1], BATCHES),
    "batch_slice": (lambda x: x[:2], BATCHES),
    "batch_step": (lambda x: x[::2], BATCHES),
    "batch_list": (lambda x: x[[len(x) - 1, 0]], BATCHES),
    "batch_tensor": (lambda x: x[torch.tensor([0, 0])], BATCHES),
    "slice_from": (lambda x: x[:, 1:], BATCHES),
    "slice_to": (lambda x: x[:, :-1], BATCHES),
    "slice_last": (lambda x: x[:, -2:], BATCHES),
    "slice_step": (lambda x: x[:, ::2], BATCHES),
    "slice_both": (lambda x: x[:, 1:, :2], RANK_2),
    "slice_ellipsis": (lambda x: x[..., :2], RANK_2),
    "position_last": (lambda x: x[..., 0], ("tokens", "images")),
    "new_dim": (lambda x: x[:, None], RANK_2),
    "mask_values": (lambda x: x[x > 3], ("lists", "tokens", "images")),
    "mask_padded": (lambda x: x[x.tensor > 3], ("tokens",)),
    "transpose": (lambda x: x.transpose(1, 2), (*RANK_2, "images")),
    "permute": (lambda x: x.permute(0, 3, 1, 2), ("images",)),
    "permute_ragged": (lambda x: x.permute(0, 2, 1, 3), ("images",)),
    "mT": (lambda x: x.mT, (*RANK_2, "images")),
    "unsqueeze_1": (lambda x: x.unsqueeze(1), BATCHES),
    "unsqueeze_last": (lambda x: x.unsqueeze(-1), BATCHES),
    "squeeze": (lambda x: x.unsqueeze(2).squeeze(2), RANK_2),
    "unflatten": (lambda x: x.unflatten(2, (2, 2)), ("tokens",)),
    "view": (lambda x: x.view(len(x), -1, 2, 2), ("tokens",)),
    "reshape": (lambda x: x.reshape(len(x), -1), ("tokens", "images")),
    "flatten": (lambda x: x.flatten(1), ("tokens", "images")),
    "flip_1": (lambda x: x.flip([1]), BATCHES),
    "flip_last": (lambda x: x.flip([-1]), BATCHES),
    "roll_1": (lambda x: x.roll(1, 1), BATCHES),
    "roll_last": (lambda x: x.roll(-2, x.dim() - 1), BATCHES),
    "rot90": (lambda x: torch.rot90(x, 1, (1, 2)), (*RANK_2, "images")),
    "cat_0": (lambda x: torch.cat([x, x], 0), BATCHES),
    "cat_1": (lambda x: torch.cat([x, x], 1), BATCHES),
    "cat_last": (lambda x: torch.cat([x, x], -1), ("tokens", "channels", "images")),
    "stack_1": (lambda x: torch.stack([x, x], 1), BATCHES),
    "stack_2": (lambda x: torch.stack([x, x], 2), RANK_2),
    "hstack": (lambda x: torch.hstack([x, x]), RANK_2),
    "narrow": (lambda x: x.narrow(1, 0, 1), ("tokens", "channels", "images")),
    "pad_last": (lambda x: F.pad(x, (1, 2), value=9), BATCHES),
    "pad_two": (lambda x: F.pad(x, (0, 1, 2, 0), value=9), RANK_2),
    "chunk_1": (lambda x: torch.chunk(x, 2, 1)[0], ("channels", "same", "one")),
    "chunk_last": (lambda x: torch.chunk(x, 2, -1)[1], ("tokens", "images")),
    "expand": (lambda x: x.unsqueeze(2).expand(-1, -1, 3, -1), ("tokens",)),
    "diff_last": (lambda x: torch.diff(x, dim=-1), ("tokens", "images")),
    "nested_like": (lambda x: x.nested_like(x.tensor + 1), BATCHES),
    "from_mask": (lambda x: NestedTensor.from_tensor_mask(x.tensor, x.mask), ("lists", "tokens", "images", "same")),
    "sequence_first": (lambda x: NestedTensor(list(x), batch_first=False).tensor, BATCHES),
    "sequence_first_mask": (lambda x: NestedTensor(list(x), batch_first=False).mask, BATCHES),
    "padding": (lambda x: NestedTensor(list(x), padding_value=-1).tensor, BATCHES),
    "mask_value": (lambda x: NestedTensor(list(x), mask_value=True).mask, BATCHES),
}


def make_batch(shapes):
    elements = []
    for number, shape in enumerate(shapes):
        size = torch.Size(shape).numel()
        elements.append((torch.arange(size) * (number + 1)).view(shape).float())
    return NestedTensor(elements)


def describe(tensor):
    tensor = tensor.int() if tensor.dtype == torch.bool else tensor
    return {"shape": list(tensor.shape), "values": tensor.flatten().tolist()}


def make_cases():
    cases = []
    for name, (operation, batches) in OPERATIONS.items():
        for batch in batches:
            result = operation(make_batch(BATCHES[batch]))
            case = {"operation": name, "batch": batch}
            if isinstance(result, NestedTensor):
                case["elements"] = [describe(element) for element in result]
            else:
                case["tensor"] = describe(result)
            cases.append(case)
    return cases


def main():
    cases = make_cases()
    shapes = {name: [list(shape) for shape in batch] for name, batch in BATCHES.items()}
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = f'{{"batches": {json.dumps(shapes)},\n"cases": [\n{lines}\n]}}\n'
    if "--check" in sys.argv:
        if OUTPUT.read_text() != text:
            sys.exit(f"{OUTPUT} is not what nested_shapes.py writes")
    else:
        OUTPUT.write_text(text)
        print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
