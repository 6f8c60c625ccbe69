#include <telemetry/mlflow_store.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <system_error>

#include <danling/core/error.hpp>
#include <danling/formats/detail/checksum.hpp>
#include <danling/workspace/files.hpp>

#include <telemetry/external_run.hpp>

namespace danling::inline v0::detail {
namespace {

namespace fs = std::filesystem;

// Limit of names: MLflow accepts 250 characters, file systems 255 bytes.
constexpr std::size_t most_bytes = 200;

formats::Hash128 hash_of(std::string_view text) { return formats::hash128(std::as_bytes(std::span(text))); }

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// Converts a key to a relative path of characters that MLflow accepts (its \w includes others too).
std::string accepted(std::string_view key) {
  std::string out;
  for (const char c : key) {
    out += is_alphanumeric(c) || std::string_view("_-. :/").find(c) != std::string_view::npos ? c : '_';
  }
  std::string path;
  for (std::size_t from = 0; from <= out.size();) {
    const std::size_t end = std::min(out.find('/', from), out.size());
    const std::string part = out.substr(from, end - from);
    path += (from == 0 ? "" : "/") + (part.find_first_not_of('.') == std::string::npos ? "_" + part : part);
    from = end + 1;
  }
  return path;
}

std::string with_hash(std::string_view name, std::string_view key) {
  std::string head(name.substr(0, most_bytes - 9));
  while (head.ends_with('/')) {
    head.pop_back();
  }
  return head + "-" + formats::to_hex(hash_of(key)).substr(0, 8);
}

// Returns a number like those that MLflow creates. Computed from the name, so that processes agree on it.
std::string experiment_id(const std::string& name) {
  constexpr std::uint64_t least = 100000000000000000U;
  return to_text(least + hash_of(name).high % (9 * least));
}

struct Experiment {
  fs::path folder;
  bool deleted = false;
};

Experiment find_experiment(const fs::path& store, const std::string& name) {
  for (const bool deleted : {false, true}) {
    std::error_code error;
    fs::directory_iterator entry(deleted ? store / ".trash" : store, error);
    for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
      const ConfigTree meta = read_mlflow_meta(entry->path());
      if (text_at(meta, "name") == name && text_at(meta, "experiment_id") == entry->path().filename().string()) {
        return {entry->path(), deleted};
      }
    }
  }
  return {};
}

fs::path make_experiment(const fs::path& store, const std::string& name, const std::string& id) {
  fs::path folder = ensure_dir(store / id);
  const auto now =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  const ConfigTree::Map meta = {
      {"artifact_location", file_uri(folder)}, {"creation_time", now}, {"experiment_id", id}, {"last_update_time", now},
      {"lifecycle_stage", "active"},           {"name", name}};
  if (!fs::exists(folder / "meta.yaml")) {
    write_atomic(folder / "meta.yaml", to_yaml(meta));
  }
  return folder;
}

}  // namespace

const std::string& MlflowNames::at(const std::string& key) {
  const auto [entry, added] = names_.try_emplace(key);
  std::string& name = entry->second;
  if (!added) {
    return name;
  }
  name = accepted(key);
  if (name != key || name.size() > most_bytes) {
    name = with_hash(name, key);
  }
  const auto parents = [](std::string_view path) {
    std::vector<std::string> out;
    for (auto end = path.find('/'); end != std::string_view::npos; end = path.find('/', end + 1)) {
      out.emplace_back(path.substr(0, end));
    }
    return out;
  };
  auto above = parents(name);
  if (folders_.contains(name) || files_.contains(name) ||
      std::any_of(above.begin(), above.end(), [&](const std::string& folder) { return files_.contains(folder); })) {
    std::replace(name.begin(), name.end(), '/', '_');
    name = with_hash(name, key);
    above.clear();
  }
  files_.insert(name);
  folders_.insert(above.begin(), above.end());
  return name;
}

fs::path mlflow_experiment(const fs::path& store, const std::string& name) {
  std::error_code error;
  if (!fs::exists(store, error)) {  // creates the default experiment, as MLflow does
    make_experiment(ensure_dir(store), "Default", "0");
    ensure_dir(store / ".trash");
  }
  const Experiment found = find_experiment(store, name);
  check<ConfigError>(!found.deleted, "mlflow.begin", "expected an experiment that is not deleted, got ", quote(name),
                     " (", found.folder.filename().string(),
                     "); restore it with `mlflow experiments restore`, or set "
                     "mlflow.experiment to another name");
  return found.folder.empty() ? make_experiment(store, name, experiment_id(name)) : found.folder;
}

ConfigTree read_mlflow_meta(const fs::path& folder) {
  std::error_code error;
  const fs::path file = folder / "meta.yaml";
  if (!fs::is_regular_file(file, error)) {
    return {};
  }
  try {
    ConfigTree meta = from_yaml(read_text(file), file.string());
    return meta.is_map() ? meta : ConfigTree();
  } catch (const Error&) {  // removed meanwhile, or damaged: MLflow ignores it too
    return {};
  }
}

std::string text_at(const ConfigTree& meta, const std::string& key) {
  const ConfigTree* value = meta.is_map() ? meta.find(key) : nullptr;
  return value != nullptr && value->is_string() ? value->string() : std::string();
}

std::string file_uri(const fs::path& path) {
  static constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out = "file://";
  for (const char c : fs::absolute(path).lexically_normal().string()) {
    if (is_alphanumeric(c) || std::string_view("/_.-~").find(c) != std::string_view::npos) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', digits[byte >> 4U], digits[byte & 15U]};
    }
  }
  return out;
}

std::int64_t milliseconds(double time) { return static_cast<std::int64_t>(std::llround(time * 1000)); }

}  // namespace danling::inline v0::detail
