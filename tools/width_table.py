#!/usr/bin/env python3
"""Writes src/telemetry/width_table.hpp from the Unicode tables of this Python: python3 tools/width_table.py

Zero columns: marks and format characters that combine with the character before, and the later parts of Hangul syllables.
Two columns: East Asian wide and full-width characters, most emoji among them. Ranges include what lies between two of them
and is not assigned yet.
"""

import pathlib
try:
    import unicodedata2 as unicodedata  # from PyPI, with newer tables than Python
except ImportError:
    import unicodedata

# Format characters that are visible, such as Arabic number signs.
DRAWN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0xAD, 0x110BD, 0x110CD}
# Blocks that are wide even if unassigned (UAX 11), and blocks for new emoji. Hexagrams are wide since Unicode 16.
WIDE_BLOCKS = [(0x3248, 0x324F), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x1F900, 0x1F93A), (0x1F93C, 0x1F945),
               (0x1F947, 0x1F9FF), (0x1FA70, 0x1FAFF), (0x20000, 0x2FFFD), (0x30000, 0x3FFFD)]


def category(code):
    return unicodedata.category(chr(code))


def is_zero(code):
    if code in DRAWN:
        return False
    return category(code) in ("Mn", "Me", "Cf") or 0x1160 <= code <= 0x11FF or 0xD7B0 <= code <= 0xD7FB


def is_wide(code):
    if any(first <= code <= last for first, last in WIDE_BLOCKS):
        return True
    return category(code) != "Cn" and not is_zero(code) and unicodedata.east_asian_width(chr(code)) in "WF"


def ranges(belongs):
    out = []
    gap = False
    for code in range(0xA0, 0x110000):
        if belongs(code):
            if out and not gap:
                out[-1][1] = code
            else:
                out.append([code, code])
            gap = False
        elif category(code) not in ("Cn", "Cs"):
            gap = True
    return out


def table(name, entries):
    lines = [f"inline constexpr CodeRange {name}[] = {{"]
    row = "   "
    for first, last in entries:
        entry = f" {{0x{first:x}, 0x{last:x}}},"
        if len(row) + len(entry) > 120:
            lines.append(row)
            row = "   "
        row += entry
    return "\n".join([*lines, row, "};"])


def main():
    text = f"""// Widths of characters on a terminal: Unicode {unicodedata.unidata_version}. Written by tools/width_table.py.
#pragma once

namespace danling::inline v0::detail {{

struct CodeRange {{
  char32_t first, last;
}};

// clang-format off
/// Characters without a column of their own.
{table("zero_width", ranges(is_zero))}

/// Characters of two columns.
{table("double_width", ranges(is_wide))}
// clang-format on

}}  // namespace danling::inline v0::detail
"""
    (pathlib.Path(__file__).parent.parent / "src/telemetry/width_table.hpp").write_text(text)


if __name__ == "__main__":
    main()
