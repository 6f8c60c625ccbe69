// danling ckpt ls: prints one line per value of a file, one line per file of a directory.
#include <sys/stat.h>

#include <cstdio>
#include <ctime>
#include <map>
#include <optional>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/formats/detail/dcp_reader.hpp>

#include "arguments.hpp"
#include "ckpt.hpp"
#include "ckpt_json.hpp"

namespace danling_command {
namespace {

using danling::detail::concat;

const std::initializer_list<Option> option_list = {{"--json", "", "print JSON for programs"},
                                                   {"--help", "", "print this text"}};

struct FileLine {
  std::string name;
  std::string kind;  // run, model, weights or other; empty if the file cannot be read
  std::string reason;
  std::uint64_t bytes = 0;
  std::int64_t modified = 0;
  std::optional<std::int64_t> epoch;
  std::optional<std::int64_t> step;
  std::string same_as;  // the first name of the same file
};

std::string kind_of(const RecordTree& tree) {
  if (!tree.is_map()) {
    return "other";
  }
  if (tree.find("model") != nullptr) {
    return tree.find("optimizer") != nullptr || tree.find("state") != nullptr ? "run" : "model";
  }
  const auto leaves = leaves_of(tree);
  for (const auto& leaf : leaves) {
    if (!leaf.value->is_tensor()) {
      return "other";
    }
  }
  return leaves.empty() ? "other" : "weights";
}

// Returns an integer in a map of the tree.
std::optional<std::int64_t> integer_at(const RecordTree* tree, const char* key) {
  const RecordTree* found = tree != nullptr && tree->is_map() ? tree->find(key) : nullptr;
  return found != nullptr && found->is_integer() ? std::optional(found->integer()) : std::nullopt;
}

FileLine describe_file(const std::filesystem::path& path) {
  FileLine line;
  line.name = path.filename().string();
  try {
    const TensorFile file(path);
    const RecordTree& tree = file.tree();
    line.bytes = file.size();
    line.kind = kind_of(tree);
    if (tree.is_map()) {
      const RecordTree* state = tree.find("state");
      const RecordTree* train = state != nullptr && state->is_map() ? state->find("train") : nullptr;
      line.epoch = train != nullptr ? integer_at(train, "epoch") : integer_at(&tree, "epoch");
      line.step = train != nullptr ? integer_at(train, "global_step") : integer_at(&tree, "global_step");
    }
  } catch (const danling::CheckpointError& error) {
    line.reason = error.what();
  }
  return line;
}

std::string age_text(std::int64_t seconds) {
  if (seconds < 0) {
    return "future";
  }
  static constexpr std::pair<std::int64_t, const char*> units[] = {{86400, " d"}, {3600, " h"}, {60, " min"}};
  for (const auto& [length, name] : units) {
    if (seconds >= 2 * length) {
      return concat(seconds / length, name);
    }
  }
  return concat(seconds, " s");
}

std::vector<FileLine> describe_directory(const std::filesystem::path& directory) {
  std::vector<FileLine> out;
  std::map<std::pair<dev_t, ino_t>, std::size_t> first;
  for (const auto& path : checkpoints_in(directory)) {
    struct stat status{};
    const bool sharded = is_sharded_path(path);
    if (::stat(sharded ? danling::formats::resolve_dcp(path).c_str() : path.c_str(), &status) != 0) {
      continue;  // removed meanwhile by an active run
    }
    const auto [found, added] = first.try_emplace({status.st_dev, status.st_ino}, out.size());
    FileLine line = added ? describe_file(path) : out[found->second];
    if (!added) {
      line.name = path.filename().string();
      line.same_as = out[found->second].name;
    }
    if (!sharded) {
      line.bytes = static_cast<std::uint64_t>(status.st_size);
    }
    line.modified = status.st_mtime;
    out.push_back(std::move(line));
  }
  return out;
}

Json json_line(const FileLine& line, const std::filesystem::path& directory) {
  Json out = {{"file", (directory / line.name).string()},
              {"kind", line.kind},
              {"bytes", line.bytes},
              {"modified", line.modified}};
  if (line.epoch) {
    out["epoch"] = *line.epoch;
  }
  if (line.step) {
    out["step"] = *line.step;
  }
  if (!line.same_as.empty()) {
    out["same_as"] = line.same_as;
  }
  if (!line.reason.empty()) {
    out["error"] = line.reason;
  }
  return out;
}

void print_directory(const std::vector<FileLine>& lines) {
  const auto now = static_cast<std::int64_t>(std::time(nullptr));
  std::vector<std::vector<std::string>> rows = {{"name", "kind", "size", "age", "epoch", "step", "same file as"}};
  std::uint64_t total = 0;
  for (const auto& line : lines) {
    const auto number = [](const auto& value) { return value ? danling::to_text(*value) : std::string(); };
    rows.push_back({printable(line.name), line.kind.empty() ? "unreadable" : line.kind,
                    danling::format_bytes(line.bytes), age_text(now - line.modified), number(line.epoch),
                    number(line.step), line.same_as.empty() ? "" : printable(line.same_as)});
    total += line.same_as.empty() ? line.bytes : 0;
  }
  print_table(rows, {false, false, true, true, true, true, false});
  std::printf("%s, %s on disk\n", count_text(lines.size(), "name").c_str(), danling::format_bytes(total).c_str());
  for (const auto& line : lines) {
    if (!line.reason.empty() && line.same_as.empty()) {
      std::printf("%s: %s\n", printable(line.name).c_str(), line.reason.c_str());
    }
  }
}

void print_file(const TensorFile& file) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [path, value, place] : leaves_of(file.tree())) {
    if (value->is_tensor()) {
      const auto& record = value->tensor();
      rows.push_back({printable(path), std::string(danling::formats::dtype_name(record.dtype)), shape_text(record),
                      danling::format_bytes(num_elements(record) * danling::formats::dtype_size(record.dtype))});
    } else {
      rows.push_back({printable(path), kind_text(*value), value_text(*value, 4), ""});
    }
  }
  print_table(rows, {false, false, false, true});
  for (const auto& reason : file.unread()) {
    std::printf("not read: %s\n", printable(reason).c_str());
  }
}

}  // namespace

