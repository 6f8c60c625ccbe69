#include "convert_plan.hpp"

#include <algorithm>
#include <unordered_set>

#include <danling/core/error.hpp>

#include "ckpt.hpp"

namespace danling_command {

using danling::detail::concat;
using danling::detail::quote;

namespace {

// Returns the value whose keys, joined by dots, equal `key`.
const RecordTree* find_exact(const RecordTree& tree, std::string_view key) {
  if (!tree.is_map()) {
    return nullptr;
  }
  for (const auto& entry : tree.map()) {
    const std::string name = entry.key.is_string() ? entry.key.string() : entry.key.text();
    if (name == key) {
      return &entry.value;
    }
    if (key.starts_with(name + ".")) {
      if (const RecordTree* found = find_exact(entry.value, key.substr(name.size() + 1))) {
        return found;
      }
    }
  }
  return nullptr;
}

void add_flat(const RecordTree& tree, const std::string& prefix, const std::string& why,
              std::vector<std::pair<std::string, TensorRecord>>& out) {
  const auto refuse = [&](const std::string& got, const std::string& key) {
    danling::detail::fail<danling::CheckpointError>("danling ckpt convert", "expected named tensors alone, since ", why,
                                                    ", got ", got, key.empty() ? "" : concat(" (key ", quote(key), ")"),
                                                    "; choose a part with --part or --key");
  };
  if (!tree.is_map()) {
    refuse(tree.kind(), prefix);
  }
  for (const auto& [key, value] : tree.map()) {
    if (!key.is_string()) {
      refuse(concat("the integer key ", key.text()), prefix);
    }
    const std::string name = prefix.empty() ? key.string() : concat(prefix, ".", key.string());
    if (value.is_tensor()) {
      out.emplace_back(name, value.tensor());
    } else {
      add_flat(value, name, why, out);
    }
  }
}

}  // namespace

RecordTree select(const TensorFile& file, const std::string& key) {
  if (key.empty()) {
    return file.tree();
  }
  if (const RecordTree* exact = find_exact(file.tree(), key); exact != nullptr && !exact->is_null()) {
    return *exact;
  }
  RecordTree::Map out;
  for (const auto& leaf : leaves_below(file, key)) {
    danling::detail::check<danling::ConfigError>(leaf.path.size() > key.size() && leaf.path[key.size()] == '.',
                                                 "danling ckpt convert", "expected a key of maps and tensors, got ",
                                                 quote(key), ", where there is ", leaf.value->kind(), " (file ",
                                                 quote(file.path().string()), ")");
    out.set(leaf.path.substr(key.size() + 1), *leaf.value);
  }
  return out;
}

std::vector<std::pair<std::string, TensorRecord>> flatten(
    const RecordTree& tree, const std::vector<std::pair<std::string, std::string>>& mappings, const std::string& why) {
  std::vector<std::pair<std::string, TensorRecord>> out;
  add_flat(tree, "", why, out);
  for (const auto& [from, to] : mappings) {
    const auto begins = [&from = from](const auto& tensor) { return tensor.first.starts_with(from); };
    danling::detail::check<danling::ConfigError>(std::any_of(out.begin(), out.end(), begins), "danling ckpt convert",
                                                 "expected --map with the beginning of a tensor's name, got ",
                                                 quote(concat(from, "=", to)), ", with which none of ", out.size(),
                                                 " names begins");
  }
  std::unordered_set<std::string> names;
  for (auto& [name, record] : out) {
    for (const auto& [from, to] : mappings) {
      if (name.starts_with(from)) {
        name = to + name.substr(from.size());
        break;
      }
    }
    danling::detail::check<danling::CheckpointError>(names.insert(name).second, "danling ckpt convert",
                                                     "expected a name for each tensor, got two called ", quote(name));
  }
  return out;
}

std::pair<std::string, std::string> parse_mapping(const std::string& text) {
  const auto sign = text.find('=');
  danling::detail::check<danling::ConfigError>(sign != std::string::npos, "danling ckpt convert",
                                               "expected --map OLD=NEW, got ", quote(text));
  return {text.substr(0, sign), text.substr(sign + 1)};
}

}  // namespace danling_command
