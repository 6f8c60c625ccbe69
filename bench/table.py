#!/usr/bin/env python3
"""Writes the table of the committed results into bench/README.md: table.py [--check].

--check fails if the table differs from the results.
"""

import json
import pathlib
import sys

BENCH = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"


def shown(number, value):
    """The number with the digits that the value needs."""
    digits = 3 if value < 2 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{number:,.{digits}f}"


def interval(value, low, high):
    if value is None:
        return ""
    text = shown(value, value)
    return text if low == high else f"{text} [{shown(low, value)}, {shown(high, value)}]"


def table(all_results):
    if not all_results:
        return "No results are committed; `./dev bench all` writes them.\n"
    lines = [
        "| command | compared | ratio | better | control | date |",
        "|---|---|---|---|---|---|",
    ]
    for results in all_results:
        for ratio in results["ratios"]:
            if ratio.get("headline", True):
                compared = ratio["name"].replace("|", "\\|")
                value = interval(ratio["value"], ratio["low"], ratio["high"])
                control = interval(ratio["control"], ratio["control_low"], ratio["control_high"])
                lines.append(
                    f"| `./dev bench {results['name']}` | {compared} | {value} | {ratio['better']} | {control} "
                    f"| {results['date']} |"
                )
    losses = [(results["name"], check) for results in all_results for check in results["checks"] if "loss" in check["name"]]
    if losses:
        lines += ["", "| command | equal losses | value | contestants | at most apart |", "|---|---|---|---|---|"]
        lines += [
            f"| `./dev bench {name}` | {check['name']} | {check['value']:.4g} | {check['contestants']} | {check['apart']:.0e} |"
            for name, check in losses
        ]
    machines = {}
    for results in all_results:
        machine = results["machine"]
        text = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB"
        machines.setdefault(text, []).append(results["name"])
    lines.append("")
    lines += [f"{', '.join(names)}: on {text}." for text, names in machines.items()]
    return "\n".join(lines) + "\n"


def with_table(text, all_results):
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table(all_results) + "\n" + END + rest.split(END)[1]


def main(arguments):
    all_results = [json.loads(path.read_text()) for path in sorted((BENCH / "results").glob("*.json"))]
    readme = BENCH / "README.md"
    text = readme.read_text()
    new = with_table(text, all_results)
    if arguments == ["--check"]:
        if new != text:
            print("bench/README.md: expected the table of bench/results; python3 bench/table.py writes it")
        return 0 if new == text else 1
    readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
