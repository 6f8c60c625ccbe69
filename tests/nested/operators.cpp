// The guide's table of operators, generated from the table that registers them.
#include "tensors/nested/operators.hpp"

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <danling/core/format.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <support/catch.hpp>

namespace nested_operators {
namespace {

using danling::detail::Operator;
using danling::detail::Way;

const char* const head = R"(# Operators on nested tensors

This page lists how each operator runs on a `NestedTensor`: the operators that PyTorch's tests of jagged nested tensors
call, and all others in danling's table. `tests/nested/operators.cpp` writes this page from the table that registers the
kernels (run it with `DANLING_WRITE_DOCS=1` after a change).

| way | meaning |
|---|---|
| packed | one call on the packed values, whatever the lengths |
| per sequence | one kernel that knows where each sequence begins, or one call for all of them |
| packed or per element | packed along static dimensions; one call per element along ragged ones |
| per element | one call per element; an error while a `NoNestedFallback` lives |
| refused | an error with the operator's name |

An in-place operator works as its counterpart. An operator is refused for one of three reasons: it has no meaning for
sequences of different lengths; the sizes of its result would depend on padding; or it is a part of LibTorch that never
meets a nested tensor, such as a backward formula, which runs on plain values. Call it on `elements()` or on `tensor()`.

| operator | way |
|---|---|
)";

std::string text_of(const Operator& found) {
  if (found.handler == nullptr) {
    return "refused";
  }
  switch (found.way) {
    case Way::packed:
      return "packed";
    case Way::offsets:
      return "per sequence";
    case Way::mixed:
      return "packed or per element";
    case Way::fallback:
      return "per element";
  }
  return "";
}

bool is_counted(const c10::FunctionSchema& schema) {
  bool takes_tensors = false;
  for (const c10::Argument& argument : schema.arguments()) {
    const std::string type = argument.type()->str();
    takes_tensors = takes_tensors || type.find("Tensor") != std::string::npos;
    if (argument.is_out() || type.find("Dimname") != std::string::npos) {
      return false;
    }
  }
  return takes_tensors && !schema.is_mutable();
}

std::string make_page() {
  std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/nested_operators.txt");
  std::set<std::string> listed;
  for (std::string name; std::getline(file, name);) {
    listed.insert(name);
  }
  REQUIRE(listed.size() > 500);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::map<std::string, std::map<std::string, std::string>> ways;  // by name, then by way: overloads
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!name.name.starts_with("aten::") || !op || !is_counted(op->schema())) {
      continue;
    }
    const std::string own = name.name.substr(6), way = text_of(danling::detail::find_operator(*op));
    const bool has_entry = danling::detail::operator_table().find(*op) != nullptr;
    if (listed.contains(own) || (has_entry && way != "refused")) {
      std::string& overloads = ways[own][way];
      overloads += danling::detail::concat(overloads.empty() ? "" : ", ", "`", own,
                                           name.overload_name.empty() ? "" : ".", name.overload_name, "`");
    }
  }
  std::ostringstream page;
  page << head;
  for (const auto& [name, own] : ways) {
    for (const auto& [way, overloads] : own) {
      page << "| " << (own.size() == 1 ? danling::detail::concat("`", name, "`") : overloads) << " | " << way << " |\n";
    }
  }
  return page.str();
}

TEST_CASE("NestedTensor: the guide's table of operators is that of the kernels", "[nested]") {
  const std::string path = std::string(DANLING_SOURCE_DIR) + "/docs/tensors/nested_operators.md", page = make_page();
  if (std::getenv("DANLING_WRITE_DOCS") != nullptr) {
    std::ofstream(path) << page;
  }
  std::ifstream file(path);
  std::ostringstream written;
  written << file.rdbuf();
  INFO("after a change: DANLING_WRITE_DOCS=1 test_nested \"" << "NestedTensor: the guide's table*\"");
  CHECK((written.str() == page));
}

}  // namespace
}  // namespace nested_operators
