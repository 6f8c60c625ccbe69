#!/usr/bin/env python3
"""Writes the inputs that fuzzing starts from: python tests/fuzz/seeds.py DIR [FILE...]

DIR/<target>/ gets small valid inputs of each kind, made by Python's own writers and from tests/golden/data. Further
FILEs, such as checkpoints of danling, are added to the target that their suffix names (.pth, .safetensors, .yaml,
.json). Needs no torch.
"""

import gzip
import io
import json
import pathlib
import pickle
import struct
import sys
import zipfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "data"

PLAIN = {
    "none": None, "bools": [True, False], "integers": [0, -1, 255, 256, 65536, 2**31, -(2**63), 2**63 - 1],
    "floats": [0.0, -0.0, 0.1, float("inf"), float("nan"), 1e-310], "text": "schön 世界 \U0001f600",
    "bytes": bytes(range(256)), "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], 3: {-7: {}}, "empty": [[], {}],
    "bytearray": bytearray(b"a\xff"),
}  # fmt: skip

CONFIG = {
    "verbose": True, "small": -3, "epochs": 7, "count": 18446744073709551615, "rate": 0.25, "lr": 1e-9,
    "name": "a 'name'\n\twith: [all] #kinds\x01", "shuffle": None, "steps": 12, "clip": float("inf"), "tag": "true",
    "sizes": [1, 2, 3], "betas": [0.9, 0.999], "words": ["", "no", "1e3", "~"], "splits": ["a b", "c,d"],
    "data": {"root": "/data", "train": {"kind": "conv", "width": 3}}, "layers": [{"kind": "dense"}, {"width": 2}],
    "mode": "quick",
}  # fmt: skip

YAML = {
    "block": """
# a comment
verbose: yes
small: 0x1
lr: .5
name: "quoted \\x41 \\u00e9 \\n"
tag: 'it''s'
sizes: [1, 2]
words:
  - a
  - "b"
  - |
    literal
    text
  - >-
    folded
    text
data:
  root: data
  train: {kind: conv, width: ~}
layers:
- kind: dense
  width: 1
- {kind: conv}
""",
    "anchors": "data: &d\n  root: x\n  train: &t {kind: conv}\n  test: *t\nwords: &w [a, b]\nsplits: *w\n",
    "tags": "%YAML 1.2\n---\nname: !!str 12\ntag: !local x\n? epochs\n: 4\ndata.root: y\n...\n",
}


def zipped(records, method=zipfile.ZIP_STORED, comment=b""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in records:
            archive.writestr(zipfile.ZipInfo(name), content, method)
        archive.comment = comment
    return out.getvalue()


def manifest(records):
    lines = [f"crc32:{zlib.crc32(content):08x} {len(content)} {name.split('/', 1)[1]}" for name, content in records]
    return "\n".join(["danling-checkpoint 1", *lines, ""]).encode()


def records_of(path):
    with zipfile.ZipFile(path) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def zip64(name, content):
    """An archive of one entry whose sizes are in the zip64 fields, as those above 4 GiB are."""
    crc = zlib.crc32(content)
    fields = struct.pack("<HHQQ", 1, 16, len(content), len(content))
    local = struct.pack("<IHHHIIIIHH", 0x04034B50, 45, 0, 0, 0, crc, 2**32 - 1, 2**32 - 1, len(name), len(fields))
    entry = local + name + fields + content
    fields = struct.pack("<HHQQQ", 1, 24, len(content), len(content), 0)
    central = struct.pack("<IHHHHIIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, crc, 2**32 - 1, 2**32 - 1, len(name),
                          len(fields), 0, 0, 0, 0, 2**32 - 1)  # fmt: skip
    central += name + fields
    end = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, len(central), len(entry))
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(entry) + len(central), 1)
    last = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0)
    return entry + central + end + locator + last


def safetensors(header, data=b""):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def npy(header, data, version=1):
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def npy_header(descr, shape, fortran=False):
    return str({"descr": descr, "fortran_order": fortran, "shape": shape})


