// danling ckpt diff: lists the differences of two files.
#include <cstdio>

#include <danling/core/error.hpp>

#include "arguments.hpp"
#include "ckpt.hpp"
#include "ckpt_compare.hpp"
#include "ckpt_json.hpp"

namespace danling_command {
namespace {

const std::initializer_list<Option> option_list = {
    {"--tolerance", "X", "maximum distance of equal numbers (default: compare bits)"},
    {"--any-dtype", "", "compare tensors of different types by value"},
    {"--key", "PREFIX", "compare only values below this key, in files that have it; names omit it"},
    {"--json", "", "print JSON for programs"},
    {"--help", "", "print this text"}};

Json json_of(const FileDifference& difference) {
  Json out = {{"key", difference.key}, {"kind", difference.kind}};
  if (difference.kind != "only_in_b") {
    out["a"] = difference.a;
  }
  if (difference.kind != "only_in_a") {
    out["b"] = difference.b;
  }
  if (difference.kind == "elements") {
    out["elements"] = difference.count;
    out["differing"] = difference.differing;
    out["first"] = difference.first;
    out["largest_difference"] = json_number(difference.largest);
  }
  return out;
}

}  // namespace

int ckpt_diff(std::span<const std::string> words) {
  const Arguments arguments("danling ckpt diff", words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling ckpt diff A B [options]\n\n"
        "Prints one line per difference: keys that only one file has, kinds, types, shapes, values, elements. Ignores\n"
        "the order of keys, the layout of tensors in the file, shared memory and requires_grad.\n\n%s\n"
        "Example: danling ckpt diff latest.pth model.safetensors --key model\n"
        "Exit code: 0 if the files are equal, 1 if they differ, 2 after an error, such as a damaged file.\n",
        describe(option_list).c_str());
    return 0;
  }
  arguments.expect(2, "two files");
  const auto [differences, compared] = compare_files(arguments.positional()[0], arguments.positional()[1],
                                                     {.key = arguments.value("--key").value_or(""),
                                                      .tolerance = arguments.number("--tolerance"),
                                                      .any_dtype = arguments.has("--any-dtype")});
  if (arguments.has("--json")) {
    Json out = {{"same", differences.empty()}, {"compared", compared}, {"differences", Json::array()}};
    for (const auto& difference : differences) {
      out["differences"].push_back(json_of(difference));
    }
    print_json(out);
  } else {
    for (const auto& difference : differences) {
      std::printf("%s\n", describe(difference).c_str());
    }
    std::printf("%s; %s compared\n",
                differences.empty() ? "no difference" : count_text(differences.size(), "difference").c_str(),
                count_text(compared, "common value").c_str());
  }
  return differences.empty() ? 0 : 1;
}

}  // namespace danling_command
