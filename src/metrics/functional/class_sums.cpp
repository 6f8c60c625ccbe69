// Loops over predicted probabilities and scores on the host.
#include <metrics/functional/class_sums.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/zeros.h>

namespace danling::inline v0::metrics::detail {
namespace {

bool is_ignored(const ScoreTask& task, std::int64_t target) {
  return task.ignore_index && *task.ignore_index == target;
}

}  // namespace

at::Tensor log_loss_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task) {
  const bool multiclass = task.task == Task::multiclass;
  const std::int64_t columns = multiclass ? 1 : task.columns();
  at::Tensor out = at::zeros({columns, 3}, at::kDouble);
  auto* sums = out.mutable_data_ptr<double>();
  const auto* label = targets.const_data_ptr<std::int64_t>();
  const std::int64_t n = targets.numel();
  visit_scores(scores, [&](const auto* data) {
    using T = std::remove_cvref_t<decltype(*data)>;
    constexpr T eps = std::numeric_limits<T>::epsilon();
    for (std::int64_t i = 0, column = 0; i < n; ++i, column = column + 1 == columns ? 0 : column + 1) {
      if (is_ignored(task, label[i])) {
        continue;
      }
      const T score = multiclass ? data[i * task.num + label[i]] : label[i] == 1 ? data[i] : T{1} - data[i];
      double* of_column = sums + column * 3;
      of_column[0] -= std::log(static_cast<double>(std::clamp(score, eps, T{1} - eps)));
      of_column[1] += 1.0;
      of_column[2] += label[i] == 1 ? 1.0 : 0.0;
    }
  });
  return out;
}

at::Tensor hinge_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task, bool squared,
                         HingeMode mode) {
  const bool per_class = task.task == Task::multiclass && mode == HingeMode::one_vs_all;
  const std::int64_t losses = per_class ? task.num : 1;
  at::Tensor out = at::zeros({losses + 1}, at::kDouble);
  auto* sums = out.mutable_data_ptr<double>();
  const auto* label = targets.const_data_ptr<std::int64_t>();
  const auto loss_of = [squared](double margin) {
    // Written so that nan propagates.
    const double loss = 1.0 - margin < 0.0 ? 0.0 : 1.0 - margin;
    return squared ? loss * loss : loss;
  };
  visit_scores(scores, [&](const auto* data) {
    for (std::int64_t i = 0; i < targets.numel(); ++i) {
      if (is_ignored(task, label[i])) {
        continue;
      }
      sums[losses] += 1.0;
      if (task.task == Task::binary) {
        const auto score = static_cast<double>(data[i]);
        sums[0] += loss_of(label[i] == 1 ? score : -score);
        continue;
      }
      const auto* row = data + i * task.num;
      if (per_class) {
        for (std::int64_t c = 0; c < task.num; ++c) {
          const auto score = static_cast<double>(row[c]);
          sums[c] += loss_of(c == label[i] ? score : -score);
        }
        continue;
      }
      double other = -std::numeric_limits<double>::infinity();
      for (std::int64_t c = 0; c < task.num; ++c) {
        const auto score = static_cast<double>(row[c]);
        if (c != label[i] && !std::isnan(other) && !(score <= other)) {  // nan stays
          other = score;
        }
      }
      sums[0] += loss_of(static_cast<double>(row[label[i]]) - other);
    }
  });
  return out;
}

at::Tensor calibration_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                               const at::Tensor& limits) {
  const std::int64_t n_bins = limits.numel() - 1;
  at::Tensor out = at::zeros({n_bins + 1, 3}, at::kDouble);
  auto* sums = out.mutable_data_ptr<double>();
  const auto* label = targets.const_data_ptr<std::int64_t>();
  const auto* limit = limits.const_data_ptr<double>();
  visit_scores(scores, [&](const auto* data) {
    for (std::int64_t i = 0; i < targets.numel(); ++i) {
      if (is_ignored(task, label[i])) {
        continue;
      }
      auto confidence = static_cast<double>(data[i * task.num]);
      bool right = label[i] == 1;
      double binned = confidence;
      if (task.task == Task::multiclass) {
        const auto* row = data + i * task.num;
        std::int64_t best = 0;
        for (std::int64_t c = 1; c < task.num; ++c) {
          best = row[c] > row[best] || (std::isnan(row[c]) && !std::isnan(row[best])) ? c : best;
        }
        confidence = static_cast<double>(row[best]);
        binned = static_cast<double>(static_cast<float>(row[best]));
        right = best == label[i];
      }
      // An estimate; rounding may shift it by one.
      std::int64_t bin = n_bins;
      if (binned < 1.0) {
        bin = static_cast<std::int64_t>(std::max(binned, 0.0) * static_cast<double>(n_bins));
        for (; bin > 0 && binned < limit[bin]; --bin) {
        }
        for (; bin < n_bins && binned >= limit[bin + 1]; ++bin) {
        }
      }
      double* of_bin = sums + bin * 3;
      of_bin[0] += 1.0;
      of_bin[1] += confidence;
      of_bin[2] += right ? 1.0 : 0.0;
    }
  });
  return out;
}

}  // namespace danling::inline v0::metrics::detail
