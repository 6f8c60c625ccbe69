#include <checkpoint/manager_options.hpp>

#include <algorithm>
#include <string_view>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <checkpoint/export_dtype.hpp>

namespace danling::inline v0::detail {

AsyncMode async_mode_of(const CheckpointOptions& options) {
  static const std::vector<std::string> modes = {"disabled", "async", "async_with_pinned_mem"};
  const std::string name = options.async_mode.value_or(options.async_enabled ? "async" : "disabled");
  const auto found = std::find(modes.begin(), modes.end(), name);
  check<ConfigError>(found != modes.end(), "checkpoint.async_mode", "expected one of ", join(modes), ", got ",
                     quote(name));
  return static_cast<AsyncMode>(found - modes.begin());
}

void check_options(const CheckpointOptions& options) {
  const auto at_least_zero = [](std::string_view key, auto value) {
    check<ConfigError>(value >= 0, concat("checkpoint.", key), "expected 0 or more, got ", value);
  };
  at_least_zero("keep_latest_k", options.keep_latest_k);
  at_least_zero("keep_best_k", options.keep_best_k);
  at_least_zero("keep_every_hours", options.keep_every_hours);
  if (options.export_dtype) {
    resolve_export_dtype(*options.export_dtype);
  }
}

void check_checkpoint_name(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= 200 && name.front() != '.' &&
                     std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == '/'; });
  check<ConfigError>(plain, "checkpoint.save", "expected a name for a file, without folders, got ", quote(name));
  check<ConfigError>(name != "previous" && !name.starts_with("ckpt-"), "checkpoint.save",
                     "expected a name other than the reserved ones (previous, ckpt-...), got ", quote(name));
}

RetentionRules rules_of(const CheckpointOptions& options, bool higher_is_better) {
  return {options.keep_latest_k, options.keep_best_k, options.keep_every_hours, higher_is_better};
}

std::optional<PlannedSave> plan_save(const CheckpointOptions& options, const CheckpointRequest& request) {
  check_checkpoint_name(request.name);
  const bool best = request.save_best && request.is_best;
  const bool due = should_persist(request, options.interval.value_or(0));
  if (options.load_only || (!due && !best)) {
    return std::nullopt;
  }
  PlannedSave out;
  out.model_only = request.last_step && options.last_save_model_only;
  const bool with_model = request.last_step && request.name == "latest" && request.export_model;
  out.model_beside = with_model && !out.model_only;
  Publication& what = out.what;
  what.name = request.name;
  // A run cannot resume from a model, so it does not enter the history.
  what.history =
      due && request.history && !out.model_only ? history_name(request, options.interval.value_or(0)) : std::nullopt;
  what.latest_may_be_model = options.last_save_model_only;
  what.sync_first = options.sync_first;
  what.score = out.model_only ? std::nullopt : request.score;
  what.rules = rules_of(options, request.higher_is_better);
  if (what.history) {
    what.aliases.push_back(*what.history);
  }
  if (best) {
    what.aliases.push_back("best");
  }
  if (with_model && out.model_only) {
    what.aliases.push_back("model");
    what.weights = options.export_safetensors ? "model" : "";
  }
  out.reliable = what.history || best || request.last_step || request.force || request.name != "latest";
  return out;
}

std::string no_copy(const std::exception& error) {
  const std::string_view text = error.what();  // LibTorch appends a backtrace
  return concat("[checkpoint.write] expected memory for a copy of the state, got ", text.substr(0, text.find('\n')));
}

}  // namespace danling::inline v0::detail
