// Saves from a device. Without one the tests say so and pass.
#include <support/cuda.hpp>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/checkpoint/weights.hpp>

#include <checkpoint/staging.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling_test::has_cuda_device;

TEST_CASE("StagingBuffer: a copy from a device keeps values and aliases while the device goes on",
          "[checkpoint][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  for (const bool pinned : {false, true}) {
    CAPTURE(pinned);
    danling::State state;
    const at::Tensor weight = at::arange(1 << 20, at::TensorOptions().device(at::kCUDA)).to(at::kFloat);
    state["weight"] = weight;
    state["tied"] = weight.view({1 << 10, 1 << 10}).t();
    state["host"] = at::arange(5);
    const danling::State expected = danling::clone(state);
    danling::StagingBuffer buffer;
    for (int round = 0; round < 3; ++round) {
      const danling::State copy = buffer.stage(state, pinned);
      buffer.order_current_stream();
      weight.fill_(-1.0);  // queued on the device while the copy may still be under way
      buffer.wait();
      CHECK(copy.at("weight").tensor().is_cpu());
      CHECK(danling::first_difference(copy, expected) == "");
      CHECK(copy.at("tied").tensor().is_alias_of(copy.at("weight").tensor()));
      weight.copy_(expected.at("weight").tensor());
    }
  }
}

TEST_CASE("FileCheckpointManager: every mode writes what is on the device at the call", "[checkpoint][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  const danling_test::TempDir directory;
  const at::Tensor weight = at::zeros({1 << 20}, at::TensorOptions().device(at::kCUDA));
  const auto state = [&] {
    danling::State out;
    out["model"]["weight"] = weight;
    return out;
  };
  for (const auto mode : {"disabled", "async", "async_with_pinned_mem"}) {
    const std::string name = mode;
    danling::FileCheckpointManager manager(
        {.directory = directory / name, .interval = 1, .export_safetensors = true, .async_mode = mode}, state, state);
    for (int step = 1; step <= 5; ++step) {
      weight.fill_(static_cast<double>(step));
      manager.save_checkpoint({.epoch = step - 1, .last_step = step == 5});
      manager.maybe_wait_for_staging();
      weight.fill_(-1.0);
    }
    CHECK(manager.close());
    for (int step = 1; step <= 5; ++step) {
      const auto file = danling::load_file(directory / name / ("ckpt-e00000" + std::to_string(step) + ".pth"));
      CHECK(file.at("model").at("weight").tensor().equal(at::full({1 << 20}, static_cast<double>(step))));
    }
    CHECK(danling::load_weights(directory / name / "model.safetensors")
              .at("weight")
              .tensor()
              .equal(at::full({1 << 20}, 5.0)));
  }
}

}  // namespace
