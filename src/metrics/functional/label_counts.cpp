// Loops over the labels of binary and multilabel data on the host.
#include <cstring>

#include <ATen/EmptyTensor.h>

#include <danling/core/error.hpp>

#include <metrics/functional/counts.hpp>
#include <metrics/host_labels.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr const char* where_labels = "metrics.count";

template <class T>
void count_cells(const at::Tensor& scores, const std::int64_t* targets, const LabelRule& rule, std::int64_t* cells) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T* data = scores.const_data_ptr<T>();
  // Rounded to the dtype of the scores, as in LibTorch's comparison.
  const auto threshold = static_cast<Number>(static_cast<T>(static_cast<Number>(rule.threshold)));
  const std::int64_t items = scores.numel() / rule.num_labels;
  for (std::int64_t item = 0; item < items; ++item) {
    for (std::int64_t label = 0; label < rule.num_labels; ++label, ++data, ++targets) {
      if (!rule.ignore_index || *targets != *rule.ignore_index) {
        ++cells[label * 4 + *targets * 2 + (static_cast<Number>(*data) > threshold ? 1 : 0)];
      }
    }
  }
}

}  // namespace

at::Tensor labels_on_host(const at::Tensor& scores, const at::Tensor& targets, const LabelRule& rule) {
  at::Tensor counts = at::detail::empty_cpu({rule.num_labels, 2, 2}, at::kLong);
  auto* cells = counts.mutable_data_ptr<std::int64_t>();
  std::memset(cells, 0, counts.nbytes());
  const at::Tensor labels = host_labels(targets, where_labels);
  count_labels(labels, 2, rule.ignore_index, where_labels);
  const auto* label = labels.const_data_ptr<std::int64_t>();
  const at::Tensor rows = tensors::raw(scores);
  switch (rows.scalar_type()) {
    case at::kFloat:
      count_cells<float>(rows, label, rule, cells);
      break;
    case at::kBFloat16:
      count_cells<c10::BFloat16>(rows, label, rule, cells);
      break;
    case at::kHalf:
      count_cells<c10::Half>(rows, label, rule, cells);
      break;
    case at::kDouble:
      count_cells<double>(rows, label, rule, cells);
      break;
    default: {
      // Labels: the threshold has no effect; 0.5 separates 0 and 1.
      LabelRule apart = rule;
      apart.threshold = 0.5;
      count_cells<double>(rows.to(at::kDouble), label, apart, cells);
    }
  }
  return counts;
}

}  // namespace danling::inline v0::metrics::detail
