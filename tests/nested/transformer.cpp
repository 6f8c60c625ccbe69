// Transformer modules of torch::nn, as they are, on sequence-first NestedTensors: every sequence by itself.
#include <algorithm>
#include <string>
#include <vector>

#include <torch/nn.h>

#include <danling/core/error.hpp>

#include <nested/element_checks.hpp>
#include <support/cuda.hpp>

namespace nested_transformer {
namespace {

using danling::NestedTensor;
using element_checks::check_like_each_element;
using element_checks::Elements;
using element_checks::random_leaves;
using element_checks::Tolerance;
using torch::Tensor;

constexpr Tolerance of_modules = {1e-4, 2e-5};

std::vector<std::vector<std::int64_t>> tokens_of(const std::vector<std::int64_t>& lengths, std::int64_t size) {
  std::vector<std::vector<std::int64_t>> out;
  for (const std::int64_t length : lengths) {
    out.push_back({length, size});
  }
  return out;
}

/// Sequences as a module takes one: (length, 1, size).
Elements as_batches(const Elements& inputs) {
  Elements out;
  for (const Tensor& input : inputs) {
    out.push_back(input.unsqueeze(1));
  }
  return out;
}

const danling::NestedTensorOptions sequence_first = {.batch_first = false};
const std::vector<std::vector<std::int64_t>> module_lengths = {{3, 7, 5}, {4}, {5, 5, 5}, {1, 6, 6, 1}};

TEST_CASE("transformer: MultiheadAttention attends within each sequence", "[nested][transformer]") {
  torch::manual_seed(12);
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2));
  for (const auto& lengths : module_lengths) {
    for (const bool cross : {false, true}) {
      INFO("cross-attention: " << cross << ", " << lengths.size() << " sequences");
      std::vector<std::int64_t> keys = lengths;
      for (std::int64_t& key : keys) {
        key = cross ? 8 - key : key;
      }
      std::vector<Elements> inputs = {random_leaves(tokens_of(lengths, 8), torch::kFloat32)};
      if (cross) {
        inputs.push_back(random_leaves(tokens_of(keys, 8), torch::kFloat32));
      }
      for (const bool weights : {false, true}) {
        const auto attend = [&](const Elements& from) {
          const auto out = attention->forward(from[0], from.back(), from.back());
          return weights ? std::get<1>(out) : std::get<0>(out);
        };
        check_like_each_element(
            inputs, attend,
            [&](const Elements& from) {
              const Tensor out = attend(as_batches(from));
              return weights ? out.squeeze(0) : out.squeeze(1);
            },
            attention->parameters(), of_modules, sequence_first);
      }
    }
  }
}

TEST_CASE("transformer: MultiheadAttention with weights of its own for keys and values", "[nested][transformer]") {
  torch::manual_seed(13);
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6).bias(false));
  const auto attend = [&](const Elements& from) { return std::get<0>(attention->forward(from[0], from[1], from[1])); };
  check_like_each_element(
      {random_leaves(tokens_of({3, 5}, 8), torch::kFloat32), random_leaves(tokens_of({4, 2}, 6), torch::kFloat32)},
      attend, [&](const Elements& from) { return attend(as_batches(from)).squeeze(1); }, attention->parameters(),
      of_modules, sequence_first);
}

TEST_CASE("transformer: an encoder layer, with and without a mask", "[nested][transformer]") {
  torch::manual_seed(14);
  for (const bool train : {false, true}) {
    for (const bool masked : {false, true}) {
      torch::nn::TransformerEncoderLayer layer(
          torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.0));
      layer->train(train);
      for (const auto& lengths : module_lengths) {
        INFO("train " << train << ", masked " << masked << ", " << lengths.size() << " sequences");
        const auto encode = [&](const Tensor& from) {
          const std::int64_t longest = from.size(0);
          return layer->forward(
              from, masked ? torch::nn::TransformerImpl::generate_square_subsequent_mask(longest) : Tensor());
        };
        check_like_each_element(
            {random_leaves(tokens_of(lengths, 8), torch::kFloat32)},
            [&](const Elements& from) { return encode(from[0]); },
            [&](const Elements& from) { return encode(from[0].unsqueeze(1)).squeeze(1); }, layer->parameters(),
            of_modules, sequence_first);
      }
    }
  }
}

TEST_CASE("transformer: an encoder of two layers with a norm", "[nested][transformer]") {
  torch::manual_seed(15);
  torch::nn::TransformerEncoder encoder(
      torch::nn::TransformerEncoderOptions(
          torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.0).activation(torch::kGELU), 2)
          .norm(torch::nn::AnyModule(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))));
  check_like_each_element(
      {random_leaves(tokens_of({3, 7, 5}, 8), torch::kFloat32)},
      [&](const Elements& from) { return encoder->forward(from[0]); },
      [&](const Elements& from) { return encoder->forward(from[0].unsqueeze(1)).squeeze(1); }, encoder->parameters(),
      of_modules, sequence_first);
}

