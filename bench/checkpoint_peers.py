"""The Python side of bench/checkpoint.cpp: saves and loads one state on command and prints the seconds.

Usage: checkpoint_peers.py REFERENCE

REFERENCE is a file that torch.load opens; its tensors are the state. The script reads one command
per line from stdin and answers each with one line: `ok [seconds]` or `error <text>`.

  save NAME PATH   saves under PATH and syncs it to disk
  load NAME PATH   loads, and keeps the loaded state until `release`
  copy             clones every tensor, as DanLing does before a background save, and keeps the clones
  check NAME PATH  loads and compares with the state
  release          frees the kept tensors
"""

import os
import sys
import time

import torch

try:
    import safetensors.torch as safetensors
except ImportError:
    safetensors = None
import torch.distributed.checkpoint as dcp


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def touch(tensors):
    """Reads a byte of every page, where a load only maps."""
    for tensor in tensors.values():
        tensor.view(torch.uint8)[::4096].sum()
    return tensors


def save_torch(state, path):
    torch.save(state, path)
    sync(path)


def save_safetensors(state, path):
    safetensors.save_file(state, path)
    sync(path)


def save_dcp(state, path):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, sync_files=True), no_dist=True)
    sync(path)


def load_dcp(path):
    reader = dcp.FileSystemReader(path)
    metadata = reader.read_metadata().state_dict_metadata
    state = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in metadata.items()}
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state


SAVE = {"torch": save_torch, "safetensors": save_safetensors, "dcp": save_dcp}
LOAD = {
    "torch": lambda path: torch.load(path, weights_only=True),
    "torch_mmap": lambda path: touch(torch.load(path, weights_only=True, mmap=True)),
    "safetensors": lambda path: touch(safetensors.load_file(path)),
    "dcp": load_dcp,
}


def main():
    state = torch.load(sys.argv[1], weights_only=True)
    held = None
    print("ok", flush=True)
    for line in sys.stdin:
        command, *rest = line.rstrip("\n").split(" ", 2)
        try:
            begin = time.perf_counter()
            if command == "save":
                SAVE[rest[0]](state, rest[1])
            elif command == "load":
                held = LOAD[rest[0]](rest[1])
            elif command == "copy":
                held = {name: tensor.clone() for name, tensor in state.items()}
            elif command == "check":
                loaded = LOAD[rest[0]](rest[1])
                same = loaded.keys() == state.keys() and all(torch.equal(loaded[name], state[name]) for name in state)
                del loaded
                if not same:
                    raise ValueError("the tensors differ")
            else:
                held = None
            print("ok", time.perf_counter() - begin, flush=True)
        except Exception as error:
            print("error", type(error).__name__, " ".join(str(error).split())[:200], flush=True)
    del held


main()