CSV = {
    "plain": "a,b,c\n1,2.5,true\n-3,,false\n",
    "quotes": 'a,"b,c"\r\n"x\ny","p""q"\r\n"",""""\r\n',
    "texts": "\ufeffname;n\nsch\u00f6n;1e999\n# no;nan\n\n;-inf",
    "late": "a,b\n1,NA\n2,true\nx,3\n9223372036854775808,0x1\n",
    "returns": "a\tb\r1\t2\r",
}

TRACES = {
    "list": '[{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":2,"ts":1.5,"dur":2,'
    '"args":{"Input Dims":[[2,3],[3,4]]}}]',
    "steps": '{"traceEvents": [{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":2,"ts":0,"dur":9},'
    '{"ph":"X","cat":"user_annotation","name":"danling.data","pid":1,"tid":2,"ts":1,"dur":2},'
    '{"ph":"X","cat":"cpu_op","name":"aten::mean","pid":1,"tid":2,"ts":3,"dur":5},'
    '{"ph":"X","cat":"cpu_op","name":"aten::mean","pid":1,"tid":2,"ts":4,"dur":3},'
    '{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":2,"ts":5,"args":{"Bytes":-64,"Device Type":0}},'
    '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":2,"dur":3},'
    '{"ph":"X","cat":"cuda_runtime","name":"cudaStreamSynchronize","pid":1,"tid":3,"ts":2,"dur":1}], "traceName": "x"}',
    "convolution": '{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"aten::conv2d","pid":"a","tid":"b","ts":1e3,"dur":1,'
    '"args":{"Input Dims":[[1,2,8,8],[4,2,3,3],[],[],[],[],[]],'
    '"Concrete Inputs":["","","","[1, 1]","[0, 0]","[1, 1]","1"]}}',
    "numbers": '[{"ph":"X","cat":"cpu_op","name":"aten::add","ts":1e300,"dur":-1},{"ph":"X","cat":"kernel","name":"",'
    '"pid":18446744073709551615,"tid":-1,"ts":1999999999999999,"dur":1e15}]',
}

JSON_LINES = {
    "plain": '{"a": 1, "b": {"c": "x", "d": [1, {}]}}\n\n{"a": 2.5, "b": {"c": null}, "e": true}\r\n',
    "values": '\ufeff[1, -2, 1e5, "\\ud83d\\ude00"]\n"x"\nnull\n',
    "dots": '{"a.b": 1, "c": 9223372036854775807}\n{"a": {"b": 2}, "c": -9223372036854775808}\n',
}


