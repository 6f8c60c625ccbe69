#!/usr/bin/env python3
"""Runs the commands on pages and compares their output with the pages.

Usage: commands.py PROGRAM DANLING PYTHON PAGE_OR_DIRECTORY...

PROGRAM is what pages.py made; it stands for every program of a page, in its newest version so far. DANLING is the
command, PYTHON a Python with torch or an empty text; without it, a command of python3 and all behind it on the page are
left out.

```console   Lines that begin with "$ " are commands, the lines behind each are its output (standard error too). A line
             "…" stands for any lines, "…" within a line for any text. Numbers with a decimal point may differ by a
             little, and hashes of configs are any. A line "^C" sends SIGINT once the line before it was printed.
             Commands that install, build or change the folder are not run.
```yaml FILE, ```python FILE, ```text FILE   are written to this file before the commands behind them.

Progress lines, of which a terminal shows the last one only, are left out of the output.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from pages import blocks_of, page_name, programs_of

NOT_RUN = ("./dev ", "cd ", "mkdir ", "cmake ", "git ", "export ")
PROGRESS = re.compile(r"(\[\d+\] )?(train|evaluate) .*\d+/\d+  ")
NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]\d+)?(?![\w.])|[▁▂▃▄▅▆▇█]|\b[0-9a-f]{12}\b")
SECONDS = 60


def line_matches(expected, printed):
    """Whether a line is the expected one: "…" is any text, a number with a point equal to 3 % or 0.02, a hash any."""
    pattern, numbers, end = "", [], 0
    for token in re.finditer(f"…|{NUMBER.pattern}", expected):
        pattern += re.escape(expected[end : token.start()])
        end = token.end()
        if token[0] == "…":
            pattern += ".*"
        elif token[0] in "▁▂▃▄▅▆▇█":
            pattern += "[▁▂▃▄▅▆▇█]"
        elif "." not in token[0]:
            pattern += "[0-9a-f]{12}"
        else:
            pattern += r"(-?(?:\d+\.\d+(?:e[+-]\d+)?|nan|inf))"
            numbers.append(float(token[0]))
    found = re.fullmatch(pattern + re.escape(expected[end:]), printed)
    return found is not None and all(
        abs(number - float(text)) <= max(0.02, 0.03 * abs(number)) for number, text in zip(numbers, found.groups())
    )


def first_difference(expected, printed):
    """The index of the first expected line that does not match, or None."""
    reach = {0}  # the lengths of output that the expected lines so far match
    for index, line in enumerate(expected):
        if line == "…":
            reach = set(range(min(reach), len(printed) + 1))
        else:
            reach = {at + 1 for at in reach if at < len(printed) and line_matches(line, printed[at])}
        if not reach:
            return index
    return None if len(printed) in reach else len(expected)


def commands_of(body):
    """Yields (offset in lines, command, expected lines)."""
    commands = []
    for offset, line in enumerate(body.splitlines()):
        if line.startswith("$ "):
            commands.append((offset, line[2:], []))
        elif not commands:
            sys.exit(f"expected a line that begins with '$ ', got {line!r}")
        elif commands[-1][1].endswith("\\"):
            commands[-1] = (commands[-1][0], commands[-1][1][:-1] + line, [])
        else:
            commands[-1][2].append(line)
    return commands


def printed_by(command, folder, environment, interrupt_after):
    """Lines of output; sends SIGINT behind the line that matches `interrupt_after`, if there is one."""
    # With a low priority, so that on a busy machine it does not end before this reader has run.
    process = subprocess.Popen(
        ["bash", "-c", f"exec nice -n 10 {command}" if interrupt_after else command],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, encoding="utf-8", bufsize=1,
    )  # fmt: skip
    limit = threading.Timer(SECONDS, process.kill)
    limit.start()
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if interrupt_after and line_matches(interrupt_after, lines[-1]):
                process.send_signal(signal.SIGINT)
                interrupt_after = None
        process.wait()
    finally:
        limit.cancel()
        if process.poll() is None:
            process.kill()
    return [line for line in lines if not PROGRESS.match(line)]


def compare(where, command, expected, folder, environment):
    """Runs a command; prints the difference if there is one, and returns whether there is none."""
    interrupt_after = None
    if "^C" in expected:
        at = expected.index("^C")
        interrupt_after = expected[at - 1]
        expected = [*expected[:at], "…", *expected[at + 1 :]]  # a step or two may end before the signal arrives
    printed = printed_by(command, folder, environment, interrupt_after)
    index = first_difference(expected, printed)
    if index is None:
        return True
    wanted = expected[index] if index < len(expected) else "the end"
    print(f"{where}: {command}\nexpected, as line {index + 1} of the output:\n{wanted}\ngot\n", "\n".join(printed), sep="")
    return False


def run_page(page, program, danling, python):
    """Runs the commands of one page in a new folder; returns how many did not print what the page says."""
    wrong, versions = 0, {start: (name, version) for name, version, start, _ in programs_of(page)}
    with tempfile.TemporaryDirectory() as temporary:
        folder, bin_folder = Path(temporary) / "work", Path(temporary) / "bin"
        (folder / "build").mkdir(parents=True)
        bin_folder.mkdir()
        (bin_folder / "danling").symlink_to(danling)
        if python:
            (bin_folder / "python3").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n', encoding="utf-8")
            (bin_folder / "python3").chmod(0o755)
        environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        environment.pop("DANLING_PYTHON", None)
        for kind, start, body, _ in blocks_of(page.read_text(encoding="utf-8")):
            if start in versions:
                name, version = versions[start]
                environment["DANLING_PAGE"] = f"{page_name(page)}/{name}/{version}"
                for link in (folder / name, folder / "build" / name):
                    if not link.exists():
                        link.symlink_to(program)
            elif re.fullmatch(r"(yaml|python|text) \S+", kind):
                (folder / kind.split()[1]).write_text(body + "\n", encoding="utf-8")
            elif kind == "console":
                for offset, command, expected in commands_of(body):
                    if command.startswith(NOT_RUN):
                        continue
                    if command.startswith("python3 ") and not python:
                        print(f"{page}: left out from line {start + offset} on, which needs a Python with torch")
                        return wrong
                    where = f"{page}:{start + offset}"
                    wrong += not compare(where, command, expected, folder, environment)
    return wrong


def main():
    program, danling = (Path(name).resolve() for name in sys.argv[1:3])
    pages = []
    for place in map(Path, sys.argv[4:]):
        pages += sorted(place.glob("*.md")) if place.is_dir() else [place]
    wrong = sum(run_page(page, program, danling, sys.argv[3]) for page in pages)
    if wrong:
        sys.exit(f"{wrong} commands did not print what the pages say")
    print("the commands print what the pages say")


if __name__ == "__main__":
    main()
