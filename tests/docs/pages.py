#!/usr/bin/env python3
"""Makes one C++ program of the code on the pages of the guide; running it compares what the pages say is printed.

Usage: pages.py OUTPUT.cpp (DIRECTORY | PAGE)...

Each ```cpp block of a page becomes part of one function, in order, so that a block sees what those before it declared.
A ```cpp global block is code outside of functions: types, and the functions beside them. A ```text block directly
behind code is what it printed since the block before; without one it must print nothing.
"""

import sys
from pathlib import Path

FENCE = "```"


def blocks_of(text):
    """Yields (kind, line number of the first line inside, body, whether only blank lines part it from the block before)."""
    inside, body, start, adjacent = None, [], 0, False
    for number, line in enumerate(text.splitlines(), 1):
        if inside is None and line.startswith(FENCE):
            inside, body, start = line[len(FENCE) :].strip(), [], number + 1
        elif inside is not None and line == FENCE:
            yield inside, start, "\n".join(body), adjacent
            inside, adjacent = None, True
        elif inside is not None:
            body.append(line)
        elif line.strip():
            adjacent = False
    if inside is not None:
        sys.exit(f"expected the end of the block that begins in line {start - 1}")


def function_of(path, name):
    """The code of one page as a function; #line makes compilers and checks speak of the page."""
    outside, lines = [f"namespace {name} {{"], ["void run() {"]
    pending = None  # where the last block of code began

    def check(expected):
        lines.append(f'docs_expect("{path.parent.name}/{path.name}", {pending}, R"docs({expected})docs");')

    for kind, start, body, adjacent in blocks_of(path.read_text(encoding="utf-8")):
        if kind == "cpp global":
            outside += [f'#line {start} "{path.as_posix()}"', body]
        elif kind == "cpp":
            if pending is not None:
                check("")
            pending = start
            lines += [f'#line {start} "{path.as_posix()}"', body]
        elif kind == "text" and adjacent and pending is not None:
            check(body + "\n")
            pending = None
    if pending is not None:
        check("")
    return "\n".join([*outside, *lines, "}", f"}}  // namespace {name}"])


PROLOGUE = """// Made by tests/docs/pages.py from the pages of the guide.

#include <filesystem>
#include <fstream>
#include <iostream>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/torch.h>
#include <unistd.h>

#include <danling/danling.hpp>
#include <danling/formats/trace.hpp>
#include <danling/nn/sync_batch_norm.hpp>
#include <danling/parallel.hpp>
#include <danling/telemetry/plot.hpp>
#include <danling/telemetry/progress.hpp>
#include <danling/telemetry/tensorboard_sink.hpp>
#include <danling/telemetry/text.hpp>

#include <docs/expect.hpp>

namespace dl = danling;

"""


def main():
    output, places = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    pages = [path for place in places for path in ([place] if place.is_file() else sorted(place.glob("*.md")))]
    names = [f"page_{path.parent.name}_{path.stem.replace('-', '_')}" for path in pages]
    functions = [function_of(path, name) for path, name in zip(pages, names)]
    calls = "".join(f'  docs_run("{p.parent.name}/{p.name}", {n}::run);\n' for p, n in zip(pages, names))
    text = PROLOGUE + "\n\n".join(functions) + "\n\nint main() {\n" + calls + "  return docs_result();\n}\n"
    if not output.exists() or output.read_text(encoding="utf-8") != text:
        output.write_text(text, encoding="utf-8")


main()
