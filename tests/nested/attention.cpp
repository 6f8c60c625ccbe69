// scaled_dot_product_attention of NestedTensors: every sequence by itself.
#include <optional>
#include <string>
#include <vector>

#include <danling/core/error.hpp>

#include <nested/element_checks.hpp>
#include <support/cuda.hpp>

namespace nested_attention {
namespace {

using danling::NestedTensor;
using element_checks::check_like_each_element;
using element_checks::Elements;
using element_checks::random_leaves;
using element_checks::Tolerance;
using torch::Tensor;

std::vector<std::vector<std::int64_t>> heads_of(const std::vector<std::int64_t>& lengths, std::int64_t heads,
                                                std::int64_t size) {
  std::vector<std::vector<std::int64_t>> out;
  for (const std::int64_t length : lengths) {
    out.push_back({heads, length, size});
  }
  return out;
}

struct AttentionCase {
  std::string name;
  std::vector<std::int64_t> lengths, keys;
  bool is_causal = false;
  std::optional<double> scale = std::nullopt;
  std::int64_t size = 8, values = 8;
};

const std::vector<AttentionCase> attention_cases = {
    {"self-attention", {3, 7, 5}, {3, 7, 5}},
    {"causal", {3, 7, 5}, {3, 7, 5}, true},
    {"scaled", {3, 7, 5}, {3, 7, 5}, false, 0.3},
    {"cross-attention", {3, 7, 5}, {6, 2, 5}},
    {"causal cross-attention", {3, 7, 5}, {6, 2, 5}, true},
    {"an empty sequence", {3, 0, 5}, {3, 0, 5}},
    {"one sequence", {4}, {4}},
    {"equal lengths", {4, 4, 4}, {4, 4, 4}},
    {"equal lengths of keys only", {4, 3, 2}, {4, 4, 4}},
    {"one token each", {1, 1}, {1, 1}, true},
    {"values of another size", {3, 7, 5}, {3, 7, 5}, false, std::nullopt, 8, 4},
    {"neighbours of equal lengths", {3, 3, 5, 5, 5, 2}, {3, 3, 5, 5, 4, 2}},
};

Tensor attend(const Elements& inputs, const AttentionCase& one) {
  return torch::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, 0.0, one.is_causal, one.scale);
}

TEST_CASE("attention: each sequence attends to its own keys", "[nested][attention]") {
  torch::manual_seed(6);
  for (const AttentionCase& one : attention_cases) {
    INFO(one.name);
    for (const auto& [dtype, allowed] : std::vector<std::pair<torch::ScalarType, Tolerance>>{
             {torch::kFloat64, {}}, {torch::kFloat32, {1e-4, 1e-5}}, {torch::kBFloat16, {1e-2, 2e-2}}}) {
      check_like_each_element(
          {random_leaves(heads_of(one.lengths, 2, one.size), dtype),
           random_leaves(heads_of(one.keys, 2, one.size), dtype),
           random_leaves(heads_of(one.keys, 2, one.values), dtype)},
          [&](const Elements& inputs) { return attend(inputs, one); },
          [&](const Elements& inputs) { return attend(inputs, one); }, {}, allowed);
    }
  }
}

TEST_CASE("attention: elements without heads", "[nested][attention]") {
  torch::manual_seed(7);
  const std::vector<std::vector<std::int64_t>> sizes = {{3, 4}, {0, 4}, {5, 4}};
  const auto attention = [](const Elements& inputs) {
    return torch::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, 0.0, true);
  };
  check_like_each_element({random_leaves(sizes), random_leaves(sizes), random_leaves(sizes)}, attention, attention);
}

TEST_CASE("attention: groups of queries share keys", "[nested][attention]") {
  torch::manual_seed(8);
  const auto attention = [](const Elements& inputs) {
    return torch::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, 0.0, false, std::nullopt, true);
  };
  check_like_each_element(
      {random_leaves(heads_of({3, 5}, 4, 8)), random_leaves(heads_of({3, 5}, 2, 8)),
       random_leaves(heads_of({3, 5}, 2, 8))},
      attention, [&](const Elements& inputs) {
        return attention({inputs[0].unsqueeze(0), inputs[1].unsqueeze(0), inputs[2].unsqueeze(0)}).squeeze(0);
      });
}

