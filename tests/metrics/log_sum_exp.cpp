// The sums of perplexity, against the same arithmetic without vectors.
#include <metrics/functional/log_sum_exp.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>

#include <support/catch.hpp>

namespace log_sum_exp_tests {

// Cephes' expf (netlib.org/cephes) of a score that is at most 0. Each product is rounded: no instruction fuses it into
// a sum on x86-64 without -march.
float exp_of(float x) {
  x = std::max(x, -87.0F);
  const float shifted = x * 1.44269504088896341F + 0x1.8p23F;
  const float n = shifted - 0x1.8p23F;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  for (const float c : {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F}) {
    p = p * r + c;
  }
  return std::ldexp(p * r * r + r + 1.0F, static_cast<int>(n));
}

TEMPLATE_TEST_CASE("log_sum_exp: this CPU's vectors give the bits of single numbers in 32 columns", "[metrics]", float,
                   c10::BFloat16) {
  for (const std::int64_t n : {1, 31, 32, 500, 2048, 5003}) {
    const at::Tensor row = at::randn({n}).mul(8).to(c10::CppTypeToScalarType<TestType>::value);
    const TestType* const given = row.const_data_ptr<TestType>();
    const std::vector<float> single(given, given + n);
    const float* const scores = single.data();
    const float highest = *std::max_element(scores, scores + n);
    double sum = 0.0;
    // Blocks of 2048 scores are added in float32; the last, incomplete line of columns is a block of its own.
    const std::int64_t whole = n / 32 * 32;
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      float columns[32] = {};
      for (std::int64_t i = begin; i < end; ++i) {
        columns[i % 32] += exp_of((i < n ? scores[i] : -INFINITY) - highest);
      }
      for (const float column : columns) {
        sum += static_cast<double>(column);
      }
    };
    for (std::int64_t begin = 0; begin < whole; begin += 2048) {
      add(begin, std::min(whole, begin + 2048));
    }
    add(whole, whole + 32);
    const auto got = danling::metrics::detail::log_sum_exp(given, n);
    CAPTURE(n);
    CHECK(got.highest == static_cast<double>(highest));
    CHECK(std::bit_cast<std::uint64_t>(got.rest) == std::bit_cast<std::uint64_t>(std::log(sum)));
  }
}

}  // namespace log_sum_exp_tests
