#!/usr/bin/env python3
"""Compile time and memory of programs: ./dev bench compile [--quick] [--rounds N] [--only NAME...] [--json FILE].

Compiles each program as a user's CMake project does in Release, without ccache, in an order that rotates from round to
round, and reports CPU seconds (user and system time of the compiler and its children, which other load changes less than
elapsed time) and peak memory. Every ratio is that of one round; `bare again` is the control. --quick compiles the bare
program and the example once without optimization, and shows only that the benchmark works.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from results import Results, median_interval

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/mnist/main.cpp"
BARE = ROOT / "bench/compile_bare.cpp"

# The example with these headers in place of the two that have everything.
NARROW = """\
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>

#include <danling/data/datasets/mnist.hpp>
#include <danling/data/subset.hpp>
#include <danling/metrics/factory.hpp>
#include <danling/metrics/functional/accuracy.hpp>
#include <danling/runner/run.hpp>
#include <danling/runner/torch_runner.hpp>
"""

PROJECT = """\
cmake_minimum_required(VERSION 3.22)
project(compile CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(danling REQUIRED)
foreach(name IN ITEMS torch danling bare again mnist precompiled narrow narrow_precompiled)
  danling_add_runner(program_${name} ${name}.cpp)
  target_compile_definitions(program_${name} PRIVATE MNIST_DATA_ROOT="digits")
endforeach()
danling_precompile(program_precompiled)
danling_precompile(program_narrow_precompiled HEADERS ${CMAKE_CURRENT_SOURCE_DIR}/narrow.hpp)
"""

# Target, what it is, and the ratio to the bare program that is reported.
PROGRAMS = {
    "torch": ("torch/torch.h alone", None),
    "danling": ("danling/danling.hpp alone", None),
    "bare": ("the bare LibTorch program", None),
    "again": ("the bare LibTorch program again", None),
    "mnist": ("examples/mnist", "mnist to the bare program"),
    "precompiled": ("examples/mnist, precompiled headers", "mnist with danling_precompile to the bare program"),
    "narrow": ("examples/mnist, narrow headers", "mnist with narrow headers to the bare program"),
    "narrow_precompiled": (
        "examples/mnist, narrow, precompiled",
        "mnist with narrow headers and danling_precompile to the bare program",
    ),
}


def fail(text):
    sys.exit(f"bench compile: {text}")


def write_sources(folder):
    program = EXAMPLE.read_text()
    narrow, replaced = re.subn(r"#include <torch/torch.h>\n\n#include <danling/danling.hpp>\n", NARROW, program)
    if replaced != 1:
        fail(f"expected the includes of torch/torch.h and danling/danling.hpp in {EXAMPLE}")
    sources = {
        "torch": "#include <torch/torch.h>\n",
        "danling": "#include <danling/danling.hpp>\n",
        "bare": BARE.read_text(),
        "again": BARE.read_text(),
        "mnist": program,
        "precompiled": program,
        "narrow": narrow,
        "narrow_precompiled": narrow,
    }
    for name, text in sources.items():
        (folder / f"{name}.cpp").write_text(text)
    (folder / "narrow.hpp").write_text(NARROW)
    (folder / "CMakeLists.txt").write_text(PROJECT)


def compile_commands(build_dir, folder):
    """The commands of a user's Release build by target; those of precompiled headers by `header` and their target."""
    if not (build_dir / "danlingConfig.cmake").exists():
        fail(f"expected a build with DANLING_INSTALL in {build_dir}")
    cache = (build_dir / "CMakeCache.txt").read_text()
    settings = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_COMPILER_LAUNCHER="]
    for name in ("CMAKE_CXX_COMPILER", "Torch_DIR"):
        found = re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)
        if found:
            settings.append(f"-D{name}={found[1]}")
    binary = folder / "build"
    configured = subprocess.run(
        ["cmake", "-S", folder, "-B", binary, "-G", "Ninja", f"-Ddanling_DIR={build_dir}", *settings],
        capture_output=True,
        text=True,
    )
    if configured.returncode != 0:
        fail(f"CMake failed:\n{configured.stderr}")
    entries = json.loads((binary / "compile_commands.json").read_text())
    commands, headers = {}, {}
    for entry in entries:
        target = re.search(r" -o CMakeFiles/(?:program_)?(\w+)\.dir/", entry["command"])[1]
        command = (shlex.split(entry["command"]), entry["directory"])
        if entry["file"].endswith("cmake_pch.hxx.cxx"):
            headers[target] = command
        elif target in PROGRAMS:
            commands[target] = command
    for name in [name for name in commands if name.endswith("precompiled")]:
        holder = re.search(r"CMakeFiles/(danling_precompiled_\w+)\.dir/", shlex.join(commands[name][0]))[1]
        commands[f"header {name}"] = headers[holder]
    return commands


