#include <danling/metrics/multi_task_metrics.hpp>

#include <cmath>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/metrics/preprocess.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <metrics/metric_check.hpp>
#include <metrics/rank_reports.hpp>
#include <metrics/row_store.hpp>
#include <metrics/task_average.hpp>

namespace danling::inline v0 {
namespace {

// A single meter as a task: the result has its name, the text does not.
class MeterTask : public Metrics {
 public:
  MeterTask(std::string name, MetricCallable metric, std::optional<bool> higher_is_better = std::nullopt)
      : name_(std::move(name)),
        higher_is_better_(higher_is_better),
        meter_(std::move(metric), [](const at::Tensor& prediction, const at::Tensor& target) {
          return metrics::base_preprocess(prediction, target);
        }) {}

  void update(const at::Tensor& prediction, const at::Tensor& target) override { meter_.update(prediction, target); }
  void reset() override { meter_.reset(); }
  void continue_batch() override { meter_.continue_batch(); }
  void begin_batch(std::int64_t index) override { meter_.begin_batch(index); }
  Result value() const override { return named(meter_.value()); }
  Result batch() const override { return named(meter_.batch()); }
  Result average() const override { return named(meter_.average()); }
  Result n() const override { return named(static_cast<double>(meter_.n())); }
  Result count() const override { return named(static_cast<double>(meter_.count())); }
  void synchronize(const Group& group) override { meter_.synchronize(group); }
  State state_dict() const override { return meter_.state_dict(); }
  void load_state_dict(const State& state) override { meter_.load_state_dict(state); }
  State merge_states(std::span<const State> states) const override { return AverageMeter::merge_states(states); }
  std::optional<bool> higher_is_better(std::string_view name) const override {
    return name == name_ ? higher_is_better_ : std::nullopt;
  }
  std::string text(int precision) const override { return meter_.text(precision); }

 private:
  Result named(Result::Value value) const {
    Result result;
    result.set(name_, std::move(value));
    return result;
  }

