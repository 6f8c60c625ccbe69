// Applies a DeepSpeed JSON to the settings of a config.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/runner/deepspeed_config.hpp>
#include <danling/runner/runner_config.hpp>

#include <runner/deepspeed_keys.hpp>

namespace danling::inline v0::detail {

/// Sets fields of a config. An error for a field that the user set to another value.
class DeepSpeedFold {
 public:
  DeepSpeedFold(RunnerConfig& to, const RunnerConfig& standard, DeepSpeedNotes& out)
      : config(to), defaults(standard), notes(out) {}

  /// @param from  the path of the JSON's key, for messages
  template <class T, class V>
  void set(T& field, const T& standard, V value, std::string_view name, std::string_view from) {
    const T wanted(std::move(value));
    if (field == wanted) return;
    check<ConfigError>(field == standard, "deepspeed.config", "expected '", name, "' to be ", text_of(wanted), " as ",
                       quote(from), " sets it, or unset; got ", text_of(field));
    field = wanted;
  }

  /// Replaces `optim` with the JSON's `optimizer`.
  void read_optimizer(DeepSpeedSection section);

  RunnerConfig& config;
  const RunnerConfig& defaults;
  DeepSpeedNotes& notes;

 private:
  template <class T>
  static std::string text_of(const T& value) {
    if constexpr (requires { value.has_value(); }) {
      return value ? text_of(*value) : std::string("unset");
    } else if constexpr (requires { value.first; }) {
      return concat("[", value.first, ", ", value.second, "]");
    } else {
      return concat(value);
    }
  }
};

/// Batch sizes of one update.
struct DeepSpeedBatch {
  std::optional<std::int64_t> micro;  ///< samples per process in one step
  std::int64_t accumulation = 1;      ///< steps per update
};

/// Computes the batch sizes of an update from the JSON and from `own`, those that the config sets.
/// @throws ConfigError, with the computation, for sizes that contradict each other
DeepSpeedBatch resolve_deepspeed_batch(DeepSpeedSection& section, const DeepSpeedBatch& own, std::int64_t world_size,
                                       std::vector<std::string>& warnings);

}  // namespace danling::inline v0::detail