int ckpt_ls(std::span<const std::string> words) {
  const Arguments arguments("danling ckpt ls", words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling ckpt ls FILE|DIRECTORY...\n\n"
        "For a file, prints one line per value: key, type, shape or value, size. For a directory, prints one line per\n"
        "checkpoint: name, kind (run, model, weights, other), size, age, epoch and step of the run, and other names "
        "of\n"
        "the same file.\n\n%s\n"
        "Example: danling ckpt ls runs/mnist/checkpoints\n"
        "Exit code: 0; 1 if a file in a directory cannot be read; 2 after any other error.\n",
        describe(option_list).c_str());
    return 0;
  }
  const auto& names = arguments.positional();
  danling::detail::check<danling::ConfigError>(!names.empty(), "danling ckpt ls",
                                               "expected files or directories, got none");
  bool sound = true;
  Json all = Json::array();
  for (const auto& name : names) {
    const bool json = arguments.has("--json");
    if (names.size() > 1 && !json) {
      std::printf("%s%s:\n", &name == &names.front() ? "" : "\n", name.c_str());
    }
    if (std::filesystem::is_directory(name) && !is_sharded_path(name)) {
      const auto lines = describe_directory(name);
      for (const auto& line : lines) {
        sound = sound && line.reason.empty();
        all.push_back(json_line(line, name));
      }
      if (!json) {
        print_directory(lines);
      }
      continue;
    }
    const TensorFile file(name);
    if (!json) {
      print_file(file);
      continue;
    }
    Json out = json_file(file);
    out["values"] = Json::array();
    for (const auto& leaf : leaves_of(file.tree())) {
      out["values"].push_back(json_leaf(leaf));
    }
    all.push_back(std::move(out));
  }
  if (arguments.has("--json")) {
    print_json(all);
  }
  return sound ? 0 : 1;
}

}  // namespace danling_command
