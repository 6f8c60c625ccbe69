// An update costs no allocation beyond those of the kernel that it calls.
#include <new>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <danling/optim/adam.hpp>
#include <danling/optim/lr_scheduler.hpp>
#include <danling/optim/sgd.hpp>
#include <support/catch.hpp>

#include "count.hpp"

namespace {

namespace optim = danling::optim;

template <class Call>
std::int64_t allocations_of(Call&& call) {
  call();
  call();
  const std::int64_t before = allocations::count;
  call();
  return allocations::count - before;
}

TEST_CASE("Optimizer: an update allocates what its kernel allocates, and no more", "[optim]") {
  std::vector<at::Tensor> params, grads, first, second, steps;
  for (const std::int64_t size : {300, 20, 7}) {
    params.push_back(at::ones({size, 3}).set_requires_grad(true));
    params.back().mutable_grad() = at::ones({size, 3});
    grads.push_back(params.back().grad());
    first.push_back(at::zeros({size, 3}));
    second.push_back(at::zeros({size, 3}));
    steps.push_back(at::ones({}));
  }
  CHECK(allocations_of([] { ::operator delete(::operator new(8)); }) == 1);  // the counter counts

  const at::NoGradGuard no_grad;
  const auto adamw_kernel = allocations_of(
      [&] { at::_fused_adamw_(params, grads, first, second, {}, steps, 1e-3, 0.9, 0.999, 0.01, 1e-8, false, false); });
  const auto sgd_kernel = allocations_of(
      [&] { at::_fused_sgd_(params, grads, first, 0, 0.9, 1e-3, 0, false, false, false, std::nullopt); });
  const auto adamw = optim::adamw(params);
  const auto sgd = optim::sgd(params, {.momentum = 0.9});
  CHECK(allocations_of([&] { adamw->step(); }) == adamw_kernel);
  CHECK(allocations_of([&] { sgd->step(); }) == sgd_kernel);
  CHECK(allocations_of([&] { adamw->step(64); }) == adamw_kernel);
  CHECK(allocations_of([&] { sgd->step(64); }) == sgd_kernel);

  optim::LRScheduler scheduler(*adamw, 100);
  CHECK(allocations_of([&] { scheduler.step(); }) == 0);
  CHECK(allocations_of([&] { adamw->zero_grad(/*set_to_none=*/false); }) == 0);
}

}  // namespace