TEST_CASE("transformer: a decoder layer reads sequences of other lengths", "[nested][transformer]") {
  torch::manual_seed(16);
  torch::nn::TransformerDecoderLayer layer(
      torch::nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.0));
  const auto decode = [&](const Elements& from) {
    return layer->forward(from[0], from[1],
                          torch::nn::TransformerImpl::generate_square_subsequent_mask(from[0].size(0)));
  };
  check_like_each_element(
      {random_leaves(tokens_of({3, 7, 5}, 8), torch::kFloat32),
       random_leaves(tokens_of({6, 2, 5}, 8), torch::kFloat32)},
      decode, [&](const Elements& from) { return decode(as_batches(from)).squeeze(1); }, layer->parameters(),
      of_modules, sequence_first);
}

TEST_CASE("transformer: a key_padding_mask of the padded keys leaves out keys", "[nested][transformer]") {
  torch::manual_seed(17);
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2));
  const std::vector<std::int64_t> lengths = {3, 5};
  Tensor mask = torch::zeros({2, 5}, torch::kBool);
  mask[0][1] = true;
  mask[1][4] = true;
  std::int64_t next = 0;
  check_like_each_element(
      {random_leaves(tokens_of(lengths, 8), torch::kFloat32)},
      [&](const Elements& from) { return std::get<0>(attention->forward(from[0], from[0], from[0], mask)); },
      [&](const Elements& from) {
        const Tensor x = from[0].unsqueeze(1), own = mask.slice(0, next, next + 1).slice(1, 0, x.size(0));
        ++next;
        return std::get<0>(attention->forward(x, x, x, own)).squeeze(1);
      },
      attention->parameters(), of_modules, sequence_first);
}

TEST_CASE("transformer: learned and zero keys are added to each sequence", "[nested][transformer]") {
  torch::manual_seed(26);
  for (const bool learned : {true, false}) {
    INFO((learned ? "add_bias_kv" : "add_zero_attn"));
    torch::nn::MultiheadAttention attention(
        torch::nn::MultiheadAttentionOptions(8, 2).add_bias_kv(learned).add_zero_attn(!learned));
    const auto attend = [&](const Tensor& x) { return std::get<0>(attention->forward(x, x, x)); };
    check_like_each_element(
        {random_leaves(tokens_of({3, 5}, 8), torch::kFloat32)}, [&](const Elements& from) { return attend(from[0]); },
        [&](const Elements& from) { return attend(from[0].unsqueeze(1)).squeeze(1); }, attention->parameters(),
        of_modules, sequence_first);
  }
}

TEST_CASE("nested on CUDA: linear, layer_norm, softmax, padding and an encoder layer agree with each element",
          "[nested][transformer][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  torch::manual_seed(27);
  const auto on_cuda = torch::TensorOptions(torch::kFloat32).device(torch::kCUDA);
  const Tolerance allowed = {2e-3, 2e-3};  // products may be in TF32
  torch::nn::Linear linear(8, 6);
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({8}));
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.0));
  linear->to(torch::kCUDA);
  norm->to(torch::kCUDA);
  layer->to(torch::kCUDA);
  for (const auto& lengths : module_lengths) {
    const auto tokens = [&] { return std::vector<Elements>{random_leaves(tokens_of(lengths, 8), on_cuda)}; };
    const auto check = [&](const Elements& parameters, const element_checks::Function& function) {
      check_like_each_element(tokens(), function, function, parameters, allowed);
    };
    check(linear->parameters(), [&](const Elements& from) { return linear->forward(from[0]); });
    check(norm->parameters(), [&](const Elements& from) { return norm->forward(from[0]); });
    check({}, [](const Elements& from) { return torch::softmax(from[0], -1); });
    check_like_each_element(
        tokens(), [](const Elements& from) { return torch::softmax(from[0], 1); },
        [](const Elements& from) { return torch::softmax(from[0], 0); }, {}, allowed);
    check_like_each_element(
        tokens(), [](const Elements& from) { return NestedTensor(from[0]).tensor(); },
        [&](const Elements& from) {
          const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
          return torch::constant_pad_nd(from[0], {0, 0, 0, longest - from[0].size(0)}, 0);
        },
        {}, allowed);
    check_like_each_element(
        tokens(), [&](const Elements& from) { return layer->forward(from[0]); },
        [&](const Elements& from) { return layer->forward(from[0].unsqueeze(1)).squeeze(1); }, layer->parameters(),
        allowed, sequence_first);
  }
}

}  // namespace
}  // namespace nested_transformer
