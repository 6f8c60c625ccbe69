// Attention of modules and of users' code as one fused kernel: scores and weights have no values until they are read.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <torch/nn.h>

#include <danling/core/error.hpp>

#include <nested/autocast.hpp>
#include <nested/called_operators.hpp>
#include <nested/element_checks.hpp>

namespace nested_fused {
namespace {

using danling::NestedTensor;
using element_checks::check_gradients;
using element_checks::check_like_each_element;
using element_checks::Elements;
using element_checks::random_leaves;
using element_checks::Tolerance;
using nested_tests::CalledOperators;
using torch::Tensor;

constexpr const char* fused_on_cpu = "aten::_scaled_dot_product_flash_attention_for_cpu";
const danling::NestedTensorOptions length_first = {.batch_first = false};
using Lengths = std::vector<std::int64_t>;

std::vector<std::vector<std::int64_t>> shapes_of(const Lengths& lengths, std::int64_t size) {
  std::vector<std::vector<std::int64_t>> out;
  for (const std::int64_t length : lengths) {
    out.push_back({length, size});
  }
  return out;
}

Elements leaves_of(const Lengths& lengths, std::int64_t size, torch::ScalarType type = torch::kFloat) {
  return random_leaves(shapes_of(lengths, size), type);
}

/// LibTorch's own switches, which hold for the whole process.
class FusedKernels {
 public:
  explicit FusedKernels(bool enabled) {
    at::globalContext().setSDPUseFlash(enabled);
    at::globalContext().setSDPUseMemEfficient(enabled);
  }
  ~FusedKernels() {
    at::globalContext().setSDPUseFlash(flash_);
    at::globalContext().setSDPUseMemEfficient(efficient_);
  }
  FusedKernels(const FusedKernels&) = delete;
  FusedKernels& operator=(const FusedKernels&) = delete;

 private:
  bool flash_ = at::globalContext().userEnabledFlashSDP(),
       efficient_ = at::globalContext().userEnabledMemEfficientSDP();
};

struct ModuleCase {
  std::string name;
  Lengths lengths, keys;
  bool fused = true;
};

// The CPU's kernel is for 16 keys of a sequence or more on average.
const std::vector<ModuleCase> module_cases = {
    {"self-attention", {40, 17, 33}, {40, 17, 33}},
    {"keys of other lengths", {40, 17, 33}, {21, 50, 33}},
    {"an empty sequence", {40, 0, 33}, {40, 0, 33}},
    {"one sequence", {24}, {24}},
    {"equal lengths", {20, 20, 20}, {20, 20, 20}},
    {"neighbours of equal lengths", {18, 18, 30, 30, 30}, {18, 18, 30, 30, 19}},
    {"one query each", {1, 1}, {40, 16}},
    {"short sequences", {3, 7, 5}, {3, 7, 5}, false},
};

TEST_CASE("fused attention: MultiheadAttention gives values and gradients of each sequence by itself",
          "[nested][fused]") {
  torch::manual_seed(51);
  for (const ModuleCase& one : module_cases) {
    for (const std::int64_t heads : {1, 4}) {
      for (const bool need_weights : {true, false}) {
        INFO(one.name << ", " << heads << " heads, need_weights " << need_weights);
        torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(16, heads));
        const bool self = one.lengths == one.keys;
        std::vector<Elements> inputs = {leaves_of(one.lengths, 16)};
        if (!self) {
          inputs.push_back(leaves_of(one.keys, 16));
        }
        const auto attend = [&](const Tensor& query, const Tensor& key) {
          return std::get<0>(attention->forward(query, key, key, {}, need_weights));
        };
        const CalledOperators called;
        check_like_each_element(
            inputs,
            [&](const Elements& from) {
              const Tensor out = attend(from[0], from.back());
              CHECK(called.contain(fused_on_cpu) == one.fused);
              return out;
            },
            [&](const Elements& from) {
              const Tensor query = from[0].unsqueeze(1), key = from.back().unsqueeze(1);
              return query.numel() == 0 ? query.squeeze(1) * 1 : attend(query, key).squeeze(1);
            },
            attention->parameters(), {1e-4, 2e-5}, length_first);
      }
    }
  }
}

TEST_CASE("fused attention: each floating type", "[nested][fused]") {
  torch::manual_seed(52);
  for (const auto& [type, allowed] : std::vector<std::pair<torch::ScalarType, Tolerance>>{
           {torch::kDouble, {}}, {torch::kFloat, {1e-4, 2e-5}}, {torch::kBFloat16, {2e-2, 4e-2}}}) {
    INFO(type);
    const auto attend = [](const Elements& from) {
      return torch::matmul(torch::softmax(torch::matmul(from[0], from[1].transpose(-2, -1)) / std::sqrt(8.0), -1),
                           from[2]);
    };
    const CalledOperators called;
    check_like_each_element(
        {leaves_of({20, 33, 0}, 8, type), leaves_of({40, 17, 0}, 8, type), leaves_of({40, 17, 0}, 8, type)}, attend,
        attend, {}, allowed);
    CHECK(called.contain(fused_on_cpu));
  }
}

TEST_CASE("fused attention: by hand, with heads, a scale and dropout of nothing", "[nested][fused]") {
  torch::manual_seed(53);
  const auto sizes = [](const Lengths& lengths) {
    std::vector<std::vector<std::int64_t>> out;
    for (const std::int64_t length : lengths) {
      out.push_back({2, length, 8});
    }
    return out;
  };
  const auto attend = [](const Elements& from) {
    const Tensor scores = torch::matmul(from[0] * 0.5, from[1].mT()) * 0.7;
    return torch::matmul(torch::dropout(torch::dropout(scores.softmax(-1), 0.0, true), 0.5, false), from[2]);
  };
  const CalledOperators called;
  check_like_each_element(
      {random_leaves(sizes({20, 33})), random_leaves(sizes({40, 17})), random_leaves(sizes({40, 17}))}, attend, attend);
  CHECK(called.contain(fused_on_cpu));
}

TEST_CASE("fused attention: queries that are the keys and the values", "[nested][fused]") {
  torch::manual_seed(54);
  const auto attend = [](const Elements& from) {
    return torch::matmul(torch::softmax(torch::matmul(from[0], from[0].mT()), -1), from[0]);
  };
  check_like_each_element({leaves_of({20, 33}, 4, torch::kDouble)}, attend, attend);
}

TEST_CASE("fused attention: an encoder layer and its gradients", "[nested][fused]") {
  torch::manual_seed(55);
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.0));
  check_like_each_element(
      {leaves_of({40, 17, 33, 33}, 16)},
      [&](const Elements& from) {
        const CalledOperators called;
        const Tensor out = layer->forward(from[0]);
        CHECK(called.contain(fused_on_cpu));
        CHECK_FALSE(called.contain("aten::_softmax"));  // nor the weights that nobody reads
        return out;
      },
      [&](const Elements& from) { return layer->forward(from[0].unsqueeze(1)).squeeze(1); }, layer->parameters(),
      {1e-4, 2e-5}, length_first);
}

