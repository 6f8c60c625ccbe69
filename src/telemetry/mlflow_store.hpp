// MLflow's file store: names, experiments and meta.yaml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <danling/config/tree.hpp>

namespace danling::inline v0::detail {

/// Maps keys to file names in one folder of a run.
class MlflowNames {
 public:
  /// Returns `key` if MLflow accepts it and it does not conflict with an earlier key, else another name.
  const std::string& at(const std::string& key);

 private:
  std::map<std::string, std::string> names_;
  std::set<std::string> files_, folders_;
};

/// Returns the folder of the experiment `name` in `store`. Creates both if missing; concurrent processes create the
/// same folder. @throws ConfigError if the experiment was deleted, Error
std::filesystem::path mlflow_experiment(const std::filesystem::path& store, const std::string& name);

/// Reads meta.yaml of `folder`; returns null if it is missing or not a map.
ConfigTree read_mlflow_meta(const std::filesystem::path& folder);

/// Returns the text at `key`, or an empty text.
std::string text_at(const ConfigTree& meta, const std::string& key);

/// Returns a URI such as `file:///store/1%202`.
std::string file_uri(const std::filesystem::path& path);

std::int64_t milliseconds(double time);

}  // namespace danling::inline v0::detail
