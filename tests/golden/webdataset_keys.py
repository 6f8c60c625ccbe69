#!/usr/bin/env python3
"""Writes tests/golden/data/tar/webdataset.tar and webdataset.json: an archive and the samples WebDataset finds in it.

Usage: webdataset_keys.py (needs the package webdataset).
"""

import io
import json
import pathlib
import tarfile

from webdataset import tariterators

OUT = pathlib.Path(__file__).parent / "data" / "tar"
NAMES = [
    "a.jpg", "a.cls", "a.seg.png", "b.JPG", "b.cls", "plain", "c.txt", "__meta__", "c.cls", "dir.d/e.jpg", "dir.d/e.cls",
    "dir.d/f", "./g.x.y.z", "./g.cls", "a.jpg", "h/i/j.cls", "h/i/j.json", "h/i/k.cls", "__meta__/m.cls", "l.",
]  # fmt: skip


def main():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in NAMES:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    (OUT / "webdataset.tar").write_bytes(out.getvalue())
    out.seek(0)
    files = tariterators.tar_file_expander([{"url": "webdataset.tar", "stream": out}], handler=None)
    samples = [
        [sample["__key__"], {name: data.decode() for name, data in sample.items() if not name.startswith("__")}]
        for sample in tariterators.group_by_keys(files)
    ]
    (OUT / "webdataset.json").write_text(json.dumps(samples, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
