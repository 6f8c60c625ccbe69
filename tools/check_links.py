#!/usr/bin/env python3
"""Checks what the pages name: links and anchors, source files, included headers, and the C++ names of tables.

Usage: check_links.py [DIRECTORY]

- A link's file exists inside the project, and its anchor is a heading there. Links to other sites are not followed.
- A path in backticks that begins with a folder of the project, or ends with .hpp or .cpp, exists: from the root, beside
  the page, in include/danling/ or in src/. Placeholders (<name>, *, {a,b}) are left out.
- `#include <danling/...>` names a header, also in code blocks.
- In a table with a column "C++" or "hook", each name in backticks there is declared in the headers that the row's column "header"
  names, or, where it names none, in any header; a name of std, torch, at or c10, or a key of docs/config.md, passes.
"""

import re
import sys
from functools import lru_cache
from pathlib import Path

FOLDERS = ("docs", "examples", "tests", "bench")
ROOTS = ("src", "include", "tests", "tools", "docs", "examples", "apps", "bench", "cmake", ".ci")

FENCE = re.compile(r"^\s*(```+|~~~+)")
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", re.DOTALL)
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$", re.MULTILINE)
HTML = re.compile(r"<(?:a|img|source)\s[^>]*?(?:href|src)=\"([^\"]+)\"")
NAMES = ("C++", "hook")  # columns of C++ names
HTML_ANCHOR = re.compile(r"<\w+\s[^>]*?(?:id|name)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
INCLUDE = re.compile(r"#\s*include\s+<(danling/[^>]+)>")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
PATH = re.compile(r"[\w.\-]+(?:/[\w.\-]+)*/?")
FOREIGN = re.compile(r"\b(?:std|torch|at|c10)::[\w:]+")
LITERAL = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
KEYWORDS = frozenset("""auto bool char class const double else false float for if int long new nullptr operator override
    private protected public return sizeof static struct template this true typename using virtual void while
    danling dl""".split())


def without_blocks(text):
    """The page with its code blocks as empty lines, so that numbers of lines stay."""
    out, fence = [], None
    for line in text.split("\n"):
        match = FENCE.match(line)
        if fence is None and match:
            fence = match[1]
        elif fence is not None and match and match[1].startswith(fence) and line.strip() == match[1]:
            fence = None
        elif fence is None:
            out.append(line)
            continue
        out.append("")
    return "\n".join(out)


def slug(heading):
    """The anchor of a heading, by the rule of GitHub."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(text):
    found, counts = set(), {}
    for line in without_blocks(text).split("\n"):
        match = HEADING.match(line)
        if match:
            name = slug(match[1])
            number = counts.get(name, 0)
            counts[name] = number + 1
            found.add(f"{name}-{number}" if number else name)
    return found | set(HTML_ANCHOR.findall(text))


@lru_cache(maxsize=None)
def anchors_of(path):
    return anchors(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=None)
def words_of(path):
    """The words of a header outside of its comments and texts."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", LITERAL.sub(" ", path.read_text(encoding="utf-8"))))


@lru_cache(maxsize=None)
def words_of_all(root):
    return frozenset().union(*(words_of(path) for path in (root / "include").rglob("*.hpp")))


@lru_cache(maxsize=None)
def config_keys(root):
    page = root / "docs/config.md"
    return frozenset(re.findall(r"^\| `([^`]+)`", page.read_text(encoding="utf-8"), re.MULTILINE) if page.exists() else ())


def check_link(root, page, target):
    if ELSEWHERE.match(target) or target.startswith("//"):
        return
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if root not in path.parents and path != root:
        yield f"a link leads out of the project: {target}"
    elif not path.exists():
        yield f"a link to nothing: {target}"
    elif anchor and path.suffix == ".md" and anchor not in anchors_of(path):
        yield f"a link to an anchor that {path.relative_to(root)} does not have: {target}"


def check_path(root, page, text):
    """Complaints about one piece of code that may be the name of a file."""
    name = re.sub(r":\d+(-\d+)?$", "", text)
    if "/" not in name or not PATH.fullmatch(name):
        return
    if name.split("/")[0] in ROOTS or name.endswith((".hpp", ".cpp")):
        places = (root, page.parent, root / "include", root / "include/danling", root / "src")
        if not any((place / name).exists() for place in places):
            yield f"names a file that does not exist: `{text}`"


def cells(line):
    """The cells of a table's row; a bar in code or after a backslash separates none."""
    line = CODE.sub(lambda match: match[0].replace("|", "\0"), line).replace("\\|", "\0")
    return [cell.strip().replace("\0", "|") for cell in line.strip().strip("|").split("|")]


def check_names(root, row, columns):
    """Complaints about the C++ names of one row."""
    headers = [root / "include/danling" / text for _, text in CODE.findall(row[columns["header"]])] if "header" in columns else []
    headers = [path for path in headers if path.exists()]  # others are complained about as files
    known = frozenset().union(*map(words_of, headers)) if headers else words_of_all(root)
    for _, text in CODE.findall(" ".join(row[columns[name]] for name in NAMES if name in columns)):
        if text in config_keys(root) or text.endswith((".hpp", ".cpp", ".md")) or text.startswith(("-", "danling ")):
            continue
        for word in re.findall(r"(?<![\w.])[A-Za-z_]\w*|(?<=\.)[A-Za-z_]\w*", LITERAL.sub(" ", FOREIGN.sub(" ", text))):
            if word not in known | KEYWORDS:
                where = ", ".join(str(path.relative_to(root / "include/danling")) for path in headers)
                yield f"`{text}`: {f'{where} does not declare' if where else 'no header declares'} {word}"


def check_tables(root, text):
    columns = None
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("|"):
            columns = None
        elif columns is None:
            columns = {name: index for index, name in enumerate(cells(line))}
        elif any(name in columns for name in NAMES) and not re.fullmatch(r"[\s|:-]+", line):
            row = cells(line)
            if len(row) != len(columns):
                yield number, f"a row of {len(row)} cells in a table of {len(columns)} columns"
            else:
                for complaint in check_names(root, row, columns):
                    yield number, complaint


def check_page(root, page):
    """Yields (line, complaint) for one page."""
    text = page.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        if not (root / "include" / match[1]).exists():
            yield text.count("\n", 0, match.start()) + 1, f"includes a header that does not exist: {match[1]}"
    prose = without_blocks(text)
    for match in CODE.finditer(prose):
        for complaint in check_path(root, page, match[2]):
            yield prose.count("\n", 0, match.start()) + 1, complaint
    yield from check_tables(root, prose)
    bare = CODE.sub(lambda match: re.sub(r"[^\n]", "x", match[0]), prose)
    for pattern in (LINK, REFERENCE, HTML):
        for match in pattern.finditer(bare):
            for complaint in check_link(root, page, match[1]):
                yield bare.count("\n", 0, match.start()) + 1, complaint


def pages(root):
    yield from sorted(root.glob("*.md"))
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.md"))


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    complaints = [
        f"{page.relative_to(root)}:{line}: {complaint}"
        for page in pages(root)
        for line, complaint in sorted(check_page(root, page))
    ]
    print("\n".join(complaints) if complaints else "check_links: every page names what exists")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
