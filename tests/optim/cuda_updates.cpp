// Updates, clipping and averages on a GPU against those on the host. Skipped without a GPU.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include <danling/optim/build.hpp>
#include <danling/optim/clip.hpp>
#include <danling/optim/grad_scaler.hpp>

#include <support/cuda.hpp>

namespace cuda_updates_tests {
namespace {

namespace optim = danling::optim;
using danling_test::has_cuda_device;

/// Values between -1 and 1 that no type here rounds to 0.
at::Tensor values_of(at::IntArrayRef shape, double phase) {
  const at::Tensor count = at::arange(c10::multiply_integers(shape), at::kDouble);
  return count.mul(0.7).add_(phase).sin_().reshape(shape);
}

/// A matrix, a transposed one, images with channels last, a vector longer than a thread block, a scalar, and an
/// empty parameter, which kernels over lists may refuse.
std::vector<at::Tensor> make_params(at::Device device, at::ScalarType dtype) {
  std::vector<at::Tensor> out;
  const auto add = [&](const at::Tensor& values) { out.push_back(values.to(device, dtype).set_requires_grad(true)); };
  add(values_of({33, 17}, 0.1));
  add(values_of({8, 12}, 0.2).t());
  add(values_of({4, 3, 5, 5}, 0.3).contiguous(at::MemoryFormat::ChannelsLast));
  add(values_of({70000}, 0.4));
  add(values_of({}, 0.5));
  add(at::empty({0, 3}, at::kDouble));
  return out;
}

void set_gradients(const std::vector<at::Tensor>& params, int step, bool negated) {
  for (std::size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& param = params[i];
    const at::Tensor grad =
        values_of(param.sizes(), 0.3 * step + static_cast<double>(i)).to(param.options().requires_grad(false));
    param.mutable_grad() = negated ? at::_neg_view(-grad) : grad;
  }
}

double tolerance_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-10;
    case at::kFloat:
      return 2e-5;
    case at::kHalf:
      return 0x1p-7;
    default:
      return 0x1p-4;  // bfloat16 has eight bits, and each of three steps rounds
  }
}

void check_near(const std::vector<at::Tensor>& device, const std::vector<at::Tensor>& host, double tolerance) {
  for (std::size_t i = 0; i < host.size(); ++i) {
    CAPTURE(i);
    CHECK(device[i].is_cuda());
    CHECK(device[i].strides() == host[i].strides());
    if (host[i].numel() > 0) {
      const at::Tensor difference = device[i].detach().to(at::kCPU, at::kDouble) - host[i].detach().to(at::kDouble);
      CHECK(difference.abs().max().item<double>() <= tolerance);
    }
  }
}

void check_updates(const std::string& type, at::ScalarType dtype, bool fused, bool negated,
                   optim::OptimizerOptions options = {}) {
  CAPTURE(type, dtype, fused, negated);
  const auto trained = [&](at::Device device) {
    const auto params = make_params(device, dtype);
    std::vector<std::pair<std::string, at::Tensor>> named;
    for (std::size_t i = 0; i < params.size(); ++i) {
      named.emplace_back("w" + std::to_string(i), params[i]);
    }
    options.lr = 0.0625;
    options.fused = fused;
    const auto optimizer = optim::build_optimizer({type, options}, named);
    for (int step = 0; step < 3; ++step) {
      set_gradients(params, step, negated);
      optimizer->step();
    }
    return params;
  };
  check_near(trained(at::kCUDA), trained(at::kCPU), tolerance_of(dtype));
}

TEST_CASE("optimizers on a GPU: parameters of all shapes and types move as on the host", "[optim][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  for (const std::string type : {"sgd", "adam", "adamw", "asgd", "adadelta", "adagrad", "adamax", "nadam", "radam",
                                 "rprop", "rmsprop", "lion", "adafactor", "lamb"}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      for (const bool fused : {true, false}) {
        check_updates(type, dtype, fused, /*negated=*/false);
      }
    }
    check_updates(type, at::kFloat, /*fused=*/true, /*negated=*/true);
    if (type != "rprop") {
      check_updates(type, at::kFloat, /*fused=*/true, /*negated=*/false, {.weight_decay = 0.5});
    }
  }
  check_updates("adam", at::kFloat, /*fused=*/true, /*negated=*/false,
                {.weight_decay = 0.5, .decoupled_weight_decay = true});
}

