// danling ckpt show: prints the tree of a file.
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include <danling/core/error.hpp>

#include "arguments.hpp"
#include "ckpt.hpp"
#include "ckpt_json.hpp"
#include "elements.hpp"

namespace danling_command {
namespace {

using danling::detail::concat;
using danling::formats::dtype_size;

const std::initializer_list<Option> option_list = {
    {"--key", "PREFIX", "only values at or below this key, such as model or optimizer.state"},
    {"--values", "", "also the first elements of tensors, and lists and texts in full"},
    {"--stats", "", "minimum, maximum, mean and the number of infinities and NaNs of every tensor"},
    {"--json", "", "print JSON for programs"},
    {"--help", "", "print this text"}};

// Number of elements per tensor that --values prints.
constexpr std::uint64_t max_elements = 8;

std::string elements_text(TensorFile& file, const TensorRecord& record) {
  const std::size_t width = dtype_size(record.dtype);
  ElementStream stream(file, record);
  const auto bytes = stream.next(max_elements);
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    out += concat(at == 0 ? "" : ", ", element_text(record.dtype, bytes.data() + at));
  }
  return num_elements(record) > max_elements ? out + ", ..." : out;
}

// Counts an element that a stride of 0 repeats only once.
ElementStatistics statistics_of(TensorFile& file, const TensorRecord& record, const std::string& path) {
  check_overlap(file, record, path);
  ElementStatistics out;
  ElementStream stream(file, record);
  for (auto piece = stream.next(piece_bytes / dtype_size(record.dtype)); !piece.empty();
       piece = stream.next(piece_bytes / dtype_size(record.dtype))) {
    out.add(record.dtype, piece);
  }
  return out;
}

class Printer {
 public:
  Printer(TensorFile& file, const Arguments& arguments)
      : file_(file),
        key_(arguments.value("--key").value_or("")),
        values_(arguments.has("--values")),
        statistics_(arguments.has("--stats")) {}

  void print(const RecordTree& tree) { print(tree, "", "", 0); }

 private:
  // `name` is the last part of `path`.
  void print(const RecordTree& tree, const std::string& path, const std::string& name, std::size_t depth) {
    if (!is_below(path, key_) && !is_below(key_, path)) {
      return;
    }
    const bool inner = tree.is_map()                       ? !tree.map().empty()
                       : tree.is_list() || tree.is_tuple() ? !is_plain_list(tree)
                                                           : false;
    if (!inner) {
      std::printf("%s%s\n", std::string(2 * depth, ' ').c_str(),
                  concat(printable(name), "  ", leaf_text(tree, path)).c_str());
      return;
    }
    if (!path.empty()) {
      std::printf("%s%s\n", std::string(2 * depth, ' ').c_str(), printable(name).c_str());
    }
    const std::size_t below = path.empty() ? depth : depth + 1;
    if (tree.is_map()) {
      for (const auto& [key, value] : tree.map()) {
        const std::string part = key.is_string() ? key.string() : key.text();
        print(value, path.empty() ? part : concat(path, ".", part), part, below);
      }
      return;
    }
    for (std::size_t i = 0; i < tree.items().size(); ++i) {
      const std::string part = concat("[", i, "]");
      print(tree.items()[i], path + part, part, below);
    }
  }

  std::string leaf_text(const RecordTree& tree, const std::string& path) {
    if (!tree.is_tensor()) {
      return value_text(tree, values_ ? SIZE_MAX : 4);
    }
    const TensorRecord& record = tree.tensor();
    const auto [first, added] = first_of_storage_.try_emplace(record.storage, path, record);
    std::string out = concat(danling::formats::dtype_name(record.dtype), " ", shape_text(record), "  ",
                             danling::format_bytes(num_elements(record) * dtype_size(record.dtype)));
    out += record.requires_grad ? "  requires grad" : "";
    if (!added) {
      out += concat(first->second.second == record ? "  is " : "  shares memory with ", printable(first->second.first));
    }
    if (record.sizes.empty() || values_) {
      out += concat("  ", elements_text(file_, record));
    }
    if (statistics_ && num_elements(record) > 0) {
      const auto [once, times] = without_repetitions(record);
      const auto statistics = statistics_of(file_, once, path);
      if (statistics.any()) {
        out += concat("  min ", statistics.minimum(), "  max ", statistics.maximum(), "  mean ",
                      danling::to_significant(statistics.mean(), 6));
      }
      out += statistics.non_finite() == 0 ? "" : concat("  not finite ", statistics.non_finite() * times);
    }
    return out;
  }

