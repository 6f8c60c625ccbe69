// Time of an update of a weight average: ./dev bench averaging [--quick]. Runs in turn with itself (the control), a
// loop that moves as many bytes (the memory limit) and LibTorch's operations, whose averages must be equal.
#include <danling/optim/averaging.hpp>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include "tables.hpp"

namespace {

constexpr double decay = 0.999;

using Tensors = std::vector<at::Tensor>;

struct Shape {
  const char* name;
  std::int64_t tensors, rows, columns;
};

Tensors averages_of(const Tensors& values) {
  Tensors out;
  for (const auto& value : values) {
    out.push_back(value.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true));
  }
  return out;
}

std::vector<double> sums(const Tensors& averages) {
  double sum = 0, squares = 0;
  for (const auto& average : averages) {
    sum += average.abs().sum(at::kDouble).item<double>();
    squares += average.to(at::kDouble).square().sum().item<double>();
  }
  return {sum, squares};
}

bench::Contestant ours(const char* name, const danling::optim::WeightAverage::NamedTensors& parameters,
                       const std::function<void()>& move) {
  const auto average = std::make_shared<danling::optim::WeightAverage>(
      parameters, parameters, danling::optim::EMAOptions{.decay = decay, .warmup = 0});
  average->update();
  move();
  return {name, [average] { return bench::seconds_of([&] { average->update(); }); },
          [average] {
            average->update();
            Tensors weights;
            for (const auto& entry : average->weights().map()) {
              weights.push_back(entry.value.tensor());
            }
            return sums(weights);
          }};
}

void run(const Shape& shape, at::ScalarType type, int rounds) {
  const at::NoGradGuard guard;
  danling::optim::WeightAverage::NamedTensors parameters;
  Tensors values, starts, moved;
  for (std::int64_t i = 0; i < shape.tensors; ++i) {
    values.push_back(at::randn({shape.rows, shape.columns}, type));
    starts.push_back(values.back().clone());
    moved.push_back(values.back().add(at::randn({shape.rows, shape.columns}, type)));
    parameters.emplace_back(std::to_string(i), values.back());
    values.back().set_requires_grad(true);
  }
  const auto put = [&](const Tensors& from) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i].detach().copy_(from[i]);
    }
  };
  const auto move = [&] { put(moved); };
  bench::Table table{.title = std::string(shape.name) + ", " + c10::toString(type)};
  table.contestants.push_back(ours("danling", parameters, move));
  put(starts);
  table.contestants.push_back(ours("control", parameters, move));
  const auto bytes = shape.tensors * shape.rows * shape.columns * (8 + static_cast<std::int64_t>(elementSize(type)));
  const at::Tensor x = at::ones({bytes / 12}), y = at::ones({bytes / 12});  // two streams are read, one is written
  table.contestants.push_back({"x += y of as many bytes", [=] { return bench::seconds_of([&] { x.add_(y); }); }});
  Tensors details;
  for (const auto& value : values) {
    details.push_back(value.detach());
  }
  const auto lerp = [=, averages = averages_of(starts)] {
    if (type == at::kFloat) {
      at::_foreach_lerp_(averages, details, 1 - decay);
    } else {
      for (std::size_t i = 0; i < averages.size(); ++i) {
        averages[i].lerp_(details[i].to(at::kFloat), 1 - decay);
      }
    }
    return averages;
  };
  table.contestants.push_back({"LibTorch", [=] { return bench::seconds_of(lerp); }, [=] { return sums(lerp()); }});
  table.targets = {{0, {2}, 1 / 1.1}, {0, {3}, 1}};
  table.control = 1;
  bench::run(table, rounds);
}

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("averaging", argc, argv);
  const bool quick = bench::is_quick();
  std::printf("%d threads\n", at::get_num_threads());
  try {
    for (const Shape& shape :
         {Shape{"200 tensors of 256x256", quick ? 10 : 200, 256, 256}, Shape{"one tensor of 10 M", 1, 2500, 4000}}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        run(shape, type, quick ? 3 : 40);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
