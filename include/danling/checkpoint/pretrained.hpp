// Loads weights from any file into a model: finds them by key, renames, compares names, copies.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Matching of weights by name. Names are those in the file, as `danling ckpt show` lists them.
struct PretrainedOptions {
  /// True: missing, unexpected and mismatched entries are an error. False: they are skipped and reported.
  bool strict = true;
  /// Key of the weights in the file, joined by dots, such as `teacher.state_dict`. Empty: the loader searches.
  std::string key = {};
  /// In order: replaces the first text at the beginning of names by the second. `{"backbone.", ""}`,
  /// `{"", "encoder."}`.
  std::vector<std::pair<std::string, std::string>> rename_prefix = {};
  /// Then, in order: replaces every match of a regular expression (ECMAScript) by the second text, where `$1` is the
  /// first group's match. `{R"(layer(\d+)\.)", "layers.$1."}`.
  std::vector<std::pair<std::string, std::string>> rename_pattern = {};
  /// Patterns, searched for in the names of the model: these entries keep their values regardless of the file, and
  /// count as neither missing nor mismatched. `{"^head\\."}`
  std::vector<std::string> skip = {};
};

/// Result of matching the weights of a file with those of a model.
struct WeightMatch {
  struct ShapeMismatch {
    std::string name;
    std::string expected;  ///< such as `Float [3, 2]`
    std::string got;
  };

  std::string key;                              ///< key of the weights in the file; empty for a file of weights only
  std::string prefix;                           ///< prefix of a wrapper, such as `module.`, removed from the names
  std::vector<std::string> loaded;              ///< names of the model, in its order
  std::vector<std::string> missing;             ///< names of the model
  std::vector<std::string> unexpected;          ///< names of the file
  std::vector<ShapeMismatch> shape_mismatches;  ///< by names of the model
  std::vector<std::string> skipped;             ///< names of the model that `skip` matches
  State weights;                                ///< `loaded` with their values from the file

  bool complete() const { return missing.empty() && unexpected.empty() && shape_mismatches.empty(); }
  /// `2 missing (a, b); 1 unexpected (c)`: numbers and the first names. Empty for a complete match.
  std::string mismatch_summary() const;
  /// One line each for missing, unexpected and mismatched entries, as in mismatch_summary(), and how they are handled.
  std::vector<std::string> lines() const;
};

/// Compares a map of a model's tensors (`ModelHandle::state_dict()`) with one under the same names. A name counts as
/// present in `given` if the same tensor has another name there (tied weights). Shapes must agree; dtypes may differ.
WeightMatch compare_weights(const State& own, const State& given);

/// Finds the weights of a model in a file's content: a map of tensors, nested or not, at the top or under the keys of
/// DanLing, PyTorch Lightning, timm and others (`ema`, `state_dict_ema`, `model_ema`, …, then `model`, `model_parts`,
/// `module`, `state_dict`, …), up to five levels deep. An average (`ema`) takes precedence over the model. Removes the
/// wrapper prefixes `module.`, `model.`, `net.` and `network.` from names if the model lacks them, and `_orig_mod.`
/// (torch.compile), `_fsdp_wrapped_module.` and `_checkpoint_wrapped_module.` anywhere. `origin` names the file in
/// messages. @throws CheckpointError that lists the known keys if no name matches, and with `strict` if the match is
/// incomplete; ConfigError for an invalid pattern, and for two names that become equal
WeightMatch match_weights(const State& own, const State& checkpoint, const PretrainedOptions& options = {},
                          std::string_view origin = "the checkpoint");

/// Copies the tensors of `given` into the tensors of `own` with the same names and shapes, in place, between any dtypes
/// and devices.
void copy_weights(const State& own, const State& given);

/// match_weights() and copy_weights(): `load_pretrained(ModelHandle(net).state_dict(), "resnet.safetensors")`.
/// Changes nothing when it throws.
WeightMatch load_pretrained(const State& own, const State& checkpoint, const PretrainedOptions& options = {});
WeightMatch load_pretrained(const State& own, const std::filesystem::path& path, const PretrainedOptions& options = {});
/// A text converts to a State too; here it is a path.
inline WeightMatch load_pretrained(const State& own, const char* path, const PretrainedOptions& options = {}) {
  return load_pretrained(own, std::filesystem::path(path), options);
}
inline WeightMatch load_pretrained(const State& own, const std::string& path, const PretrainedOptions& options = {}) {
  return load_pretrained(own, std::filesystem::path(path), options);
}

}  // namespace danling::inline v0
