// Weights from any file into a model: found among its keys, renamed, compared by name, copied.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// How weights find their places. Names are those of the file, as `danling ckpt show` lists them.
struct PretrainedOptions {
  /// Missing, unexpected and misshapen entries are an error; otherwise they are left out and reported.
  bool strict = true;
  /// Where the weights are in the file, keys joined by dots, such as `teacher.state_dict`. Empty: they are looked for.
  std::string key = {};
  /// Each in turn: of names that begin with the first text, the second takes its place. `{"backbone.", ""}`,
  /// `{"", "encoder."}`.
  std::vector<std::pair<std::string, std::string>> rename_prefix = {};
  /// After these, each in turn: every match of a regular expression (ECMAScript's) becomes the second text, in which
  /// `$1` is what the first group matched. `{R"(layer(\d+)\.)", "layers.$1."}`.
  std::vector<std::pair<std::string, std::string>> rename_pattern = {};
};

/// How the weights of a file and those of a model match.
struct WeightMatch {
  struct Misshapen {
    std::string name;
    std::string expected;  ///< such as `Float [3, 2]`
    std::string got;
  };

  std::string key;                      ///< where in the file they were found; empty where the file is nothing else
  std::string prefix;                   ///< of a wrapper, such as `module.`, that was left out of the names
  std::vector<std::string> loaded;      ///< names of the model, in its order
  std::vector<std::string> missing;     ///< names of the model
  std::vector<std::string> unexpected;  ///< names of the file
  std::vector<Misshapen> misshapen;     ///< by names of the model
  State weights;                        ///< `loaded` and their values, as they are in the file

  bool complete() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// `2 missing (a, b); 1 unexpected (c)`: counts and the first names. Empty where it is complete.
  std::string misfits() const;
  /// A line for each of missing, unexpected and misshapen entries, as misfits() has them, and what becomes of them.
  std::vector<std::string> lines() const;
};

/// Compares a map of a model's own tensors (`ModelHandle::state_dict()`) with one under the same names. A name that is
/// missing in `given` is not missing where the same tensor has another name there (tied weights). Shapes must agree,
/// types need not.
WeightMatch compare_weights(const State& own, const State& given);

/// Finds the weights of a model in what a file holds: a map of tensors, nested or not, itself or under the keys that
/// DanLing, PyTorch Lightning, timm and others use (`ema`, `state_dict_ema`, `model_ema`, …, then `model`,
/// `model_parts`, `module`, `state_dict`, …), nested too. An average (`ema`) goes before the model. Of names, the
/// wrappers `module.`, `model.`, `net.` and `network.` in front are left out where the model does not have them, and so
/// are `_orig_mod.` (torch.compile), `_fsdp_wrapped_module.` and `_checkpoint_wrapped_module.` anywhere. `origin` names
/// the file in messages. @throws CheckpointError that lists the keys that there are where no name is the model's, and
/// with `strict` where the match is not complete; ConfigError for a pattern that is none, and for two names made one
WeightMatch match_weights(const State& own, const State& checkpoint, const PretrainedOptions& options = {},
                          std::string_view origin = "the checkpoint");

/// Copies the tensors of `given` into those of `own` with the same names and shapes, in place, whatever their types and
/// devices.
void copy_weights(const State& own, const State& given);

/// match_weights() and copy_weights(): `load_pretrained(ModelHandle(net).state_dict(), "resnet.safetensors")`.
/// Nothing is changed where it throws.
WeightMatch load_pretrained(const State& own, const State& checkpoint, const PretrainedOptions& options = {});
WeightMatch load_pretrained(const State& own, const std::filesystem::path& path, const PretrainedOptions& options = {});

}  // namespace danling::inline v0
