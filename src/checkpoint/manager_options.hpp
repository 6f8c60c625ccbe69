// Checks and defaults of options and requests, shared by all managers.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include <danling/checkpoint/manager.hpp>
#include <danling/checkpoint/options.hpp>

#include <checkpoint/directory.hpp>
#include <checkpoint/retention.hpp>

namespace danling::inline v0::detail {

enum class AsyncMode { disabled, async, async_with_pinned_mem };

/// @throws ConfigError
AsyncMode async_mode_of(const CheckpointOptions& options);
/// @throws ConfigError for a negative number and an unknown export_dtype
void check_options(const CheckpointOptions& options);
/// @throws ConfigError unless `name` is a file name that is not reserved by managers
void check_checkpoint_name(const std::string& name);

RetentionRules rules_of(const CheckpointOptions& options, bool higher_is_better);

struct PlannedSave {
  Publication what;
  bool reliable = false;
  bool model_only = false;
  bool model_beside = false;  ///< `model` follows as a separate save
};
/// Empty if the request is not due. @throws ConfigError for an invalid name
std::optional<PlannedSave> plan_save(const CheckpointOptions& options, const CheckpointRequest& request);

/// The error text for a state that could not be copied.
std::string no_copy(const std::exception& error);

}  // namespace danling::inline v0::detail
