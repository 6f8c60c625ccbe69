// The runner of the tests on a GPU, and what keeps one busy.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <danling/telemetry/sink.hpp>

#include <support/cuda.hpp>

#include "fixture.hpp"

namespace runner_test {

using danling_test::has_cuda_device;

/// TinyRunner's problem on the GPU, without dropout.
inline TinyConfig cuda_config(const Folder& folder) {
  TinyConfig config(folder);
  config.device = "cuda";
  config.epochs = 1;
  config.dropout = 0;
  return config;
}

/// Queues `times` products on the current stream, each of milliseconds, and does not wait for them.
inline void keep_busy(const at::Tensor& square, int times) {
  for (int i = 0; i < times; ++i) {
    torch::mm(square, square);
  }
}
inline at::Tensor busy_square() { return torch::ones({4096, 4096}, torch::kCUDA); }

namespace on_cuda {

/// Records of a run; lives longer than the runner.
struct Given {
  std::mutex mutex;
  std::vector<dl::ScalarRecord> scalars;
  std::vector<dl::HistogramRecord> histograms;
  std::vector<dl::ImageRecord> images;
};

struct Keeper : dl::Sink {
  explicit Keeper(std::shared_ptr<Given> g) : given(std::move(g)) {}
  std::string name() const override { return "keeper"; }
  bool wants_histograms() const override { return true; }
  void scalars(const dl::ScalarRecord& record) override { add(given->scalars, record); }
  void histogram(const dl::HistogramRecord& record) override { add(given->histograms, record); }
  void image(const dl::ImageRecord& record) override { add(given->images, record); }
  template <class T>
  void add(std::vector<T>& to, const T& record) {
    const std::lock_guard lock(given->mutex);
    to.push_back(record);
  }
  std::shared_ptr<Given> given;
};

}  // namespace on_cuda
}  // namespace runner_test
