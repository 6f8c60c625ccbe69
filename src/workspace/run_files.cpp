// RunDirectory: reads the small files of a run.

#include <algorithm>
#include <charconv>
#include <limits>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>
#include <danling/workspace/files.hpp>
#include <danling/workspace/run_directory.hpp>

namespace danling::inline v0 {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

ReadResult<std::string> text_of(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return {{}, concat("no file ", quote(path.string()))};
  }
  try {
    return {read_text(path), {}};
  } catch (const Error& failure) {
    return {{}, failure.what()};
  }
}

ReadResult<Json> json_in(const fs::path& path) {
  auto text = text_of(path);
  if (!text) {
    return {{}, std::move(text.problem)};
  }
  auto json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) {
    return {{},
            concat("expected a JSON object in ", quote(path.string()),
                   text->empty() ? ", got an empty file" : ", got other or truncated text")};
  }
  return {std::move(json), {}};
}

// Returns the value at `key` if it has the type of `fallback`, else `fallback`.
template <class T>
T value_or(const Json& json, const char* key, T fallback) {
  const auto found = json.find(key);
  if (found == json.end()) {
    return fallback;
  }
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->get<T>() : fallback;
  } else {
    return found->is_number() ? found->get<T>() : fallback;
  }
}

// Inverse of to_json(Result), which writes non-finite numbers as strings.
std::optional<double> number_of(const Json& json) {
  if (json.is_number()) {
    return json.get<double>();
  }
  if (!json.is_string()) {
    return std::nullopt;
  }
  const auto& text = json.get_ref<const std::string&>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return text == "NaN"         ? std::optional(std::numeric_limits<double>::quiet_NaN())
         : text == "Infinity"  ? std::optional(infinity)
         : text == "-Infinity" ? std::optional(-infinity)
                               : std::nullopt;
}

// Appends the numbers of nested lists in row-major order. Returns false unless all lists of one depth have equal
// length.
bool flatten(const Json& json, std::size_t depth, Result::Array& out) {
  if (!json.is_array()) {
    const auto number = number_of(json);
    out.values.push_back(number.value_or(0));
    return number && depth == out.shape.size();
  }
  if (depth == out.shape.size()) {
    if (!out.values.empty()) {
      return false;
    }
    out.shape.push_back(static_cast<std::int64_t>(json.size()));
  }
  return out.shape[depth] == static_cast<std::int64_t>(json.size()) &&
         std::all_of(json.begin(), json.end(), [&](const Json& item) { return flatten(item, depth + 1, out); });
}

// Returns the numbers of an object; omits other entries, such as the name of a run.
Result result_of(const Json& json) {
  Result out;
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) {
      out.set(name, result_of(value));
    } else if (const auto number = number_of(value)) {
      out.set(name, *number);
    } else if (Result::Array array; value.is_array() && flatten(value, 0, array)) {
      array.shape.size() == 1 ? out.set(name, std::move(array.values)) : out.set(name, std::move(array));
    }
  }
  return out;
}

ReadResult<NumberedResult> row_in(const fs::path& path) {
  auto json = json_in(path);
  if (!json) {
    return {{}, std::move(json.problem)};
  }
  const auto index = json->find("index");
  if (index == json->end() || !index->is_number_integer()) {
    return {{}, concat("expected an index in ", quote(path.string()), ", got none")};
  }
  NumberedResult out{index->get<std::int64_t>(), {}};
  if (const auto mode = json->find("score_mode"); mode != json->end() && mode->is_string()) {
    out.score_mode = mode->get<std::string>();
  }
  for (const char* key : {"name", "id", "timestamp", "index", "score_mode"}) {
    json.value->erase(key);
  }
  out.result = result_of(*json);
  return {std::move(out), {}};
}

const char* file_of(RunDirectory::ConfigText which) {
  switch (which) {
    case RunDirectory::ConfigText::canonical:
      return "config.canonical.yaml";
    case RunDirectory::ConfigText::diff:
      return "config.diff.yaml";
    default:
      return "config.full.yaml";
  }
}

ReadResult<ConfigTree> tree_in(const fs::path& path, const ReadResult<std::string>& text) {
  if (!text) {
    return {{}, text.problem};
  }
  try {
    auto tree = from_yaml(*text, path.string());
    if (tree.is_null()) {
      return {ConfigTree(ConfigTree::Map()), {}};
    }
    if (!tree.is_map()) {
      return {{}, concat("expected a mapping in ", quote(path.string()), ", got ", tree.kind())};
    }
    return {std::move(tree), {}};
  } catch (const Error& error) {
    return {{}, error.what()};
  }
}

std::string string_at(const ConfigTree& tree, const char* key) {
  const auto* found = tree.find(key);
  return found != nullptr && found->is_string() ? found->string() : std::string();
}

}  // namespace

