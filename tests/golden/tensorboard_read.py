"""Reads a run's event files with TensorBoard: python tensorboard_read.py LOGDIR RUN OUTPUT.json [BEFORE]

OUTPUT has what EventAccumulator reads in LOGDIR/RUN, and what TensorBoard's pages get from its fast data server (null
where it is not installed). With BEFORE, an earlier state of the directory, also the scalars of a TensorBoard that has
read that state and then reads on (by its Python loader). Numbers that JSON does not have are texts.
"""

import json
import logging
import math
import pathlib
import shutil
import sys
import tempfile
import time

from tensorboard import context
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.data import provider, server_ingester
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import grpc_util, tensor_util
from google.protobuf import json_format


def plain(value):
    value = float(value)
    return value if math.isfinite(value) else str(value)


def read_files(directory):
    acc = event_accumulator.EventAccumulator(directory, event_accumulator.STORE_EVERYTHING_SIZE_GUIDANCE)
    acc.Reload()
    tags = acc.Tags()
    out = {
        "writer": acc.GetSourceWriter(),
        "scalars": {t: [[e.step, plain(e.value), e.wall_time] for e in acc.Scalars(t)] for t in tags["scalars"]},
        "histograms": {
            t: [[e.step, e.wall_time, *map(list_of, e.histogram_value.__dict__.values())] for e in acc.Histograms(t)]
            for t in tags["histograms"]
        },
        "images": {
            t: [[e.step, e.width, e.height, e.encoded_image_string.hex()] for e in acc.Images(t)] for t in tags["images"]
        },
        "texts": {},
        "hparams": {},
    }
    for tag in tags["tensors"]:
        plugin = acc.SummaryMetadata(tag).plugin_data
        if plugin.plugin_name == "text":
            out["texts"][tag] = [
                [e.step, tensor_util.make_ndarray(e.tensor_proto).item().decode()] for e in acc.Tensors(tag)
            ]
        elif plugin.plugin_name == "hparams":
            data = plugin_data_pb2.HParamsPluginData.FromString(plugin.content)
            out["hparams"][tag] = json_format.MessageToDict(data)
    return out


def list_of(value):
    return list(map(plain, value)) if isinstance(value, list) else plain(value)


def serve(logdir, run):
    try:
        binary = server_ingester.get_server_binary()
    except server_ingester.NoDataServerError:
        return None
    ingester = server_ingester.SubprocessServerDataIngester(
        server_binary=binary,
        logdir=logdir,
        reload_interval=0,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
        samples_per_plugin={"scalars": 100000},
    )
    ingester.start()  # returns when the first load is done
    data, ctx = ingester.data_provider, context.RequestContext()
    everything = provider.RunTagFilter(runs=[run])
    found = {}
    for _ in range(600):
        found = data.read_scalars(ctx, experiment_id="", plugin_name="scalars", downsample=100000, run_tag_filter=everything)
        if found:
            break
        time.sleep(0.1)
    tensors = {
        plugin: data.read_tensors(ctx, experiment_id="", plugin_name=plugin, downsample=1000, run_tag_filter=everything)
        for plugin in ("text", "histograms", "hparams")
    }
    images = data.read_blob_sequences(ctx, experiment_id="", plugin_name="images", downsample=1000, run_tag_filter=everything)
    return {
        "scalars": {t: [[d.step, plain(d.value), d.wall_time] for d in ds] for t, ds in found.get(run, {}).items()},
        "texts": {t: [[d.step, d.numpy.item().decode()] for d in ds] for t, ds in tensors["text"].get(run, {}).items()},
        "histograms": {
            t: [[d.step, [list_of(list(row)) for row in d.numpy]] for d in ds]
            for t, ds in tensors["histograms"].get(run, {}).items()
        },
        "hparams": sorted(tensors["hparams"].get(run, {})),
        "images": {t: [d.step for d in ds] for t, ds in images.get(run, {}).items()},
    }


def read_on(before, after):
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary) / "run"
        shutil.copytree(before, directory)
        acc = plugin_event_accumulator.EventAccumulator(str(directory), {"tensors": 0})
        acc.Reload()
        for file in pathlib.Path(after).iterdir():
            (directory / file.name).write_bytes(file.read_bytes())  # in the same file, as a cut leaves it
        acc.Reload()
        values = {tag: acc.Tensors(tag) for tag in acc.Tags()["tensors"]}
        scalars = {t: v for t, v in values.items() if acc.SummaryMetadata(t).plugin_data.plugin_name == "scalars"}
        return {t: [[e.step, plain(tensor_util.make_ndarray(e.tensor_proto))] for e in v] for t, v in scalars.items()}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    logdir, run, output, *before = sys.argv[1:]
    result = {"files": read_files(f"{logdir}/{run}"), "server": serve(logdir, run)}
    if before:
        result["live"] = {"scalars": read_on(before[0], f"{logdir}/{run}")}
    with open(output, "w", encoding="utf-8") as file:
        json.dump(result, file, allow_nan=False)