TEST_CASE("fused attention: gradients have gradients", "[nested][fused]") {
  torch::manual_seed(56);
  const Lengths lengths = {20, 16}, keys = {16, 18};
  for (const bool same : {false, true}) {
    const CalledOperators called;
    check_gradients({torch::randn({same ? 34 : 36, 2}, torch::kDouble).requires_grad_(),
                     torch::randn({34, 2}, torch::kDouble).requires_grad_(),
                     torch::randn({34, 2}, torch::kDouble).requires_grad_()},
                    [&](const Elements& leaves) {
                      const auto nested = [](const Tensor& values, const Lengths& sizes) {
                        return NestedTensor::from_concatenated(values, shapes_of(sizes, 2));
                      };
                      const Tensor q = nested(leaves[0], same ? keys : lengths), k = same ? q : nested(leaves[1], keys),
                                   v = nested(leaves[2], keys);
                      const Tensor out = torch::matmul(torch::matmul(q, k.mT()).softmax(-1), v);
                      return NestedTensor(out).concat().pow(3).sum();
                    });
    CHECK(called.contain(fused_on_cpu));
  }
}

TEST_CASE("fused attention: LibTorch's switches of fused kernels hold for nested tensors too", "[nested][fused]") {
  torch::manual_seed(57);
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(16, 2));
  const NestedTensor x(leaves_of({40, 17}, 16), length_first);
  const NestedTensor expected(std::get<0>(attention->forward(x, x, x)));
  const FusedKernels off(false);
  const CalledOperators called;
  const NestedTensor got(std::get<0>(attention->forward(x, x, x)));
  CHECK_FALSE(called.contain(fused_on_cpu));
  CHECK(called.contain("aten::_softmax"));
  CHECK(torch::allclose(got.concat(), expected.concat(), 1e-4, 1e-5));
}

