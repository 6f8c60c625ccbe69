#!/usr/bin/env python3
"""Makes one C++ program of the code on the pages of docs/metrics; running it compares what the pages say is printed.

Usage: pages.py DIRECTORY OUTPUT.cpp

Each ```cpp block of a page becomes part of one function, in order, so that a block sees what those before it declared.
A ```text block directly behind it is what the code printed since the block before; without one it must print nothing.
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
    lines = [f"void {name}() {{"]
    pending = None  # where the last block of code began

    def check(expected):
        lines.append(f'docs_expect("{path.name}", {pending}, R"docs({expected})docs");')

    for kind, start, body, adjacent in blocks_of(path.read_text()):
        if kind == "cpp":
            if pending is not None:
                check("")
            pending = start
            lines += [f'#line {start} "{path.as_posix()}"', body]
        elif kind == "text" and adjacent and pending is not None:
            check(body + "\n")
            pending = None
    if pending is not None:
        check("")
    return "\n".join([*lines, "}"])


PROLOGUE = """// Made by tests/docs/pages.py from docs/metrics.

#include <iostream>

#include <torch/torch.h>

#include <danling/danling.hpp>

#include <docs/expect.hpp>

namespace dl = danling;

"""


def main():
    directory, output = Path(sys.argv[1]), Path(sys.argv[2])
    pages = sorted(directory.glob("*.md"))
    names = [f"page_{path.stem.replace('-', '_')}" for path in pages]
    functions = [function_of(path, name) for path, name in zip(pages, names)]
    calls = "".join(f'  docs_run("{p.name}", {n});\n' for p, n in zip(pages, names))
    text = PROLOGUE + "\n\n".join(functions) + "\n\nint main() {\n" + calls + "  return docs_result();\n}\n"
    if not output.exists() or output.read_text() != text:
        output.write_text(text)


main()
