// What the metrics of several tasks are on average.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <danling/core/result.hpp>

namespace danling::inline v0::detail {

/// Whether there is nothing in it but nan.
bool is_all_nan(const Result::Value& value);

/// The weight of a task's metric, given the path of names that leads to it within the task.
using TaskWeight = std::function<double(std::string_view task, const std::vector<std::string>& path)>;

/// Of `tasks`, one result each: the weighted mean of the values with the same path, leaving out nan and what has no
/// weight. @throws MetricError when the values of a path are a number here and a list, or a longer list, there.
Result average_tasks(const Result& tasks, const TaskWeight& weight);

}  // namespace danling::inline v0::detail
