// Every golden case through one-shots, containers and merged sums.
//
// Tolerances, relative to the larger of 1 and the value: 1e-6 for float64 and labels, 1e-4 for float32 and the halves.

#include <metrics/golden_functional.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>
#include <sstream>

#include <ATen/Context.h>
#include <ATen/ops/stack.h>

#include <danling/metrics/build.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/cuda.hpp>

namespace golden_functional {
namespace {

using danling::GlobalMetrics;
using danling::MetricFunc;
using danling::MetricState;
using danling::Preprocess;
using danling::StreamMetrics;

void flatten(const Json& expected, std::vector<double>& out) {
  if (expected.is_array()) {
    for (const Json& e : expected) {
      flatten(e, out);
    }
    return;
  }
  out.push_back(expected.is_null()     ? std::numeric_limits<double>::quiet_NaN()
                : expected.is_string() ? (expected == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity()
                                       : expected.get<double>());
}

bool agree(double got, double expected, double tolerance) {
  return got == expected || (std::isnan(got) && std::isnan(expected)) ||
         std::abs(got - expected) <= tolerance * std::max(1.0, std::abs(expected));
}

std::string listed(const std::vector<double>& values) {
  std::ostringstream out;
  out.precision(10);
  for (const double v : values) {
    out << " " << v;
  }
  return out.str();
}

/// Fails with metric, task, options, expected and got when they differ.
void compare(const Case& c, const std::vector<double>& got, const std::string& path) {
  std::vector<double> expected;
  flatten(c.expected, expected);
  bool same = got.size() == expected.size();
  for (std::size_t i = 0; same && i < got.size(); ++i) {
    same = agree(got[i], expected[i], c.tolerance());
  }
  if (!same) {
    FAIL_CHECK(path << ": " << c.text() << "\n  expected" << listed(expected) << "\n  got     " << listed(got));
  }
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).flatten().contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

std::vector<double> numbers(const danling::Result::Value& value) {
  if (const double* one = std::get_if<double>(&value)) {
    return {*one};
  }
  const auto* array = std::get_if<danling::Result::Array>(&value);
  return array != nullptr ? array->values : std::get<std::vector<double>>(value);
}

template <class Run>
void guarded(const Case& c, const std::string& path, Run run) {
  try {
    run();
  } catch (const std::exception& error) {
    FAIL_CHECK(path << ": " << c.text() << "\n  throws " << error.what());
  }
}

/// `scores_stay`: for a metric that needs labels only.
Preprocess preprocess_of(const Case& c, bool scores_stay = false) {
  if (c.metric == "perplexity") {
    return {};
  }
  if (c.task == "regression") {
    return [outputs = c.options.value("num_outputs", std::int64_t{1})](const at::Tensor& p, const at::Tensor& t) {
      return dlm::preprocess_regression(p, t, outputs);
    };
  }
  dlm::ClassificationOptions options = classification_options(c);
  if (c.batch->contains("class_dim")) {  // parts of a batch may have shapes that leave it open
    options.class_dim = c.batch->at("class_dim").get<std::int64_t>();
  }
  return [options, scores_stay](const at::Tensor& p, const at::Tensor& t) {
    return dlm::preprocess_classification(p, t, options, /*probabilities=*/!scores_stay);
  };
}

using Part = std::pair<at::Tensor, at::Tensor>;

/// Cuts a batch at `cuts` along its first dimension.
std::vector<Part> parts_of(const Case& c, const std::vector<std::int64_t>& cuts) {
  const at::Tensor input = input_of(c);
  const at::Tensor target = target_of(c);
  std::vector<Part> parts;
  std::int64_t from = 0;
  for (const std::int64_t to : cuts) {
    parts.emplace_back(input.slice(0, from, to), target.slice(0, from, to));
    from = to;
  }
  parts.emplace_back(input.slice(0, from), target.slice(0, from));
  return parts;
}

TEST_CASE("golden: every metric has thirty cases and every case a metric", "[metrics][golden]") {
  std::map<std::string, int> counts;
  for (const Case& c : cases()) {
    ++counts[c.metric];
  }
  for (const auto& [name, metric] : metrics()) {
    INFO(name);
    CHECK(counts[name] >= 30);
  }
  CHECK(counts.size() == metrics().size());
}

const dlm::Task tasks[] = {dlm::Task::binary, dlm::Task::multiclass, dlm::Task::multilabel, dlm::Task::regression};

/// Read before other tests register metrics.
const std::map<dlm::Task, std::vector<std::string>> names_at_start = [] {
  std::map<dlm::Task, std::vector<std::string>> names;
  for (const dlm::Task task : tasks) {
    names[task] = dlm::metric_func_registry(task).names();
  }
  return names;
}();

TEST_CASE("golden: every metric that a config can name has cases", "[metrics][golden]") {
  std::map<std::string, std::set<std::string>> covered;  // names that descriptors have, by task
  for (const Case& c : cases()) {
    if (const auto& make = metrics().at(c.metric).func) {
      covered[c.task].insert(make(c).name);
    }
  }
  for (const dlm::Task task : tasks) {
    const dlm::MetricsSpec spec{.type = std::string(to_string(task)), .thresholds = 5};
    // Whose functions have cases, under "roc" and "precision_recall_curve"; edges.cpp compares the metrics with those.
    covered[*spec.type].insert({"roc", "precision_recall_curve"});
    if (task == dlm::Task::multiclass) {
      covered[*spec.type].insert("perplexity");
    }
    for (const std::string& name : names_at_start.at(task)) {
      dlm::MetricFuncOptions options(spec, 3);
      for (const MetricFunc& func : dlm::metric_func_registry(task).at(name)(options)) {
        INFO(*spec.type << " " << name << " gives " << func.name);
        CHECK(covered[*spec.type].count(func.name) == 1);
      }
    }
  }
}

TEST_CASE("golden: functions give the values of the references", "[metrics][golden]") {
  for (const Case& c : cases()) {
    guarded(c, "one shot", [&] {
      const at::Tensor got = metrics().at(c.metric).one_shot(input_of(c), target_of(c), c);
      CHECK(got.scalar_type() == at::kDouble);
      compare(c, numbers(got), "one shot");
    });
  }
}

TEST_CASE("golden: functions on CUDA give the values of the references", "[metrics][golden][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  for (const Case& c : cases()) {
    guarded(c, "on CUDA", [&] {
      const at::Tensor got = metrics().at(c.metric).one_shot(input_of(c).cuda(), target_of(c).cuda(), c);
      compare(c, numbers(got.cpu()), "on CUDA");
    });
  }
}

/// The same numbers with gaps in memory.
at::Tensor strided(const at::Tensor& tensor) { return at::stack({tensor, tensor}, -1).select(-1, 0); }

TEST_CASE("golden: strides and the integer type of labels change nothing", "[metrics][golden]") {
  for (const Case& c : cases()) {
    if (c.dtype != "float64" && c.dtype != "int64") {
      continue;
    }
    guarded(c, "strided", [&] {
      at::Tensor target = target_of(c);
      if (c.task == "binary" && c.ignore_index() == -100 && target.lt(0).logical_not().all().item<bool>()) {
        target = target.to(at::kBool);
      } else if (c.task != "regression") {
        target = target.to(at::kInt);
      }
      const at::Tensor got = metrics().at(c.metric).one_shot(strided(input_of(c)), strided(target), c);
      compare(c, numbers(got), "strided");
    });
  }
}

TEST_CASE("golden: GlobalMetrics gives the same from three uneven updates", "[metrics][golden]") {
  std::int64_t index = 0;
  for (const Case& c : cases()) {
    const auto& make = metrics().at(c.metric).func;
    if (!make) {
      continue;
    }
    guarded(c, "three updates", [&] {
      GlobalMetrics all({make(c).named("metric")}, {.preprocess = preprocess_of(c)});
      const std::int64_t rows = c.batch->at("target_shape").at(0);
      const std::int64_t first = rows / 4;
      for (const auto& [input, target] : parts_of(c, {first, index++ % 2 == 0 ? first : first + rows / 3})) {
        all.update(input, target);
      }
      compare(c, numbers(*all.average().find("metric")), "three updates");
    });
  }
}

TEST_CASE("golden: sums of the parts of a batch merge into those of the whole", "[metrics][golden]") {
  int tried = 0;
  for (const Case& c : cases()) {
    const auto& make = metrics().at(c.metric).func;
    if (!make) {
      continue;
    }
    guarded(c, "merged sums", [&] {
      const MetricFunc func = make(c);
      if (func.sums.empty() || func.preds_targets) {
        return;
      }
      ++tried;
      const Preprocess given = preprocess_of(c, func.labels_only);
      const Preprocess preprocess =
          given ? given : [](const at::Tensor& p, const at::Tensor& t) { return dlm::base_preprocess(p, t); };
      const std::int64_t rows = c.batch->at("target_shape").at(0);
      const std::vector<Part> parts = parts_of(c, {rows / 2, rows - rows / 5});
      MetricState state;
      for (const auto& which : func.sums) {
        at::Tensor total;
        // From the last part on: the order must not count either.
        for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
          const auto [preds, targets] = preprocess(part->first, part->second);
          const at::Tensor sums = which->of_batch(preds, targets);
          if (!total.defined()) {
            total = sums.clone();
          } else if (which->merge) {
            which->merge(total, sums);
          } else {
            total.add_(sums);
          }
        }
        state.set(which, total);
      }
      compare(c, numbers(func.compute(state).tensor()), "merged sums");
    });
  }
  CHECK(tried > 1000);
}

/// Cases whose value is a mean over samples, as the functions declare: a stream of batches is exact for them too.
bool additive(const Case& c) {
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), c.metric) != names.end();
  };
  const std::string average = c.options.value("average", "macro");
  if (is({"mae", "mse", "mape"})) {
    return true;
  }
  if (c.task == "multiclass") {
    return is({"log_loss", "hinge_loss"}) ||
           (average == "micro" &&
            is({"accuracy", "hamming_loss", "precision", "recall", "specificity", "f1_score", "fbeta_score"})) ||
           (average == "weighted" && is({"accuracy", "hamming_loss", "recall"}));
  }
  if (c.task == "multilabel") {
    return average == "micro" && is({"accuracy", "hamming_loss"});
  }
  return is({"accuracy", "hamming_loss", "log_loss", "hinge_loss"});
}

TEST_CASE("golden: StreamMetrics gives the same where a metric is a mean", "[metrics][golden]") {
  int tried = 0;
  for (const Case& c : cases()) {
    if (!additive(c)) {
      continue;
    }
    ++tried;
    guarded(c, "stream", [&] {
      StreamMetrics stream({metrics().at(c.metric).func(c).named("metric")}, preprocess_of(c));
      const std::int64_t rows = c.batch->at("target_shape").at(0);
      for (const auto& [input, target] : parts_of(c, {rows / 3, rows - rows / 4})) {
        stream.update(input, target);
      }
      compare(c, numbers(*stream.average().find("metric")), "stream");
    });
  }
  CHECK(tried > 300);
}

}  // namespace
}  // namespace golden_functional
