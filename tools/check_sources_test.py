#!/usr/bin/env python3
"""Tests that check_sources.py reports violations, and nothing else."""

import unittest
from pathlib import Path

from check_sources import EDGES, check_comments, check_file, types_in

HEADER = "// A subject.\n#pragma once\n"


def complaints(path, *lines):
    text = (HEADER if path.endswith(".hpp") else "// A subject.\n") + "".join(line + "\n" for line in lines)
    return [complaint for _, complaint in check_file(Path(path), text)]


class Edges(unittest.TestCase):
    def test_an_edge_of_the_table_is_allowed(self):
        self.assertEqual(complaints("include/danling/data/x.hpp", "#include <danling/formats/idx.hpp>"), [])
        self.assertEqual(complaints("src/workspace/x.cpp", "#include <danling/config/config.hpp>"), [])
        self.assertEqual(complaints("src/runner/x.cpp", "#include <danling/checkpoint/manager.hpp>"), [])
        self.assertEqual(complaints("src/core/x.cpp", "#include <danling/version.hpp>", "#include <vector>"), [])

    def test_an_edge_against_the_flow_is_refused(self):
        self.assertEqual(
            complaints("include/danling/formats/x.hpp", "#include <danling/data/datasets/mnist.hpp>"),
            ["formats must not include data (danling/data/datasets/mnist.hpp); it may include: core"],
        )
        self.assertEqual(
            complaints("src/core/x.cpp", "#include <danling/config/tree.hpp>"),
            ["core must not include config (danling/config/tree.hpp); it may include: nothing"],
        )

    def test_nothing_includes_the_runner(self):
        for module in sorted(set(EDGES) - {"runner"}):
            self.assertEqual(len(complaints(f"src/{module}/x.cpp", "#include <danling/runner/state.hpp>")), 1, module)

    def test_private_headers_are_edges_too(self):
        self.assertEqual(len(complaints("src/metrics/x.cpp", "#include <optim/fused.hpp>")), 1)
        self.assertEqual(len(complaints("src/metrics/x.cpp", '#include "optim/fused.hpp"')), 1)
        self.assertEqual(len(complaints("src/metrics/x.cpp", '#include "../optim/fused.hpp"')), 1)
        self.assertEqual(complaints("src/metrics/x.cpp", '#include "meter.hpp"'), [])

    def test_the_umbrella_is_for_users(self):
        self.assertEqual(
            complaints("src/core/x.cpp", "#include <danling/danling.hpp>"),
            ["core includes danling/danling.hpp, which includes everything"],
        )
        self.assertEqual(complaints("include/danling/danling.hpp", "#include <danling/runner/run.hpp>"), [])

    def test_an_unknown_module_is_named(self):
        self.assertEqual(complaints("src/misc/x.cpp"), ["misc is not a module in EDGES of check_sources.py"])


class UsingDeclarations(unittest.TestCase):
    def test_one_that_is_used_is_allowed(self):
        self.assertEqual(complaints("src/core/x.cpp", "using std::move;", "auto y = move(x);"), [])

    def test_one_without_use_is_refused(self):
        self.assertEqual(
            complaints("src/core/x.cpp", "using std::chrono::seconds;", "int seconds_ = 0;"),
            ["a using-declaration of seconds, which the file does not use"],
        )


class Libraries(unittest.TestCase):
    def test_torch_free_modules_include_no_libtorch(self):
        self.assertEqual(
            complaints("src/config/x.cpp", "#include <c10/util/Optional.h>"),
            ["config is built without LibTorch, and includes c10/util/Optional.h"],
        )
        self.assertEqual(complaints("src/data/x.cpp", "#include <ATen/core/Tensor.h>"), [])

    def test_public_headers_include_only_parts_of_libtorch(self):
        self.assertEqual(len(complaints("include/danling/data/x.hpp", "#include <torch/torch.h>")), 1)
        self.assertEqual(complaints("src/data/x.cpp", "#include <torch/torch.h>"), [])

    def test_public_headers_hide_other_libraries(self):
        for header in ("fmt/core.h", "spdlog/spdlog.h", "yaml-cpp/yaml.h", "nlohmann/json.hpp", "CLI/CLI.hpp", "zlib.h", "jpeglib.h", "png.h"):
            self.assertEqual(len(complaints("include/danling/telemetry/x.hpp", f"#include <{header}>")), 1, header)

    def test_fmt_stays_in_core(self):
        self.assertEqual(complaints("src/core/x.cpp", "#include <fmt/core.h>"), [])
        self.assertEqual(len(complaints("src/telemetry/x.cpp", "#include <fmt/core.h>")), 1)

    def test_spdlog_stays_in_telemetry(self):
        self.assertEqual(complaints("src/telemetry/x.cpp", "#include <spdlog/spdlog.h>"), [])
        self.assertEqual(len(complaints("src/runner/x.cpp", "#include <spdlog/spdlog.h>")), 1)


class Comments(unittest.TestCase):
    complaint = "a comment that begins with 'What'; begin with the thing itself, or with a verb"

    def test_one_that_begins_with_what_is_refused(self):
        for begin in ("// ", "  /// ", "int a;  ///< ", "int a;  // ", "/* ", '"""'):
            self.assertEqual(complaints("tests/core/x.cpp", begin + "What it is."), [self.complaint], begin)
        self.assertEqual(list(check_comments("a: 1\n  # " + "What b is\nb: 2\n")), [(2, self.complaint)])

    def test_other_uses_of_the_word_are_allowed(self):
        for line in ("// Says what it does.", "// Whatever the batch.", 'text("// what");', "int what;  // errno", '"What";'):
            self.assertEqual(complaints("tests/core/x.cpp", line), [], line)


class Files(unittest.TestCase):
    def check(self, path, text):
        return [complaint for _, complaint in check_file(Path(path), text)]

    def test_a_file_begins_with_its_subject(self):
        self.assertEqual(len(self.check("src/core/x.cpp", "#include <vector>\n")), 1)
        self.assertEqual(self.check("src/core/x.cpp", "#include <danling/core/x.hpp>\n"), [])
        self.assertEqual(len(self.check("include/danling/core/x.hpp", "#include <danling/core/x.hpp>\n#pragma once\n")), 1)
        self.assertEqual(self.check("tests/core/x.cpp", "#include <vector>\n"), [])
        self.assertEqual(len(self.check("tools/x.sh", "#!/bin/sh\nset -eu\n")), 1)
        self.assertEqual(self.check("tools/x.sh", "#!/bin/sh\n# A subject.\n"), [])

    def test_a_header_is_guarded(self):
        self.assertEqual(self.check("include/danling/core/x.hpp", "// A subject.\n"), ["a header without #pragma once"])

    def test_a_file_has_an_end(self):
        self.assertEqual(self.check("src/core/x.cpp", "// A subject."), ["no newline at the end"])
        self.assertEqual(len(self.check("src/core/x.cpp", "// A subject.\n" * 451)), 1)
        self.assertEqual(self.check("src/core/x.cpp", "// A subject.\n" * 450), [])

    def test_types_have_qualified_names(self):
        text = "namespace danling::inline v0 {\nstruct A : B { struct Inner {}; };\nnamespace { struct Hidden {}; }\n"
        text += 'namespace detail {\nenum class C { x };  // struct D {\nvoid f() { const char* a = "struct E {"; }\n}\n}\n'
        self.assertEqual(list(types_in(text)), ["danling::v0::A", "danling::v0::detail::C"])
        self.assertEqual(list(types_in("class A;\nstruct B* f(struct C c) { return {}; }\n")), [])


if __name__ == "__main__":
    unittest.main()
