#!/usr/bin/env python3
"""Compiles snippets that must not compile, and checks that the first error says what to write.

Usage: check.py COMPILER FLAGS_FILE SNIPPET...

Each snippet begins with `// expect: <sentence>`. With WRONG defined it must fail with that sentence in the first error;
without, all snippets together must compile.
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def main():
    compiler, flags = sys.argv[1], f"@{sys.argv[2]}"
    snippets = [Path(name).resolve() for name in sys.argv[3:]]

    def errors_of(source, *options):
        """None where the file compiles, else its error messages."""
        command = [compiler, flags, "-fsyntax-only", *options, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        if done.returncode == 0:
            return None
        return [line for line in done.stderr.splitlines() if "error: " in line] or [done.stderr]

    def problem_of(snippet):
        first = snippet.read_text(encoding="utf-8").splitlines()[0]
        sentence = first.removeprefix("// expect: ")
        if sentence == first:
            return "does not begin with `// expect: `"
        errors = errors_of(snippet, "-DWRONG")
        if errors is None:
            return "compiles, and must not"
        return None if sentence in errors[0] else f"expected `{sentence}` in the first error, got {errors[0]}"

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        together = Path(folder, "right.cpp")
        together.write_text("".join(f'#include "{snippet}"\n' for snippet in snippets))
        right = pool.submit(errors_of, together)
        problems = list(pool.map(problem_of, snippets))
        wrong = [f"{snippet.name}: {text}" for snippet, text in zip(snippets, problems) if text]
        if right.result() is not None:
            wrong.append("without WRONG: " + "\n".join(right.result()))
    print("\n".join(wrong) or f"{len(snippets)} snippets fail as they should")
    return 1 if wrong or not snippets else 0


if __name__ == "__main__":
    sys.exit(main())
