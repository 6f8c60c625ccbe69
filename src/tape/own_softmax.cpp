// log_softmax over few classes: exponentials of the whole batch at once, sums in LibTorch's order.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>

#include <tape/kernels/kernels.hpp>
#include <tape/own.hpp>

namespace danling::inline v0::tape {
namespace own {
namespace {

constexpr std::int64_t max_classes = 128;
constexpr std::int64_t max_elements = 16384;
constexpr std::size_t max_width = 16;

/// Sums in the order of LibTorch's vectors: sequentially if shorter than a vector, else per lane, then by halving the
/// lanes.
float sum(const float* x, std::int64_t n, std::int64_t width) {
  if (n < width) {
    float out = x[0];
    for (std::int64_t i = 1; i < n; ++i) {
      out += x[i];
    }
    return out;
  }
  std::array<float, max_width> lanes;
  std::copy(x, x + width, lanes.begin());
  for (std::int64_t i = width; i < n; ++i) {
    lanes[static_cast<std::size_t>(i % width)] += x[i];
  }
  for (auto half = static_cast<std::size_t>(width) / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      lanes[i] += lanes[i + half];
    }
  }
  return lanes[0];
}

struct Rows {
  std::int64_t count, classes;
};

void forward(const float* x, float* out, std::vector<float>& scratch, Rows rows) {
  const auto width = kernels().width;
  scratch.resize(static_cast<std::size_t>(rows.count * (rows.classes + 2)));
  float* const exps = scratch.data();
  float* const most = exps + rows.count * rows.classes;
  float* const sums = most + rows.count;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const float* const row = x + r * rows.classes;
    float largest = row[0];
    for (std::int64_t c = 1; c < rows.classes; ++c) {
      largest = row[c] > largest || row[c] != row[c] ? row[c] : largest;
    }
    most[r] = largest;
    for (std::int64_t c = 0; c < rows.classes; ++c) {
      exps[r * rows.classes + c] = row[c] - largest;
    }
  }
  kernels().exp(exps, exps, rows.count * rows.classes);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    sums[r] = sum(exps + r * rows.classes, rows.classes, width);
  }
  kernels().log(sums, sums, rows.count);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    for (std::int64_t c = 0; c < rows.classes; ++c) {
      const std::int64_t i = r * rows.classes + c;
      out[i] = x[i] - most[r] - sums[r];
    }
  }
}

void backward(const float* gradient, const float* y, float* out, std::vector<float>& scratch, Rows rows, bool fused) {
  const auto width = kernels().width;
  scratch.resize(static_cast<std::size_t>(rows.count * rows.classes));
  kernels().exp(y, scratch.data(), rows.count * rows.classes);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const float total = sum(gradient + r * rows.classes, rows.classes, width);
    for (std::int64_t c = 0; c < rows.classes; ++c) {
      const auto i = static_cast<std::size_t>(r * rows.classes + c);
      out[i] = fused ? std::fma(-scratch[i], total, gradient[i]) : gradient[i] - scratch[i] * total;
    }
  }
}

/// Returns the rows of the last dimension; no rows if the kernel does not support the tensor.
Rows rows_of(const at::Tensor& x, std::int64_t dim) {
  const bool fits = x.defined() && x.is_cpu() && x.scalar_type() == at::kFloat && x.dim() > 0 && x.is_contiguous() &&
                    (dim == x.dim() - 1 || dim == -1) && x.numel() > 0 && x.numel() <= max_elements &&
                    x.size(-1) <= max_classes && kernels().width > 1;
  return fits ? Rows{x.numel() / x.size(-1), x.size(-1)} : Rows{0, 0};
}

bool has_math() { return kernels().has_math != nullptr && kernels().has_math(); }

/// Test input: logits of different magnitudes.
at::Tensor example(const at::Tensor& like, std::uint64_t seed) {
  at::Tensor out = at::randn(like.sizes(), at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kFloat));
  float* const x = floats(out);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    x[i] *= static_cast<float>(1 + i % 13);
  }
  return out;
}

}  // namespace

Kernel log_softmax(const BoundCall& b) {
  const at::Tensor& x = b.argument(0);
  const Rows rows = rows_of(x, b.number(1).toInt());
  if (rows.count == 0 || b.number(2).toBool() || !has_math()) {
    return {};
  }
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  std::vector<float> scratch;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const at::Tensor given = example(x, seed);
    const at::Tensor ours = at::empty_like(given);
    forward(floats(given), floats(ours), scratch, rows);
    if (!same_bits(ours, at::_log_softmax(given, -1, false))) {
      return {};
    }
  }
  return [x, out = b.result(), rows, scratch = std::move(scratch)]() mutable {
    forward(floats(x), floats(out), scratch, rows);
  };
}

Kernel log_softmax_backward(const BoundCall& b) {
  const at::Tensor &gradient = b.argument(0), &y = b.argument(1);
  const Rows rows = rows_of(y, b.number(2).toInt());
  if (rows.count == 0 || rows_of(gradient, -1).count != rows.count || b.number(3).toScalarType() != at::kFloat ||
      !has_math()) {
    return {};
  }
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  std::vector<float> scratch;
  for (const bool fused : {true, false}) {
    bool alike = true;
    for (std::uint64_t seed = 1; seed <= 3 && alike; ++seed) {
      const at::Tensor result = at::_log_softmax(example(y, seed), -1, false);
      const at::Tensor given = example(y, seed + 10);
      const at::Tensor ours = at::empty_like(given);
      backward(floats(given), floats(result), floats(ours), scratch, rows, fused);
      alike = same_bits(ours, at::_log_softmax_backward_data(given, result, -1, at::kFloat));
    }
    if (alike) {
      return [gradient, y, out = b.result(), rows, fused, scratch = std::move(scratch)]() mutable {
        backward(floats(gradient), floats(y), floats(out), scratch, rows, fused);
      };
    }
  }
  return {};
}

}  // namespace own
}  // namespace danling::inline v0::tape
