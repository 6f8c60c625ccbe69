#!/usr/bin/env python3
"""Writes passages.tsv from three public-domain novels and the Jargon File, as Debian packages them.

Usage: make_passages.py JANEAUSTENR_DATA JARGON_DICT OUTPUT

JANEAUSTENR_DATA  the directory with Rdata.rdb and Rdata.rdx of the package r-cran-janeaustenr
JARGON_DICT       jargon.dict.dz of the package dict-jargon

Needs the package `rdata` of PyPI, which reads R's files.
"""
import gzip
import lzma
import random
import re
import sys
import zlib
from pathlib import Path

import rdata

NOVELS = {"emma": "Emma", "northangerabbey": "Northanger Abbey", "persuasion": "Persuasion"}
PASSAGES = 600  # of each text
SHORTEST, LONGEST = 8, 512  # bytes; longer paragraphs are cut


def decompressed(block):
    if block[4:5] == b"Z":
        filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 26}]
        return lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=filters).decompress(block[5:])
    return zlib.decompress(block[4:])


def read_novels(directory):
    index = gzip.decompress((directory / "Rdata.rdx").read_bytes())
    places = rdata.conversion.convert(rdata.parser.parse_data(index))["variables"]
    data = (directory / "Rdata.rdb").read_bytes()
    for name, (begin, length) in ((str(name), map(int, place)) for name, place in places.items()):
        if name in NOVELS:
            block = decompressed(data[begin : begin + length])
            yield NOVELS[name], "\n".join(map(str, rdata.conversion.convert(rdata.parser.parse_data(block))))


def passages(text):
    """Paragraphs of prose in ASCII; headlines and headwords are none."""
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split()).replace("“", '"').replace("”", '"').replace("’", "'").replace("‘", "'")
        line = line.encode("ascii", "ignore").decode()[:LONGEST]
        if len(line) >= SHORTEST and re.search(r"[a-z] [a-z]", line) and not line.startswith("CHAPTER"):
            yield line


def main(novels, jargon, output):
    texts = dict(read_novels(Path(novels)))
    dictionary = gzip.decompress(Path(jargon).read_bytes()).decode()
    # Definitions are indented by four; headwords and pronunciations are not.
    texts["The Jargon File"] = "\n".join(
        line if line.startswith("    ") or not line.strip() else "" for line in dictionary.splitlines()
    )
    rows = []
    for label, title in enumerate(sorted(texts)):
        chosen = list(dict.fromkeys(passages(texts[title])))
        random.Random(title).shuffle(chosen)
        rows += [(label, title, line) for line in chosen[:PASSAGES]]
        print(f"{title}: {len(chosen)} passages, mean {sum(map(len, chosen)) / len(chosen):.0f} bytes", file=sys.stderr)
    random.Random(0).shuffle(rows)
    with open(output, "w", encoding="ascii") as file:
        for label, title, line in rows:
            print(label, title, line, sep="\t", file=file)


if __name__ == "__main__":
    main(*sys.argv[1:])