ReadResult<std::string> RunDirectory::config_text(ConfigText which) const {
  return text_of(dir_ / "metadata" / file_of(which));
}

ReadResult<ConfigTree> RunDirectory::config(ConfigText which) const {
  return tree_in(dir_ / "metadata" / file_of(which), config_text(which));
}

ReadResult<StoredIdentity> RunDirectory::code_identity(bool with_diff) const {
  const auto path = dir_ / "metadata" / "git.yaml";
  const auto tree = tree_in(path, text_of(path));
  if (!tree) {
    return {{}, tree.problem};
  }
  StoredIdentity out;
  out.code.id = string_at(*tree, "commit");
  out.code.commit = string_at(*tree, "revision");
  const auto* dirty = tree->find("dirty");
  out.code.dirty = dirty != nullptr && dirty->is_bool() && dirty->boolean();
  out.code.problem = string_at(*tree, "problem");
  out.timestamp = string_at(*tree, "timestamp");
  if (out.timestamp.empty() || tree->find("id") == nullptr) {
    return {{}, concat("expected an id and a timestamp in ", quote(path.string()), ", got none")};
  }
  if (with_diff) {
    out.code.diff = text_of(dir_ / "metadata" / "git.diff").value.value_or("");
  }
  return {std::move(out), {}};
}

ReadResult<std::vector<NumberedResult>> RunDirectory::results() const {
  const auto path = dir_ / "results.json";
  const auto json = json_in(path);
  if (!json) {
    return {{}, json.problem};
  }
  const auto rows = json->find("results");
  if (rows == json->end() || !rows->is_object()) {
    return {{}, concat("expected results in ", quote(path.string()), ", got none")};
  }
  std::vector<NumberedResult> out;
  for (const auto& [index, row] : rows->items()) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), number);
    if (error != std::errc() || end != index.data() + index.size() || !row.is_object()) {
      return {{}, concat("expected rows by number in ", quote(path.string()), ", got ", quote(index))};
    }
    out.push_back({number, result_of(row)});
  }
  return {std::move(out), {}};
}

ReadResult<NumberedResult> RunDirectory::latest() const { return row_in(dir_ / "latest.json"); }
ReadResult<NumberedResult> RunDirectory::best() const { return row_in(dir_ / "best.json"); }

ReadResult<StoredSummary> RunDirectory::summary() const {
  const auto json = json_in(dir_ / "summary.json");
  if (!json) {
    return {{}, json.problem};
  }
  StoredSummary out;
  out.name = value_or(*json, "name", std::string());
  out.timestamp = value_or(*json, "timestamp", std::string());
  out.finished_at = value_or(*json, "finished_at", std::string());
  out.host = value_or(*json, "host", std::string());
  out.pid = value_or(*json, "pid", std::int64_t{0});
  out.run.status = value_or(*json, "status", std::string("unknown"));
  out.run.error = value_or(*json, "error", std::string());
  out.run.signal = value_or(*json, "signal", 0);
  out.run.exit_code = value_or(*json, "exit_code", 0);
  out.run.epoch = value_or(*json, "epoch", std::int64_t{0});
  out.run.global_step = value_or(*json, "global_step", std::int64_t{0});
  out.run.seconds = value_or(*json, "seconds", 0.0);
  if (const auto details = json->find("details"); details != json->end() && details->is_object()) {
    for (const auto& [name, value] : details->items()) {
      if (value.is_object()) {
        out.run.details.set(name, result_of(value));
      } else if (value.is_number_integer()) {
        out.run.facts.emplace_back(name, value.get<std::int64_t>());
      } else if (value.is_string() && !number_of(value)) {
        out.run.facts.emplace_back(name, value.get<std::string>());
      } else if (const auto number = number_of(value)) {
        out.run.details.set(name, *number);
      }
    }
  }
  return {std::move(out), {}};
}

ReadResult<MetricsPosition> RunDirectory::last_line() const {
  const auto path = dir_ / "metrics.jsonl";
  // A line with many numbers may be long: reads growing blocks from the end, up to a limit.
  std::string line;
  try {
    const formats::InputFile file(path, formats::FileErrors::of<Error>("runs.read"));
    for (std::uint64_t block = 4096; line.empty() && block <= std::uint64_t{1} << 24; block *= 16) {
      const std::uint64_t start = file.size() - std::min(block, file.size());
      const std::string tail = file.text(start, file.size() - start);
      // The text between the last two line ends; the text behind the last line end is incomplete.
      const auto end = tail.rfind('\n');
      const auto before = end == std::string::npos || end == 0 ? std::string::npos : tail.rfind('\n', end - 1);
      if (end != std::string::npos && (before != std::string::npos || start == 0)) {
        const auto from = before == std::string::npos ? 0 : before + 1;
        line = tail.substr(from, end - from);
      }
      if (start == 0) {
        break;
      }
    }
  } catch (const Error&) {  // missing, or truncated meanwhile
    return {{}, concat("no file ", quote(path.string()))};
  }
  const auto json = Json::parse(line, nullptr, false);
  if (!json.is_object()) {
    return {{}, concat("expected a complete line of JSON at the end of ", quote(path.string()), ", got none")};
  }
  MetricsPosition out;
  out.split = value_or(json, "split", std::string());
  out.mode = value_or(json, "mode", std::string());
  out.global_step = value_or(json, "global_step", std::int64_t{0});
  if (const auto epoch = json.find("epoch"); epoch != json.end() && epoch->is_number_integer()) {
    out.epoch = epoch->get<std::int64_t>();
  }
  return {std::move(out), {}};
}

