// Loops over scores on the host: how many labels are among the first k.
#include <algorithm>
#include <cmath>
#include <tuple>

#include <ATen/Parallel.h>

#include <danling/core/error.hpp>

#include <metrics/functional/accuracy.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

struct Count {
  std::int64_t right = 0;
  std::int64_t counted = 0;
};

// How many scores stand before that of `label`: by value, nan first, and by position where they are equal.
template <class T>
std::int64_t rank_of(const T* row, std::int64_t num_classes, std::int64_t label) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto own = static_cast<Number>(row[label]);
  std::int32_t before = 0;
  if (std::isnan(own)) [[unlikely]] {
    for (std::int64_t i = 0; i < label; ++i) {
      before += std::isnan(static_cast<Number>(row[i])) ? 1 : 0;
    }
    return before;
  }
  // Negated, so that a nan stands before. Without an early end both loops become vector instructions.
  for (std::int64_t i = 0; i < label; ++i) {
    before += !(static_cast<Number>(row[i]) < own) ? 1 : 0;
  }
  for (std::int64_t i = label + 1; i < num_classes; ++i) {
    before += !(static_cast<Number>(row[i]) <= own) ? 1 : 0;
  }
  return before;
}

template <class T>
Count count_rows(const at::Tensor& scores, const at::Tensor& labels, std::int64_t top_k,
                 std::optional<std::int64_t> ignore_index) {
  const std::int64_t num_classes = scores.size(-1);
  const T* data = scores.const_data_ptr<T>();
  const auto* label_data = labels.const_data_ptr<std::int64_t>();
  // Scores per task, as LibTorch's own kernels split their work.
  constexpr std::int64_t grain_size = 32768;
  const std::int64_t grain = std::max<std::int64_t>(1, grain_size / std::max<std::int64_t>(1, num_classes));
  return at::parallel_reduce(
      0, labels.numel(), grain, Count(),
      [&](std::int64_t begin, std::int64_t end, Count count) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t label = label_data[row];
          if (ignore_index && label == *ignore_index) {
            continue;
          }
          if (label < 0 || label >= num_classes) [[unlikely]] {
            fail<MetricError>("accuracy.compute", "expected labels from 0 to ", num_classes - 1, ", got ", label,
                              " at position ", row);
          }
          ++count.counted;
          count.right += rank_of(data + row * num_classes, num_classes, label) < top_k ? 1 : 0;
        }
        return count;
      },
      [](const Count& a, const Count& b) {
        return Count{a.right + b.right, a.counted + b.counted};
      });
}

}  // namespace

MetricValue accuracy_on_host(const at::Tensor& scores, const at::Tensor& target, std::int64_t class_dim,
                             std::int64_t top_k, std::optional<std::int64_t> ignore_index) {
  const bool last = class_dim == scores.dim() - 1;
  const at::Tensor rows = last ? scores.contiguous() : scores.movedim(class_dim, -1).contiguous();
  const at::Tensor labels = target.to(at::kLong).contiguous();
  Count count;
  switch (rows.scalar_type()) {
    case at::kFloat:
      count = count_rows<float>(rows, labels, top_k, ignore_index);
      break;
    case at::kBFloat16:
      count = count_rows<c10::BFloat16>(rows, labels, top_k, ignore_index);
      break;
    case at::kHalf:
      count = count_rows<c10::Half>(rows, labels, top_k, ignore_index);
      break;
    default:
      count = count_rows<double>(rows.to(at::kDouble), labels, top_k, ignore_index);
  }
  return MetricValue::sum(static_cast<double>(count.right), count.counted);
}

MetricValue accuracy_on_device(const at::Tensor& scores, const at::Tensor& target, std::int64_t class_dim,
                               std::int64_t top_k, std::optional<std::int64_t> ignore_index) {
  const at::Tensor labels = target.unsqueeze(class_dim);
  const at::Tensor predicted = top_k == 1 ? scores.argmax(class_dim, /*keepdim=*/true)
                                          : std::get<1>(scores.topk(top_k, class_dim, /*largest=*/true,
                                                                    /*sorted=*/false));
  at::Tensor right = predicted.eq(labels);
  if (!ignore_index) {
    return MetricValue::sum(right.sum(), target.numel());
  }
  const at::Tensor counted = labels.ne(*ignore_index);
  if (*ignore_index >= 0 && *ignore_index < scores.size(class_dim)) {
    right = right.bitwise_and(counted);
  }
  return MetricValue::sum(right.sum(), counted.sum());
}

}  // namespace danling::inline v0::metrics::detail
