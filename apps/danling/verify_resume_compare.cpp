#include "verify_resume_compare.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/sharded.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include "verify_resume_names.hpp"

namespace danling_command {
namespace {

namespace fs = std::filesystem;
using danling::State;
using danling::detail::concat;
using nlohmann::ordered_json;

// Returns true for files of one attempt, or files that depend on the interruption.
bool belongs_to_attempt(const std::string& path) {
  for (const auto* folder : {"logs/", "attempts/", "tensorboard/", "profiles/", "heartbeats/"}) {
    if (path.starts_with(folder) || path.find(concat("/", folder)) != std::string::npos) {
      return true;
    }
  }
  const auto name = name_of(path);
  return name == ".lock" || is_previous(path) || path.ends_with("metadata/git.yaml");
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string value_text(const ordered_json& value) {
  const std::string text = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

// Returns the path and both values of the first entry in which two JSON values differ.
std::string json_difference(const ordered_json& a, const ordered_json& b, const std::string& path,
                            const ValueRules& rules) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : concat(path, ".", key); };
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items()) {
      if (!b.contains(key)) {
        return concat(below(key), " is missing");
      }
      if (auto text = json_difference(value, b[key], below(key), rules); !text.empty()) {
        return text;
      }
    }
    for (const auto& [key, value] : b.items()) {
      if (!a.contains(key)) {
        return concat(below(key), " is ", value_text(value), ", not in the reference");
      }
    }
    return {};
  }
  if (a.is_array() && b.is_array() && a.size() == b.size()) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (auto text = json_difference(a[i], b[i], below(danling::to_text(static_cast<std::int64_t>(i))), rules);
          !text.empty()) {
        return text;
      }
    }
    return {};
  }
  if (rules.tolerance && a.is_number() && b.is_number() && (a.is_number_float() || b.is_number_float()) &&
      rules.tolerance->accepts(a.get<double>(), b.get<double>(), 0)) {
    return {};
  }
  return a == b ? std::string() : concat(path, " is ", value_text(a), " in the reference, ", value_text(b), " here");
}

// Compares line by line, without the sub-object of times and rates.
std::string lines_difference(const fs::path& reference, const fs::path& run, bool whole, const ValueRules& rules) {
  std::istringstream left(read(reference));
  std::istringstream right(read(run));
  std::string a;
  std::string b;
  for (std::int64_t line = 1;; ++line) {
    const bool more_left = static_cast<bool>(std::getline(left, a));
    const bool more_right = static_cast<bool>(std::getline(right, b)) && (whole || !right.eof());
    if (!more_left || !more_right) {
      if (more_left == more_right || (!whole && more_left)) {
        return {};
      }
      return concat("line ", line, " is ", more_right ? "one too many" : "missing", ": ", more_right ? b : a);
    }
    if (a == b) {
      continue;
    }
    auto first = ordered_json::parse(a, nullptr, false);
    auto second = ordered_json::parse(b, nullptr, false);
    if (first.is_discarded() || second.is_discarded() || !first.is_object() || !second.is_object()) {
      return concat("line ", line, ": ", a, " in the reference, ", b, " here");
    }
    first.erase("telemetry");
    second.erase("telemetry");
    if (const auto text = json_difference(first, second, "", rules); !text.empty()) {
      std::string place;
      for (const auto* key : {"split", "epoch", "global_step"}) {
        if (first.contains(key)) {
          place += concat(place.empty() ? "" : ", ", key, " ",
                          first[key].is_string() ? first[key].get<std::string>() : first[key].dump());
        }
      }
      return concat("line ", line, " (", place, "): ", text);
    }
  }
}

std::string json_file_difference(const fs::path& reference, const fs::path& run, const ValueRules& rules) {
  auto a = ordered_json::parse(read(reference), nullptr, false);
  auto b = ordered_json::parse(read(run), nullptr, false);
  if (a.is_discarded() || b.is_discarded()) {
    return "is not JSON";
  }
  for (const auto* key : {"timestamp", "seconds", "finished_at", "host", "pid", "log_file"}) {
    if (a.is_object() && b.is_object()) {
      a.erase(key);
      b.erase(key);
    }
  }
  // The summary may be from a start that finished under injected errors: the next start finds the run finished and
  // keeps it.
  for (auto* summary : {&a, &b}) {
    if (summary->is_object() && summary->contains("details") && summary->at("details").is_object()) {
      summary->at("details").erase("checkpoint_errors");
    }
  }
  return json_difference(a, b, "", rules);
}

// Returns the step and epoch of a checkpoint, if present.
std::string place_of(const State& state) {
  const State* run = state.is_map() ? state.find("state") : nullptr;
  const State* train = run != nullptr && run->is_map() ? run->find("train") : nullptr;
  if (train == nullptr || !train->is_map() || train->find("global_step") == nullptr) {
    return {};
  }
  std::string out = concat("at step ", train->at("global_step").integer());
  if (const State* epoch = train->find("epoch")) {
    out += concat(", epoch ", epoch->integer());
  }
  return out;
}

