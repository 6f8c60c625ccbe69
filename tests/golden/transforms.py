"""Writes data/transforms.pth: images and what torchvision makes of them, for tests/transforms/golden.cpp.

Run with torch and torchvision installed: python tests/golden/transforms.py
"""

from pathlib import Path

import torch

try:  # torchvision's compiled part may be built for another torch; nothing here needs it
    import torchvision
except RuntimeError:
    library = torch.library.Library("torchvision", "DEF")
    for name in ["nms", "qnms"]:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

MODES = ["constant", "edge", "reflect", "symmetric"]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main():
    torch.manual_seed(6)
    images = torch.randint(0, 256, (3, 3, 7, 10), dtype=torch.uint8)
    floats = torch.randn(3, 3, 7, 10)
    out = {"bytes": images, "floats": floats, "shorts": torch.randint(-32768, 32767, (3, 1, 7, 10), dtype=torch.int16)}
    to_float = v2.ToDtype(torch.float32, scale=True)
    out["to_float_bytes"] = to_float(images)
    out["to_float_shorts"] = to_float(out["shorts"])
    out["normalize_bytes"] = v2.Normalize(MEAN, STD)(to_float(images))
    out["normalize_floats"] = v2.Normalize(MEAN, STD)(floats)
    out["normalize_half"] = v2.Normalize(MEAN, STD)(floats.half())
    for mode in MODES:
        out[f"pad_{mode}"] = v2.Pad((1, 2, 4, 3), padding_mode=mode)(images)
        # Of all places a crop can have: [place, image, ...]
        padded = F.pad(images, [2, 2, 2, 2], padding_mode=mode)
        out[f"crops_{mode}"] = torch.stack(
            [F.crop(padded, top, left, 8, 12) for top in range(4) for left in range(3)]
        )
    out["pad_fill"] = v2.Pad((3, 1), fill=(7, 8, 9))(images)
    out["pad_negative"] = v2.Pad((-1, 2, -3, -2), fill=5)(images)
    for height, width in [(4, 4), (5, 3), (9, 13), (10, 6), (7, 10)]:
        out[f"center_crop_{height}x{width}"] = v2.CenterCrop((height, width))(images)
    out["horizontal_flip"] = F.horizontal_flip(images)
    out["vertical_flip"] = F.vertical_flip(images)
    for height, width in [(3, 4), (14, 20), (5, 17), (7, 10)]:
        out[f"resize_floats_{height}x{width}"] = v2.Resize((height, width))(floats)
        out[f"resize_bytes_{height}x{width}"] = v2.Resize((height, width))(images)
    out["resize_shorts_3x4"] = v2.Resize((3, 4))(out["shorts"])
    out["resize_short_side"] = v2.Resize(5)(floats)
    out["resize_short_side_tall"] = v2.Resize(5)(floats.mT)
    labels = torch.tensor([2, 0, 3])
    out["labels"] = labels
    # The weight that was drawn can be told from the targets: the labels differ.
    out["mixup_input"], out["mixup_target"] = v2.MixUp(alpha=0.7, num_classes=5)(floats, labels)
    path = Path(__file__).parent / "data" / "transforms.pth"
    torch.save({name: value.contiguous() for name, value in out.items()}, path)
    print(f"{path}: {len(out)} tensors, torch {torch.__version__}, torchvision {torchvision.__version__}")


main()
