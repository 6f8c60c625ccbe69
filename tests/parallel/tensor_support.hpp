// Ranks of a tensor axis as threads, and tensors that every rank can compute.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <danling/core/error.hpp>
#include <danling/parallel/slices.hpp>
#include <danling/parallel/topology.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace tensor_test {

using danling::Group;
using danling::ParallelContext;
using danling::ParallelTopology;
using danling_test::expect;
using torch::Tensor;

inline Tensor randn(std::vector<std::int64_t> sizes, std::int64_t seed, at::ScalarType dtype = at::kDouble) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed));
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble)).to(dtype);
}

inline Tensor randint(std::int64_t high, std::vector<std::int64_t> sizes, std::int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed));
  return at::randint(high, sizes, generator, at::TensorOptions().dtype(at::kLong));
}

inline void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
  expect(got.defined() == expected.defined(), what + " defined alike");
  if (!expected.defined()) {
    return;
  }
  expect(got.sizes() == expected.sizes(), what + " of the same shape");
  expect(got.scalar_type() == expected.scalar_type(), what + " of the same dtype");
  const double scale = expected.scalar_type() == at::kDouble  ? 1e-9
                       : expected.scalar_type() == at::kFloat ? 1e-5
                                                              : 2e-2;
  expect(at::allclose(got, expected, scale, scale, /*equal_nan=*/true),
         what + ", got a difference of " +
             std::to_string(got.numel() == 0 ? 0 : (got - expected).abs().max().item<double>()));
}

/// `body` on threads that are the ranks of the axis "tensor".
inline void run_tensor_ranks(int size, const std::function<void(const ParallelContext& context)>& body) {
  Group::run_threads(size, [&](Group& group) {
    body(ParallelContext(ParallelTopology(size, group.rank(), {{"tensor", size}}), group));
  });
}

/// Parameters of equal names.
inline void copy_parameters(const torch::nn::Module& from, torch::nn::Module& to) {
  const torch::NoGradGuard no_grad;
  const auto targets = to.named_parameters();
  for (const auto& item : from.named_parameters()) {
    targets[item.key()].copy_(item.value());
  }
}

/// This rank's part of a tensor that has the shape of the whole parameter.
inline Tensor slice_like(const Tensor& whole, const Tensor& parameter) {
  Tensor out = whole;
  for (const auto& slice : danling::parallel::slices_of(parameter)) {
    expect(slice.size == whole.size(slice.dim), "a slice of the whole parameter's size");
    out = out.narrow(slice.dim, slice.offset, parameter.size(slice.dim));
  }
  return out;
}

/// Parameters and their gradients are the slices of the whole module's.
inline void expect_slices(const torch::nn::Module& sliced, const torch::nn::Module& whole, const std::string& what) {
  const auto theirs = whole.named_parameters();
  for (const auto& item : sliced.named_parameters()) {
    const Tensor& mine = item.value();
    const Tensor& other = theirs[item.key()];
    expect_close(mine.detach(), slice_like(other.detach(), mine), what + item.key());
    expect_close(mine.grad(), other.grad().defined() ? slice_like(other.grad(), mine) : Tensor(),
                 what + "the gradient of " + item.key());
  }
}

}  // namespace tensor_test
