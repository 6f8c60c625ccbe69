// The kernels of the update rules and sums of squares, over instruction sets: the same bits, LibTorch's conversions.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <optim/rules/kernels.hpp>
#include <optim/spans.hpp>

#include <support/catch.hpp>

#include "waves.hpp"

namespace update_rules {
namespace {

namespace optim = danling::optim;
namespace rules = danling::optim::rules;

bool is_supported(const rules::Kernels& kernels) {
#if defined(__x86_64__)
  const std::string name = kernels.name;
  if (name == "avx2") {
    return __builtin_cpu_supports("avx2") != 0;
  }
  if (name == "avx512") {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  }
#endif
  return std::string(kernels.name) == "baseline";
}

TEST_CASE("Update rules: every instruction set gives the same bits", "[optim]") {
  // The constants of all rules lie between 0 and 2, so one row of them serves each rule.
  const double constants[] = {1, 0.01, 0.1, 0.9, 0.5, 0.25, 0.75, 1.5, 0.3, 0.6, 1, 0};
  struct Case {
    rules::Type param, grad, state;
    bool master;
    std::uint32_t rounding;
  };
  using T = rules::Type;
  const Case cases[] = {
      {T::float32, T::float32, T::float32, false, 0},     {T::float64, T::float64, T::float64, false, 0},
      {T::bfloat16, T::bfloat16, T::bfloat16, false, 0},  {T::float16, T::float16, T::float16, false, 0},
      {T::bfloat16, T::bfloat16, T::float32, true, 0},    {T::float16, T::float16, T::float32, true, 0},
      {T::bfloat16, T::bfloat16, T::bfloat16, false, 77}, {T::float32, T::bfloat16, T::float32, false, 0}};
  const auto dtype_of = [](T type) {
    return type == T::float32    ? at::kFloat
           : type == T::float64  ? at::kDouble
           : type == T::bfloat16 ? at::kBFloat16
                                 : at::kHalf;
  };
  for (std::size_t kernel = 0; kernel < rules::kernel_count; ++kernel) {
    for (const Case& c : cases) {
      CAPTURE(kernel, static_cast<int>(c.param), c.master, c.rounding);
      std::vector<std::vector<at::Tensor>> results;
      for (const rules::Kernels* set : {&rules::baseline_kernels, &rules::avx2_kernels, &rules::avx512_kernels}) {
        if (!is_supported(*set)) {
          continue;
        }
        constexpr std::int64_t size = 1237;
        std::vector<at::Tensor> tensors = {waves({size}, 0.1, dtype_of(c.param)), waves({size}, 0.4, dtype_of(c.grad))};
        for (int row = 0; row < 3; ++row) {
          tensors.push_back(waves({size}, 0.7 + row, at::kDouble).abs().add(0.1).to(dtype_of(c.state)));
        }
        tensors.push_back(tensors[0].to(at::kFloat));
        rules::Span span{};
        span.param = tensors[0].mutable_data_ptr();
        span.grad = tensors[1].const_data_ptr();
        for (std::size_t row = 0; row < 3; ++row) {
          span.state[row] = tensors[2 + row].mutable_data_ptr();
        }
        span.master = c.master ? tensors[5].mutable_data_ptr<float>() : nullptr;
        span.count = size;
        span.constants = constants;
        span.rounding = c.rounding;
        span.param_type = c.param;
        span.grad_type = c.grad;
        span.state_type = c.state;
        set->update[kernel](span);
        const double squares = set->sum_squares(tensors[1].const_data_ptr(), c.grad, size);
        tensors.push_back(at::full({}, squares, at::kDouble));
        results.push_back(tensors);
      }
      for (std::size_t set = 1; set < results.size(); ++set) {
        for (std::size_t i = 0; i < results[set].size(); ++i) {
          // Compares bytes, since some constants make NaN, which must equal itself.
          const at::Tensor a = results[set][i].contiguous(), b = results[0][i].contiguous();
          CHECK(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
        }
      }
    }
  }
}

TEST_CASE("Update rules: conversions of two-byte numbers are LibTorch's, for every bit pattern and between",
          "[optim]") {
  // An SGD step of rate 0 stores what it loads; one of rate 1 rounds a sum.
  const at::Tensor bits = at::arange(65536, at::kInt).to(at::kShort);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = bits.view(dtype);
    const at::Tensor finite = values.to(at::kFloat).isfinite();
    const at::Tensor chosen = values.masked_select(finite);
    for (const rules::Kernels* set : {&rules::baseline_kernels, &rules::avx2_kernels, &rules::avx512_kernels}) {
      if (!is_supported(*set)) {
        continue;
      }
      CAPTURE(set->name, c10::toString(dtype));
      const at::Tensor param = chosen.clone();
      const at::Tensor grad = chosen.flip({0}).contiguous().to(at::kFloat).mul(0.37);
      const double constants[] = {1, 0, 1};
      rules::Span span{};
      span.param = param.mutable_data_ptr();
      span.grad = grad.const_data_ptr();
      span.count = param.numel();
      span.constants = constants;
      span.param_type = span.state_type = dtype == at::kHalf ? rules::Type::float16 : rules::Type::bfloat16;
      span.grad_type = rules::Type::float32;
      set->update[static_cast<std::size_t>(rules::Kernel::plain_sgd)](span);
      CHECK(at::equal(param, chosen.to(at::kFloat).sub(grad).to(dtype)));
    }
  }
}

TEST_CASE("Update rules: a sum of squares is exact to 1e-13, for numbers of any size", "[optim]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const double size : {1.0, 1e-3, 1e-15, 1e-30, 1e15, 1e30}) {
      CAPTURE(dtype, size);
      if (dtype == at::kHalf && (size > 1 || size < 1e-3)) {
        continue;  // outside of its range
      }
      std::vector<at::Tensor> tensors;
      for (const std::int64_t count : {3, 100'000, 17, 513}) {
        tensors.push_back(waves({count}, 0.3, at::kDouble).mul(size).to(dtype));
      }
      double exact = 0;
      for (const auto& tensor : tensors) {
        exact += tensor.to(at::kDouble).square().sum().item().toDouble();
      }
      CHECK(optim::detail::sum_squares(tensors) == Approx(exact).epsilon(1e-13));
    }
  }
  // One large number among small ones, and the reverse.
  for (const double one : {1e-25, 1e25, 3e38}) {
    const at::Tensor mixed = at::full({2000}, 1e-3, at::kFloat);
    mixed[777] = one;
    const double exact = mixed.to(at::kDouble).square().sum().item().toDouble();
    CHECK(optim::detail::sum_squares({mixed}) == Approx(exact).epsilon(1e-13));
  }
  CHECK(optim::detail::sum_squares({at::zeros({1000})}) == 0);
}

}  // namespace
}  // namespace update_rules