TEST_CASE("fused attention: weights are computed when they are read", "[nested][fused]") {
  torch::manual_seed(58);
  for (const std::int64_t heads : {1, 2}) {
    torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(16, heads));
    for (const auto& [lengths, keys] :
         std::vector<std::pair<Lengths, Lengths>>{{{40, 17, 20}, {30, 17, 21}}, {{1, 1}, {40, 17}}, {{0, 0}, {0, 0}}}) {
      INFO(heads << " heads, " << torch::IntArrayRef(lengths) << " and " << torch::IntArrayRef(keys));
      check_like_each_element(
          {leaves_of(lengths, 16), leaves_of(keys, 16)},
          [&, batch = std::ssize(lengths), longest = lengths[0], longest_key = keys[0]](const Elements& from) {
            const CalledOperators called;
            const auto [out, weights] = attention->forward(from[0], from[1], from[1]);
            CHECK(weights.sizes() == torch::IntArrayRef({batch, longest, longest_key}));
            CHECK(weights.requires_grad());
            if (longest > 1) {
              CHECK_FALSE(called.contain("aten::_softmax"));
              CHECK(NestedTensor(weights).concat().defined());
              CHECK(called.contain("aten::_softmax"));
            }
            return weights;
          },
          [&](const Elements& from) {
            const Tensor query = from[0].unsqueeze(1), key = from[1].unsqueeze(1);
            return query.numel() == 0 ? torch::mm(from[0], from[1].t())
                                      : std::get<1>(attention->forward(query, key, key)).squeeze(0);
          },
          attention->parameters(), {1e-4, 1e-5}, length_first);
    }
  }
}

// On CUDA, autocast adds a dtype to this sum. If the sum read the weights, dropout would be an error.
TEST_CASE("fused attention: a mean of weights over heads in another type is computed when it is read",
          "[nested][fused]") {
  torch::manual_seed(62);
  const NestedTensor x(leaves_of({40, 40, 17, 17}, 16));
  const CalledOperators called;
  const Tensor weights = torch::bmm(x, x.transpose(1, 2)).softmax(-1);
  const Tensor mean = weights.view({2, 2, 40, 40}).sum({1}, /*keepdim=*/false, torch::kFloat64) / 2;
  CHECK(mean.scalar_type() == torch::kFloat64);
  CHECK_FALSE(called.contain("aten::_softmax"));
  const auto expected = [&](std::int64_t i) {
    const auto of = [&](std::int64_t at) { return torch::mm(x[at], x[at].t()).softmax(-1).to(torch::kFloat64); };
    return (of(2 * i) + of(2 * i + 1)) / 2;
  };
  for (std::int64_t i = 0; i < 2; ++i) {
    CHECK(torch::allclose(NestedTensor(mean)[i], expected(i), 1e-4, 1e-5));
  }
}

TEST_CASE("fused attention: what makes no fused kernel is computed from scores", "[nested][fused]") {
  torch::manual_seed(59);
  struct Use {
    std::string name;
    std::function<Tensor(const Tensor& scores, const Tensor& values)> apply;
  };
  const Tensor mask = torch::randn({40, 40}, torch::kDouble);
  const auto cut = [](const Tensor& plain, const Tensor& to) {
    return NestedTensor::is_nested(to) ? plain : plain.slice(0, 0, to.size(0)).slice(1, 0, to.size(1));
  };
  const std::vector<Use> uses = {
      {"scores alone", [](const Tensor& s, const Tensor&) { return s * 1; }},
      {"scores times a number", [](const Tensor& s, const Tensor&) { return s * 3; }},
      {"in place", [&](const Tensor& s, const Tensor&) { return (s * 1).add_(cut(mask, s)); }},
      {"an additive mask",
       [&](const Tensor& s, const Tensor& v) { return torch::matmul((s + cut(mask, s)).softmax(-1), v); }},
      {"a filled mask",
       [&](const Tensor& s, const Tensor& v) {
         return torch::matmul(s.masked_fill(cut(mask, s) > 1, -std::numeric_limits<double>::infinity()).softmax(-1), v);
       }},
      {"softmax over queries", [](const Tensor& s, const Tensor& v) { return torch::matmul(s.softmax(-2), v); }},
      {"log_softmax", [](const Tensor& s, const Tensor&) { return s.log_softmax(-1); }},
      {"softmax twice", [](const Tensor& s, const Tensor& v) { return torch::matmul(s.softmax(-1).softmax(-1), v); }},
      {"a negative scale", [](const Tensor& s, const Tensor& v) { return torch::matmul((s * -2).softmax(-1), v); }},
      {"no scale", [](const Tensor& s, const Tensor& v) { return torch::matmul((s * 0).softmax(-1), v); }},
      {"scaled weights", [](const Tensor& s, const Tensor& v) { return torch::matmul(s.softmax(-1) * 2, v); }},
      {"weights without softmax", [](const Tensor& s, const Tensor& v) { return torch::matmul(s, v); }},
      {"weights as the second factor",
       [](const Tensor& s, const Tensor& v) { return torch::matmul(v.mT(), s.softmax(-1).mT()); }},
      {"weights used twice",
       [](const Tensor& s, const Tensor& v) {
         const Tensor w = s.softmax(-1);
         return torch::matmul(w, v) + torch::matmul(w, v * v) + torch::matmul(w.square(), v);
       }},
      {"another type",
       [](const Tensor& s, const Tensor& v) {
         return torch::matmul(s.to(torch::kFloat).softmax(-1), v.to(torch::kFloat));
       }},
      {"softmax in another type",
       [](const Tensor& s, const Tensor& v) {
         return torch::matmul(s.softmax(-1, torch::kFloat).to(torch::kDouble), v);
       }},
      {"clone", [](const Tensor& s, const Tensor&) { return s.softmax(-1).clone(); }},
      {"sum over keys", [](const Tensor& s, const Tensor&) { return s.softmax(-1).sum(-1); }},
  };
  const std::vector<Elements> inputs = {leaves_of({40, 17, 20}, 4, torch::kDouble),
                                        leaves_of({18, 40, 20}, 4, torch::kDouble),
                                        leaves_of({18, 40, 20}, 4, torch::kDouble)};
  for (const Use& use : uses) {
    INFO(use.name);
    const Tolerance allowed = use.name.find("another type") == std::string::npos ? Tolerance{} : Tolerance{1e-4, 1e-5};
    const auto apply = [&](const Elements& from) {
      return use.apply(torch::matmul(from[0], from[1].transpose(-2, -1)), from[2]);
    };
    check_like_each_element(inputs, apply, apply, {}, allowed);
  }
}