def measure(command, directory):
    """CPU seconds and peak MiB of a command and the processes that it waits for."""
    for argument in command:
        if argument.endswith((".o", ".gch", ".pch")):
            (pathlib.Path(directory) / argument).parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=errors, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            fail(f"{shlex.join(command)}\nended with {process.returncode}:\n{errors.read()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def without_output(command, *options):
    at = command.index("-o")
    return [*command[:at], *command[at + 2 :], *options]


def without_optimization(command):
    """The command as a check of the syntax: instantiates templates, makes no code."""
    return without_output([argument for argument in command if not re.fullmatch(r"-O\d", argument)], "-fsyntax-only")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, help="how often each program is compiled (5)")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, help="these programs, and the bare one")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 5)
    names = ["bare", "mnist"] if options.quick else list(PROGRAMS)
    if options.only:
        names = [name for name in names if name in (*options.only, "bare", "again")]
    results = Results("compile", quick=options.quick)

    folder = pathlib.Path(tempfile.mkdtemp(prefix="danling-compile-"))
    try:
        write_sources(folder)
        commands = compile_commands(options.build_dir.resolve(), folder)
        if options.quick:
            commands = {name: (without_optimization(commands[name][0]), commands[name][1]) for name in names}
        else:
            for name in ("torch", "danling"):  # reads the headers into the page cache
                measure(without_output(commands[name][0], "-E", "-o", os.devnull), commands[name][1])
        for name in [name for name in names if name.endswith("precompiled")]:
            used, peak = measure(*commands[f"header {name}"])
            results.add_value(f"{PROGRAMS[name][0]}: the header itself", used, "CPU seconds")
            print(f"{PROGRAMS[name][0]}: the header itself {used:.1f} s, {peak:.0f} MiB", flush=True)

        seconds = {name: [] for name in names}
        memory = dict.fromkeys(names, 0.0)
        for number in range(rounds):
            at = number % len(names)
            order = names[at:] + names[:at]
            if number % 2 == 1:
                order.reverse()
            for name in order:
                used, peak = measure(*commands[name])
                seconds[name].append(used)
                memory[name] = max(memory[name], peak)
    finally:
        shutil.rmtree(folder)

    def ratios(name):
        return median_interval([mine / bare for mine, bare in zip(seconds[name], seconds["bare"])])

    print(f"\n{'':36} {'CPU s':>7} {'fastest':>8} {'MiB':>6}   to the bare program")
    control = ratios("again") if "again" in names else None
    for name in names:
        title, ratio = PROGRAMS[name]
        middle, fastest = median_interval(seconds[name])[0], min(seconds[name])
        value, low, high = ratios(name)
        print(f"{title:36} {middle:7.1f} {fastest:8.1f} {memory[name]:6.0f}   {value:.2f} [{low:.2f}, {high:.2f}]")
        if name != "again":
            results.add_value(title, middle, "CPU seconds")
            results.add_value(f"{title}, memory", memory[name], "MiB")
        if ratio:
            results.add_ratio(ratio, (value, low, high), control=control, better="lower")
    if options.json:
        results.write(options.json)


if __name__ == "__main__":
    main()
