#!/usr/bin/env python3
"""Compiles snippets that must not compile, and checks that the first error of each says what to write.

Usage: check.py COMPILER FLAGS_FILE SNIPPET...

Each snippet begins with `// expect: <sentence>`. With WRONG defined it must fail with that sentence in its first error;
without, all snippets together must compile. Both times they are one unit: LibTorch's headers are read once.
"""

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def errors_by_snippet(output, snippets, is_clang):
    """The error lines of each snippet, in order; those of None belong to no snippet.

    An error in a header belongs to the snippet that asked for it: clang++ names that behind the error, g++ before it, or
    not at all where it is the one of the error before.
    """
    named = re.compile("|".join(re.escape(str(snippet)) for snippet in snippets))
    lines = output.splitlines()
    places = [index for index, line in enumerate(lines) if re.match(r"[^ ].*?:\d+:\d+: (fatal )?error: ", line)]
    errors = {snippet: [] for snippet in [None, *snippets]}
    snippet = None
    for nth, place in enumerate(places):
        if is_clang:
            context = lines[place : places[nth + 1] if nth + 1 < len(places) else None]
        else:
            context = reversed(lines[places[nth - 1] + 1 if nth else 0 : place + 1])
        found = next((match for match in map(named.search, context) if match), None)
        if found or is_clang:
            snippet = Path(found.group()) if found else None
        errors[snippet].append(lines[place])
    return errors


def main():
    compiler, flags = sys.argv[1], f"@{sys.argv[2]}"
    snippets = [Path(name).resolve() for name in sys.argv[3:]]
    texts = {snippet: snippet.read_text(encoding="utf-8") for snippet in snippets}
    environment = {**os.environ, "LC_ALL": "C"}
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, env=environment).stdout
    is_clang = "clang" in version
    no_limit = "-ferror-limit=0" if is_clang else "-fmax-errors=0"

    def compiled(source, *options):
        command = [compiler, flags, "-fsyntax-only", no_limit, "-fdiagnostics-color=never", *options, str(source)]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        together = Path(folder, "together.cpp")
        # The headers first: else what the compiler says of them would name the snippet that includes them first.
        headers = sorted({line for text in texts.values() for line in text.splitlines() if line.startswith("#include ")})
        together.write_text("\n".join(headers + [f'#include "{snippet}"' for snippet in snippets]) + "\n")
        right = pool.submit(compiled, together)
        wrong = compiled(together, "-DWRONG")
        problems = ["without WRONG: " + right.result().stderr] if right.result().returncode != 0 else []
    errors = errors_by_snippet(wrong.stderr, snippets, is_clang)
    for snippet in snippets:
        first_line = texts[snippet].splitlines()[0]
        sentence = first_line.removeprefix("// expect: ")
        if sentence == first_line:
            problems.append(f"{snippet.name}: does not begin with `// expect: `")
        elif not errors[snippet]:
            problems.append(f"{snippet.name}: compiles, and must not")
        elif sentence not in errors[snippet][0]:
            problems.append(f"{snippet.name}: expected `{sentence}` in the first error, got {errors[snippet][0]}")
    problems += [f"of no snippet: {error}" for error in errors[None]] if problems else []
    print("\n".join(problems) or f"{len(snippets)} snippets fail as they should")
    return 1 if problems or not snippets else 0


if __name__ == "__main__":
    sys.exit(main())