// Returns the number of processes that wrote a checkpoint.
std::size_t ranks_of(const State& state) {
  const State* ranks = state.find("ranks");
  return ranks != nullptr && ranks->is_map() ? ranks->map().size() : 1;
}

// Normalises every sum in `state`. A sum and its compensation represent one number; the merged sums of several
// processes may split it differently. `rounded` drops the compensation.
State with_normal_sums(const State& state, bool rounded) {
  if (!state.is_map()) {
    return state;
  }
  State out = State(State::Map());
  for (const auto& entry : state.map()) {
    out.map().set(entry.key, with_normal_sums(entry.value, rounded));
  }
  const State* sum = state.find("sum");
  const State* rest = state.find("compensation");
  if (sum != nullptr && rest != nullptr && sum->is_double() && rest->is_double()) {
    const double whole = sum->number() + rest->number();
    out["sum"] = whole;
    out["compensation"] = rounded ? 0.0 : rest->number() - (whole - sum->number());
  }
  return out;
}

State load_whole(const fs::path& path) {
  return path.extension() == ".pointer" ? danling::load_sharded(fs::path(path).replace_extension())
                                        : danling::load_file(path);
}

// Removes keys that layouts set, and keys that depend on them.
void erase_layout(State& checkpoint, const std::vector<std::string>& keys) {
  for (const auto& key : keys) {
    erase_key(checkpoint, "runner." + key);
  }
  checkpoint.map().erase("ranks");
  checkpoint.map().erase("parallel");
  // The division of a pass's partial sums among the processes. The totals are compared at the end of the pass.
  for (const auto* sums : {"loop.meters", "loop.metrics", "loop.losses", "loop.shares"}) {
    erase_key(checkpoint, sums);
  }
}

std::string state_difference(const State& a, const State& b, const ValueRules& rules) {
  return rules.tolerance ? value_difference(a, b, *rules.tolerance) : danling::first_difference(a, b);
}

std::string checkpoint_difference(const fs::path& reference, const fs::path& run, const ValueRules& rules) {
  State a;
  State b;
  try {
    a = load_whole(reference);
    b = load_whole(run);
  } catch (const std::exception& error) {
    return error.what();
  }
  if (!a.is_map() || !b.is_map()) {
    return state_difference(a, b, rules);
  }
  // Unwritten lines (after a full disk) contain times and rates; metrics.jsonl is compared instead.
  a.map().erase("metrics_waiting");
  b.map().erase("metrics_waiting");
  const bool other_ranks = ranks_of(a) != ranks_of(b);
  for (State* state : {&a, &b}) {
    if (other_ranks) {
      state->map().erase("ranks");  // the generator states of each process
    }
    if (!rules.keys.empty()) {
      erase_layout(*state, rules.keys);
    }
    State* loop = state->map().find("loop");
    if (loop != nullptr && loop->is_map() && (rules.tolerance || loop->find("shares") != nullptr)) {
      *loop = with_normal_sums(*loop, /*rounded=*/rules.tolerance.has_value());
    }
  }
  // Weights first, since they matter most. One line for each differing part.
  std::vector<std::string> parts = {"model", "ema", "swa", "optimizer", "scheduler"};
  for (const auto& entry : a.map()) {
    const std::string key = entry.key.is_string() ? entry.key.string() : entry.key.text();
    if (std::find(parts.begin(), parts.end(), key) == parts.end()) {
      parts.push_back(key);
    }
  }
  std::vector<std::string> found;
  for (const auto& key : parts) {
    const State* left = a.find(key);
    const State* right = b.find(key);
    if ((left == nullptr) != (right == nullptr)) {
      found.push_back(concat(key, " is ", left == nullptr ? "not in the reference" : "missing"));
    } else if (left != nullptr) {
      if (const auto text = state_difference(*left, *right, rules); !text.empty()) {
        found.push_back(concat(key, text.starts_with("[") || text.starts_with(":") ? "" : ".", text));
      }
    }
  }
  if (found.empty()) {
    found.push_back(state_difference(a, b, rules));  // in other parts, or none
  }
  return found.front().empty() ? std::string() : concat(place_of(a), "\n    ", danling::detail::join(found, "\n    "));
}

bool same_bytes(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::file_size(a, error) == fs::file_size(b, error) && !error && read(a) == read(b);
}

// Compares configs without the keys that the layouts set.
std::string config_difference(const fs::path& reference, const fs::path& run, const ValueRules& rules) {
  auto a = danling::from_yaml(read(reference), reference.string());
  auto b = danling::from_yaml(read(run), run.string());
  for (auto* config : {&a, &b}) {
    for (const auto& key : rules.keys) {
      erase_key(*config, key);
    }
  }
  return danling::to_yaml(a) == danling::to_yaml(b) ? "" : "differs in other keys than those of --layouts";
}