TEST_CASE("muon on a GPU: matrices move as on the host, up to the rounding of its bfloat16 products", "[optim][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  const auto trained = [](at::Device device) {
    const at::Tensor param = values_of({24, 16}, 0.1).to(device, at::kFloat).set_requires_grad(true);
    const auto optimizer = optim::build_optimizer({"muon", {.lr = 0.0625}}, {{"layer.weight", param}});
    for (int step = 0; step < 3; ++step) {
      set_gradients({param}, step, false);
      optimizer->step();
    }
    return std::vector{param};
  };
  check_near(trained(at::kCUDA), trained(at::kCPU), 0.01);  // of a movement of up to 0.19
}

TEST_CASE("clip_grad_norm, clip_grad_value, nonfinite_flag on a GPU: as on the host", "[optim][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const bool negated : {false, true}) {
      CAPTURE(dtype, negated);
      const double tolerance = tolerance_of(dtype);
      const auto clipped = [&](at::Device device) {
        const auto params = make_params(device, dtype);
        set_gradients(params, 1, negated);
        CHECK(optim::nonfinite_flag(params).item<float>() == 0.0F);
        const at::Tensor norm = optim::clip_grad_norm(params, 2.0);
        CHECK(norm.device().type() == device.type());
        optim::clip_grad_value(params, 0.005);
        std::vector<at::Tensor> out;
        for (const auto& param : params) {
          out.push_back(param.grad());
        }
        return std::pair(out, norm.item<double>());
      };
      const auto [device, norm] = clipped(at::kCUDA);
      const auto [host, expected] = clipped(at::kCPU);
      CHECK(norm == Approx(expected).epsilon(dtype == at::kDouble ? 1e-10 : 0.01));
      check_near(device, host, tolerance * 0.02);
    }
    const auto params = make_params(at::kCUDA, dtype);
    set_gradients(params, 1, false);
    params[2].mutable_grad().select(0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    CHECK(optim::nonfinite_flag(params).item<float>() == 1.0F);
    CHECK(optim::has_nonfinite(params));
  }
}

TEST_CASE("optimizers on a GPU: parameters that share a count of updates, apart in the list, count once",
          "[optim][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  for (const std::string type : {"adam", "adamw", "nadam"}) {
    CAPTURE(type);
    const auto trained = [&](at::Device device) {
      std::vector<at::Tensor> params;
      std::vector<std::pair<std::string, at::Tensor>> named;
      for (int i = 0; i < 3; ++i) {
        params.push_back(values_of({5}, 0.1 * i).to(device, at::kFloat).set_requires_grad(true));
        named.emplace_back("w" + std::to_string(i), params.back());
      }
      const auto optimizer = optim::build_optimizer({type, {.lr = 0.0625}}, named);
      for (int step = 0; step < 6; ++step) {
        set_gradients(params, step, false);
        if (step < 2) {
          params[1].mutable_grad() = at::Tensor();  // joins later, so its count is another
        }
        optimizer->step({.found_inf = at::zeros({}, params[0].options().requires_grad(false))});
      }
      return params;
    };
    check_near(trained(at::kCUDA), trained(at::kCPU), 2e-5);
  }
}

TEST_CASE("clip_grad_norm, GradScaler: gradients of the host and of a GPU together", "[optim][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  for (const bool host_first : {true, false}) {
    CAPTURE(host_first);
    for (int round = 0; round < 20; ++round) {  // a copy that is read too early is often there in time
      std::vector<at::Tensor> params;
      for (const bool on_host : {host_first, !host_first}) {
        params.push_back(
            at::zeros({1 << 20}, at::TensorOptions().device(on_host ? at::kCPU : at::kCUDA)).set_requires_grad(true));
        params.back().mutable_grad() = at::full_like(params.back(), 3.0F + static_cast<float>(round)).detach();
      }
      const double expected = (3.0 + round) * std::sqrt(2.0 * (1 << 20));
      CHECK(optim::clip_grad_norm(params, 1.0).item<double>() == Approx(expected));
      for (const auto& param : params) {
        CHECK(param.grad()[7].item<double>() == Approx((3.0 + round) / expected));
      }
      optim::GradScaler scaler(host_first ? at::kCPU : at::kCUDA, {.init_scale = 4.0});
      params[1].mutable_grad()[5] = std::numeric_limits<double>::infinity();
      CHECK(scaler.unscale(params).item<float>() != 0.0F);
      CHECK(params[0].grad()[7].item<double>() == Approx((3.0 + round) / expected / 4));
    }
  }
}

}  // namespace
}  // namespace cuda_updates_tests
