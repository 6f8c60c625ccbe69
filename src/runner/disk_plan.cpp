#include <runner/disk_plan.hpp>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <danling/core/format.hpp>
#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/text.hpp>
#include <danling/workspace/workspace.hpp>

#include <runner/checks.hpp>
#include <runner/records.hpp>

namespace danling::inline v0 {
namespace detail {

std::int64_t states_kept(const SaveRules& rules) {
  if (rules.interval <= 0) {
    return 2;  // latest and best
  }
  const std::int64_t history = rules.boundary / rules.interval - rules.done / rules.interval;
  const bool all = rules.keep_latest_k == 0 && rules.keep_best_k == 0 && !rules.keeps_by_hours;
  const std::int64_t kept = all ? history : std::min(history, rules.keep_latest_k + rules.keep_best_k);
  // The last save and the best may be off the interval; `previous` or `best` may keep a state that the history dropped.
  const std::int64_t latest = rules.boundary % rules.interval != 0 ? 1 : 0;
  const std::int64_t best = rules.interval > 1 ? 1 : 0;
  return kept < history ? kept + 2 + latest : kept + latest + best;
}

std::uint64_t bytes_of(const State& state) {
  std::uint64_t out = 0;
  if (state.is_tensor()) {
    out = state.tensor().nbytes();
  } else if (state.is_map()) {
    for (const auto& entry : state.map()) {
      out += bytes_of(entry.value);
    }
  } else if (state.is_list() || state.is_tuple()) {
    for (const State& item : state.items()) {
      out += bytes_of(item);
    }
  }
  return out;
}

std::optional<std::uint64_t> optimizer_bytes(const State& state, std::uint64_t parameters) {
  const State* held = state.is_map() ? state.find("state") : nullptr;
  if (held != nullptr && held->is_map() && !held->map().empty()) {
    return bytes_of(*held);
  }
  const State* groups = state.is_map() ? state.find("param_groups") : nullptr;
  if (groups == nullptr || !groups->is_list() || groups->list().empty()) {
    return std::nullopt;
  }
  const State& group = groups->list().front();
  const State* amsgrad = group.find("amsgrad");
  const State* momentum = group.find("momentum");
  if (group.find("betas") != nullptr) {
    return parameters * (amsgrad != nullptr && amsgrad->is_bool() && amsgrad->boolean() ? 3 : 2);
  }
  return momentum != nullptr ? std::optional(momentum->number() != 0 ? parameters : 0) : std::nullopt;
}

}  // namespace detail

void TorchRunnerBase::Internals::Checks::disk_plan() const {
  const auto& options = runner_.config().checkpoint;
  const auto boundary = runner_.is_step_mode() ? runner_.steps() : runner_.epochs();
  if (!Records(runner_).is_open() || options.load_only) {
    return;
  }
  const std::uint64_t model_bytes = detail::bytes_of(runner_.model_state_dict());
  std::uint64_t kept = 0;
  bool is_known = true;
  const auto add = [&](const optim::Optimizer* of) {
    if (of == nullptr) {
      return;
    }
    std::uint64_t parameters = 0;
    for (const auto& group : of->param_groups()) {
      for (const auto& parameter : group.params) {
        parameters += parameter.nbytes();
      }
    }
    const auto bytes = detail::optimizer_bytes(of->state_dict(), parameters);
    kept += bytes.value_or(0);
    is_known = is_known && bytes;
  };
  add(runner_.optimizer.get());
  for (const auto& [name, of] : runner_.optimizers) {
    add(of.get());
  }
  // Bytes of generators, config, results and names in a checkpoint of a small model.
  constexpr std::uint64_t others = 20 * 1024;
  const std::uint64_t each = model_bytes + kept + others;
  const std::int64_t interval = runner_.checkpoint_interval();
  const bool at_least = !is_known || options.keep_every_hours > 0;
  std::uint64_t total = each;
  std::string takes;
  if (boundary) {
    const std::int64_t states = detail::states_kept(
        {.done = runner_.is_step_mode() ? runner_.state_.train.global_step : runner_.state_.train.epoch,
         .boundary = *boundary,
         .interval = interval,
         .keep_latest_k = options.keep_latest_k,
         .keep_best_k = options.keep_best_k,
         .keeps_by_hours = options.keep_every_hours > 0});
    total = each * static_cast<std::uint64_t>(states) + model_bytes * (options.export_safetensors ? 2 : 1);
    takes = concat("checkpoints: ", at_least ? "at least " : "about ", format_bytes(total), " by the end, ", states,
                   states == 1 ? " state of " : " states of ", format_bytes(each));
  } else {  // a program that makes its batches may have no end
    takes = concat("checkpoints: ", interval > 0 ? concat("a state every ", interval, " steps, of ") : "states of ",
                   at_least ? "at least " : "about ", format_bytes(each),
                   options.keep_latest_k > 0 ? concat(", the latest ", options.keep_latest_k, " kept") : ", all kept");
  }
  const auto directory = runner_.workspace().checkpoint_dir();
  std::error_code unknown;
  const auto space = std::filesystem::space(directory, unknown);
  if (unknown) {
    runner_.logger().info(takes);
  } else if (space.available < total) {
    runner_.logger().warning(
        concat(takes, ", and ", directory.string(), " has ", format_bytes(space.available),
               " left; free some space, or set checkpoint.keep_latest_k or a longer checkpoint.interval"));
  } else {
    runner_.logger().info(concat(takes, "; ", format_bytes(space.available), " are free"));
  }
}

}  // namespace danling::inline v0
