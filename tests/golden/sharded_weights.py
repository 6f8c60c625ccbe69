#!/usr/bin/env python3
"""Weights in Hugging Face's layout of shards, for tests/checkpoint/shards.cpp (needs torch, safetensors).

Usage: sharded_weights.py DIR    (the files are in tests/golden/data/sharded)
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def weights():
    """Numbers that tell the entries apart, in several element types."""
    return {
        "model.embed.weight": torch.arange(12, dtype=torch.float32).reshape(4, 3),
        "model.layers.0.fc.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3) - 2.5,
        "model.layers.0.fc.bias": torch.tensor([0.5, -0.5], dtype=torch.bfloat16),
        "model.norm.weight": torch.full((3,), 1.25, dtype=torch.float16),
        "lm_head.weight": torch.arange(8, dtype=torch.float32).reshape(4, 2) * 0.25,
    }


def save(directory, stem, suffix, write):
    """Two shards and their index, as save_pretrained of transformers writes them."""
    entries = list(weights().items())
    weight_map, total = {}, 0
    for number, part in enumerate((entries[:3], entries[3:]), 1):
        name = f"{stem}-{number:05d}-of-00002.{suffix}"
        write(dict(part), directory / name)
        weight_map.update({key: name for key, _ in part})
        total += sum(value.numel() * value.element_size() for _, value in part)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    (directory / f"{stem}.{suffix}.index.json").write_text(text, encoding="utf-8")


def main(directory):
    for name in ("safetensors", "bin"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    save(directory / "safetensors", "model", "safetensors", lambda state, path: save_file(state, path, {"format": "pt"}))
    save(directory / "bin", "pytorch_model", "bin", torch.save)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