  std::string name_;
  std::optional<bool> higher_is_better_;
  MetricMeter meter_;
};

double metric_weight(const Result& weights, std::string_view task, const std::vector<std::string>& path) {
  const Result* at = &weights;
  const Result::Value* found = nullptr;
  for (const auto& name : path) {
    found = at == nullptr ? nullptr : at->find(name);
    at = found == nullptr ? nullptr : std::get_if<Result>(found);
  }
  const auto* number = found == nullptr ? nullptr : std::get_if<double>(found);
  if (number == nullptr) {
    fail<MetricError>("multi_task_metrics.aggregate", "expected task ", quote(task),
                      " to return the weight of its metric ", quote(join(path, ".")), ", got none");
  }
  return *number;
}

}  // namespace

MultiTaskMetrics::MultiTaskMetrics(MultiTaskOptions options) : options_(std::move(options)) {
  constexpr const char* where = "multi_task_metrics.create";
  const bool weighted = options_.aggregate == Aggregate::weighted;
  check<MetricError>(weighted || options_.aggregate_weights.empty(), where,
                     "expected no aggregate_weights without aggregate weighted, got ",
                     options_.aggregate_weights.size());
  check<MetricError>(!weighted || !options_.aggregate_weights.empty(), where,
                     "expected aggregate_weights with aggregate weighted, got none");
  for (const auto& [task, weight] : options_.aggregate_weights) {
    check<MetricError>(std::isfinite(weight) && weight >= 0.0, where, "expected the aggregate weight of task ",
                       quote(task), " to be finite and not negative, got ", weight);
  }
}

MultiTaskMetrics::~MultiTaskMetrics() = default;

void MultiTaskMetrics::add(std::string_view task, std::shared_ptr<MetricsBase> metrics) {
  constexpr const char* where = "multi_task_metrics.add";
  check<MetricError>(metrics != nullptr, where, "expected metrics for task ", quote(task), ", got a null pointer");
  check<MetricError>(!task.empty(), where, "expected a task with a name, got none");
  check<MetricError>(!contains(task), where, "expected a new task, got ", quote(task), ", which is taken");
  check<MetricError>(options_.aggregate == Aggregate::none || task != "aggregate", where,
                     "expected another name for a task where tasks are aggregated, got 'aggregate'");
  tasks_.add(task, std::move(metrics));
}

void MultiTaskMetrics::add(std::string_view task, MetricFunc metric) {
  detail::check_metric(metric, "multi_task_metrics.add");
  const std::string name = metric.name;
  const std::optional<bool> better = metric.higher_is_better;
  MetricCallable measure = [metric = std::move(metric)](const at::Tensor& prediction, const at::Tensor& target) {
    return metric.compute(MetricState(detail::as_rows(prediction), detail::as_rows(target)));
  };
  add(task, std::make_shared<MeterTask>(name, std::move(measure), better));
}

void MultiTaskMetrics::add(std::string_view task, MetricCallable metric, std::string_view name) {
  add(task, std::make_shared<MeterTask>(std::string(name.empty() ? task : name), std::move(metric)));
}

const std::shared_ptr<MetricsBase>& MultiTaskMetrics::find(std::string_view task, const char* where) const {
  const auto* found = tasks_.find(task);
  if (found == nullptr) {
    const auto known = tasks();
    fail<MetricError>(where, "expected a task of [", join(known), "], got ", quote(task), did_you_mean(task, known));
  }
  return *found;
}

std::vector<std::string> MultiTaskMetrics::tasks() const {
  std::vector<std::string> names;
  for (const auto& entry : tasks_) {
    names.push_back(entry.name);
  }
  return names;
}

void MultiTaskMetrics::update(std::initializer_list<Update> updates) {
  std::vector<Metrics*> fed;
  for (const Update& item : updates) {
    fed.push_back(dynamic_cast<Metrics*>(find(item.task, "multi_task_metrics.update").get()));
    check<MetricError>(fed.back() != nullptr, "multi_task_metrics.update", "expected a task that takes ",
                       "predictions and targets, got ", quote(item.task));
  }
  auto next = fed.begin();
  for (const Update& item : updates) {
    (*next++)->update(item.prediction, item.target);
  }
}

void MultiTaskMetrics::reset() {
  for (auto& [task, metrics] : tasks_) {
    metrics->reset();
  }
}

void MultiTaskMetrics::continue_batch() {
  for (auto& [task, metrics] : tasks_) {
    metrics->continue_batch();
  }
}

void MultiTaskMetrics::begin_batch(std::int64_t index) {
  for (auto& [task, metrics] : tasks_) {
    metrics->begin_batch(index);
  }
}

Result MultiTaskMetrics::collect(Read read, Read weights) const {
  Result output;
  for (const auto& [task, metrics] : tasks_) {
    Result values = ((*metrics).*read)();
    if (!detail::is_all_nan(values)) {
      output.set(task, std::move(values));
    }
  }
  if (options_.aggregate == Aggregate::none) {
    return output;
  }
  for (const auto& [task, weight] : options_.aggregate_weights) {
    check<MetricError>(contains(task), "multi_task_metrics.aggregate", "expected aggregate_weights of tasks of [",
                       join(tasks()), "], got ", quote(task));
  }
  std::vector<std::pair<std::string_view, Result>> task_weights;
  if (options_.aggregate == Aggregate::micro) {
    for (const auto& [task, metrics] : tasks_) {
      task_weights.emplace_back(task, ((*metrics).*weights)());
    }
  }
  const auto weight = [&](std::string_view task, const std::vector<std::string>& path) {
    if (options_.aggregate == Aggregate::weighted) {
      const auto found = options_.aggregate_weights.find(std::string(task));
      check<MetricError>(found != options_.aggregate_weights.end(), "multi_task_metrics.aggregate",
                         "expected aggregate_weights of every task, got none for ", quote(task));
      return found->second;
    }
    for (const auto& [name, result] : task_weights) {
      if (name == task) {
        return metric_weight(result, task, path);
      }
    }
    return 1.0;
  };
  Result aggregate = detail::average_tasks(output, weight);
  output.set("aggregate", std::move(aggregate));
  return output;
}

Result MultiTaskMetrics::value() const { return collect(&MetricsBase::value, &MetricsBase::n); }
Result MultiTaskMetrics::batch() const { return collect(&MetricsBase::batch, &MetricsBase::n); }
Result MultiTaskMetrics::average() const { return collect(&MetricsBase::average, &MetricsBase::count); }

Result MultiTaskMetrics::n() const {
  return tasks_.collect([](const auto& metrics) { return metrics->n(); });
}

Result MultiTaskMetrics::count() const {
  return tasks_.collect([](const auto& metrics) { return metrics->count(); });
}

void MultiTaskMetrics::synchronize(const Group& group) {
  if (group.size() == 1) {
    return;
  }
  // Exchange the names first: ranks with different tasks would deadlock in the tasks' collectives.
  const auto texts = detail::exchange_reports(group, "multi_task_metrics", join(tasks()));
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    check<MetricError>(texts[rank] == texts[0], "multi_task_metrics.synchronize",
                       "expected the same tasks on all ranks, got [", texts[0], "] on rank 0 and [", texts[rank],
                       "] on rank ", rank);
  }
  for (auto& [task, metrics] : tasks_) {
    metrics->synchronize(group);
  }
}