std::string file_difference(const fs::path& reference, const fs::path& run, const ValueRules& rules) {
  const std::string path = run.string();
  if (path.ends_with(".jsonl")) {
    return lines_difference(reference, run, /*whole=*/true, rules);
  }
  if (path.ends_with(".pointer")) {
    return checkpoint_difference(reference, run, rules);
  }
  if (same_bytes(reference, run)) {
    return {};
  }
  if (path.ends_with(".json")) {
    return json_file_difference(reference, run, rules);
  }
  if (path.ends_with(".pth")) {
    const auto text = checkpoint_difference(reference, run, rules);
    return text.empty() && !rules.tolerance && is_model(path) ? "its bytes differ, but its content is the same" : text;
  }
  if (path.ends_with(".safetensors") && rules.tolerance) {
    return value_difference(danling::load_safetensors(reference), danling::load_safetensors(run), *rules.tolerance);
  }
  if (path.ends_with(".yaml") && !rules.keys.empty()) {
    return config_difference(reference, run, rules);
  }
  return "its bytes differ";
}

// Returns directories of shards that are not a checkpoint: without a name and a manifest.
std::vector<Difference> left_behind(const fs::path& root) {
  std::vector<Difference> out;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_directory(error) && is_save_name(entry->path().filename().string())) {
      const auto path = entry->path().lexically_relative(root).string();
      if (!belongs_to_attempt(path) && !fs::exists(entry->path() / "manifest.json", error)) {
        out.push_back({path, "an incomplete save was left behind"});
      }
    }
  }
  return out;
}

std::pair<int, std::string> order_of(const std::string& path) { return {group_of(path), path}; }

}  // namespace

int group_of(const std::string& path) {
  return path.ends_with("metrics.jsonl") ? 0 : is_history(path) ? 1 : is_checkpoint(path) ? 2 : 3;
}

bool matches_glob(std::string_view glob, std::string_view text) {
  if (glob.empty()) {
    return text.empty();
  }
  if (glob.front() != '*') {
    return !text.empty() && text.front() == glob.front() && matches_glob(glob.substr(1), text.substr(1));
  }
  for (std::size_t from = 0; from <= text.size(); ++from) {
    if (matches_glob(glob.substr(1), text.substr(from))) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> files_below(const fs::path& root) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_regular_file(error)) {
      out.push_back(entry->path().lexically_relative(root).string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Difference> compare_runs(const fs::path& reference, const fs::path& run, const RunCompareOptions& options) {
  const auto skipped = [&](const std::string& path) {
    return belongs_to_attempt(path) || !save_of(path).empty() ||
           // Lists the parameters of rank 0, which other axes divide differently.
           (!options.rules.keys.empty() && path.ends_with("metadata/model.yaml")) ||
           std::any_of(options.ignored.begin(), options.ignored.end(),
                       [&](const auto& glob) { return matches_glob(glob, path); });
  };
  const auto left = files_below(reference);
  const auto right = files_below(run);
  std::vector<std::string> all;
  std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(all));
  std::erase_if(all, skipped);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
  std::vector<Difference> out = left_behind(run);
  std::int64_t excuses = options.lost_saves;
  for (const auto& path : all) {
    const bool there = std::binary_search(left.begin(), left.end(), path);
    const bool here = std::binary_search(right.begin(), right.end(), path);
    if (there && here) {
      auto text = file_difference(reference / path, run / path, options.rules);
      if (!text.empty() && is_history(path) && options.provisional.contains(path) && excuses > 0) {
        --excuses;
      } else if (!text.empty()) {
        out.push_back({path, std::move(text)});
      }
    } else if (is_temporary(path)) {
      out.push_back({path, "a temporary file that was left behind"});
    } else if (is_history(path) && (there ? excuses-- > 0 : options.removes_history)) {
      continue;
    } else {
      out.push_back({path, here ? "not in the reference" : "missing"});
    }
  }
  return out;
}

std::optional<Difference> compare_newest(const fs::path& reference, const fs::path& run,
                                         const std::vector<std::string>& ignored, const ValueRules& rules) {
  for (const auto& path : files_below(reference)) {
    if (!is_latest(path) || belongs_to_attempt(path) ||
        std::any_of(ignored.begin(), ignored.end(), [&](const auto& glob) { return matches_glob(glob, path); })) {
      continue;
    }
    std::error_code error;
    auto text = fs::exists(run / path, error) ? file_difference(reference / path, run / path, rules) : "missing";
    if (!text.empty()) {
      return Difference{path, std::move(text)};
    }
  }
  return std::nullopt;
}

std::optional<Difference> PartialComparison::check(const fs::path& reference, const fs::path& run) {
  for (const auto& path : files_below(reference)) {
    std::error_code error;
    if (belongs_to_attempt(path) || !fs::exists(run / path, error)) {
      continue;
    }
    if (path.ends_with("metrics.jsonl")) {
      if (auto text = lines_difference(reference / path, run / path, /*whole=*/false, rules_); !text.empty()) {
        return Difference{path, std::move(text)};
      }
    } else if (is_history(path) && !provisional_.contains(path)) {
      const std::pair identity(fs::file_size(run / path, error), fs::last_write_time(run / path, error));
      const auto known = same_.find(path);
      if (known != same_.end() && known->second == identity) {
        continue;
      }
      if (auto text = file_difference(reference / path, run / path, rules_); !text.empty()) {
        return Difference{path, std::move(text)};
      }
      same_[path] = identity;
    }
  }
  return std::nullopt;
}

}  // namespace danling_command
