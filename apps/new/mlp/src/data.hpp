// The data: points on two spirals, which are the two classes. Replace it by your data.
#pragma once

#include <cmath>
#include <cstdint>

#include <torch/torch.h>

#include <danling/data/tensor_dataset.hpp>

/// The same points for each seed of the run. Input is float32 [N, 2], target int64 [N].
inline danling::data::TensorDataset spirals(std::int64_t size, double noise) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(/*seed=*/0);
  const auto label = torch::arange(size) % 2;
  const auto radius = torch::rand({size}, generator).sqrt();
  const auto angle = 3 * M_PI * radius + M_PI * label;
  const auto points = radius.unsqueeze(1) * torch::stack({angle.cos(), angle.sin()}, 1);
  return danling::data::TensorDataset(points + noise * torch::randn({size, 2}, generator), label);
}
