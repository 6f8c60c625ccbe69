// The softmax of rows on the host. LibTorch's takes 8 µs for 64 rows of 10, its instructions being for longer ones.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/softmax.h>

#include <metrics/host_labels.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

template <class T>
void softmax_of_rows(const at::Tensor& logits, const at::Tensor& out) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T* row = logits.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  const std::int64_t size = logits.size(1);
  std::vector<Number> powers(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < logits.size(0); ++i, row += size, to += size) {
    auto top = static_cast<Number>(row[0]);
    for (std::int64_t j = 1; j < size; ++j) {
      top = std::max(top, static_cast<Number>(row[j]));
    }
    Number sum = 0;
    for (std::int64_t j = 0; j < size; ++j) {
      Number& power = powers[static_cast<std::size_t>(j)];
      power = std::exp(static_cast<Number>(row[j]) - top);
      sum += power;
    }
    for (std::int64_t j = 0; j < size; ++j) {
      to[j] = static_cast<T>(powers[static_cast<std::size_t>(j)] / sum);
    }
  }
}

}  // namespace

at::Tensor host_softmax(const at::Tensor& logits) {
  // Longer rows, and many of them, are LibTorch's to split over lanes and threads.
  if (logits.size(1) > 64 || logits.size(0) > 65536) {
    return at::softmax(logits, 1);
  }
  const at::Tensor rows = logits.contiguous();
  at::Tensor out = at::detail::empty_cpu(rows.sizes(), rows.scalar_type());
  switch (rows.scalar_type()) {
    case at::kFloat:
      softmax_of_rows<float>(rows, out);
      break;
    case at::kDouble:
      softmax_of_rows<double>(rows, out);
      break;
    case at::kBFloat16:
      softmax_of_rows<c10::BFloat16>(rows, out);
      break;
    case at::kHalf:
      softmax_of_rows<c10::Half>(rows, out);
      break;
    default:
      return at::softmax(logits, 1);
  }
  return out;
}

}  // namespace danling::inline v0::metrics::detail
