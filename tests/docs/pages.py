#!/usr/bin/env python3
"""Makes one C++ program of the code on pages; running it compares what the pages say is printed.

Usage: pages.py OUTPUT.cpp PAGE_OR_DIRECTORY...

Each ```cpp block of a page becomes part of one function, in order, so that a block sees what those before it declared.
A ```cpp global block is code outside of functions: types, and the functions beside them. A ```text block directly
behind code is what it printed since the block before; without one it must print nothing.

A ```yaml block is the config of a run: it must load, without unknown keys, and be valid. ```yaml FILE is one that
commands.py writes to a file; ```yaml of FORMAT is in the format of something else, and not read.

A ```cpp program NAME block is a complete file with main(). A ```diff NAME block changes the newest version of NAME: its
hunks, separated by lines that begin with @@, replace context and "-" lines by context and "+" lines. With
DANLING_PAGE=<page>/<NAME>/<version> in the environment, the program made here runs that main() instead; commands.py
does so.
"""

import re
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


def patched(program, hunks, where):
    """The program after the hunks of a diff block."""
    for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE):
        lines = hunk.splitlines()
        old = "".join(line[1:] + "\n" for line in lines if not line.startswith("+"))
        new = "".join(line[1:] + "\n" for line in lines if not line.startswith("-"))
        if lines and program.count(old) != 1:
            sys.exit(f"{where}: expected once in the program, got {program.count(old)} times:\n{old}")
        program = program.replace(old, new) if lines else program
    return program


def programs_of(path):
    """Yields (name, version from 1, line number, text) of each program of a page and of each change to one."""
    newest = {}
    for kind, start, body, _ in blocks_of(path.read_text(encoding="utf-8")):
        words = kind.split()
        if words[:2] == ["cpp", "program"]:
            newest[words[2]] = (1, body + "\n")
        elif words[:1] == ["diff"] and len(words) == 2:
            version, text = newest[words[1]]
            newest[words[1]] = (version + 1, patched(text, body + "\n", f"{path}:{start}"))
        else:
            continue
        name = words[-1]
        yield name, newest[name][0], start, newest[name][1]


def page_name(path):
    return f"{path.parent.name}/{path.name}"


def identifier(*words):
    return re.sub(r"\W", "_", "_".join(str(word) for word in words))


def function_of(path, name):
    """The code of one page as a function; #line makes compilers and checks speak of the page."""
    outside, lines = [f"namespace {name} {{"], ["void run() {"]
    pending = None  # where the last block of code began

    def check(expected):
        lines.append(f'docs_expect("{page_name(path)}", {pending}, R"docs({expected})docs");')

    for kind, start, body, adjacent in blocks_of(path.read_text(encoding="utf-8")):
        if kind == "cpp global":
            outside += [f'#line {start} "{path.as_posix()}"', body]
        elif kind == "cpp":
            if pending is not None:
                check("")
            pending = start
            lines += [f'#line {start} "{path.as_posix()}"', body]
        elif kind == "yaml":
            lines.append(f'docs_config("{page_name(path)}", {start}, R"docs({body})docs");')
        elif kind == "text" and adjacent and pending is not None:
            check(body + "\n")
            pending = None
    if pending is not None:
        check("")
    return "\n".join([*outside, *lines, "}", f"}}  // namespace {name}"])


def program_in_namespace(path, name, version, start, text):
    """One file as a namespace; lines that were #include stay as blank ones, so that line numbers hold."""
    body = re.sub(r"^#include.*$", "", text, flags=re.MULTILINE)
    line = f'#line {start} "{path.as_posix()}"'  # of a changed program, lines count from the change
    space = identifier("program", path.parent.name, path.stem, name, version)
    return f"namespace {space} {{\n{line}\n{body}\n}}  // namespace {space}", space


PROLOGUE = """// Made by tests/docs/pages.py from the pages of docs/.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string_view>

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
{includes}
#include <docs/expect.hpp>

namespace dl = danling;

"""

MAIN = """int main(int argc, char** argv) {{
  if (const char* wanted = std::getenv("DANLING_PAGE")) {{
    const std::string_view program = wanted;
{programs}    std::cerr << "no page has the program " << wanted << "\\n";
    return 64;
  }}
  static_cast<void>(argc), static_cast<void>(argv);
{pages}  return docs_result();
}}
"""


def main():
    output = Path(sys.argv[1])
    pages = []
    for place in map(Path, sys.argv[2:]):
        pages += sorted(place.glob("*.md")) if place.is_dir() else [place]
    parts, runs, programs, includes = [], "", "", set()
    for page in pages:
        name = identifier("page", page.parent.name, page.stem)
        parts.append(function_of(page, name))
        runs += f'  docs_run("{page_name(page)}", {name}::run);\n'
        for program, version, start, text in programs_of(page):
            part, space = program_in_namespace(page, program, version, start, text)
            parts.append(part)
            includes.update(re.findall(r"^#include <.*>$", text, flags=re.MULTILINE))
            which = f"{page_name(page)}/{program}/{version}"
            programs += f'    if (program == "{which}") return {space}::main(argc, argv);\n'
    prologue = PROLOGUE.replace("{includes}", "\n".join(sorted(includes)))
    text = prologue + "\n\n".join(parts) + "\n\n" + MAIN.format(programs=programs, pages=runs)
    if not output.exists() or output.read_text(encoding="utf-8") != text:
        output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
