// Loops over scores on the host: predicted classes, and top-k predictions.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include <ATen/EmptyTensor.h>

#include <danling/core/error.hpp>

#include <metrics/functional/counts.hpp>
#include <metrics/host_labels.hpp>
#include <tensors/raw.hpp>
#include <tensors/workers.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr const char* where_classes = "metrics.count";

template <class T>
using NumberOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Number of scores that rank before that of `label`: by value, nan first; equal scores by position.
template <class T>
std::int64_t rank_of(const T* row, std::int64_t num_classes, std::int64_t label) {
  using Number = NumberOf<T>;
  const auto own = static_cast<Number>(row[label]);
  std::int32_t before = 0;
  if (std::isnan(own)) [[unlikely]] {
    for (std::int64_t i = 0; i < label; ++i) {
      before += std::isnan(static_cast<Number>(row[i])) ? 1 : 0;
    }
    return before;
  }
  // Negated, so that a nan ranks first. Loops without an early exit vectorize.
  for (std::int64_t i = 0; i < label; ++i) {
    before += !(static_cast<Number>(row[i]) < own) ? 1 : 0;
  }
  for (std::int64_t i = label + 1; i < num_classes; ++i) {
    before += !(static_cast<Number>(row[i]) <= own) ? 1 : 0;
  }
  return before;
}

// The first of the highest scores; nan ranks above all numbers.
template <class T>
std::int64_t highest(const T* row, std::int64_t num_classes) {
  using Number = NumberOf<T>;
  std::int64_t best = 0;
  auto top = static_cast<Number>(row[0]);
  for (std::int64_t i = 1; i < num_classes; ++i) {
    const auto score = static_cast<Number>(row[i]);
    if (!(score <= top)) {
      if (std::isnan(top)) [[unlikely]] {
        return best;
      }
      best = i;
      top = score;
    }
  }
  return best;
}

// Rows per task, split as in LibTorch's kernels.
std::int64_t rows_per_task(std::int64_t num_classes) { return std::max<std::int64_t>(1, 32768 / num_classes); }

template <class T>
RightCount count_right(const at::Tensor& scores, const std::int64_t* labels, const ClassRule& rule) {
  const T* data = scores.const_data_ptr<T>();
  std::atomic<std::int64_t> right = 0;
  std::atomic<std::int64_t> counted = 0;
  tensors::for_each_range(scores.size(0), rows_per_task(rule.num_classes), [&](std::int64_t begin, std::int64_t end) {
    RightCount count;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t label = labels[row];
      if (rule.ignore_index && label == *rule.ignore_index) {
        continue;
      }
      ++count.counted;
      count.right += rank_of(data + row * rule.num_classes, rule.num_classes, label) < rule.top_k ? 1 : 0;
    }
    right += count.right;
    counted += count.counted;
  });
  return {right.load(), counted.load()};
}

template <class T>
void predict(const at::Tensor& scores, const std::int64_t* labels, const ClassRule& rule, std::int64_t* predicted) {
  const T* data = scores.const_data_ptr<T>();
  tensors::for_each_range(scores.size(0), rows_per_task(rule.num_classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* first = data + row * rule.num_classes;
      const std::int64_t label = labels[row];
      if (rule.ignore_index && label == *rule.ignore_index) {
        predicted[row] = 0;
      } else if (rule.top_k > 1 && rank_of(first, rule.num_classes, label) < rule.top_k) {
        predicted[row] = label;
      } else {
        predicted[row] = highest(first, rule.num_classes);
      }
    }
  });
}

// Calls `use` with the scores as a contiguous array of one of four types.
template <class Use>
void with_scores(const at::Tensor& scores, Use use) {
  const at::Tensor rows = tensors::raw(scores);
  switch (rows.scalar_type()) {
    case at::kFloat:
      return use(rows, float{});
    case at::kBFloat16:
      return use(rows, c10::BFloat16{});
    case at::kHalf:
      return use(rows, c10::Half{});
    default:
      return use(rows.to(at::kDouble), double{});
  }
}

