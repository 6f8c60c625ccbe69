"""Writes tests/golden/data/events: files by TensorBoard's own record writer and messages.

records: TFRecords of a few contents. run: the event file of the run in tests/telemetry/tensorboard_sink.cpp, with
danling's fields 1000 and 1001 behind each message.
"""

import io
import pathlib

from tensorboard.compat.proto import event_pb2, histogram_pb2, summary_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

folder = pathlib.Path(__file__).resolve().parent / "data" / "events"
folder.mkdir(parents=True, exist_ok=True)


def write(name, contents):
    out = io.BytesIO()
    writer = RecordWriter(out)
    for content in contents:
        writer.write(content)
    (folder / name).write_bytes(out.getvalue())


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def event(time, step=0, values=(), line=None, lines_before=None, **fields):
    message = event_pb2.Event(wall_time=time, step=step, **fields)
    if values:
        message.summary.value.extend(values)
    out = message.SerializeToString(deterministic=True)
    if line is not None:
        out += varint(1000 << 3) + varint(line)
    if lines_before is not None:
        out += varint(1001 << 3) + varint(lines_before)
    return out


def scalar(tag, value):
    return summary_pb2.Summary.Value(tag=tag, simple_value=value)


def text(tag, content):
    value = text_pb(tag, content).value[0]
    value.metadata.data_class = summary_pb2.DATA_CLASS_TENSOR
    return value


def hparams(tag, **info):
    data = plugin_data_pb2.HParamsPluginData(**info)
    metadata = hparams_metadata.create_summary_metadata(data)
    metadata.plugin_data.content = data.SerializeToString(deterministic=True)
    metadata.data_class = summary_pb2.DATA_CLASS_TENSOR
    return summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=hparams_metadata.NULL_TENSOR)


start = plugin_data_pb2.SessionStartInfo(start_time_secs=1700000000.5)
start.hparams["bias"].bool_value = True
start.hparams["network"].string_value = "mlp"
start.hparams["optim.lr"].number_value = 0.001
histogram = histogram_pb2.HistogramProto(
    min=-1.5, max=2.5, num=4, sum=2.25, sum_squares=9.5, bucket_limit=[0.5, 2.5], bucket=[3, 1]
)
png = (folder.parent / "images.json").read_bytes()[:40]  # any bytes: nobody decodes them here

write("records", [b"", b"a", bytes(range(256)), b"\xff" * 1000])
write(
    "run",
    [
        event(1700000000.5, file_version="brain.Event:2", source_metadata=event_pb2.SourceMetadata(writer="danling")),
        event(1700000000.5, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START)),
        event(
            1700000000.5,
            values=[
                hparams(hparams_metadata.SESSION_START_INFO_TAG, session_start_info=start),
                text("config", "```yaml\noptim:\n  lr: 0.001\n```\n"),
            ],
        ),
        event(
            1700000001.25,
            10,
            [
                scalar("train_step/loss", 0.1),
                scalar("train_step/losses/0", 2.0),
                scalar("train_step/losses/1", float("-inf")),
                scalar("train_step/part/acc", 0.0),
                scalar("telemetry/train_step/time", 0.25),
            ],
            line=1,
        ),
        event(
            1700000002.25, 10, [summary_pb2.Summary.Value(tag="weights/fc", histo=histogram), scalar("nonfinite/weights/fc", 3)],
            lines_before=1,
        ),
        event(1700000002.5, 10, [text("note", "*schön*")], lines_before=1),
        event(
            1700000002.75,
            10,
            [
                summary_pb2.Summary.Value(
                    tag="sample",
                    image=summary_pb2.Summary.Image(height=2, width=3, colorspace=1, encoded_image_string=png),
                )
            ],
            lines_before=1,
        ),
        event(1700000003.0, 20, [scalar("val/loss", 0.3)], line=2),
        event(
            1700000004.0,
            20,
            [
                scalar("results/val/loss", 0.3),
                hparams(
                    hparams_metadata.SESSION_END_INFO_TAG,
                    session_end_info=plugin_data_pb2.SessionEndInfo(status=1, end_time_secs=1700000004.0),
                ),
            ],
            lines_before=2**63 - 1,
        ),
    ],
)  # fmt: skip