State MultiTaskMetrics::state_dict() const {
  State::Map state;
  for (const auto& [task, metrics] : tasks_) {
    state.set(task, metrics->state_dict());
  }
  return state;
}

void MultiTaskMetrics::check_tasks(const State& state, const char* where) const {
  check<StateError>(state.is_map(), where, "expected tasks [", join(tasks()), "], got ", state.kind());
  std::vector<std::string> got;
  for (const auto& entry : state.map()) {
    got.push_back(entry.key.is_string() ? entry.key.string() : entry.key.text());
  }
  bool same = got.size() == tasks_.size();
  for (const auto& name : got) {
    same = same && contains(name);
  }
  check<StateError>(same, where, "expected tasks [", join(tasks()), "], got [", join(got), "]");
}

State MultiTaskMetrics::merge_states(std::span<const State> states) const {
  for (const State& state : states) {
    check_tasks(state, "multi_task_metrics.merge_states");
  }
  State::Map merged;
  for (const auto& [task, metrics] : tasks_) {
    std::vector<State> of_task;
    for (const State& state : states) {
      of_task.push_back(state.at(task));
    }
    merged.set(task, metrics->merge_states(of_task));
  }
  return merged;
}

std::optional<State> MultiTaskMetrics::share_of_state(const State& merged, std::int64_t begin, std::int64_t end) const {
  check_tasks(merged, "multi_task_metrics.share_of_state");
  State::Map share;
  for (const auto& [task, metrics] : tasks_) {
    share.set(task, metrics->share_of_state(merged.at(task), begin, end).value_or(State()));
  }
  return State(share);
}

void MultiTaskMetrics::load_state_dict(const State& state) {
  check_tasks(state, "multi_task_metrics.load_state_dict");
  // On an error, restores the tasks loaded before.
  std::vector<std::pair<MetricsBase*, State>> before;
  try {
    for (auto& [task, metrics] : tasks_) {
      before.emplace_back(metrics.get(), clone(metrics->state_dict()));
      if (const State& of_task = state.at(task); of_task.is_null()) {
        metrics->reset();
      } else {
        metrics->load_state_dict(of_task);
      }
    }
  } catch (...) {
    for (auto& [metrics, old] : before) {
      metrics->load_state_dict(old);
    }
    throw;
  }
}

std::optional<bool> MultiTaskMetrics::higher_is_better(std::string_view name) const {
  for (const auto& [task, metrics] : tasks_) {
    if (name.size() > task.size() + 1 && name.substr(0, task.size()) == task && name[task.size()] == '.') {
      return metrics->higher_is_better(name.substr(task.size() + 1));
    }
  }
  constexpr std::string_view aggregate = "aggregate.";
  const std::string_view within = name.substr(0, aggregate.size()) == aggregate ? name.substr(aggregate.size()) : name;
  for (const auto& [task, metrics] : tasks_) {
    if (const auto better = metrics->higher_is_better(within)) {
      return better;
    }
  }
  return std::nullopt;
}

std::string MultiTaskMetrics::text(int precision) const {
  std::string out;
  for (const auto& [task, metrics] : tasks_) {
    out += concat(out.empty() ? "" : "\n", task, ": ", metrics->text(precision));
  }
  return out;
}

}  // namespace danling::inline v0