at::Tensor checked_labels(const at::Tensor& labels, const ClassRule& rule) {
  at::Tensor read = host_labels(labels, where_classes);
  count_labels(read, rule.num_classes, rule.ignore_index, where_classes);
  return read;
}

// The prediction for each label; unspecified for ignored labels.
at::Tensor predictions(const at::Tensor& scores, const at::Tensor& labels, const ClassRule& rule) {
  if (scores.dim() == 1) {
    at::Tensor given = host_labels(scores, where_classes);
    // The prediction of an ignored label is not checked.
    const auto* label = labels.const_data_ptr<std::int64_t>();
    const auto* prediction = given.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < given.numel(); ++i) {
      const bool counts = !rule.ignore_index || label[i] != *rule.ignore_index;
      if (counts && static_cast<std::uint64_t>(prediction[i]) >= static_cast<std::uint64_t>(rule.num_classes)) {
        fail<MetricError>(where_classes, "expected predicted labels from 0 to ", rule.num_classes - 1, ", got ",
                          prediction[i], " at position ", i);
      }
    }
    return given;
  }
  at::Tensor out = at::detail::empty_cpu({scores.size(0)}, at::kLong);
  with_scores(scores, [&]<class T>(const at::Tensor& rows, T) {
    predict<T>(rows, labels.const_data_ptr<std::int64_t>(), rule, out.mutable_data_ptr<std::int64_t>());
  });
  return out;
}

at::Tensor zero_counts(at::IntArrayRef shape) {
  at::Tensor counts = at::detail::empty_cpu(shape, at::kLong);
  std::memset(counts.mutable_data_ptr(), 0, counts.nbytes());
  return counts;
}

// Calls `count` with each counted label and its prediction.
template <class Count>
void for_each_decision(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule, Count count) {
  const at::Tensor labels = checked_labels(targets, rule);
  const at::Tensor predicted = predictions(scores, labels, rule);
  const auto* label = labels.const_data_ptr<std::int64_t>();
  const auto* prediction = predicted.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    if (!rule.ignore_index || label[i] != *rule.ignore_index) {
      count(label[i], prediction[i]);
    }
  }
}

}  // namespace

RightCount count_right_on_host(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule) {
  RightCount count;
  if (scores.dim() == 1) {
    for_each_decision(scores, targets, rule, [&](std::int64_t label, std::int64_t prediction) {
      count.right += label == prediction ? 1 : 0;
      ++count.counted;
    });
  } else {
    const at::Tensor labels = checked_labels(targets, rule);
    with_scores(scores, [&]<class T>(const at::Tensor& rows, T) {
      count = count_right<T>(rows, labels.const_data_ptr<std::int64_t>(), rule);
    });
  }
  return count;
}

at::Tensor right_on_host(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule) {
  const RightCount count = count_right_on_host(scores, targets, rule);
  at::Tensor sums = at::detail::empty_cpu({2}, at::kLong);
  auto* data = sums.mutable_data_ptr<std::int64_t>();
  data[0] = count.right;
  data[1] = count.counted;
  return sums;
}

at::Tensor classes_on_host(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule) {
  at::Tensor counts = zero_counts({3, rule.num_classes});
  auto* right = counts.mutable_data_ptr<std::int64_t>();
  auto* predicted = right + rule.num_classes;
  auto* of_target = predicted + rule.num_classes;
  for_each_decision(scores, targets, rule, [&](std::int64_t label, std::int64_t prediction) {
    right[label] += label == prediction ? 1 : 0;
    ++predicted[prediction];
    ++of_target[label];
  });
  return counts;
}

at::Tensor confusion_on_host(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule) {
  at::Tensor counts = zero_counts({rule.num_classes, rule.num_classes});
  auto* cells = counts.mutable_data_ptr<std::int64_t>();
  for_each_decision(scores, targets, rule, [&](std::int64_t label, std::int64_t prediction) {
    ++cells[label * rule.num_classes + prediction];
  });
  return counts;
}

}  // namespace danling::inline v0::metrics::detail
