#include <metrics/probabilities.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <danling/core/error.hpp>

#include <tensors/raw.hpp>
#include <tensors/workers.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

// Rows up to this length use our loop. LibTorch's is made for longer rows: 64 rows of 10 take 8 µs there, 2 µs here.
constexpr std::int64_t longest_own_row = 15;

template <class T>
bool any_outside_unit(const at::Tensor& scores) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T* data = scores.const_data_ptr<T>();
  const std::int64_t count = scores.numel();
  // Pieces without an early exit vectorize.
  constexpr std::int64_t piece = 4096;
  for (std::int64_t begin = 0; begin < count; begin += piece) {
    const std::int64_t end = std::min(count, begin + piece);
    std::int32_t outside = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto score = static_cast<Number>(data[i]);
      outside |= static_cast<std::int32_t>(score < 0) | static_cast<std::int32_t>(score > 1);
    }
    if (outside != 0) {
      return true;
    }
  }
  return false;
}

template <class T>
void softmax_of_rows(const at::Tensor& logits, const at::Tensor& out) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const std::int64_t size = logits.size(1);
  const T* from = logits.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  constexpr std::int64_t scores_per_task = 32768;
  tensors::for_each_range(logits.size(0), scores_per_task / size + 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<Number, longest_own_row> powers;
    for (std::int64_t row = begin; row < end; ++row) {
      const T* scores = from + row * size;
      T* shares = to + row * size;
      auto top = static_cast<Number>(scores[0]);
      for (std::int64_t i = 1; i < size; ++i) {
        top = std::max(top, static_cast<Number>(scores[i]));
      }
      Number sum = 0;
      for (std::int64_t i = 0; i < size; ++i) {
        const Number power = std::exp(static_cast<Number>(scores[i]) - top);
        powers[static_cast<std::size_t>(i)] = power;
        sum += power;
      }
      for (std::int64_t i = 0; i < size; ++i) {
        shares[i] = static_cast<T>(powers[static_cast<std::size_t>(i)] / sum);
      }
    }
  });
}

template <class T>
void sigmoid_of_each(const at::Tensor& logits, const at::Tensor& out) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T* from = logits.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  constexpr std::int64_t block = 4096;
  const std::int64_t count = logits.numel();
  tensors::for_each_range((count + block - 1) / block, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * block; i < std::min(count, end * block); ++i) {
      to[i] = static_cast<T>(1 / (1 + std::exp(-static_cast<Number>(from[i]))));
    }
  });
}

bool any_outside_unit(const at::Tensor& scores) {
  const at::Tensor data = tensors::raw(scores);
  switch (data.scalar_type()) {
    case at::kFloat:
      return any_outside_unit<float>(data);
    case at::kDouble:
      return any_outside_unit<double>(data);
    case at::kBFloat16:
      return any_outside_unit<c10::BFloat16>(data);
    case at::kHalf:
      return any_outside_unit<c10::Half>(data);
    case at::kBool:
      return false;
    default:
      return any_outside_unit<double>(data.to(at::kDouble));
  }
}

at::Tensor host_softmax(const at::Tensor& logits) {
  if (logits.size(1) > longest_own_row) {
    return at::softmax(logits, 1);
  }
  const at::Tensor rows = tensors::raw(logits);
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

// LibTorch's sigmoid may return different float32 values (by one unit in the last place) for equal logits at different
// positions, so equal scores would rank differently.
at::Tensor host_sigmoid(const at::Tensor& scores) {
  const at::Tensor logits = tensors::raw(scores);
  at::Tensor out = at::detail::empty_cpu(logits.sizes(), logits.scalar_type());
  switch (logits.scalar_type()) {
    case at::kFloat:
      sigmoid_of_each<float>(logits, out);
      break;
    case at::kDouble:
      sigmoid_of_each<double>(logits, out);
      break;
    case at::kBFloat16:
      sigmoid_of_each<c10::BFloat16>(logits, out);
      break;
    case at::kHalf:
      sigmoid_of_each<c10::Half>(logits, out);
      break;
    default:
      return logits.sigmoid();
  }
  return out;
}

[[noreturn]] void refuse_scores(const at::Tensor& scores, const char* where) {
  const at::Tensor flat = tensors::raw(scores.to(at::kDouble)).view(-1);
  const double* data = flat.const_data_ptr<double>();
  const double* found = std::find_if(data, data + flat.numel(), [](double score) { return score < 0 || score > 1; });
  fail<MetricError>(where, "expected probabilities from 0 to 1, got ", *found, " at position ", found - data);
}

at::Tensor as_floating(const at::Tensor& scores) {
  return at::isFloatingType(scores.scalar_type()) ? scores : scores.to(at::kFloat);
}

}  // namespace

at::Tensor probabilities_on_host(const at::Tensor& scores, Activation activation, Scores kind, const char* where) {
  if (scores.scalar_type() == at::kBool || (kind != Scores::logits && !any_outside_unit(scores))) {
    return scores;
  }
  if (kind == Scores::probabilities) {
    refuse_scores(scores, where);
  }
  const at::Tensor logits = as_floating(scores);
  return activation == Activation::sigmoid ? host_sigmoid(logits) : host_softmax(logits);
}

at::Tensor probabilities_on_device(const at::Tensor& scores, const at::Tensor& counted, Activation activation,
                                   Scores kind) {
  if (scores.scalar_type() == at::kBool || scores.numel() == 0) {
    return scores;
  }
  if (kind == Scores::probabilities) {
    return scores.clamp(0, 1);
  }
  const at::Tensor logits = as_floating(scores);
  const at::Tensor probabilities = activation == Activation::sigmoid ? logits.sigmoid() : at::softmax(logits, -1);
  if (kind == Scores::logits) {
    return probabilities;
  }
  at::Tensor outside = scores.lt(0).bitwise_or_(scores.gt(1));
  if (counted.defined()) {
    outside.bitwise_and_(scores.dim() > 1 ? counted.unsqueeze(-1) : counted);
  }
  return at::where(outside.any(), probabilities, scores.to(probabilities.scalar_type()));
}

}  // namespace danling::inline v0::metrics::detail
