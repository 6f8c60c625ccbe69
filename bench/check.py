#!/usr/bin/env python3
"""Compares the ratios of benchmark runs with the committed results, and keeps new results.

    check.py compare COMMITTED NEW...  fails if a ratio of all new runs is worse than the committed one
    check.py keep COMMITTED NEW        replaces the committed results, unless the new ones lack a ratio

A ratio is worse if the intervals of both runs do not overlap and their difference exceeds the noise of either run. The
noise is the deviation of the control: how far the ratio of the same program to itself is from 1 at an end of its
interval. A ratio without a control has the noise of the widest control of its run; in a run without controls, that of
its own interval. A quotient of counted bytes has neither a control nor an interval; for it, the noise is COUNTED.
"""

import json
import pathlib
import shutil
import sys

# Counts repeat exactly within a build. Another allocator or LibTorch moves them a little, which no run measures.
COUNTED = 0.01


def shown(number):
    return f"{number:.4g}"


def interval(ratio):
    return f"{shown(ratio['value'])} [{shown(ratio['low'])}, {shown(ratio['high'])}]"


def control(ratio):
    if ratio["control"] is None:
        return "no control"
    return f"control [{shown(ratio['control_low'])}, {shown(ratio['control_high'])}]"


def deviation(ratio):
    return max(abs(ratio["control_low"] - 1), abs(ratio["control_high"] - 1))


def noise(ratio, results):
    """The relative difference from the ratio that can be noise of its run."""
    if ratio["control"] is not None:
        return deviation(ratio)
    if ratio["low"] == ratio["high"]:
        return COUNTED
    own = max(ratio["value"] - ratio["low"], ratio["high"] - ratio["value"]) / abs(ratio["value"])
    return max((deviation(other) for other in results["ratios"] if other["control"] is not None), default=own)


def is_worse(old, new, allowed):
    if old["better"] == "higher":
        apart, difference = new["high"] < old["low"], old["value"] - new["value"]
    else:
        apart, difference = new["low"] > old["high"], new["value"] - old["value"]
    return apart and difference > allowed * abs(old["value"])


def compare_ratio(name, old_results, new_results):
    """Returns why the new ratio fails, or an empty string."""
    old, new = (
        next((one for one in results["ratios"] if one["name"] == name), None) for results in (old_results, new_results)
    )
    if new is None:
        return f"{old['name']}: expected a ratio as in the committed results, {interval(old)}, got none"
    if new["better"] != old["better"]:
        return f"{old['name']}: expected {old['better']} to be better, as in the committed results, got {new['better']}"
    allowed = max(noise(old, old_results), noise(new, new_results))
    if is_worse(old, new, allowed):
        return (
            f"{old['name']}: {interval(new)}, {control(new)}, is worse than the committed {interval(old)}, {control(old)}, "
            f"by more than the noise of {shown(100 * allowed)} %"
        )
    return ""


def compare(old, new):
    """Returns the failures by the names of their ratios."""
    for results, which in ((old, "committed"), (new, "new")):
        if results["quick"]:
            return {"": f"expected {which} results of a whole run, got those of --quick"}
    failures = {ratio["name"]: compare_ratio(ratio["name"], old, new) for ratio in old["ratios"]}
    return {name: text for name, text in failures.items() if text}


def compare_values(old, new):
    """Returns lines about absolute values, which never fail."""
    if old["machine"] != new["machine"]:
        before, now = (", ".join(map(str, results["machine"].values())) for results in (old, new))
        return [f"warning: another machine ({now}; committed: {before}): absolute values are not compared, ratios are"]
    values = {value["name"]: value["value"] for value in new["values"]}
    return [
        f"note: {value['name']}: {shown(values[value['name']])} {value['unit']}, committed {shown(value['value'])}"
        for value in old["values"]
        if value["name"] in values and abs(values[value["name"]] - value["value"]) > 0.1 * abs(value["value"])
    ]


def check(old, runs):
    """Prints the comparison. Returns whether no ratio fails in all runs."""
    all_failures = [compare(old, new) for new in runs]
    failures = {name: text for name, text in all_failures[-1].items() if all(name in one for one in all_failures)}
    for line in compare_values(old, runs[-1]):
        print(f"{old['name']}: {line}")
    for text in failures.values():
        print(f"{old['name']}: error: {text}")
    print(f"{old['name']}: {len(old['ratios'])} ratios compared with {old['commit']}, {len(failures)} failed")
    return not failures


def read(path):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        sys.exit(f"expected results in {path}, found none: the benchmark has to write them with --json")


def keep(committed, path):
    """Returns why the results are not kept, or an empty string."""
    new = read(path)
    if new["quick"]:
        return "expected results of a whole run, got those of --quick"
    if committed.exists():
        names = {ratio["name"] for ratio in new["ratios"]}
        lost = [ratio["name"] for ratio in read(committed)["ratios"] if ratio["name"] not in names]
        if lost:
            return f"they lack ratios, such as {lost[0]}; to drop these, remove {committed}"
    shutil.copyfile(path, committed)
    return ""


def main(arguments):
    command, committed, *new = arguments[0], *map(pathlib.Path, arguments[1:])
    if command == "keep":
        why = keep(committed, new[0])
        if why:
            print(f"{new[0]} is not kept: {why}", file=sys.stderr)
        return 1 if why else 0
    if command != "compare":
        print(f"expected compare or keep, got {command}", file=sys.stderr)
        return 2
    return 0 if check(read(committed), [read(path) for path in new]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
