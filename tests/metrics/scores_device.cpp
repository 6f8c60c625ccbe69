#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>

#include <danling/metrics/functional.hpp>

#include <metrics/functional/class_sums.hpp>
#include <metrics/functional/moments.hpp>
#include <metrics/functional/rank_correlation.hpp>
#include <metrics/functional/ranking.hpp>

#include <support/cuda.hpp>
#include <support/error.hpp>

namespace scores_device_tests {

using namespace danling::metrics;          // NOLINT(google-build-using-namespace)
using namespace danling::metrics::detail;  // NOLINT(google-build-using-namespace)

// Operators that read results of the device, so that the host would wait.
std::vector<std::string>& waiting_operators() {
  static std::vector<std::string> names;
  return names;
}

std::unique_ptr<at::ObserverContext> note_waits(const at::RecordFunction& call) {
  const std::string name = call.name();
  for (const char* waits :
       {"item", "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "unique", "equal"}) {
    if (name == std::string("aten::") + waits) {
      waiting_operators().push_back(name);
    }
  }
  return nullptr;
}

template <class Call>
std::vector<std::string> waits_of(Call&& call) {
  waiting_operators().clear();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(note_waits));
  call();
  at::removeCallback(handle);
  return waiting_operators();
}

TEST_CASE("scores and regression: the device's kernels ask for no number", "[metrics]") {
  CHECK(waits_of([] { at::rand({2}).nonzero(); }) == std::vector<std::string>{"aten::nonzero"});
  const std::vector<ScoreTask> tasks = {{.task = Task::binary, .num = 1, .ignore_index = -100},
                                        {.task = Task::multiclass, .num = 3, .ignore_index = -100},
                                        {.task = Task::multilabel, .num = 3, .ignore_index = -100},
                                        {.task = Task::multilabel, .num = 3, .ignore_index = -100, .flat = true}};
  const auto waits = waits_of([&] {
    for (const ScoreTask& task : tasks) {
      const at::Tensor scores = task.task == Task::binary ? at::rand({40}) : at::rand({40, 3});
      const at::Tensor targets = task.task == Task::multilabel ? at::randint(0, 2, {40, 3}) : at::randint(0, 2, {40});
      const at::Tensor ranks = rank_on_device(scores, targets, task);
      const RocPoints points = roc_points(scores, targets, task);
      partial_area(points.fpr, points.tpr, 0.3);
      rank_bins_on_device(bin_on_device(scores, targets, task, even_thresholds(9)));
      log_loss_on_device(scores, targets, task);
      for (const Average average : {Average::macro, Average::weighted}) {
        average_on_device(ranks[row_auroc], ranks[row_positives], average);
      }
      if (task.task != Task::multilabel) {
        hinge_on_device(scores, targets, task, /*squared=*/true, HingeMode::one_vs_all);
        hinge_on_device(scores, targets, task, /*squared=*/false, HingeMode::crammer_singer);
        calibration_gap_on_device(calibration_on_device(scores, targets, task, 15), CalibrationNorm::l2);
      }
    }
    const at::Tensor preds = at::randn({30, 2});
    at::Tensor moments = moments_on_device(preds, at::randn({30, 2}), 2);
    merge_moments_on_device(moments, moments.clone());
    spearman_on_device(preds, at::randn({30, 2}), 2);
    mean_output_on_device(moments.select(1, 4), moments.select(1, 5), MultiOutput::variance_weighted);
  });
  CHECK(waits == std::vector<std::string>());
}

TEST_CASE("scores and regression: the device averages what the host averages", "[metrics]") {
  constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
  const auto same = [](double a, const at::Tensor& b) {
    return b.allclose(at::scalar_tensor(a, at::kDouble), 1e-12, 1e-12, /*equal_nan=*/true);
  };
  const std::vector<std::vector<double>> values = {
      {0.5, 0.25, 1.0}, {0.5, nan_value, 1.0}, {nan_value, nan_value}, {0.3}};
  const std::vector<std::vector<double>> weights = {{3, 1, 0}, {3, 0, 0}, {0, 0}, {0}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const at::Tensor value = at::tensor(values[i], at::kDouble);
    const at::Tensor weight = at::tensor(weights[i], at::kDouble);
    for (const Average average : {Average::macro, Average::weighted}) {
      CHECK(same(average_on_host(value, weight, average), average_on_device(value, weight, average)));
    }
    for (const MultiOutput how : {MultiOutput::uniform_average, MultiOutput::variance_weighted}) {
      CHECK(same(mean_output_on_host(value, weight, how), mean_output_on_device(value, weight, how)));
    }
  }
  // Data that were nan make averages nan.
  const at::Tensor broken = at::tensor({0.5, nan_value}, at::kDouble);
  CHECK(same(nan_value, average_on_device(broken, broken, Average::macro)));
  CHECK(std::isnan(average_on_host(broken, broken, Average::macro)));

  const at::Tensor bins = at::tensor({4.0, 1.0, 2.0, 0.0, 0.0, 0.0, 6.0, 5.0, 3.0}, at::kDouble).view({3, 3});
  for (const CalibrationNorm norm : {CalibrationNorm::l1, CalibrationNorm::l2, CalibrationNorm::max}) {
    for (const at::Tensor& some : {bins, bins * 0.0, bins * at::tensor({1.0, nan_value, 1.0}, at::kDouble)}) {
      CHECK(same(calibration_gap_on_host(some, norm), calibration_gap_on_device(some, norm)));
    }
  }
}

TEST_CASE("scores and regression: values on CUDA are those on the host", "[metrics][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  const auto compare = [](const danling::MetricFunc& metric, const at::Tensor& preds, const at::Tensor& targets) {
    INFO(metric.name);
    const at::Tensor far = metric.compute({preds.to(at::kCUDA), targets.to(at::kCUDA)}).tensor();
    CHECK(far.is_cuda());
    CHECK(far.cpu().to(at::kDouble).allclose(metric.compute({preds, targets}).tensor().to(at::kDouble), 1e-6, 1e-6));
  };
  const at::Tensor scores = at::rand({300, 3}).softmax(1);
  const at::Tensor classes = at::randint(0, 3, {300});
  classes.narrow(0, 0, 40).fill_(-100);
  const at::Tensor marks = at::randint(0, 2, {300, 3});
  const at::Tensor one = scores.select(1, 0).contiguous();
  const at::Tensor mark = marks.select(1, 0).contiguous();
  compare(binary_auroc({.max_fpr = 0.4}), one, mark);
  compare(binary_log_loss(), one, mark);
  compare(binary_calibration_error(), one, mark);
  for (const Average average : {Average::macro, Average::weighted, Average::none}) {
    compare(multiclass_auroc(3, {.average = average}), scores, classes);
    compare(multiclass_auprc(3, {.average = average, .thresholds = 20}), scores, classes);
    compare(multilabel_auprc(3, {.average = average}), scores, marks);
  }
  compare(multiclass_log_loss(3), scores, classes);
  compare(multiclass_hinge_loss(3), scores, classes);
  compare(multiclass_calibration_error(3), scores, classes);
  compare(perplexity(), scores, classes);
  const at::Tensor targets = scores + at::randn({300, 3}).mul(0.1);
  for (const danling::MetricFunc& metric :
       {mae({.num_outputs = 3}), rmse({.num_outputs = 3}), r2_score({.num_outputs = 3}), pearson({.num_outputs = 3}),
        concordance({.num_outputs = 3}), spearman({.num_outputs = 3}), kendall({.num_outputs = 3})}) {
    compare(metric, scores, targets);
  }
}

}  // namespace scores_device_tests
