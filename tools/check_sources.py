#!/usr/bin/env python3
"""Checks the rules of the project that compilers do not check: include edges, comments, file lengths.

Usage: check_sources.py [DIRECTORY]
"""

import re
import sys
from pathlib import Path

MAX_LINES = 450

# The modules that each module may include besides itself: the edges of docs/architecture.md. The runner may include all.
EDGES = {
    "core": set(),
    "formats": {"core"},
    "config": {"core"},
    "state": {"core"},
    "distributed": {"core", "tape"},
    "tensors": {"core", "formats", "state"},
    "tape": {"core", "tensors"},
    "workspace": {"core", "formats", "config"},
    "data": {"core", "formats", "state", "distributed", "tensors"},
    "optim": {"core", "config", "state", "distributed", "tensors"},
    "metrics": {"core", "config", "state", "distributed", "tensors", "tape"},
    "checkpoint": {"core", "formats", "config", "state", "distributed", "tensors", "workspace"},
    "nn": {"core", "formats", "config", "state", "distributed", "tensors", "tape", "checkpoint", "telemetry"},
    "parallel": {"core", "config", "state", "distributed", "tensors", "tape", "optim", "nn"},
    "telemetry": {"core", "formats", "config", "workspace"},
}
EDGES["runner"] = set(EDGES)
TORCH_FREE = {"core", "formats", "config", "workspace", "telemetry"}
# Headers directly in include/danling that any module may include; the umbrella is for users only.
COMMON = {"version.hpp"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LIBTORCH = re.compile(r"(torch|ATen|c10|caffe2)/")
USING = re.compile(r"^\s*using (?:\w+::)+(\w+);")
WHOLE_LIBTORCH = re.compile(r"(torch/(torch|all|extension)\.h|ATen/ATen\.h)$")
HIDDEN = re.compile(r"(fmt|spdlog|yaml-cpp|nlohmann|CLI|catch2)/|(zlib|xxhash|jpeglib|png)\.h$")
LITERAL = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL)
WHAT = re.compile(r"""^\s*(?:///?<?|\#+|/\*+|"{3})\s*What\b|\s///?<?\s+What\b""")
SCOPE = re.compile(
    r"\bnamespace\b(?P<space>[^{;=]*)\{"
    r"|\b(?:struct|class|enum(?: class)?)\s+(?P<type>\w[\w:]*)[^;{}()=<>]*\{|\{|(?P<end>\})"
)
CODE = {".hpp", ".cpp"}
SCRIPTS = {".py", ".sh", ".cmake"}
# Files whose comments have the rules of sources, besides those with the suffixes above.
COMMENTED = ("*", ".ci/*", ".github/workflows/*", "apps/**/*.c", "cmake/*", "packaging/*", "docs/Doxyfile")


def module_of(path):
    """Returns the module of a file in include/danling or src; empty for a header directly in include/danling."""
    parts = path.parts
    if parts[:2] == ("include", "danling"):
        return parts[2] if len(parts) > 3 else ""
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def included_module(path, quoted, target):
    """Returns (module, header) if an include names a header of danling, else None."""
    if target.startswith("danling/"):
        parts = target.split("/")
        return (parts[1], target) if len(parts) > 2 else ("", parts[1])
    if quoted:
        parts = target.split("/")
        if ".." not in parts:
            return (parts[0], target) if len(parts) > 1 and parts[0] in EDGES else None
        resolved = []
        for part in [*path.parts[:-1], *parts]:
            if part == "..":
                resolved.pop()
            elif part != ".":
                resolved.append(part)
        module = module_of(Path(*resolved))
        return (module, target) if module else None
    first = target.split("/")[0]
    return (first, target) if "/" in target and first in EDGES else None


def check_include(path, quoted, target):
    module, public = module_of(path), path.parts[0] == "include"
    if LIBTORCH.match(target):
        if module in TORCH_FREE:
            yield f"{module} is built without LibTorch, and includes {target}"
        if public and WHOLE_LIBTORCH.match(target):
            yield f"a public header includes all of {target}; include the parts that it needs"
    if public and HIDDEN.match(target):
        yield f"a public header includes {target}, which users would need too"
    if target.startswith("spdlog/") and module != "telemetry":
        yield f"{target} is for src/telemetry only, the one module whose symbols are kept apart"
    if target.startswith("fmt/") and not public and module != "core":
        yield f"{target} takes seconds to compile; include core/fmt.hpp"
    own = included_module(path, quoted, target)
    if own is None or module is None:
        return
    other, header = own
    if other == "":
        if header not in COMMON and module != "":
            yield f"{module} includes danling/{header}, which includes everything"
    elif other not in EDGES:
        yield f"{target} belongs to no module in EDGES of check_sources.py"
    elif module != "" and other != module and other not in EDGES.get(module, ()):
        yield f"{module} must not include {other} ({target}); it may include: {', '.join(sorted(EDGES.get(module, ()))) or 'nothing'}"


