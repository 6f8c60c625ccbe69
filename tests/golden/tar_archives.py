#!/usr/bin/env python3
"""Writes tests/golden/data/tar: archives by Python's tarfile and by GNU tar, and members.json with what is in them.

Usage: tar_archives.py (needs GNU tar). Contents are hexadecimal digits. What must be refused stands in refused.json,
by the reason that the message must hold.
"""

import gzip
import io
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile

OUT = pathlib.Path(__file__).parent / "data" / "tar"
LONG = "d" * 90 + "/" + "e" * 90 + "/" + "f" * 60 + ".txt"  # too long for the name field, and for prefix and name
PREFIXED = "a" * 80 + "/" + "b" * 60 + ".jpg"  # fits prefix and name
MEMBERS = [("train/0001.jpg", b"one" * 300), ("train/0001.cls", b"7"), ("train/empty.txt", b""),
           ("train/0002.jpg", bytes(range(256)) * 2), (PREFIXED, b"prefixed"), ("plain", b"x" * 512)]  # fmt: skip
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def archive(members, form, directory=True, **options):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, **options) as tar:
        if directory:
            info = tarfile.TarInfo("train")
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def gnu_tar(members, *options):
    with tempfile.TemporaryDirectory() as folder:
        for name, content in members:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        command = ["tar", "--create", "--file=-", f"--directory={folder}", "--owner=0", "--group=0", "--mtime=@0",
                   "--blocking-factor=1", *options, *(name for name, _ in members)]  # fmt: skip
        return subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"}).stdout


def sound():
    for name, form in FORMATS.items():
        members = MEMBERS + ([] if name == "ustar" else [(LONG, b"long"), ("ümläut.txt", b"u")])
        yield f"python_{name}", archive(members, form), members
    pax = archive([("a.txt", b"12345")], tarfile.PAX_FORMAT, False, pax_headers={"comment": "of all"})
    yield "python_pax_global", pax, [("a.txt", b"12345")]
    for name in ("v7", "oldgnu", "gnu", "ustar", "posix"):
        members = [member for member in MEMBERS if name != "v7" or member[0] != PREFIXED]
        members = members + ([(LONG, b"long")] if name in ("oldgnu", "gnu", "posix") else [])
        yield f"tar_{name}", gnu_tar(members, f"--format={name}"), members
    yield "tar_directory", gnu_tar([("0/a.txt", b"a"), ("0/b.txt", b"b")], "--no-recursion", "0"), [
        ("0/a.txt", b"a"), ("0/b.txt", b"b")]  # fmt: skip
    yield "none", bytes(1024), []
    large = tarfile.TarInfo("a.txt")
    large.size = 3
    field = large.tobuf(tarfile.GNU_FORMAT)
    binary = bytearray(field[:124] + b"\x80" + bytes(10) + b"\3" + field[136:])  # GNU's form of numbers above 8 GiB
    binary[148:156] = b" " * 8
    binary[148:156] = b"%06o\0 " % sum(binary)
    yield "binary_size", bytes(binary) + b"abc" + bytes(509 + 1024), [("a.txt", b"abc")]


def special(kind, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        info = tarfile.TarInfo("odd")
        info.type = kind
        info.linkname = "there"
        tar.addfile(info)
    return out.getvalue()


def refused():
    one = archive([("a.txt", b"12345")], tarfile.USTAR_FORMAT, False)
    yield "hard_link", special(tarfile.LNKTYPE), "expected files and directories, got a hard link 'odd'"
    yield "symbolic_link", special(tarfile.SYMTYPE), "expected files and directories, got a symbolic link 'odd'"
    yield "pipe", special(tarfile.FIFOTYPE), "expected files and directories, got a named pipe 'odd'"
    yield "device", special(tarfile.CHRTYPE), "expected files and directories, got a character device 'odd'"
    yield "joined", one + one, "expected only zeros from here on, got further data, as in concatenated archives"
    yield "gzip", gzip.compress(one, mtime=0), "expected a plain TAR archive, got one compressed by gzip"
    yield "text", b"no archive" * 100, "expected a header of a TAR archive with its checksum"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "holes")
        with open(path, "wb") as file:
            file.truncate(1 << 20)
            file.seek(1 << 19)
            file.write(b"x")
        for form, text in (("gnu", "expected files and directories, got a sparse file 'holes'"),
                           ("posix", "expected whole files, got a sparse one")):  # fmt: skip
            command = ["tar", "--create", "--file=-", "--sparse", f"--format={form}", f"--directory={folder}", "holes",
                       "--blocking-factor=1"]  # fmt: skip
            yield f"sparse_{form}", subprocess.run(command, check=True, capture_output=True).stdout, text


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    members, reasons = {}, {}
    for name, content, inside in sound():
        (OUT / f"{name}.tar").write_bytes(content)
        members[name] = [[path, data.hex()] for path, data in inside]
    for name, content, reason in refused():
        (OUT / f"{name}.tar").write_bytes(content)
        reasons[name] = reason
    (OUT / "members.json").write_text(json.dumps(members, indent=1) + "\n", encoding="utf-8")
    (OUT / "refused.json").write_text(json.dumps(reasons, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