def seeds():
    for protocol in range(2, 6):
        yield "pickle", f"protocol{protocol}", pickle.dumps(PLAIN, protocol)
    for path in sorted(GOLDEN.glob("checkpoint_*.pth")):
        name = path.stem.removeprefix("checkpoint_")
        yield "pth", name, path.read_bytes()
        if name == "legacy":
            continue
        records = records_of(path)
        yield "pickle", name, dict(records)[next(n for n, _ in records if n.endswith("/data.pkl"))]
        if name in ("module", "aliases"):
            short = [(n, c) for n, c in records if "/.data/" not in n]
            yield "pth", f"{name}_manifest", zipped([*short, (f"{short[0][0].split('/')[0]}/danling/manifest",
                                                              manifest(short))])  # fmt: skip
            yield "pth", f"{name}_deflated", zipped(records, zipfile.ZIP_DEFLATED)
    yield "zip", "stored", zipped([("a/one", b"1"), ("a/empty", b""), ("a/two", b"22" * 40)])
    yield "zip", "deflated", zipped([("one", b"1" * 3000), ("empty", b"")], zipfile.ZIP_DEFLATED, b"a comment")
    yield "zip", "zip64", zip64(b"a/wide", b"content")
    yield "zip", "none", zipped([])
    two = {"a.weight": tensor("F32", [2, 1], 0, 8), "b": tensor("BF16", [], 8, 10), "empty": tensor("I64", [0, 3], 10, 10)}
    yield "safetensors", "two", safetensors(two, bytes(range(10)))
    yield "safetensors", "metadata", safetensors({"__metadata__": {"format": "pt", "b": "a.weight"}, **two}, bytes(10))
    yield "safetensors", "none", safetensors({})
    names = ("F64", "F16", "F8_E4M3", "F8_E5M2", "I32", "I16", "I8", "U8", "U16", "U32", "U64", "BOOL", "C64")
    sizes = (8, 2, 1, 1, 4, 2, 1, 1, 2, 4, 8, 1, 8)
    each = {name: tensor(name, [1], sum(sizes[:i]), sum(sizes[: i + 1])) for i, name in enumerate(names)}
    yield "safetensors", "dtypes", safetensors(each, bytes(sum(sizes)))
    yield "json", "all", json.dumps(CONFIG, indent=1).replace("Infinity", '".inf"').encode()
    yield "json", "dotted", b'{"data.root": "x", "layers": [{}], "name": "\\ud83d\\ude00\\n", "lr": 1E+2}'
    for name, text in YAML.items():
        yield "yaml", name, text.encode()
    yield "yaml", "flow", json.dumps(CONFIG).replace("Infinity", ".inf").encode()
    for code, width in ((8, 1), (9, 1), (11, 2), (12, 4), (13, 4), (14, 8)):
        plain = bytes([0, 0, code, 2]) + struct.pack(">II", 2, 3) + bytes(range(6 * width))
        yield "idx", f"type{code}", plain
        if width == 1:
            yield "idx", f"type{code}.gz", gzip.compress(plain, mtime=0)
    for code in ("<f4", ">i2", "|u1", "|b1", "<c16", "<f2", ">u8"):
        yield "npy", code[1:], npy(npy_header(code, (2, 3)), bytes(6 * int(code[2:])))
    yield "npy", "fortran", npy(npy_header("<f8", (3,), True), bytes(24), 2)
    yield "npy", "scalar", npy(npy_header("<f8", ()), bytes(8), 3)
    yield "npy", "old", npy("{'shape': (0L, 3L), 'fortran_order': False, 'descr': \"<i8\"}", b"")
    yield "npy", "structure", npy(npy_header([("a", "<i4")], (1,)), bytes(4))
    yield "npy", "objects", npy(npy_header("|O", (1,)), b"N.")
    for name, text in CSV.items():
        yield "csv", name, text.encode()
        yield "csv", f"{name}.gz", gzip.compress(text.encode(), mtime=0)
    yield "csv", "members.gz", gzip.compress(b"a,b\n1,", mtime=0) + gzip.compress(b"2\n3,x\n", mtime=0)
    yield "csv", "pipe", b'a,b\n5" pipe,1\n"6\n",2\n7" pipe,3\n"8\n""\n",4\n'
    yield "csv", "latin1", b"a\n1\ncaf\xe9\n\0\n"
    for name, text in JSON_LINES.items():
        yield "json_lines", name, text.encode()
        yield "json_lines", f"{name}.gz", gzip.compress(text.encode(), mtime=0)
    yield "json_lines", "nan", b'{"a": NaN}\n{"a": [Infinity, -Infinity]}\n'
    yield "json_lines", "escapes", b'{"\\u0061": "\\ud83d\\ude00", "b": -0.1e-7, "b\\n": 12345678901234567890.5}\n'
    for name, text in TRACES.items():
        yield "trace", name, text.encode()
        yield "trace", f"{name}.gz", gzip.compress(text.encode(), mtime=0)
    yield "idx", "empty", bytes([0, 0, 8, 1, 0, 0, 0, 0])
    for case in json.loads((GOLDEN / "images.json").read_text(encoding="utf-8")):
        yield "image", case["name"], bytes.fromhex(case["file"])
    for path in sorted((GOLDEN / "tar").glob("*.tar")):
        yield "tar", path.stem, path.read_bytes()
    for path in sorted((GOLDEN / "events").iterdir()):
        yield "event_file", path.stem, path.read_bytes()
    targets = {".pth": "pth", ".safetensors": "safetensors", ".yaml": "yaml", ".json": "json"}
    for path in map(pathlib.Path, sys.argv[2:]):
        yield targets[path.suffix], path.stem, path.read_bytes()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for target, name, content in seeds():
        directory = pathlib.Path(sys.argv[1]) / target
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)


if __name__ == "__main__":
    main()
