// Computes the FLOPs of operators from input shapes, as torch.profiler does.
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>

#include <formats/trace_events.hpp>

namespace danling::inline v0::formats {
namespace {

using Sizes = std::vector<std::int64_t>;

/// Converts to an integer; returns -1 for a number that no call can have, as in a damaged file.
std::int64_t whole(double flops) { return flops >= 0.0 && flops < 9e15 ? static_cast<std::int64_t>(flops) : -1; }

double as_double(std::int64_t value) { return static_cast<double>(value); }

double product(const Sizes& sizes) {
  return std::transform_reduce(sizes.begin(), sizes.end(), 1.0, std::multiplies<>(), as_double);
}

/// Parses `[1, 2]`, or `3`, which stands for both numbers.
bool read_pair(const std::string& text, std::array<std::int64_t, 2>& out) {
  std::size_t count = 0;
  for (const char *at = text.data(), *const end = at + text.size(); at < end && count < 2;) {
    const auto [next, error] = std::from_chars(at, end, out.at(count));
    count += error == std::errc() ? 1 : 0;
    at = error == std::errc() ? next : at + 1;
  }
  if (count == 1) {
    out[1] = out[0];
  }
  return count > 0;
}

std::int64_t matrix_product(const Sizes& a, const Sizes& b) {
  return a.size() == 2 && b.size() == 2 ? whole(2 * product(a) * as_double(b[1])) : -1;
}

std::int64_t batched_product(const Sizes& a, const Sizes& b) {
  return a.size() == 3 && b.size() == 3 ? whole(2 * product(a) * as_double(b[2])) : -1;
}

std::int64_t convolution(const Sizes& input, const Sizes& weight, const std::vector<std::string>& values) {
  std::array<std::int64_t, 2> stride{}, padding{}, dilation{}, groups{};
  if (input.size() != 4 || weight.size() != 4 || values.size() < 7 || !read_pair(values[3], stride) ||
      !read_pair(values[4], padding) || !read_pair(values[5], dilation) || !read_pair(values[6], groups) ||
      stride[0] <= 0 || stride[1] <= 0 || groups[0] <= 0) {
    return -1;
  }
  double places = 1.0;
  for (std::size_t i = 0; i < 2; ++i) {
    const double reach = as_double(dilation[i]) * (as_double(weight[2 + i]) - 1);
    places *= std::floor((as_double(input[2 + i]) + 2 * as_double(padding[i]) - reach - 1) / as_double(stride[i])) + 1;
  }
  return whole(2 * as_double(input[0]) * places * as_double(weight[2]) * as_double(weight[3]) * as_double(input[1]) *
               as_double(weight[0]) / as_double(groups[0]));
}

}  // namespace

std::int64_t trace_flops(std::string_view name, const std::vector<Sizes>& sizes,
                         const std::vector<std::string>& values) {
  if (!name.starts_with("aten::") || sizes.size() < 2) {
    return -1;
  }
  name.remove_prefix(6);
  if (name == "mm") return matrix_product(sizes[0], sizes[1]);
  if (name == "addmm") return sizes.size() > 2 ? matrix_product(sizes[1], sizes[2]) : -1;
  if (name == "bmm") return batched_product(sizes[0], sizes[1]);
  if (name == "baddbmm") return sizes.size() > 2 ? batched_product(sizes[1], sizes[2]) : -1;
  if (name == "mul" || name == "add") return whole(product(sizes[0]));
  return name == "conv2d" ? convolution(sizes[0], sizes[1], values) : -1;
}

}  // namespace danling::inline v0::formats