TEST_CASE("fused attention: under autocast on the CPU", "[nested][fused]") {
  torch::manual_seed(60);
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(16, 2));
  const auto attend = [&](const Tensor& x) {
    const nested_tests::Autocast bf16(at::kCPU, at::kBFloat16);
    return attention->forward(x, x, x);
  };
  const CalledOperators called;
  const Elements elements = leaves_of({40, 17}, 16);
  const auto [out, weights] = attend(NestedTensor(elements, length_first));
  CHECK(called.contain(fused_on_cpu));
  CHECK(out.scalar_type() == torch::kBFloat16);
  NestedTensor(out).concat().to(torch::kFloat).sum().backward();
  const Elements gradients = element_checks::gradients_of(attention->parameters());
  Tensor loss = torch::zeros({});
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const auto [alone, own] = attend(elements[i].unsqueeze(1));
    CHECK(torch::allclose(NestedTensor(out).elements()[i], alone.squeeze(1), 2e-2, 2e-2));
    CHECK(torch::allclose(NestedTensor(weights)[static_cast<std::int64_t>(i)], own.squeeze(0), 2e-2, 2e-2));
    CHECK(weights.scalar_type() == own.scalar_type());
    loss = loss + alone.to(torch::kFloat).sum();
  }
  loss.backward();
  const Elements wanted = element_checks::gradients_of(attention->parameters());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(gradients[i].scalar_type() == torch::kFloat);
    CHECK(torch::allclose(gradients[i], wanted[i], 5e-2, 5e-2 * wanted[i].abs().max().item<double>()));
  }
}

TEST_CASE("fused attention: dropout on the CPU drops what the weights say, and follows the seed", "[nested][fused]") {
  torch::manual_seed(61);
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 1).dropout(0.4).bias(false));
  {
    const torch::NoGradGuard no_grad;
    attention->out_proj->weight.copy_(torch::eye(8));
    attention->in_proj_weight.slice(0, 16).copy_(torch::eye(8));  // values are the inputs
  }
  const NestedTensor x(leaves_of({40, 17}, 8), length_first);
  const auto run = [&](std::uint64_t seed) {
    torch::manual_seed(seed);
    return attention->forward(x, x, x);
  };
  const auto [out, weights] = run(1);
  const NestedTensor expected(torch::matmul(weights, x.transpose(0, 1)));
  CHECK(torch::allclose(NestedTensor(out.transpose(0, 1)).concat(), expected.concat(), 1e-4, 1e-5));
  CHECK(NestedTensor(weights).concat().eq(0).to(torch::kFloat).mean().item<double>() == Approx(0.4).margin(0.1));
  CHECK(NestedTensor(std::get<0>(run(1))).concat().equal(NestedTensor(out).concat()));
  CHECK_FALSE(NestedTensor(std::get<0>(run(2))).concat().equal(NestedTensor(out).concat()));
}

}  // namespace
}  // namespace nested_fused
