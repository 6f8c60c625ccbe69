// Time of an update of a weight average: ./dev bench averaging. Compared in turn with a loop that moves as many bytes
// (the limit of memory) and with LibTorch's operations, whose averages must be the same. Exits with 1 where the update
// takes more than 1.1 times the loop.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <danling/optim/averaging.hpp>

#include "tables.hpp"

namespace {

constexpr double decay = 0.999;

struct Shape {
  const char* name;
  std::int64_t tensors, rows, columns;
};

struct Work {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

/// x += y of LibTorch over as many bytes as the update moves: two streams read, one written.
std::function<void()> traffic_of(std::int64_t bytes) {
  const at::Tensor x = at::ones({bytes / 12});
  const at::Tensor y = at::ones({bytes / 12});
  return [x, y] { x.add_(y); };
}

/// The fastest tenth: other programs on the machine only add time.
double best_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 10];
}

bool run(const Shape& shape, at::ScalarType type, int rounds) {
  danling::optim::WeightAverage::NamedTensors parameters;
  std::vector<at::Tensor> values, averages;
  for (std::int64_t i = 0; i < shape.tensors; ++i) {
    const at::Tensor value = at::randn({shape.rows, shape.columns}, type).set_requires_grad(true);
    parameters.emplace_back(std::to_string(i), value);
    values.push_back(value.detach());
    averages.push_back(value.detach().to(at::kFloat).clone());
  }
  danling::optim::WeightAverage average(parameters, parameters,
                                        danling::optim::EMAOptions{.decay = decay, .warmup = 0});
  average.update();
  const at::NoGradGuard guard;
  for (auto& value : values) {
    value.add_(at::randn(value.sizes(), type));
  }
  const auto bytes = shape.tensors * shape.rows * shape.columns * (8 + static_cast<std::int64_t>(elementSize(type)));
  std::vector<Work> works = {{"x += y of as many bytes", traffic_of(bytes)},
                             {"danling", [&] { average.update(); }},
                             {"LibTorch", [&] {
                                if (type == at::kFloat) {
                                  at::_foreach_lerp_(averages, values, 1 - decay);
                                } else {
                                  for (std::size_t i = 0; i < values.size(); ++i) {
                                    averages[i].lerp_(values[i].to(at::kFloat), 1 - decay);
                                  }
                                }
                              }}};
  for (int round = 0; round < rounds + 2; ++round) {
    for (auto& work : works) {
      const double seconds = bench::seconds_of(work.run);
      if (round >= 2) {
        work.seconds.push_back(seconds);
      }
    }
  }
  for (std::size_t i = 0; i < averages.size(); ++i) {
    if (!at::allclose(average.weights().at(std::to_string(i)).tensor(), averages[i], 1e-5, 1e-6)) {
      std::printf("the averages differ\n");
      return false;
    }
  }
  const double limit = best_of(works[0].seconds);
  std::printf("%s, %s\n", shape.name, c10::toString(type));
  for (const auto& work : works) {
    const double seconds = best_of(work.seconds);
    std::printf("  %-24s %8.3f ms %7.1f GB/s %6.2f of it\n", work.name.c_str(), seconds * 1e3,
                static_cast<double>(bytes) / seconds * 1e-9, seconds / limit);
  }
  return best_of(works[1].seconds) <= 1.1 * limit;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
  std::printf("%d threads\n", at::get_num_threads());
  bool good = true;
  for (const Shape& shape :
       {Shape{"200 tensors of 256x256", 200, 256, 256}, Shape{"one tensor of 10 M", 1, 2500, 4000}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      good = run(shape, type, quick ? 5 : 40) && good;
    }
  }
  return good ? 0 : 1;
}
