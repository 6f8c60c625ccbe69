#include <metrics/task_average.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

struct PathTotal {
  std::vector<std::string> path;
  std::string_view first_task;
  Result::Value total;
  double weight = 0.0;
};

// The elements of a list or an array; null for a number.
std::vector<double>* elements_of(Result::Value& value) {
  auto* array = std::get_if<Result::Array>(&value);
  return array != nullptr ? &array->values : std::get_if<std::vector<double>>(&value);
}
const std::vector<double>* elements_of(const Result::Value& value) {
  return elements_of(const_cast<Result::Value&>(value));
}

std::vector<std::int64_t> shape_of(const Result::Value& value) {
  const auto* array = std::get_if<Result::Array>(&value);
  const auto* list = std::get_if<std::vector<double>>(&value);
  return array != nullptr  ? array->shape
         : list != nullptr ? std::vector{static_cast<std::int64_t>(list->size())}
                           : std::vector<std::int64_t>();
}

std::string form_text(const Result::Value& value) {
  return std::holds_alternative<double>(value) ? "a scalar" : concat("a tensor [", join(shape_of(value)), "]");
}

bool alike(const Result::Value& a, const Result::Value& b) {
  return a.index() == b.index() && shape_of(a) == shape_of(b);
}

void scale(Result::Value& value, double factor) {
  if (auto* number = std::get_if<double>(&value)) {
    *number *= factor;
  } else {
    for (double& item : *elements_of(value)) {
      item *= factor;
    }
  }
}

void add(Result::Value& total, const Result::Value& more) {
  if (auto* number = std::get_if<double>(&total)) {
    *number += std::get<double>(more);
    return;
  }
  std::vector<double>& items = *elements_of(total);
  const std::vector<double>& others = *elements_of(more);
  std::transform(items.begin(), items.end(), others.begin(), items.begin(), std::plus<>());
}

class TaskAverage {
 public:
  explicit TaskAverage(const TaskWeight& weight) : weight_(weight) {}

  void add_task(std::string_view task, const Result& values, std::vector<std::string>& path) {
    for (const auto& [name, value] : values) {
      path.push_back(name);
      if (const auto* inner = std::get_if<Result>(&value)) {
        add_task(task, *inner, path);
      } else if (!is_all_nan(value)) {
        add_value(task, value, path);
      }
      path.pop_back();
    }
  }

  Result result() {
    Result out;
    for (PathTotal& entry : totals_) {
      scale(entry.total, 1.0 / entry.weight);
      Result* at = &out;
      for (std::size_t i = 0; i + 1 < entry.path.size(); ++i) {
        at = &(*at)[entry.path[i]];
      }
      at->set(entry.path.back(), std::move(entry.total));
    }
    return out;
  }

 private:
  void add_value(std::string_view task, Result::Value value, const std::vector<std::string>& path) {
    const double weight = weight_(task, path);
    if (!(weight > 0.0)) {
      return;
    }
    const auto known =
        std::find_if(totals_.begin(), totals_.end(), [&](const PathTotal& entry) { return entry.path == path; });
    if (known != totals_.end() && !alike(known->total, value)) {
      fail<MetricError>("multi_task_metrics.aggregate", "expected metric ", quote(join(path, ".")),
                        " to have one shape in all tasks, got ", form_text(known->total), " of ",
                        quote(known->first_task), " and ", form_text(value), " of ", quote(task));
    }
    scale(value, weight);
    if (known == totals_.end()) {
      totals_.push_back({path, task, std::move(value), weight});
    } else {
      add(known->total, value);
      known->weight += weight;
    }
  }

  const TaskWeight& weight_;
  std::vector<PathTotal> totals_;
};

}  // namespace

bool is_all_nan(const Result::Value& value) {
  if (const auto* number = std::get_if<double>(&value)) {
    return std::isnan(*number);
  }
  if (const std::vector<double>* list = elements_of(value)) {
    return std::all_of(list->begin(), list->end(), [](double item) { return std::isnan(item); });
  }
  const auto& result = std::get<Result>(value);
  return std::all_of(result.begin(), result.end(), [](const Result::Entry& entry) { return is_all_nan(entry.value); });
}

Result average_tasks(const Result& tasks, const TaskWeight& weight) {
  TaskAverage average(weight);
  std::vector<std::string> path;
  for (const auto& [task, values] : tasks) {
    average.add_task(task, std::get<Result>(values), path);
  }
  return average.result();
}

}  // namespace danling::inline v0::detail
