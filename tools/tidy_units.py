#!/usr/bin/env python3
"""Joins sources to units for clang-tidy, which spends most of its time on headers and reads them once per unit.

Usage: tidy_units.py BUILD_DIR OUTPUT_DIR < paths of sources, one per line

Sources of one module with the same options become units of at most 16. Prints the units' paths, the largest first;
OUTPUT_DIR gets their compile_commands.json.
"""

import json
import shlex
import shutil
import sys
from collections import defaultdict
from pathlib import Path

# The static analyzer checks functions in the main file, and in sources that a file of this name includes.
NAME = "UnifiedSource"
LARGEST = 16


def options_of(entry):
    """Returns the compile command without the source and output, which differ."""
    words = entry["arguments"] if "arguments" in entry else shlex.split(entry["command"])
    out = []
    words = iter(words)
    for word in words:
        if word in ("-o", "-c"):
            next(words)
        else:
            out.append(word)
    return tuple(out)


def main():
    build, output = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    known = {Path(entry["directory"], entry["file"]).resolve(): entry for entry in entries}
    groups = defaultdict(list)
    for line in sys.stdin:
        source = Path(line.strip()).resolve()
        if source in known:  # skips alternative sources that this build does not compile
            groups[source.parent, known[source]["directory"], options_of(known[source])].append(source)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    commands, units = [], []
    for (folder, directory, options), sources in sorted(groups.items()):
        parts = -(-len(sources) // LARGEST)
        for part in range(parts):
            chosen = sorted(sources)[part::parts]
            unit = output / f"{NAME}_{folder.name}_{len(units)}.cpp"
            # NOLINT: including sources is the purpose.
            unit.write_text("".join(f'#include "{source}"  // NOLINT\n' for source in chosen), encoding="utf-8")
            commands.append({"directory": directory, "file": str(unit), "arguments": [*options, "-c", str(unit)]})
            units.append((-len(chosen), str(unit)))
    (output / "compile_commands.json").write_text(json.dumps(commands, indent=1), encoding="utf-8")
    print("\n".join(unit for _, unit in sorted(units)))


if __name__ == "__main__":
    main()
