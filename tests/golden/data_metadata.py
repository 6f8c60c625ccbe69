"""Writes data/metadata.json: JAX's keys and what Datarax' Metadata gives, for tests/data/metadata.cpp and random.cpp.

Run with jax installed: python tests/golden/data_metadata.py DATARAX, the root of datarax' source.
"""

import importlib.util
import itertools
import json
import pathlib
import sys
import types

import jax
import numpy

SEEDS = [0, 1, 2, 7, 42, 1234, 2**31 - 1, 2**31, 2**32 - 1]
FOLDED = [0, 1, 2, 3, 5, 255, 256, 65535, 65536, 10**6, 2**31 - 1, 2**31, 2**32 - 1]
FIELDS = ("index", "epoch", "global_step", "batch_idx", "shard_id", "rng_key", "entry_key", "source_info")


def load_metadata(root):
    """The module alone: the classes that derive from those of flax, which need not be there, are not used."""
    flax = types.ModuleType("flax")
    flax.nnx = types.ModuleType("flax.nnx")
    flax.nnx.Module = flax.nnx.Variable = flax.nnx.Rngs = object
    sys.modules.setdefault("flax", flax)
    sys.modules.setdefault("flax.nnx", flax.nnx)
    path = pathlib.Path(root, "datarax", "core", "metadata.py")
    spec = importlib.util.spec_from_file_location("datarax_metadata", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.Metadata


def halves(key):
    return None if key is None else [int(half) for half in numpy.asarray(key)]


def keys():
    out = []
    for seed in SEEDS:
        key = jax.random.PRNGKey(numpy.uint32(seed))
        out.append(
            {
                "seed": seed,
                "key": halves(key),
                "split": {str(num): [halves(k) for k in jax.random.split(key, num)] for num in (1, 2, 3, 8)},
                "fold_in": {str(data): halves(jax.random.fold_in(key, numpy.uint32(data))) for data in FOLDED},
                "twice": halves(jax.random.split(jax.random.fold_in(key, 3), 2)[1]),
            }
        )
    return out


def plain(metadata):
    out = {name: getattr(metadata, name) for name in FIELDS}
    out["rng_key"] = halves(out["rng_key"])
    return out


def values():
    """Every combination of a field that is there and one that is not, in two kinds of values."""
    for present in itertools.product([False, True], repeat=len(FIELDS)):
        for other in (0, 1):
            value = {
                "index": 11 + other,
                "epoch": 21 + other,
                "global_step": 31 + other,
                "batch_idx": 0 if other else 41,
                "shard_id": 51 if other else 0,
                "rng_key": 61 + other,
                "entry_key": f"record/{other}",
                "source_info": {"file": f"f{other}", "line": other},
            }
            yield {name: value[name] for name, there in zip(FIELDS, present) if there}


def make(Metadata, given):
    given = dict(given)
    if "rng_key" in given:
        given["rng_key"] = jax.random.PRNGKey(given["rng_key"])
    if "entry_key" in given:
        given["key"] = given.pop("entry_key")
    return Metadata(**given)


def methods(Metadata):
    out = []
    for given in itertools.islice(values(), 0, None, 7):
        metadata = make(Metadata, given)
        as_dict = metadata.to_dict()
        again = Metadata.from_dict(dict(as_dict))
        as_dict["rng_key"] = halves(as_dict["rng_key"])
        out.append(
            {
                "given": plain(metadata),
                "split_rng": [halves(k) for k in metadata.split_rng()],
                "split_rng_3": [halves(k) for k in metadata.split_rng(3)],
                "next_rng": plain(metadata.next_rng()),
                "increment_step": plain(metadata.increment_step()),
                "increment_epoch": plain(metadata.increment_epoch()),
                "increment_batch": plain(metadata.increment_batch()),
                "with_shard": plain(metadata.with_shard(9)),
                "to_dict": as_dict,
                "from_dict": plain(again),
            }
        )
    return out


def merges(Metadata):
    every = list(values())
    pairs = [(every[i], every[(37 * i + 101) % len(every)]) for i in range(0, len(every), 5)]
    pairs += [({"source_info": {"a": 1}}, {"source_info": {}}), ({}, {"source_info": {}})]
    return [
        {"a": plain(a), "b": plain(b), "merged": plain(a.merge(b))}
        for a, b in ((make(Metadata, a), make(Metadata, b)) for a, b in pairs)
    ]


def main():
    assert jax.config.jax_threefry_partitionable
    Metadata = load_metadata(sys.argv[1])
    golden = {"jax": jax.__version__, "keys": keys(), "metadata": methods(Metadata), "merge": merges(Metadata)}
    path = pathlib.Path(__file__).parent / "data" / "metadata.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
