// Fused attention on a GPU: values and gradients of each sequence by itself, dropout, gradients of gradients.
#include <optional>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn.h>

#include <danling/core/error.hpp>

#include <nested/autocast.hpp>
#include <nested/called_operators.hpp>
#include <nested/element_checks.hpp>
#include <support/cuda.hpp>

namespace nested_fused_devices {
namespace {

using danling::NestedTensor;
using element_checks::check_like_each_element;
using element_checks::Elements;
using element_checks::random_leaves;
using element_checks::Tolerance;
using nested_tests::CalledOperators;
using torch::Tensor;

using Lengths = std::vector<std::int64_t>;
const danling::NestedTensorOptions sequences_first = {.batch_first = false};

Elements tokens(const Lengths& lengths, std::int64_t size, const torch::TensorOptions& options) {
  std::vector<std::vector<std::int64_t>> sizes;
  for (const std::int64_t length : lengths) {
    sizes.push_back({length, size});
  }
  return random_leaves(sizes, options);
}

Tensor packed(const Tensor& x) { return NestedTensor(x).concat(); }

struct TypeCase {
  torch::ScalarType type;
  std::string kernel;  ///< on CUDA
  Tolerance allowed;
};
const std::vector<TypeCase> type_cases = {
    {torch::kFloat, "aten::_efficient_attention_forward", {2e-3, 1e-3}},
    {torch::kHalf, "aten::_flash_attention_forward", {2e-2, 2e-2}},
    {torch::kBFloat16, "aten::_flash_attention_forward", {4e-2, 6e-2}},
    {torch::kDouble, "aten::_softmax", {}},
};

/// Lengths of queries and of keys.
const std::vector<std::pair<Lengths, Lengths>> length_cases = {
    {{40, 17, 130}, {40, 17, 130}}, {{40, 17, 33}, {21, 150, 33}}, {{40, 0, 33, 0}, {40, 0, 33, 0}}, {{24}, {24}},
    {{20, 20, 20}, {20, 20, 20}},   {{3, 1, 5}, {3, 1, 5}},
};

void check_modules(torch::Device device, std::optional<torch::ScalarType> only = std::nullopt) {
  for (const TypeCase& one : type_cases) {
    if (only && one.type != *only) {
      continue;
    }
    const auto options = torch::TensorOptions(one.type).device(device);
    for (const std::int64_t heads : {1, 4}) {
      torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(32, heads));
      attention->to(device, one.type);
      for (const auto& [lengths, keys] : length_cases) {
        INFO(one.type << ", " << heads << " heads, " << torch::IntArrayRef(lengths) << " and "
                      << torch::IntArrayRef(keys));
        std::vector<Elements> inputs = {tokens(lengths, 32, options)};
        if (lengths != keys) {
          inputs.push_back(tokens(keys, 32, options));
        }
        check_like_each_element(
            inputs,
            [&](const Elements& from) {
              const CalledOperators called;
              const Tensor out = std::get<0>(attention->forward(from[0], from.back(), from.back()));
              CHECK((!device.is_cuda() || called.contain(one.kernel)));
              return out;
            },
            [&](const Elements& from) {
              const Tensor query = from[0].unsqueeze(1), key = from.back().unsqueeze(1);
              return query.numel() == 0 ? from[0] * 1 : std::get<0>(attention->forward(query, key, key)).squeeze(1);
            },
            attention->parameters(), one.allowed, sequences_first);
      }
    }
    torch::nn::TransformerEncoderLayer layer(
        torch::nn::TransformerEncoderLayerOptions(32, 2).dim_feedforward(64).dropout(0.0));
    layer->to(device, one.type);
    INFO("encoder layer of " << one.type);
    check_like_each_element(
        {tokens({40, 17, 130}, 32, options)}, [&](const Elements& from) { return layer->forward(from[0]); },
        [&](const Elements& from) { return layer->forward(from[0].unsqueeze(1)).squeeze(1); }, layer->parameters(),
        {one.allowed.relative * 2, one.allowed.absolute * 2}, sequences_first);
  }
}

/// Sizes without a kernel, and queries without keys.
void check_others(torch::Device device) {
  const auto attend = [](const Elements& from) {
    return torch::matmul(torch::matmul(from[0], from[1].mT()).softmax(-1), from[2]);
  };
  const auto options = torch::TensorOptions(torch::kFloat).device(device);
  for (const std::int64_t size : {1, 6, 8}) {
    INFO("size " << size);
    check_like_each_element(
        {tokens({20, 33, 4}, size, options), tokens({18, 40, 0}, size, options), tokens({18, 40, 0}, size, options)},
        attend, attend, {}, {2e-3, 1e-3});
  }
}

/// MultiheadAttention with dropout, of which the weights are all 1 / length.
struct Dropping {
  Dropping(torch::Device device, torch::ScalarType type)
      : attention(torch::nn::MultiheadAttentionOptions(32, 2).dropout(0.3)) {
    attention->to(device, type);
    x = NestedTensor(tokens({40, 17, 130}, 32, torch::TensorOptions(type).device(device)), sequences_first);
    x = x.detach().requires_grad_();
  }
  std::tuple<Tensor, Tensor> run(std::uint64_t seed) {
    torch::manual_seed(seed);
    return attention->forward(x, x, x);
  }

