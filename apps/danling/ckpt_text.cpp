// Functions that the commands of `danling ckpt` share: search of files, text output.
#include <algorithm>
#include <cstdio>
#include <system_error>

#include <danling/core/error.hpp>
#include <danling/telemetry/text.hpp>

#include "ckpt.hpp"

namespace danling_command {

using danling::detail::concat;
using danling::detail::quote;

std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& directory) {
  static constexpr std::string_view endings[] = {".pth", ".pt", ".bin", ".ckpt", ".safetensors"};
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !name.starts_with('.') &&
        std::find(std::begin(endings), std::end(endings), entry.path().extension().string()) != std::end(endings)) {
      out.push_back(entry.path());
    } else if ((entry.is_directory() || entry.path().extension() == ".pointer") && !name.starts_with('.') &&
               is_sharded_path(entry.path())) {
      out.push_back(entry.path());
    }
  }
  std::sort(out.begin(), out.end());
  danling::detail::check<danling::CheckpointError>(
      !out.empty(), "danling ckpt", "expected files called ",
      "*.pth, *.pt, *.bin, *.ckpt or *.safetensors, or directories of shards, got none in ", quote(directory.string()));
  return out;
}

std::vector<std::filesystem::path> checkpoints_of(const std::vector<std::string>& words) {
  std::vector<std::filesystem::path> out;
  for (const auto& word : words) {
    if (is_sharded_path(word)) {
      out.emplace_back(word);
      continue;
    }
    std::error_code error;
    const auto status = std::filesystem::status(word, error);
    danling::detail::check<danling::CheckpointError>(std::filesystem::exists(status), "danling ckpt",
                                                     "expected a file or a directory, got none at ", quote(word));
    if (std::filesystem::is_directory(status)) {
      const auto found = checkpoints_in(word);
      out.insert(out.end(), found.begin(), found.end());
    } else {
      out.emplace_back(word);
    }
  }
  return out;
}

std::vector<Leaf> leaves_below(const TensorFile& file, const std::string& key) {
  auto out = leaves_of(file.tree());
  std::erase_if(out, [&](const Leaf& leaf) { return !is_below(leaf.path, key); });
  if (out.empty() && !key.empty()) {
    std::string known = "no keys";
    if (file.tree().is_map()) {
      std::vector<std::string> names;
      for (const auto& entry : file.tree().map()) {
        names.push_back(entry.key.is_string() ? entry.key.string() : entry.key.text());
      }
      constexpr std::size_t max_names = 20;
      const bool more = names.size() > max_names;
      names.resize(std::min(names.size(), max_names));
      known = danling::detail::join(names) + (more ? ", ..." : "");
    }
    danling::detail::fail<danling::ConfigError>("danling ckpt", "expected a key that the file has, got ", quote(key),
                                                "; it has ", known, " (file ", quote(file.path().string()), ")");
  }
  return out;
}

std::string count_text(std::uint64_t count, std::string_view what) {
  return concat(count, " ", what, count == 1 ? "" : "s");
}

std::string shape_text(const TensorRecord& record) { return concat("[", danling::detail::join(record.sizes), "]"); }

std::string value_text(const RecordTree& value, std::size_t most) {
  if (value.is_null()) {
    return "null";
  }
  if (value.is_bool()) {
    return danling::to_text(value.boolean());
  }
  if (value.is_integer()) {
    return danling::to_text(value.integer());
  }
  if (value.is_double()) {
    return danling::to_text(value.number());
  }
  if (value.is_string()) {
    constexpr std::size_t longest_text = 100;
    const std::string& text = value.string();
    return most >= text.size() || text.size() <= longest_text
               ? quote(text)
               : concat(quote(text.substr(0, longest_text)), "... (", text.size(), " bytes)");
  }
  if (value.is_bytes()) {
    return count_text(value.bytes().data.size(), "byte");
  }
  if (value.is_map()) {
    return "{}";
  }
  const auto& items = value.items();
  std::string out;
  for (std::size_t i = 0; i < std::min(items.size(), most); ++i) {
    out += concat(i == 0 ? "" : ", ", value_text(items[i], most));
  }
  if (items.size() > most) {
    out += concat(", ... (", items.size(), " items)");
  }
  return value.is_tuple() ? concat("(", out, items.size() == 1 ? ",)" : ")") : concat("[", out, "]");
}

std::string kind_text(const RecordTree& value) {
  const std::string_view kind = value.kind();  // "a number", "an integer", "null"
  const auto space = kind.find(' ');
  return std::string(space == std::string_view::npos ? kind : kind.substr(space + 1));
}

std::string printable(std::string_view text) {
  if (text.empty()) {
    return "(root)";
  }
  const std::string quoted = quote(text);
  return quoted.substr(1, quoted.size() - 2);
}

void print_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right) {
  if (!rows.empty()) {
    std::puts(danling::align_columns(rows, right).c_str());
  }
}

}  // namespace danling_command
