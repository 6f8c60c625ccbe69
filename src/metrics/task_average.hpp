// Averages of metrics over several tasks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <danling/core/result.hpp>

namespace danling::inline v0::detail {

/// Whether all its values are nan.
bool is_all_nan(const Result::Value& value);

/// The weight of a task's metric, for its path of names within the task.
using TaskWeight = std::function<double(std::string_view task, const std::vector<std::string>& path)>;

/// For `tasks`, one result each: the weighted mean of the values with the same path, excluding nan and values without
/// weight. @throws MetricError when the values of a path are a number here and a list, or a longer list, there.
Result average_tasks(const Result& tasks, const TaskWeight& weight);

}  // namespace danling::inline v0::detail