  torch::nn::MultiheadAttention attention;
  Tensor x;
};

void check_dropout(torch::Device device, torch::ScalarType type) {
  INFO(type);
  Dropping model(device, type);
  const auto gradient = [&](std::uint64_t seed) {
    const Tensor out = packed(std::get<0>(model.run(seed)));
    return std::pair(out, packed(torch::autograd::grad({out.to(torch::kFloat).square().sum()}, {model.x})[0]));
  };
  const auto [out, slope] = gradient(1);
  const auto [same, same_slope] = gradient(1);
  CHECK(out.equal(same));
  CHECK(torch::allclose(slope, same_slope, 1e-2, 1e-2));
  CHECK_FALSE(out.equal(gradient(2).first));
  if (type == torch::kFloat) {  // along the gradient, by differences with the same random numbers
    const Tensor direction = slope / slope.norm();
    const auto loss = [&](double step) {
      const torch::NoGradGuard no_grad;
      const Tensor moved = NestedTensor::from_concatenated(packed(model.x) + step * direction,
                                                           NestedTensor(model.x).shapes(), sequences_first);
      torch::manual_seed(1);
      return packed(std::get<0>(model.attention->forward(moved, moved, moved))).to(torch::kDouble).square().sum();
    };
    const double step = 1e-2, rise = ((loss(step) - loss(-step)) / (2 * step)).item<double>();
    CHECK(rise == Approx(slope.norm().item<double>()).epsilon(0.02));
  }
  // The mean of many runs is the result without dropout.
  Tensor sum = torch::zeros_like(out, torch::kFloat);
  constexpr int runs = 200;
  for (std::uint64_t run = 0; run < runs; ++run) {
    const torch::NoGradGuard no_grad;
    sum += packed(std::get<0>(model.run(run))).to(torch::kFloat);
  }
  model.attention->eval();
  const Tensor expected = packed(std::get<0>(model.run(0))).detach().to(torch::kFloat);
  CHECK((sum / runs - expected).abs().mean().item<double>() < 0.05);
  CHECK((out.to(torch::kFloat) - expected).abs().max().item<double>() > 0.01);
}

TEST_CASE("fused attention: what is tried on devices runs on the CPU", "[nested][fused]") {
  torch::manual_seed(80);
  check_modules(torch::kCPU, torch::kFloat);
  check_others(torch::kCPU);
  check_dropout(torch::kCPU, torch::kFloat);
}

TEST_CASE("fused attention on CUDA: modules give values and gradients of each sequence by itself",
          "[nested][fused][cuda]") {
  if (danling_test::has_cuda_device()) {
    torch::manual_seed(81);
    check_modules(torch::kCUDA);
  }
}

TEST_CASE("fused attention on CUDA: other sizes are computed from scores", "[nested][fused][cuda]") {
  if (danling_test::has_cuda_device()) {
    torch::manual_seed(82);
    check_others(torch::kCUDA);
  }
}

TEST_CASE("fused attention on CUDA: dropout follows the seed, forward and backward", "[nested][fused][cuda]") {
  if (danling_test::has_cuda_device()) {
    for (const auto type : {torch::kFloat, torch::kBFloat16}) {
      torch::manual_seed(83);
      check_dropout(torch::kCUDA, type);
    }
  }
}

TEST_CASE("fused attention on CUDA: nobody can know the weights that a kernel dropped", "[nested][fused][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  Dropping model(torch::kCUDA, torch::kFloat);
  const std::string message = "[nested_tensor.dropout] expected attention weights that are read before their product";
  const auto [out, weights] = model.run(1);
  CHECK(weights.sizes() == torch::IntArrayRef({3, 130, 130}));
  CHECK_THROWS_WITH(packed(weights), ContainsSubstring(message));
  CHECK_THROWS_WITH(
      torch::autograd::grad({packed(out).square().sum()}, {model.x}, {}, /*retain_graph=*/true, /*create_graph=*/true),
      ContainsSubstring("[nested_tensor.attention] expected no dropout and no causal mask for gradients of gradients"));
  // Weights that are read before the product are those that the product uses.
  const Tensor x = model.x.transpose(0, 1), dropped = torch::dropout(torch::bmm(x, x.mT()).softmax(-1), 0.5, true);
  CHECK(packed(dropped).eq(0).to(torch::kFloat).mean().item<double>() == Approx(0.5).margin(0.1));
  const NestedTensor product(torch::bmm(dropped, x));
  for (std::int64_t i = 0; i < 3; ++i) {
    CHECK(torch::allclose(product[i], torch::mm(NestedTensor(dropped)[i], NestedTensor(x)[i]), 2e-3, 1e-3));
  }
  at::globalContext().setSDPUseFlash(false);
  at::globalContext().setSDPUseMemEfficient(false);
  const auto [unfused, read] = model.run(1);
  at::globalContext().setSDPUseFlash(true);
  at::globalContext().setSDPUseMemEfficient(true);
  CHECK(packed(read).defined());
  CHECK_NOTHROW(torch::autograd::grad({packed(unfused).square().sum()}, {model.x}, {}, true, true));
}

TEST_CASE("fused attention on CUDA: gradients have gradients, as on the CPU", "[nested][fused][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  torch::manual_seed(84);
  const Elements parts = tokens({20, 33}, 8, torch::kFloat);
  const auto second = [&](torch::Device device) {
    const Tensor x = NestedTensor(NestedTensor(parts).to(device)).detach().requires_grad_();
    const Tensor out = torch::bmm(torch::bmm(x * 0.3, x.mT()).softmax(-1), x);
    const Tensor first = torch::autograd::grad({packed(out).square().sum()}, {x}, {}, true, true)[0];
    return packed(torch::autograd::grad({packed(first).square().sum()}, {x})[0]).cpu();
  };
  const Tensor expected = second(torch::kCPU);
  CHECK(torch::allclose(second(torch::kCUDA), expected, 1e-2, 1e-3 * expected.abs().max().item<double>()));
}

TEST_CASE("fused attention on CUDA: under autocast", "[nested][fused][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  torch::manual_seed(85);
  const auto options = torch::TensorOptions(torch::kFloat).device(torch::kCUDA);
  for (const double dropout : {0.0, 0.2}) {
    torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(32, 2).dropout(dropout));
    attention->to(torch::kCUDA);
    const Elements parts = tokens({40, 17, 130}, 32, options);
    const NestedTensor x(parts, sequences_first);
    const CalledOperators called;
    const auto [out, weights] = [&] {
      const nested_tests::Autocast bf16(at::kCUDA, at::kBFloat16);
      return attention->forward(x, x, x);
    }();
    CHECK(called.contain("aten::_flash_attention_forward"));
    CHECK(out.scalar_type() == torch::kBFloat16);
    CHECK(weights.scalar_type() == torch::kFloat);
    packed(out).to(torch::kFloat).square().sum().backward();
    for (const Tensor& parameter : attention->parameters()) {
      CHECK(parameter.grad().scalar_type() == torch::kFloat);
      CHECK(parameter.grad().isfinite().all().item<bool>());
    }
    if (dropout == 0) {
      const auto [exact, exact_weights] = attention->forward(x, x, x);
      CHECK(torch::allclose(packed(out).to(torch::kFloat), packed(exact), 5e-2, 5e-2));
      CHECK(torch::allclose(packed(weights), packed(exact_weights), 5e-2, 5e-2));
    }
  }
}

TEST_CASE("fused attention on CUDA: weights are read on another stream than they were made for",
          "[nested][fused][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  torch::manual_seed(86);
  const NestedTensor x(tokens({200, 170}, 64, torch::TensorOptions(torch::kFloat).device(torch::kCUDA)));
  const c10::impl::VirtualGuardImpl streams(at::kCUDA);
  const Tensor expected = packed(torch::bmm(x, x.mT()).softmax(-1)).clone();
  const Tensor weights = torch::bmm(x, x.mT()).softmax(-1);
  const c10::Stream made_on = streams.getStream(x.device());
  Tensor got;
  {
    const c10::StreamGuard other(streams.getStreamFromGlobalPool(x.device()));
    c10::Event ready(at::kCUDA);
    ready.record(made_on);
    ready.block(other.current_stream());
    got = packed(weights * 1).cpu();
  }
  CHECK(torch::allclose(got, expected.cpu(), 1e-5, 1e-6));
}

}  // namespace
}  // namespace nested_fused_devices
