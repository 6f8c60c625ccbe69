// Parts of batches that update meters, and the values of a meter of all parts by exact arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <danling/metrics/average_meter.hpp>

#include <support/ranks.hpp>

#include "exact_numbers.hpp"

namespace meter_parts_test {

using danling::AverageMeter;
using danling::detail::concat;
using danling_test::expect;
using exact_numbers::Draw;
using exact_numbers::rounded;
using exact_numbers::same;
using exact_numbers::Wide;
using exact_numbers::wide;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// One part of a batch.
struct Part {
  double value;
  std::int64_t n;
};

enum class Feed { numbers, scalars, elements, sums };
constexpr std::array kFeeds = {Feed::numbers, Feed::scalars, Feed::elements, Feed::sums};

inline void feed(AverageMeter& meter, const Part& part, Feed how) {
  switch (how) {
    case Feed::numbers:
      meter.update(part.value, part.n);
      break;
    case Feed::scalars:
      meter.update(at::scalar_tensor(part.value, at::kDouble), part.n);
      break;
    case Feed::elements:
      meter.update(at::tensor({part.value, -part.value}, at::kDouble), part.n);
      break;
    case Feed::sums:
      meter.add(part.value * static_cast<double>(part.n), part.n);
      break;
  }
}

/// Steps of shards with values over wide ranges, some without weight.
inline std::vector<std::vector<Part>> draw_steps(std::uint32_t seed, int steps, int shards) {
  // Multiples of 2^-60 below 2^8; with weights, those products are rounded.
  Draw draw(seed, 8, 8, 53);
  std::vector<std::vector<Part>> out;
  for (int step = 0; step < steps; ++step) {
    auto& parts = out.emplace_back();
    for (int shard = 0; shard < shards; ++shard) {
      parts.push_back({draw(), draw.weight(7)});
    }
  }
  return out;
}

/// The values of a meter that gets all parts, computed with integers.
struct Expected {
  double sum = 0.0;
  double avg = nan;
  double bat = nan;
  std::int64_t count = 0;
  std::int64_t n = 0;
};

inline Expected expected_of(const std::vector<std::vector<Part>>& steps, std::size_t done, Feed how) {
  Expected out;
  Wide sum = 0;
  for (std::size_t step = 0; step < done; ++step) {
    Wide batch = 0;
    int weighted = 0;
    double only = nan;
    out.n = 0;
    for (const Part& part : steps[step]) {
      const auto n = static_cast<double>(part.n);
      sum += wide(part.value * n);
      out.count += part.n;
      if (part.n > 0) {
        const double value = how == Feed::sums ? part.value * n / n : part.value;
        batch += wide(value * n);
        only = value;
        ++weighted;
        out.n += part.n;
      }
    }
    out.bat = weighted == 1 ? only : rounded(batch) / static_cast<double>(out.n);
  }
  out.sum = rounded(sum);
  out.avg = out.sum / static_cast<double>(out.count);
  return out;
}

inline double first_number(const at::Tensor& tensor) { return tensor.flatten()[0].item().toDouble(); }

inline void check_reads(const AverageMeter& meter, const Expected& expected, const std::string& where) {
  const auto number = [&](const char* what, double got, double right) {
    expect(same(got, right), concat(where, ": ", what, " ", right, ", got ", got));
  };
  number("sum", first_number(meter.sum_tensor()), expected.sum);
  number("average", first_number(meter.average_tensor()), expected.avg);
  number("batch", first_number(meter.batch_tensor()), expected.bat);
  expect(meter.count() == expected.count && meter.n() == expected.n, where + ": the weights");
}

}  // namespace meter_parts_test
