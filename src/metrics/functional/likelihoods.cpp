#include <metrics/functional/likelihoods.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <metrics/functional/vectors.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

[[gnu::always_inline]] inline void load_floats(const float* from, Floats& to) { std::memcpy(&to, from, sizeof(to)); }
[[gnu::always_inline]] inline void load_floats(const c10::BFloat16* from, Floats& to) {
  std::uint16_t __attribute__((vector_size(32))) halves;
  std::memcpy(&halves, from, sizeof(halves));
  const Ints bits = __builtin_convertvector(halves, Ints) << 16;
  std::memcpy(&to, &bits, sizeof(to));
}

// e^x for x of at most 0, to two units in the last place; below 2^-126 about 0. Rounds x / ln 2 by adding a number
// whose last bit is 1, and takes the polynomial of Cephes' expf.
[[gnu::always_inline]] inline void exp_of(Floats& x) {
  constexpr float lowest = -87.3F;
  const Floats least = Floats{} + lowest;
  x = x < least ? least : x;
  const Floats shifted = x * 1.44269504F + 12582912.0F;
  const Floats power = shifted - 12582912.0F;
  const Floats r = (x - power * 0.693359375F) - power * -2.12194440e-4F;
  Floats y = r * 1.9875691500e-4F + 1.3981999507e-3F;
  y = y * r + 8.3334519073e-3F;
  y = y * r + 4.1665795894e-2F;
  y = y * r + 1.6666665459e-1F;
  y = y * r + 5.0000001201e-1F;
  y = y * (r * r) + r + 1.0F;
  Ints bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << 23) + (127 << 23);
  Floats scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  x = y * scale;
}

template <class T>
[[gnu::always_inline]] inline void highest_of(const T* row, std::int64_t size, float& highest) {
  const std::int64_t whole = size - size % num_floats;
  highest = static_cast<float>(row[0]);
  if (whole > 0) {
    Floats most;
    load_floats(row, most);
    for (std::int64_t i = num_floats; i < whole; i += num_floats) {
      Floats scores;
      load_floats(row + i, scores);
      most = scores > most ? scores : most;
    }
    for (std::int64_t lane = 0; lane < num_floats; ++lane) {
      highest = std::max(highest, most[lane]);
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    highest = std::max(highest, static_cast<float>(row[i]));
  }
}

// The sum of e^(score - highest).
template <class T>
[[gnu::always_inline]] inline void exp_sum_of(const T* row, std::int64_t size, float highest, double& sum) {
  // So few are added up in float32 that rounding stays below that of the terms.
  constexpr std::int64_t chunk = 32 * num_floats;
  const std::int64_t whole = size - size % num_floats;
  sum = 0.0;
  for (std::int64_t begin = 0; begin < whole; begin += chunk) {
    Floats sums = {};
    for (std::int64_t i = begin; i < std::min(whole, begin + chunk); i += num_floats) {
      Floats scores;
      load_floats(row + i, scores);
      scores -= highest;
      exp_of(scores);
      sums += scores;
    }
    for (std::int64_t lane = 0; lane < num_floats; ++lane) {
      sum += static_cast<double>(sums[lane]);
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    sum += std::exp(static_cast<double>(static_cast<float>(row[i])) - static_cast<double>(highest));
  }
}

double plain_exp_sum(const double* row, std::int64_t size, double shift) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    sum += std::exp(row[i] - shift);
  }
  return sum;
}

// -log p of the target. What is large, the highest score and the target's, is subtracted before it meets what is small.
double loss_of(double highest, double exp_sum, double own) { return std::log(exp_sum) + (highest - own); }

double loss_of_row(const double* row, std::int64_t size, std::int64_t label) {
  const double highest = *std::max_element(row, row + size);
  const double shift = std::isfinite(highest) ? highest : 0.0;
  return loss_of(shift, plain_exp_sum(row, size, shift), row[label]);
}

template <class T>
double loss_of_row(const T* row, std::int64_t size, std::int64_t label) {
  float highest = 0.0F;
  double sum = 0.0;
  run_vectors([&]() __attribute__((always_inline)) {
    highest_of(row, size, highest);
    exp_sum_of(row, size, highest, sum);
  });
  if (!std::isfinite(highest)) [[unlikely]] {
    sum = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
      sum += std::exp(static_cast<double>(static_cast<float>(row[i])));
    }
    highest = 0.0F;
  }
  return loss_of(static_cast<double>(highest), sum, static_cast<double>(static_cast<float>(row[label])));
}

template <class T>
at::Tensor likelihoods(const at::Tensor& rows, const at::Tensor& labels, std::optional<std::int64_t> ignore_index) {
  const T* data = rows.const_data_ptr<T>();
  const auto* label = labels.const_data_ptr<std::int64_t>();
  const std::int64_t vocabulary = rows.size(1);
  std::vector<double> losses(static_cast<std::size_t>(rows.size(0)));
  constexpr std::int64_t grain_size = 32768;
  at::parallel_for(0, rows.size(0), std::max<std::int64_t>(1, grain_size / vocabulary),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) {
                       if (ignore_index != label[i]) {
                         losses[static_cast<std::size_t>(i)] = loss_of_row(data + i * vocabulary, vocabulary, label[i]);
                       }
                     }
                   });
  at::Tensor out = at::zeros({2}, at::kDouble);
  auto* sums = out.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    sums[0] += losses[static_cast<std::size_t>(i)];
    sums[1] += ignore_index != label[i] ? 1.0 : 0.0;
  }
  return out;
}

}  // namespace

at::Tensor likelihoods_on_host(const at::Tensor& rows, const at::Tensor& labels,
                               std::optional<std::int64_t> ignore_index) {
  switch (rows.scalar_type()) {
    case at::kBFloat16:
      return likelihoods<c10::BFloat16>(rows.contiguous(), labels, ignore_index);
    case at::kFloat:
      return likelihoods<float>(rows.contiguous(), labels, ignore_index);
    case at::kHalf: {
      // Block by block, since a copy of all would need twice the memory again.
      const std::int64_t block = std::max<std::int64_t>(1, (std::int64_t{1} << 16) / rows.size(1));
      at::Tensor out = at::zeros({2}, at::kDouble);
      for (std::int64_t begin = 0; begin < rows.size(0); begin += block) {
        const std::int64_t length = std::min(block, rows.size(0) - begin);
        out.add_(likelihoods<float>(rows.narrow(0, begin, length).to(at::kFloat).contiguous(),
                                    labels.narrow(0, begin, length), ignore_index));
      }
      return out;
    }
    default:
      return likelihoods<double>(rows.to(at::kDouble).contiguous(), labels, ignore_index);
  }
}

}  // namespace danling::inline v0::metrics::detail
