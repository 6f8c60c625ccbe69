"""Writes the results of a benchmark in Python as JSON; results.cpp writes the same for benchmarks in C++.

    results = Results("compile", quick=options.quick)
    results.add_ratio("mnist to the bare program", median_interval(rounds), control=median_interval(control_rounds),
                      better="lower")
    results.add_value("mnist", 18.1, "CPU seconds")
    results.add_check("loss", 0.0123, contestants=3, apart=1e-6, tolerance=1e-4)
    if options.json:
        results.write(options.json)
"""

import datetime
import json
import math
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def median_interval(values):
    """The median and its 95 % interval from order statistics, as (value, low, high); with less than six values, their
    range."""
    values = sorted(values)
    n = len(values)
    half = 0.98 * math.sqrt(n)  # 1.96 * sqrt(n) / 2

    def at(position):
        return values[int(min(max(position, 0), n - 1))]

    return statistics.median(values), at(n / 2 - half), at(n / 2 + half)


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name") and ": " in line:
            return line.split(": ", 1)[1]
    return "unknown"


def commit():
    """The commit, with "-dirty" if files other than the results differ from it."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    if head.returncode != 0:
        return "unknown"
    others = ["--", ".", ":!bench/results", ":!bench/README.md"]
    dirty = subprocess.run([*git, "diff", "--quiet", "HEAD", *others]).returncode != 0
    return head.stdout.strip() + ("-dirty" if dirty else "")


def machine():
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "memory_gib": float(round(memory))}


def rounded(name, value):
    """Five digits, as the noise permits no more."""
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number of {name}, got {value}")
    return float(f"{value:.5g}")


class Results:
    def __init__(self, name, quick=False):
        self.name = name
        self.quick = quick
        self.ratios, self.values, self.checks = [], [], []

    def add_ratio(self, name, interval, control=None, better="higher", headline=True):
        """Intervals are (value, low, high); `control` is that of the same program to itself, measured in the same run.
        A name is unique in the benchmark and the same in every run; `headline` ratios are in the table of
        bench/README.md."""
        if better not in ("higher", "lower"):
            raise ValueError(f"expected higher or lower, got {better}")
        if any(other["name"] == name for other in self.ratios):
            raise ValueError(f"expected one ratio with the name {name}, got two")
        out = {"name": name}
        out.update(zip(("value", "low", "high"), (rounded(name, number) for number in interval)))
        of_control = [None] * 3 if control is None else [rounded(name, number) for number in control]
        out.update(zip(("control", "control_low", "control_high"), of_control))
        out.update(better=better, headline=headline)
        self.ratios.append(out)

    def add_value(self, name, value, unit):
        self.values.append({"name": name, "value": rounded(name, value), "unit": unit})

    def add_check(self, name, value, contestants, apart, tolerance):
        """Records that `contestants` computed `value`, for example a loss, with relative differences of at most
        `apart`."""
        if not apart <= tolerance:
            raise ValueError(f"expected differences of {name} of at most {tolerance}, got {apart}")
        self.checks.append(
            {
                "name": name,
                "value": rounded(name, value),
                "contestants": contestants,
                "apart": rounded(name, apart),
                "tolerance": rounded(name, tolerance),
            }
        )

    def write(self, path):
        if not self.ratios and not self.values:
            raise ValueError(f"expected results of the benchmark {self.name}, got none")
        file = {
            "name": self.name,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "commit": commit(),
            "machine": machine(),
            "quick": self.quick,
            "ratios": self.ratios,
            "values": self.values,
            "checks": self.checks,
        }
        pathlib.Path(path).write_text(json.dumps(file, indent=1, ensure_ascii=False) + "\n")
