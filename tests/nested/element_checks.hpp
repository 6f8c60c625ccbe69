// Compares an operator on NestedTensors with the same one on each element, values and gradients; and numeric gradients.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/tensors/nested_tensor.hpp>

#include <support/catch.hpp>

namespace element_checks {

using Elements = std::vector<torch::Tensor>;
/// A function of the inputs: NestedTensors, or the elements of all inputs at one index.
using Function = std::function<torch::Tensor(const Elements&)>;

struct Tolerance {
  double relative = 1e-5, absolute = 1e-6;
};

/// Random elements that require gradients. `sizes`: of each.
inline Elements random_leaves(const std::vector<std::vector<std::int64_t>>& sizes,
                              torch::TensorOptions options = torch::kFloat64) {
  Elements out;
  for (const auto& one : sizes) {
    out.push_back(torch::randn(one, options).requires_grad_());
  }
  return out;
}

inline Elements gradients_of(const Elements& leaves) {
  Elements out;
  for (const torch::Tensor& leaf : leaves) {
    out.push_back(leaf.grad().defined() ? leaf.grad().clone() : torch::zeros_like(leaf));
    leaf.mutable_grad() = torch::Tensor();
  }
  return out;
}

/// `inputs`: the elements of each input. `shared`: other leaves, whose gradients are compared too. The result on
/// NestedTensors is one, or a batch of tensors.
inline void check_like_each_element(const std::vector<Elements>& inputs, const Function& on_nested,
                                    const Function& on_element, const Elements& shared = {}, Tolerance allowed = {},
                                    const danling::NestedTensorOptions& options = {}) {
  Elements leaves = shared, nested, expected, weights;
  for (const Elements& input : inputs) {
    leaves.insert(leaves.end(), input.begin(), input.end());
    nested.push_back(danling::NestedTensor(input, options));
  }
  for (std::size_t i = 0; i < inputs.front().size(); ++i) {
    Elements one;
    for (const Elements& input : inputs) {
      one.push_back(input[i]);
    }
    expected.push_back(on_element(one));
    weights.push_back(torch::randn_like(expected.back()));
  }
  const torch::Tensor got = on_nested(nested);
  const Elements parts = danling::NestedTensor::is_nested(got) ? danling::NestedTensor(got).elements() : got.unbind(0);
  REQUIRE(parts.size() == expected.size());
  torch::Tensor expected_loss = torch::zeros({}, torch::kFloat64), loss = expected_loss;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    INFO("element " << i << ": shape " << parts[i].sizes() << ", expected " << expected[i].sizes());
    REQUIRE(parts[i].sizes() == expected[i].sizes());
    CHECK(parts[i].scalar_type() == expected[i].scalar_type());
    CHECK(torch::allclose(parts[i], expected[i], allowed.relative, allowed.absolute));
    expected_loss = expected_loss + (expected[i] * weights[i]).sum().to(torch::kFloat64);
    loss = loss + (parts[i] * weights[i]).sum().to(torch::kFloat64);
  }
  if (!expected_loss.requires_grad()) {
    return;
  }
  expected_loss.backward();
  const Elements wanted = gradients_of(leaves);
  loss.backward();
  const Elements gradients = gradients_of(leaves);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    INFO("gradient of leaf " << i << " of shape " << leaves[i].sizes());
    CHECK(torch::allclose(gradients[i], wanted[i], 10 * allowed.relative, 10 * allowed.absolute));
  }
}

/// Gradients by central differences; `twice`: those of the gradients too. `function` of float64 leaves to one number.
inline void check_gradients(Elements leaves, const std::function<torch::Tensor(const Elements&)>& function,
                            bool twice = true) {
  constexpr double step = 1e-5;
  const auto differences = [&](const std::function<double()>& value) {
    Elements out;
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& leaf : leaves) {
      torch::Tensor gradient = torch::zeros_like(leaf).reshape({-1});
      const torch::Tensor flat = leaf.detach().view({-1});
      for (std::int64_t i = 0; i < flat.numel(); ++i) {
        flat[i] += step;
        const double above = value();
        flat[i] -= 2 * step;
        const double below = value();
        flat[i] += step;
        gradient[i] = (above - below) / (2 * step);
      }
      out.push_back(gradient.view(leaf.sizes()));
    }
    return out;
  };
  const auto compare = [](const Elements& got, const Elements& wanted) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO("leaf " << i << ": got " << got[i] << ", by differences " << wanted[i]);
      CHECK(torch::allclose(got[i].defined() ? got[i] : torch::zeros_like(wanted[i]), wanted[i], 1e-4, 1e-6));
    }
  };
  const auto grad = [&](const torch::Tensor& of, bool create_graph) {
    return torch::autograd::grad({of}, leaves, {}, create_graph, create_graph, true);
  };
  compare(grad(function(leaves), false), differences([&] { return function(leaves).item<double>(); }));
  if (!twice) {
    return;
  }
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& leaf : leaves) {
    weights.push_back(torch::randn_like(leaf));
  }
  const auto slope = [&] {
    const torch::AutoGradMode with_gradients(true);
    torch::Tensor out = torch::zeros({}, torch::kFloat64);
    const auto first = grad(function(leaves), true);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      out = first[i].defined() ? out + (first[i] * weights[i]).sum() : out;
    }
    return out;
  };
  compare(grad(slope(), false), differences([&] { return slope().item<double>(); }));
}

}  // namespace element_checks
