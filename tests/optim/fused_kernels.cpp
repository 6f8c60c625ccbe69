// The fused kernels against unfused updates, over dtypes, sizes, strides and options: what a new LibTorch must pass.
// ctest runs this under several instruction sets of the CPU.
#include <optim/fused_kernels.hpp>

#include <functional>
#include <memory>
#include <numeric>
#include <string_view>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/version.h>

#include <danling/optim/adam.hpp>
#include <danling/optim/sgd.hpp>

#include <optim/golden.hpp>

namespace {

namespace optim = danling::optim;
using optim::detail::FusedKernel;

constexpr at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

/// 0 to 70 elements, then large sizes, odd and even.
std::vector<std::int64_t> all_sizes() {
  std::vector<std::int64_t> sizes(71);
  std::iota(sizes.begin(), sizes.end(), 0);
  sizes.insert(sizes.end(), {127, 255, 999, 1000, 4097});
  return sizes;
}

TEST_CASE("fused kernels: a comparison with exact updates finds those of LibTorch that are wrong", "[optim][fused]") {
  for (const FusedKernel kernel : {FusedKernel::sgd, FusedKernel::adam, FusedKernel::adamw}) {
    for (const at::ScalarType dtype : dtypes) {
      CAPTURE(static_cast<int>(kernel), c10::toString(dtype));
      const bool right = optim::detail::compare_fused(kernel, at::kCPU, dtype, all_sizes());
      if (std::string_view(TORCH_VERSION) == "2.13.0") {
        // The SGD of LibTorch 2.13.0 updates only the last elements of two-byte parameters.
        CHECK(right == (kernel != FusedKernel::sgd || c10::elementSize(dtype) != 2));
      }
      // The fewer sizes that a program tries on its device give the same answer.
      CHECK(optim::detail::compare_fused(kernel, at::kCPU, dtype, optim::detail::brief_sizes) == right);
      CHECK_FALSE(optim::detail::is_usable(kernel, at::kCPU, dtype));  // danling's own kernels run there
    }
    CHECK_FALSE(optim::detail::is_usable(kernel, at::Device(at::kMeta), at::kFloat));
  }
}

// LibTorch's kernel of Adam adds the decay to the gradient.
TEST_CASE("Adam with decoupled weight decay is AdamW, on the host and by the kernel that runs on a device",
          "[optim][fused]") {
  const optim::OptimizerOptions decoupled = {.lr = 0.1, .weight_decay = 0.3, .decoupled_weight_decay = true};
  const optim::OptimizerOptions plain = {.lr = 0.1, .weight_decay = 0.3};
  const auto moved = [](auto&& make, const optim::OptimizerOptions& options) {
    const at::Tensor param = at::arange(1, 8, at::kDouble).set_requires_grad(true);
    const auto optimizer = make({param}, options);
    for (int step = 1; step <= 3; ++step) {
      param.mutable_grad() = at::arange(7, at::kDouble) / step;
      optimizer->step();
    }
    return param.detach().clone();
  };
  const auto adam = [](std::vector<at::Tensor> params, const optim::OptimizerOptions& options) {
    return optim::adam(std::move(params), options);
  };
  const auto adamw = [](std::vector<at::Tensor> params, const optim::OptimizerOptions& options) {
    return optim::adamw(std::move(params), options);
  };
  CHECK(moved(adam, decoupled).equal(moved(adamw, plain)));
  CHECK_FALSE(moved(adam, plain).equal(moved(adamw, plain)));
  optim::OptimizerOptions options = optim::Adam::defaults();
  CHECK(optim::detail::kernel_for(FusedKernel::adam, options) == FusedKernel::adam);
  options.decoupled_weight_decay = true;
  CHECK(optim::detail::kernel_for(FusedKernel::adam, options) == FusedKernel::adamw);
  CHECK(optim::detail::kernel_for(FusedKernel::sgd, optim::SGD::defaults()) == FusedKernel::sgd);
}

TEST_CASE("SGD: a step of ones by a gradient of ones takes the learning rate off, in any dtype and size",
          "[optim][fused]") {
  for (const at::ScalarType dtype : dtypes) {
    for (const std::int64_t size : all_sizes()) {
      for (const double momentum : {0.0, 0.5}) {
        CAPTURE(c10::toString(dtype), size, momentum);
        const at::Tensor param = at::ones({size}, dtype).set_requires_grad(true);
        const auto optimizer = optim::sgd({param}, {.lr = 0.5, .momentum = momentum});
        param.mutable_grad() = at::ones({size}, dtype);
        optimizer->step();
        CHECK(param.detach().eq(0.5).all().item().toBool());
        optimizer->step();
        CHECK(param.detach().eq(momentum == 0 ? 0 : -0.25).all().item().toBool());
      }
    }
  }
}

using Make = std::function<std::shared_ptr<optim::Optimizer>(const at::Tensor& param, bool fused)>;

/// Optimizers with each combination of their options.
std::vector<std::pair<std::string, Make>> all_options() {
  std::vector<std::pair<std::string, Make>> out;
  for (int bits = 0; bits < 4; ++bits) {
    const double decay = (bits & 1) != 0 ? 0.1 : 0;
    const bool maximize = (bits & 2) != 0;
    const std::string rest = decay > 0 ? " decay" : "";
    const auto add = [&](std::string name, Make make) {
      out.emplace_back(name + rest + (maximize ? " maximize" : ""), std::move(make));
    };
    for (int kind = 0; kind < 4; ++kind) {
      add("sgd " + std::to_string(kind), [=](const at::Tensor& param, bool fused) {
        return optim::sgd({param}, {.lr = 0.25,
                                    .momentum = kind > 0 ? 0.9 : 0,
                                    .dampening = kind == 2 ? 0.3 : 0,
                                    .weight_decay = decay,
                                    .nesterov = kind == 3,
                                    .maximize = maximize,
                                    .fused = fused});
      });
    }
    for (const bool amsgrad : {false, true}) {
      add(amsgrad ? "adam amsgrad" : "adam", [=](const at::Tensor& param, bool fused) {
        return optim::adam(
            {param},
            {.lr = 0.25, .eps = 1e-3, .weight_decay = decay, .amsgrad = amsgrad, .maximize = maximize, .fused = fused});
      });
      add(amsgrad ? "adamw amsgrad" : "adamw", [=](const at::Tensor& param, bool fused) {
        return optim::adamw(
            {param},
            {.lr = 0.25, .eps = 1e-3, .weight_decay = decay, .amsgrad = amsgrad, .maximize = maximize, .fused = fused});
      });
    }
  }
  return out;
}

at::Tensor numbers(at::IntArrayRef shape, double phase) {
  return at::arange(c10::multiply_integers(shape), at::kDouble).mul_(1.7).add_(phase).sin_().view(shape);
}

/// The same numbers in another layout: 0 contiguous, 1 transposed, 2 with gaps, 3 beside the start of the storage.
at::Tensor laid_out(const at::Tensor& values, int layout, at::ScalarType dtype) {
  const std::int64_t rows = values.size(0);
  const std::int64_t columns = values.size(1);
  at::Tensor out = at::zeros({rows * columns}, dtype).view({rows, columns});
  if (layout == 1) {
    out = at::zeros({columns, rows}, dtype).t();
  } else if (layout == 2) {
    out = at::zeros({rows, columns + 3}, dtype).narrow(1, 1, columns);
  } else if (layout == 3) {
    out = at::zeros({rows * columns + 1}, dtype).narrow(0, 1, rows * columns).view({rows, columns});
  }
  return out.copy_(values);
}

TEST_CASE("Optimizer: any dtype, size, layout and option gives the updates of float64", "[optim][fused]") {
  // Three updates, each rounded to the dtype up to five times.
  const auto tolerance = [](at::ScalarType dtype) {
    return dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 4e-6 : dtype == at::kHalf ? 2e-2 : 8e-2;
  };
  for (const auto& [name, make] : all_options()) {
    for (const at::ScalarType dtype : dtypes) {
      for (const std::vector<std::int64_t>& shape :
           {std::vector<std::int64_t>{1, 1}, {3, 5}, {4, 8}, {3, 11}, {7, 10}, {27, 37}}) {
        for (const int layout : {0, 1, 2, 3}) {
          for (const double divisor : {1.0, 4.0}) {
            CAPTURE(name, c10::toString(dtype), shape, layout, divisor);
            const auto start = numbers(shape, 0.1).to(dtype);
            const auto param = laid_out(start, layout, dtype).set_requires_grad(true);
            const auto exact = start.to(at::kDouble).set_requires_grad(true);
            const auto optimizer = make(param, true);
            const auto reference = make(exact, false);
            for (int step = 0; step < 3; ++step) {
              // Values away from zero, where the last bit decides the sign of Adam's update; layouts alternate.
              const auto grad = numbers(shape, 0.7 * step).sign_().mul_(0.5).add_(numbers(shape, 0.3), 0.25).to(dtype);
              param.mutable_grad() = laid_out(grad.mul(divisor), step == 1 ? 0 : layout, dtype);
              exact.mutable_grad() = grad.to(at::kDouble);
              optimizer->step(divisor);
              reference->step();
            }
            CHECK(at::allclose(param.detach().to(at::kDouble), exact.detach(), tolerance(dtype), tolerance(dtype)));
          }
        }
      }
    }
  }
}

TEST_CASE("Optimizer: scalars and parameters without elements, in any dtype", "[optim][fused]") {
  for (const auto& [name, make] : all_options()) {
    for (const at::ScalarType dtype : dtypes) {
      CAPTURE(name, c10::toString(dtype));
      const auto scalar = at::full({}, 2.0, dtype).set_requires_grad(true);
      const auto vector = at::full({1}, 2.0, dtype).set_requires_grad(true);
      const auto nothing = at::ones({0, 3}, dtype).set_requires_grad(true);
      for (const auto& param : {scalar, vector, nothing}) {
        const auto optimizer = make(param, true);
        param.mutable_grad() = at::full(param.sizes(), 0.5, dtype);
        optimizer->step();
        optimizer->step(2);
      }
      CHECK(scalar.item().toDouble() == Approx(vector.item().toDouble()).epsilon(1e-2));
      CHECK(scalar.item().toDouble() != 2.0);
    }
  }
}

}  // namespace
