#!/usr/bin/env python3
"""Draws the pictures of schedules in the guide: FOLDER/NAME.svg of each FOLDER/NAME.yaml.

Usage: pictures.py COMMAND FOLDER [--check]

COMMAND is the danling command. A first line "# --option value" of a config holds further options. With --check, compares
the pictures in FOLDER with new ones and writes nothing there.
"""

import subprocess
import sys
import tempfile
from pathlib import Path


def draw(command, config, picture):
    first = config.read_text(encoding="utf-8").splitlines()[0]
    options = first[1:].split() if first.startswith("# --") else []
    subprocess.run([command, "schedule", config, "--svg", picture, *options], check=True)


def main():
    command, folder, check = sys.argv[1], Path(sys.argv[2]), "--check" in sys.argv
    configs = sorted(folder.glob("*.yaml"))
    if not configs:
        sys.exit(f"expected configs in {folder}, got none")
    with tempfile.TemporaryDirectory() as temporary:
        wrong = []
        for config in configs:
            drawn, picture = Path(temporary) / f"{config.stem}.svg", config.with_suffix(".svg")
            draw(command, config, drawn)
            if not check:
                picture.write_bytes(drawn.read_bytes())
            elif not picture.exists() or picture.read_bytes() != drawn.read_bytes():
                wrong.append(picture.name)
        wrong += [path.name for path in folder.glob("*.svg") if check and not path.with_suffix(".yaml").exists()]
    if wrong:
        sys.exit(f"{', '.join(wrong)}: not what the command draws; build the target schedule_pictures and commit them")


main()