fs::path RunDirectory::checkpoint_dir() const {
  const auto text = config_text();
  const auto name = text ? find_config_value(*text, "checkpoint.dir_name") : ConfigTree();
  return dir_ / (name.is_string() ? name.string() : std::string("checkpoints"));
}

ConfigTree find_config_value(std::string_view text, std::string_view key) {
  std::size_t indent = 0;
  for (std::size_t from = 0; from < text.size();) {
    const auto end = std::min(text.find('\n', from), text.size());
    const auto line = text.substr(from, end - from);
    from = end + 1;
    const auto depth = std::min(line.find_first_not_of(' '), line.size());
    if (depth < indent && depth < line.size()) {
      break;  // the end of the section
    }
    const auto part = key.substr(0, key.find('.'));
    const auto name = line.substr(depth);
    if (depth != indent || !name.starts_with(part) || name.size() <= part.size() || name[part.size()] != ':') {
      continue;
    }
    if (part.size() < key.size() && name.size() == part.size() + 1) {
      key.remove_prefix(part.size() + 1);
      indent += 2;
      continue;
    }
    // The value, including the lines of a list or section below the key.
    const auto goes_on = [indent](std::string_view rest) {
      const auto inner = rest.find_first_not_of(' ');
      return inner != std::string_view::npos &&
             (inner > indent || (inner == indent && rest.substr(inner).starts_with("- ")));
    };
    auto stop = std::min(from, text.size());
    while (stop < text.size() && goes_on(text.substr(stop))) {
      stop = std::min(text.find('\n', stop), text.size() - 1) + 1;
    }
    try {
      const auto begin = end - line.size();
      const auto tree = from_yaml(text.substr(begin, stop - begin), "config");
      const auto* found = part.size() == key.size() ? tree.find(std::string(part)) : nullptr;
      return found != nullptr ? *found : ConfigTree();
    } catch (const Error&) {
      return {};
    }
  }
  return {};
}

namespace {

// Like RunnerPlan::score_split, by the names in a result: the first that begins with "val", else the first that is not
// trained.
std::string guess_split(const ConfigTree& trained, const Result& result) {
  std::string out;
  for (const auto& [name, numbers] : result) {
    if (name.starts_with("val") || name.starts_with("Val") || name.starts_with("VAL")) {
      return name;
    }
    bool is_trained = name == "train" && !trained.is_list();
    if (trained.is_list()) {
      for (const auto& item : trained.list()) {
        is_trained = is_trained || (item.is_string() && item.string() == name);
      }
    }
    if (out.empty() && !is_trained) {
      out = name;
    }
  }
  return out;
}

}  // namespace

std::optional<ScoreRule> score_rule(std::string_view config_text, const Result& result,
                                    const std::vector<NumberedResult>& rows, const NumberedResult* best) {
  const auto name = find_config_value(config_text, "score_name");
  if (!name.is_string()) {
    return std::nullopt;
  }
  ScoreRule out{{}, name.string(), name.string() != "loss" && !name.string().starts_with("losses.")};
  if (const auto chosen = find_config_value(config_text, "score_split"); chosen.is_string()) {
    out.split = chosen.string();
  } else {
    out.split = guess_split(find_config_value(config_text, "train_splits"), result);
  }
  if (out.split.empty()) {
    return std::nullopt;
  }
  if (const auto mode = find_config_value(config_text, "score_mode"); mode.is_string()) {
    out.higher_is_better = mode.string() == "max";
    out.direction_known = true;
  } else if (best != nullptr && !best->score_mode.empty()) {
    out.higher_is_better = best->score_mode == "max";
    out.direction_known = true;
  } else if (const double* chosen = best != nullptr ? best->result.number(out.path()) : nullptr) {
    for (const auto& row : rows) {
      if (const double* score = row.result.number(out.path());
          score != nullptr && (*score < *chosen || *score > *chosen)) {
        out.higher_is_better = *chosen > *score;
        out.direction_known = true;
        break;
      }
    }
  }
  return out;
}

}  // namespace danling::inline v0