  TensorFile& file_;
  std::string key_;
  bool values_;
  bool statistics_;
  std::map<std::size_t, std::pair<std::string, TensorRecord>> first_of_storage_;
};

struct Totals {
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t values = 0;
  std::uint64_t bytes = 0;  // size of all storages; counts shared storages once
};

Totals totals_of(const TensorFile& file, const std::vector<Leaf>& leaves) {
  Totals out;
  std::set<std::size_t> storages;
  for (const auto& leaf : leaves) {
    if (!leaf.value->is_tensor()) {
      ++out.values;
      continue;
    }
    ++out.tensors;
    out.elements += num_elements(leaf.value->tensor());
    if (storages.insert(leaf.value->tensor().storage).second) {
      out.bytes += file.storage_size(leaf.value->tensor().storage);
    }
  }
  return out;
}

Json json_tree(TensorFile& file, const std::vector<Leaf>& leaves, const Arguments& arguments) {
  Json out = json_file(file);
  const Totals totals = totals_of(file, leaves);
  out["tensors"] = totals.tensors;
  out["elements"] = totals.elements;
  out["tensor_bytes"] = totals.bytes;
  if (!file.metadata().empty()) {
    out["metadata"] = file.metadata();
  }
  out["values"] = Json::array();
  for (const auto& leaf : leaves) {
    Json item = json_leaf(leaf);
    if (leaf.value->is_tensor()) {
      const auto& record = leaf.value->tensor();
      item["storage"] = record.storage;
      if (record.sizes.empty() || arguments.has("--values")) {
        item["elements"] = elements_text(file, record);
      }
      if (arguments.has("--stats")) {
        const auto [once, times] = without_repetitions(record);
        const auto statistics = statistics_of(file, once, leaf.path);
        if (statistics.any()) {
          item["min"] = Json::parse(statistics.minimum());
          item["max"] = Json::parse(statistics.maximum());
          item["mean"] = json_number(statistics.mean());
        }
        item["non_finite"] = statistics.non_finite() * times;
      }
    }
    out["values"].push_back(std::move(item));
  }
  return out;
}

}  // namespace

int ckpt_show(std::span<const std::string> words) {
  const Arguments arguments("danling ckpt show", words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling ckpt show FILE [options]\n\n"
        "Prints the tree of a file: keys, types, shapes, sizes, and all values except tensors of several "
        "elements.\n\n%s\n"
        "Example: danling ckpt show latest.pth --key model --stats\n"
        "Exit code: 0; 2 after an error.\n",
        describe(option_list).c_str());
    return 0;
  }
  arguments.expect(1, "one file");
  TensorFile file(arguments.positional()[0]);
  const auto leaves = leaves_below(file, arguments.value("--key").value_or(""));
  if (arguments.has("--json")) {
    print_json(json_tree(file, leaves, arguments));
    return 0;
  }
  const Totals totals = totals_of(file, leaves);
  std::printf("%s: %s, %s\n", file.path().c_str(), file.format().c_str(), danling::format_bytes(file.size()).c_str());
  for (const auto& [key, value] : file.metadata()) {
    std::printf("metadata %s: %s\n", printable(key).c_str(), value.empty() ? "" : printable(value).c_str());
  }
  Printer(file, arguments).print(file.tree());
  std::printf("%s of %s in %s, %s\n", count_text(totals.tensors, "tensor").c_str(),
              count_text(totals.elements, "element").c_str(), danling::format_bytes(totals.bytes).c_str(),
              count_text(totals.values, "other value").c_str());
  return 0;
}

}  // namespace danling_command
