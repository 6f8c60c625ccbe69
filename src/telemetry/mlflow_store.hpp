// The file store of MLflow: its names, experiments and meta.yaml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <danling/config/tree.hpp>

namespace danling::inline v0::detail {

/// File names for the keys of one folder of a run.
class MlflowNames {
 public:
  /// `key` if MLflow accepts it and no earlier one is in its way, else another name for it.
  const std::string& at(const std::string& key);

 private:
  std::map<std::string, std::string> names_;
  std::set<std::string> files_, folders_;
};

/// The folder of the experiment `name` in `store`. Makes both when they are missing; processes that do so at the same
/// time make one. @throws ConfigError when it was deleted, Error
std::filesystem::path mlflow_experiment(const std::filesystem::path& store, const std::string& name);

/// meta.yaml of `folder`, or null when it is missing or no map.
ConfigTree read_mlflow_meta(const std::filesystem::path& folder);

/// The text at `key`, or empty.
std::string text_at(const ConfigTree& meta, const std::string& key);

/// `file:///store/1%202`
std::string file_uri(const std::filesystem::path& path);

std::int64_t milliseconds(double time);

}  // namespace danling::inline v0::detail
