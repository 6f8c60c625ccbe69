#!/usr/bin/env python3
"""Shows that check_links.py refuses what it should, and nothing else."""

import tempfile
import unittest
from pathlib import Path

from check_links import anchors, check_page

FILES = {
    "README.md": "# Project\n",
    "docs/guide.md": "# Guide\n\n## Why `this`, and how?\n\n## Twice\n\n## Twice\n\n<a id=\"by-hand\"></a>\n",
    "docs/config.md": "| key | type |\n|---|---|\n| `optim.lr` | number |\n",
    "docs/picture.png": "",
    "include/danling/core/error.hpp": "// Errors: the word comment is here alone.\nstruct Error { int code(); };\n",
    "include/danling/state/state.hpp": "// State.\nstruct State { State& map(); };\n",
    "src/core/error.cpp": "// Errors.\n",
}


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        for name, text in FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text, encoding="utf-8")

    def complaints(self, text):
        page = self.root / "docs/page.md"
        page.write_text(text, encoding="utf-8")
        return list(check_page(self.root, page))


class Links(Pages):
    def test_links_to_pages_pictures_and_anchors_are_allowed(self):
        self.assertEqual(self.complaints("[a](guide.md) [b](../README.md#project) ![c](picture.png) [d](.)\n"), [])
        self.assertEqual(self.complaints("# Here\n[a](guide.md#why-this-and-how) [b](#here) [c](guide.md#by-hand)\n"), [])
        self.assertEqual(self.complaints("[two\nlines](guide.md)\n[a]: guide.md\n<img src=\"picture.png\">\n"), [])

    def test_links_to_other_sites_are_not_followed(self):
        self.assertEqual(self.complaints("[a](https://example.org/x#y) [b](mailto:a@example.org)\n"), [])

    def test_a_link_to_a_missing_page_is_refused_with_its_line(self):
        self.assertEqual(self.complaints("one\n\n[a](none.md)\n"), [(3, "a link to nothing: none.md")])
        self.assertEqual(self.complaints("[a]: none.md\n"), [(1, "a link to nothing: none.md")])
        self.assertEqual(self.complaints("<img src=\"none.png\">\n"), [(1, "a link to nothing: none.png")])

    def test_a_link_to_a_missing_anchor_is_refused(self):
        self.assertEqual(
            self.complaints("[a](guide.md#nowhere)\n"),
            [(1, "a link to an anchor that docs/guide.md does not have: guide.md#nowhere")],
        )
        self.assertEqual(
            self.complaints("[a](#nowhere)\n"), [(1, "a link to an anchor that docs/page.md does not have: #nowhere")]
        )

    def test_a_link_out_of_the_project_is_refused(self):
        self.assertEqual(self.complaints("[a](../../x.md)\n"), [(1, "a link leads out of the project: ../../x.md")])

    def test_code_has_no_links(self):
        self.assertEqual(self.complaints("`f[i](none.md)`\n\n```cpp\nauto x = [a](none.md);\n```\n"), [])

    def test_equal_headings_have_numbered_anchors(self):
        self.assertEqual(
            anchors(FILES["docs/guide.md"]), {"guide", "why-this-and-how", "twice", "twice-1", "by-hand"}
        )

    def test_comments_in_code_blocks_are_no_headings(self):
        self.assertEqual(anchors("```sh\n# not this\n```\n# This\n"), {"this"})


class Sources(Pages):
    def test_files_by_their_path_are_allowed(self):
        self.assertEqual(self.complaints("`src/core/error.cpp` `core/error.hpp` `danling/core/error.hpp` `docs/`\n"), [])

    def test_files_that_do_not_exist_are_refused(self):
        self.assertEqual(
            self.complaints("`src/core/none.cpp`\n`core/none.hpp`\n"),
            [
                (1, "names a file that does not exist: `src/core/none.cpp`"),
                (2, "names a file that does not exist: `core/none.hpp`"),
            ],
        )

    def test_placeholders_and_names_of_the_reader_are_allowed(self):
        self.assertEqual(self.complaints("`tests/<module>/*.cpp` `my_net.hpp` `checkpoints/latest.pth` `a/b`\n"), [])

    def test_includes_in_code_blocks_are_checked(self):
        self.assertEqual(self.complaints("```cpp\n#include <danling/core/error.hpp>\n#include <vector>\n```\n"), [])
        self.assertEqual(
            self.complaints("```cpp\n#include <danling/none.hpp>\n```\n"),
            [(2, "includes a header that does not exist: danling/none.hpp")],
        )


class Tables(Pages):
    HEAD = "| there | C++ | header |\n|---|---|---|\n"

    def test_names_that_the_header_declares_are_allowed(self):
        self.assertEqual(self.complaints(self.HEAD + "| `x` | `Error::code()` | `core/error.hpp` |\n"), [])
        self.assertEqual(self.complaints(self.HEAD + "| `x` | `dl::State::map()` of `torch::nn::Module` | |\n"), [])
        self.assertEqual(self.complaints(self.HEAD + "| `x` | `optim.lr`, or `--find_lr` | |\n"), [])
        self.assertEqual(self.complaints(self.HEAD + "| `none` | none: Python alone | |\n"), [])

    def test_a_name_of_another_header_is_refused(self):
        self.assertEqual(
            self.complaints(self.HEAD + "| `x` | `State` | `core/error.hpp` |\n"),
            [(3, "`State`: core/error.hpp does not declare State")],
        )

    def test_a_name_of_no_header_or_of_a_comment_alone_is_refused(self):
        self.assertEqual(
            self.complaints(self.HEAD + "| `x` | `Error::none` | |\n| `y` | `comment` | |\n"),
            [(3, "`Error::none`: no header declares none"), (4, "`comment`: no header declares comment")],
        )

    def test_a_column_of_hooks_is_checked_too(self):
        self.assertEqual(
            self.complaints("| hook | when |\n|---|---|\n| `none` | `x` |\n"), [(3, "`none`: no header declares none")]
        )

    def test_other_columns_and_tables_are_free(self):
        self.assertEqual(self.complaints("| Python | meaning |\n|---|---|\n| `none` | `x` |\n"), [])

    def test_a_row_with_too_few_cells_is_refused(self):
        self.assertEqual(
            self.complaints(self.HEAD + "| `x` | `Error` |\n"), [(3, "a row of 2 cells in a table of 3 columns")]
        )


if __name__ == "__main__":
    unittest.main()