def check_comments(text):
    """Yields (line, complaint) for the comments of a file."""
    for number, line in enumerate(text.splitlines(), 1):
        if WHAT.search(line):
            yield number, "a comment that begins with 'What'; begin with the thing itself, or with a verb"


def check_file(path, text):
    """Yields (line, complaint) for one file; `path` is relative to the root."""
    lines = text.splitlines()
    if path.suffix in CODE:
        # A source may begin with its own header; tests and examples need no comment.
        first = (lines or [""])[0]
        begins = re.match(r"// ?\S", first) or path.suffix == ".cpp" and (
            path.parts[0] in ("tests", "examples") or re.match(rf'#include [<"](.*/)?{path.stem}\.hpp', first)
        )
        if not begins:
            yield 1, "the first line is neither a comment that says what the file is about nor its own header"
        if path.suffix == ".hpp" and "#pragma once" not in lines[:12]:
            yield 1, "a header without #pragma once"
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if match:
                for complaint in check_include(path, match[1] == '"', match[2]):
                    yield number, complaint
            # clang-tidy checks using-declarations only in the main file, but reads sources as units.
            using = USING.match(line)
            if using and path.parts[0] == "src" and len(re.findall(rf"\b{using[1]}\b", text)) == 1:
                yield number, f"a using-declaration of {using[1]}, which the file does not use"
    elif path.suffix in SCRIPTS or path.name == "CMakeLists.txt":
        first = lines[1] if len(lines) > 1 and lines[0].startswith("#!") else (lines or [""])[0]
        if any(lines) and not re.match(r'(#|""")\s?\S', first) and not first.startswith("cmake_minimum_required"):
            yield 1, "the file does not begin with a comment that says what it is about"
    yield from check_comments(text)
    if path.parts[0] in ("include", "src"):
        if len(lines) > MAX_LINES:
            yield MAX_LINES, f"{len(lines)} lines; a file has one subject and at most {MAX_LINES}"
        module = module_of(path)
        if module and module not in EDGES:
            yield 1, f"{module} is not a module in EDGES of check_sources.py"
    if text and not text.endswith("\n"):
        yield len(lines), "no newline at the end"


def types_in(text):
    """Yields the qualified names of the types that a file defines in named namespaces."""
    scopes = []  # the name of a namespace, or None for any other block
    for match in SCOPE.finditer(LITERAL.sub("0", text)):
        if match["end"]:
            scopes = scopes[:-1]
        elif match["space"] is not None:
            name = match["space"].replace("inline", "").replace(" ", "")
            scopes.append(name or None)
        else:
            if match["type"] and None not in scopes:
                yield "::".join([*scopes, match["type"]])
            scopes.append(None)


def check_types(root):
    """Yields complaints for types with the same name and namespace: the linker would merge their inline functions."""
    known = {}
    for folder in ("include", "src"):
        for path in sorted((root / folder).rglob("*.?pp")):
            relative = path.relative_to(root)
            for name in types_in(path.read_text(encoding="utf-8")):
                first = known.setdefault(name, relative)
                if first != relative:
                    yield f"{relative}:1: defines {name}, as {first} does"


def check_tree(root):
    """Yields `file:line: complaint` for all files of the project under `root`."""
    yield from check_types(root)
    for folder in ("include", "src", "tests", "examples", "bench", "apps", "tools", "cmake"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and (path.suffix in CODE | SCRIPTS or path.name == "CMakeLists.txt"):
                relative = path.relative_to(root)
                for line, complaint in check_file(relative, path.read_text(encoding="utf-8")):
                    yield f"{relative}:{line}: {complaint}"
    for pattern in COMMENTED:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and path.suffix not in CODE | SCRIPTS | {".md"}:
                for line, complaint in check_comments(path.read_text(encoding="utf-8", errors="replace")):
                    yield f"{path.relative_to(root)}:{line}: {complaint}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    complaints = list(check_tree(root))
    print("\n".join(complaints) if complaints else "check_sources: every file keeps to the rules")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