TEST_CASE("attention: masks are nested, or of the padded scores", "[nested][attention]") {
  torch::manual_seed(9);
  const std::vector<std::int64_t> lengths = {3, 6, 4}, keys = {5, 2, 4};
  for (const bool boolean : {true, false}) {
    Elements masks;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const Tensor random = torch::randn({lengths[i], keys[i]}, torch::kFloat64);
      masks.push_back(boolean ? random > -1 : random);
    }
    const Tensor padded = torch::randn({6, 5}, torch::kFloat64);
    const Tensor plain = boolean ? padded > -1 : padded;
    for (const bool use_nested : {true, false}) {
      INFO("boolean " << boolean << ", nested " << use_nested);
      std::size_t next = 0;
      check_like_each_element(
          {random_leaves(heads_of(lengths, 2, 8)), random_leaves(heads_of(keys, 2, 8)),
           random_leaves(heads_of(keys, 2, 8))},
          [&](const Elements& inputs) {
            const Tensor mask = use_nested ? NestedTensor(masks) : plain;
            return torch::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], mask);
          },
          [&](const Elements& inputs) {
            const Tensor mask = use_nested ? masks[next] : plain.slice(0, 0, lengths[next]).slice(1, 0, keys[next]);
            ++next;
            return torch::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], mask);
          });
    }
  }
}

TEST_CASE("attention: dropout keeps the expectation and shapes", "[nested][attention]") {
  torch::manual_seed(10);
  const Elements x = random_leaves(heads_of({40, 60}, 2, 8));
  const NestedTensor nested(x);
  const Tensor values = torch::ones_like(nested);
  const NestedTensor out(torch::scaled_dot_product_attention(nested, nested, values, {}, 0.25));
  CHECK(out.shapes() == nested.shapes());
  CHECK(out.concat().mean().item<double>() == Approx(1).margin(0.05));
  CHECK(out.concat().std().item<double>() > 0);
}

TEST_CASE("attention: what does not fit is refused with the shapes", "[nested][attention]") {
  const NestedTensor q({torch::zeros({2, 3, 8}), torch::zeros({2, 5, 8})});
  const NestedTensor k({torch::zeros({2, 4, 8}), torch::zeros({2, 5, 8})});
  CHECK_THROWS_WITH(
      torch::scaled_dot_product_attention(q, q, k),
      ContainsSubstring("[nested_tensor.scaled_dot_product_attention] expected keys as long as values and "
                        "as wide as queries, got queries (2, 3, 8), (2, 5, 8), keys (2, 3, 8), (2, 5, 8), "
                        "values (2, 4, 8), (2, 5, 8)"));
  CHECK_THROWS_WITH(
      torch::scaled_dot_product_attention(q, torch::zeros({2, 2, 5, 8}), torch::zeros({2, 2, 5, 8})),
      ContainsSubstring("[nested_tensor.scaled_dot_product_attention] expected NestedTensors as query, key "
                        "and value"));
  CHECK_THROWS_WITH(torch::scaled_dot_product_attention(q, q, q, torch::zeros({4, 4})),
                    ContainsSubstring("expected a mask that broadcasts to the padded scores, (5, 5) in the last "
                                      "dimensions, got one of shape (4, 4)"));
}

TEST_CASE("attention on CUDA: the kernel for packed sequences agrees with each sequence by itself",
          "[nested][attention][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  torch::manual_seed(11);
  for (const AttentionCase& one : attention_cases) {
    INFO(one.name);
    for (const auto& [dtype, allowed] : std::vector<std::pair<torch::ScalarType, Tolerance>>{
             {torch::kFloat32, {1e-3, 1e-4}}, {torch::kHalf, {1e-2, 1e-2}}, {torch::kBFloat16, {2e-2, 4e-2}}}) {
      const auto options = torch::TensorOptions(dtype).device(torch::kCUDA);
      check_like_each_element(
          {random_leaves(heads_of(one.lengths, 2, one.size), options),
           random_leaves(heads_of(one.keys, 2, one.size), options),
           random_leaves(heads_of(one.keys, 2, one.values), options)},
          [&](const Elements& inputs) { return attend(inputs, one); },
          [&](const Elements& inputs) { return attend(inputs, one); }, {}, allowed);
    }
  }
}

}  // namespace
}  // namespace nested_attention
