// Averages of metrics over several tasks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <danling/core/result.hpp>

namespace danling::inline v0::detail {

/// Returns whether all values are nan.
bool is_all_nan(const Result::Value& value);

/// The weight of a task's metric; `path` holds its names within the task.
using TaskWeight = std::function<double(std::string_view task, const std::vector<std::string>& path)>;

/// `tasks` holds one result per task. Returns the weighted mean of the values with the same path; skips nan and values
/// without weight. @throws MetricError when the values of a path differ in shape between tasks.
Result average_tasks(const Result& tasks, const TaskWeight& weight);

}  // namespace danling::inline v0::detail
