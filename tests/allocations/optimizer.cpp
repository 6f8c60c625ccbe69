// An update allocates nothing.
#include <new>

#include <ATen/ops/ones.h>

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

TEST_CASE("Optimizer: an update allocates nothing", "[optim]") {
  std::vector<at::Tensor> params;
  for (const std::int64_t size : {300, 20, 7}) {
    params.push_back(at::ones({size, 3}).set_requires_grad(true));
    params.back().mutable_grad() = at::ones({size, 3});
  }
  CHECK(allocations_of([] { ::operator delete(::operator new(8)); }) == 1);  // the counter counts

  const auto adamw = optim::adamw(params);
  const auto sgd = optim::sgd(params, {.momentum = 0.9});
  CHECK(allocations_of([&] { adamw->step(); }) == 0);
  CHECK(allocations_of([&] { sgd->step(); }) == 0);
  CHECK(allocations_of([&] { adamw->step(64); }) == 0);
  CHECK(allocations_of([&] { sgd->step(64); }) == 0);

  optim::LRScheduler scheduler(*adamw, 100);
  CHECK(allocations_of([&] { scheduler.step(); }) == 0);
  CHECK(allocations_of([&] { adamw->zero_grad(/*set_to_none=*/false); }) == 0);
}

}  // namespace
