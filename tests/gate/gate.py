#!/usr/bin/env python3
"""Whether programs give the same bits with this tree as with an older commit.

    gate.py BASE [cmake option...]

Builds the programs of this folder and the example with the library of BASE and with that of this tree, runs each one
through and once with a stop that is resumed, and compares results, metrics (times apart) and checkpoints. Checkpoints of
BASE are resumed by this tree too. Ends with 1 where something differs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "build" / "gate"
# Program: what it is told, and the micro-batch before which one of its runs is stopped.
PROGRAMS = {
    "epochs": ([], 30),
    "steps": ([], 50),
    "batches": ([], 21),
    "mnist": (["--channels=2", "--console=false", "--epochs=3", f"--data.root={ROOT / 'examples/mnist/data'}"], None),
}
# Of an attempt, or by time.
KEY_OF_ONE = re.compile(r"runner\.\S+: only in |\d+ differences?; ")  # of the config; the sum of all
PASSED_OVER = ("logs/", "attempts/", ".lock", "metadata/git", "git.diff", "previous.pth", "summary.json", "metadata/config")


def call(words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    return done.returncode, done.stdout + done.stderr


def must(words, codes=(0,), **options):
    code, output = call(words, **options)
    if code not in codes:
        sys.exit(f"gate: expected exit code {codes}, got {code}: {' '.join(map(str, words))}\n{output}")
    return output


def build(name, source, options):
    """The programs with the library of `source`, and the danling command."""
    out = WORK / name
    jobs = ["-j", os.environ.get("DANLING_JOBS", "2")]
    # As ./dev builds it, so that a compiler cache has most of it.
    must(["cmake", "--preset", "release", "-B", out / "build", *options], cwd=source)
    must(["ninja", "-C", out / "build", *jobs, "danling", "danling_command", "mnist"])
    must(["cmake", "--install", out / "build", "--prefix", out / "installed"])
    must(["cmake", "-G", "Ninja", "-S", HERE, "-B", out / "programs", "-DCMAKE_BUILD_TYPE=Release",
          f"-DCMAKE_PREFIX_PATH={out / 'installed'}", *options])
    must(["ninja", "-C", out / "programs", *jobs])
    programs = {name: out / "programs" / f"gate_{name}" for name in PROGRAMS}
    programs["mnist"] = next(path for path in (out / "build").rglob("mnist") if path.is_file())
    programs["danling"] = out / "installed" / "bin" / "danling"
    return programs


def run(program, words, root, stop_at=None):
    """One run of `program` in `root`; returns the folder of its files. Paths are relative: checkpoints hold them."""
    root.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **({"DANLING_GATE_STOP_AT": str(stop_at)} if stop_at else {})}
    # 143: stopped by SIGTERM.
    must([program, "--workspace_root=runs", "--lineage=gate", *words], (143 if stop_at else 0,), cwd=root, env=environment)
    (found,) = [path.parent for path in root.glob("runs/*/*/metrics.jsonl")]
    return found


def without_times(line):
    entry = json.loads(line)
    entry.pop("telemetry", None)
    return entry


def without_attempt(path):
    """A file of results without what belongs to the attempt that wrote it, and without the numbers of epochs, which once
    began at 0."""
    tree = json.loads(path.read_text())
    rows = {"results": list(tree["results"].values())} if "results" in tree else {}
    return {key: value for key, value in {**tree, **rows}.items() if key not in ("timestamp", "index")}


def files_of(folder):
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if not any(part in name for part in PASSED_OVER)}


def differences(danling, left, right):
    names = files_of(left)
    out = [f"{name} is only in one" for name in sorted(names ^ files_of(right))]
    for name in sorted(names & files_of(right)):
        a, b = left / name, right / name
        if name.endswith(".pth"):
            code, text = call([danling, "ckpt", "diff", a, b])
            lines = [line for line in text.splitlines() if code != 0 and not KEY_OF_ONE.match(line)]
            if lines:
                out.append(f"{name}: {'; '.join(lines)[:300]}")
        elif name.endswith(".jsonl"):
            rows = [[without_times(line) for line in path.read_text().splitlines()] for path in (a, b)]
            if rows[0] != rows[1]:
                at = next((i for i, (x, y) in enumerate(zip(*rows)) if x != y), min(map(len, rows)))
                out.append(f"{name}: line {at + 1} of {len(rows[0])} and {len(rows[1])}")
        elif name.endswith(".json"):
            if without_attempt(a) != without_attempt(b):
                out.append(f"{name}: values")
        elif a.read_bytes() != b.read_bytes():
            out.append(f"{name}: bytes")
    return out


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    base, *options = sys.argv[1:]
    commit = must(["git", "-C", ROOT, "rev-parse", "--verify", f"{base}^{{commit}}"]).strip()
    checkout = WORK / "checkout"
    if not checkout.exists():
        must(["git", "-C", ROOT, "worktree", "prune"])
        must(["git", "-C", ROOT, "worktree", "add", "--detach", checkout, commit])
    must(["git", "-C", checkout, "checkout", "--detach", commit])
    old, new = build("base", checkout, options), build("tree", ROOT, options)
    danling = new["danling"]
    shutil.rmtree(WORK / "runs", ignore_errors=True)
    failed = 0
    for name, (always, stop_at) in PROGRAMS.items():
        ran = {}
        for side, program in (("base", old[name]), ("tree", new[name])):
            root = WORK / "runs" / name / side
            ran[side, "through"] = run(program, always, root / "through")
            if stop_at:
                run(program, always, root / "resumed", stop_at)
                if side == "base":
                    shutil.copytree(root / "resumed", root.parent / "mixed", symlinks=True)
                ran[side, "resumed"] = run(program, [*always, "--auto_resume"], root / "resumed")
        if stop_at:
            mixed = WORK / "runs" / name / "mixed"
            ran["base by tree", "resumed"] = run(new[name], [*always, "--auto_resume"], mixed)
        reference = ran["base", "through"]
        for (side, way), folder in ran.items():
            found = differences(danling, reference, folder)
            failed += len(found)
            print(f"{name}: {side}, {way}: " + ("the same as base, through" if not found else "; ".join(found)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
