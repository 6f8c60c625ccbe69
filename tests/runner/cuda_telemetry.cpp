// Telemetry of a run on a GPU: memory, rates, and that sinks make no step wait. Skipped without a GPU.
#include <memory>

#include <c10/core/CachingDeviceAllocator.h>

#include "cuda_runner.hpp"
#include "cuda_waits.hpp"
#include "nn/flop_counter.hpp"

namespace runner_test {
namespace {
namespace on_cuda_telemetry {

using on_cuda::Given;
using on_cuda::Keeper;

TEST_CASE("telemetry on a GPU: memory is the most since the line before, in the device's bounds", "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  constexpr double mib = 1024.0 * 1024.0;
  const Folder folder;
  TinyConfig config = cuda_config(folder);
  config.log_interval = 1;
  const auto given = std::make_shared<Given>();
  TinyRunner runner(config);
  runner.add_sink(std::make_shared<Keeper>(given));
  runner.before_step = [](TinyRunner&, std::int64_t number) {
    if (number == 3) {
      torch::empty({std::int64_t{1} << 30}, torch::TensorOptions(torch::kCUDA).dtype(torch::kByte));
    }
  };
  runner.train();
  runner.close();
  const double total = static_cast<double>(at::getDeviceAllocator(at::kCUDA)->getMemoryInfo(0).second) / mib;
  REQUIRE(given->scalars.size() == 6 + 2);
  for (const auto& record : given->scalars) {
    CAPTURE(record.split, record.iteration.value_or(-1), total);
    const double* allocated = record.telemetry.number("mem_alloc_mb");
    const double* reserved = record.telemetry.number("mem_reserved_mb");
    REQUIRE(allocated != nullptr);
    REQUIRE(reserved != nullptr);
    CHECK(*allocated > 0);
    CHECK(*reserved >= *allocated);
    CHECK(*reserved <= total);
    CHECK(*record.telemetry.number("mem_host_mb") > 0);
    const bool with_large = record.mode == "train" && record.iteration.value_or(4) == 4;
    CHECK((*allocated >= 1024) == with_large);  // at the end of the pass the most of all lines
  }
}

TEST_CASE("performance on a GPU: operations are counted as on the host, also of attention and convolutions",
          "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  const Folder folder;
  TinyConfig config = cuda_config(folder);
  config.log_interval = 2;
  config.performance.peak_flops = 1e15;
  const auto given = std::make_shared<Given>();
  TinyRunner runner(config);
  runner.add_sink(std::make_shared<Keeper>(given));
  runner.train();
  runner.close();
  constexpr double per_sample = 3.0 * 2 * (4 * 8 + 8 * 3);
  for (const auto& record : given->scalars) {
    const double operations = record.mode == "train" ? per_sample : per_sample / 3.0;
    const double rate = *record.telemetry.number("tflops") * 1e12;
    CHECK(rate == Approx(operations * *record.telemetry.number("samples_per_s")));
    CHECK(*record.telemetry.number("mfu_pct") == Approx(100 * rate / 1e15));
  }

  const auto counted = [](const at::TensorOptions& options) {
    const auto weight = torch::ones({16, 3, 3, 3}, options).requires_grad_();
    const auto query = torch::ones({2, 4, 32, 64}, options).requires_grad_();
    const dl::nn::FlopCounter counter;
    torch::conv2d(torch::ones({2, 3, 16, 16}, options), weight).sum().backward();
    at::scaled_dot_product_attention(query, query, query).sum().backward();
    return counter.count();
  };
  const auto on_host = counted(torch::TensorOptions(torch::kCPU));
  CHECK(on_host == 2 * 2 * 14 * 14 * 16 * 3 * 9 + 2 * 2 * 4 * 32 * 32 * 128);
  CHECK(counted(torch::TensorOptions(torch::kCUDA)) == on_host);
  CHECK(counted(torch::TensorOptions(torch::kCUDA).dtype(torch::kHalf)) == on_host);
  CHECK(counted(torch::TensorOptions(torch::kCUDA).dtype(torch::kBFloat16)) == on_host);
}

#ifdef DANLING_TEST_COUNTS_WAITS

using on_cuda::Waits;

TEST_CASE("sinks on a GPU: the training thread waits for the device no more often with them", "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  {
    const at::Tensor one = torch::ones({}, torch::kCUDA);
    const Waits waits;
    CHECK(one.item<float>() == 1.0F);
    REQUIRE(waits.count() == 1);
  }
  const auto waits_of = [](bool with_sinks) {
    const Folder folder;
    TinyConfig config = cuda_config(folder);
    config.log_interval = 3;
    config.histogram_interval = 1;
    config.csv = config.tensorboard = with_sinks;
    TinyRunner runner(config);
    if (with_sinks) {
      runner.add_sink(std::make_shared<Keeper>(std::make_shared<Given>()));
    }
    const at::Tensor values = torch::ones({1000}, torch::kCUDA), image = torch::ones({3, 8, 8}, torch::kCUDA);
    runner.before_step = [&](TinyRunner& self, std::int64_t) {
      self.write_histogram("values", values);
      self.write_image("image", image);
    };
    const Waits waits;
    runner.train();
    return waits.count();
  };
  waits_of(false);  // the first update of a process compares kernels
  const std::int64_t without = waits_of(false), with = waits_of(true);
  CAPTURE(without, with);
  CHECK(with == without);
}

#endif

}  // namespace on_cuda_telemetry
}  // namespace
}  // namespace runner_test
