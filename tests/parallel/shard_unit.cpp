// Memory of a unit's whole parameters: valid while the unit is whole; later reads throw.
#include <parallel/shard_unit.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <torch/version.h>

#include <danling/core/error.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

namespace {

using danling::detail::RowSplit;
using danling::detail::ShardUnit;

TEST_CASE("ShardUnit: a tensor that shares a parameter's memory cannot be read after the unit was freed, and can later",
          "[parallel]") {
  const at::NoGradGuard no_grad;
  const at::Tensor values = at::arange(6.0).reshape({3, 2});
  ShardUnit unit("layer", {{"weight", values.clone().set_requires_grad(true)}}, {.split = RowSplit(2)});
  unit.allocate();
  const at::Tensor whole = unit.parameters()[0].whole;
  const at::Tensor shares = whole.detach().select(0, 1);
  whole.detach().copy_(values);
  CHECK(shares[1].item<float>() == 3.0F);

  unit.release();
  CHECK_FALSE(unit.is_whole());
  if (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 12) {
    WARN("skipped: LibTorch 2.11 cannot report the read of freed memory");
  } else {
    const std::string error = danling_test::error_of<c10::Error>([&] { shares[1].item<float>(); });
    CHECK_THAT(error,
               Catch::Matchers::StartsWith(
                   "[parallel.fsdp] expected memory of a sharded parameter to be read while its unit is whole, "
                   "got 'weight' after its unit was freed; use the parameter itself, not a tensor that shares its "
                   "memory"));
  }

  unit.allocate();
  whole.detach().copy_(values.neg());
  CHECK(shares[1].item<float>() == -3.0F);
}

}  // namespace
