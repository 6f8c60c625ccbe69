// Layers and losses of tokens and of sequences: embedding bags, cells, bilinear, dropout of channels, ctc_loss.
#include <torch/nn.h>

#include <danling/core/error.hpp>

#include "nested/element_checks.hpp"
#include "nested/nested_tests.hpp"

namespace nested_layers {
namespace {

namespace F = torch::nn::functional;
using danling::NestedTensor;
using element_checks::check_like_each_element;
using element_checks::Elements;
using element_checks::random_leaves;
using nested_tests::Sizes;
using torch::Tensor;

const std::vector<Sizes> layer_tokens = {{3, 4}, {0, 4}, {5, 4}, {1, 4}};

std::vector<Tensor> bags(const std::vector<std::int64_t>& lengths) {
  torch::manual_seed(3);
  std::vector<Tensor> out;
  for (const std::int64_t length : lengths) {
    out.push_back(torch::randint(0, 6, {length}, torch::kLong));
  }
  return out;
}

TEST_CASE("NestedTensor: an embedding bag is one of each sequence", "[nested]") {
  for (const auto& lengths : {Sizes{3, 0, 5, 1}, Sizes{2}, Sizes{4, 4}, Sizes{0, 0}}) {
    const auto numbers = bags(lengths);
    for (const std::int64_t mode : {0, 1, 2}) {
      for (const bool given_offsets : {false, true}) {
        const Tensor weight = torch::randn({6, 3}, torch::kDouble).requires_grad_();
        const NestedTensor x(numbers);
        const Tensor got =
            std::get<0>(torch::embedding_bag(weight, x, given_offsets ? x.offsets() : Tensor(), false, mode));
        Elements each;
        for (const Tensor& bag : numbers) {
          each.push_back(std::get<0>(torch::embedding_bag(weight, bag, torch::zeros({1}, torch::kLong), false, mode)));
        }
        const Tensor expected = torch::cat(each);
        CHECK(got.allclose(expected));
        const Tensor factor = torch::randn_like(expected);
        CHECK(torch::autograd::grad({(got * factor).sum()}, {weight})[0].allclose(
            torch::autograd::grad({(expected * factor).sum()}, {weight})[0]));
      }
    }
  }
  const auto numbers = bags({3, 2});
  const Tensor weight = torch::randn({6, 3});
  const NestedTensor x(numbers), weights({torch::rand({3}), torch::rand({2})});
  const Tensor got = std::get<0>(torch::embedding_bag(weight, x, {}, false, 0, false, weights));
  CHECK(got[1].allclose((weight.index({numbers[1]}) * weights[1].unsqueeze(1)).sum(0)));
  const Tensor skipping =
      std::get<0>(torch::embedding_bag(weight, x, {}, false, 0, false, {}, false, numbers[0][0].item<std::int64_t>()));
  CHECK(skipping[0].allclose((weight.index({numbers[0]}) * (numbers[0] != numbers[0][0]).unsqueeze(1)).sum(0)));
  CHECK_THROWS_WITH(torch::embedding_bag(weight, x, torch::tensor({0, 2})),
                    ContainsSubstring("[nested_tensor.embedding_bag] expected no offsets, or offsets() of the "
                                      "NestedTensor, got others of shape (2) for elements (3), (2)"));
  CHECK_THROWS_WITH(torch::embedding_bag(weight, NestedTensor({torch::ones({2, 2}, torch::kLong)}), {}),
                    ContainsSubstring("expected elements of one dimension, the numbers of a bag, got (2, 2)"));
}

TEST_CASE("NestedTensor: an embedding with max_norm shortens the rows that are looked up", "[nested]") {
  const auto numbers = bags({3, 0, 2});
  torch::manual_seed(8);
  torch::nn::Embedding layer(torch::nn::EmbeddingOptions(8, 4).max_norm(0.5)),
      own(torch::nn::EmbeddingOptions(8, 4).max_norm(0.5));
  {
    const torch::NoGradGuard no_grad;
    own->weight.copy_(layer->weight);
  }
  const NestedTensor got(layer->forward(NestedTensor(numbers)));
  const Tensor expected = own->forward(torch::cat(numbers));
  CHECK(got.concat().allclose(expected));
  CHECK(layer->weight.allclose(own->weight));
  got.sum().backward();
  expected.sum().backward();
  CHECK(layer->weight.grad().allclose(own->weight.grad()));
}

TEST_CASE("NestedTensor: cells step every token with its own state", "[nested]") {
  torch::manual_seed(4);
  const auto parameters = [](std::int64_t gates) {
    return random_leaves({{gates * 3, 4}, {gates * 3, 3}, {gates * 3}, {gates * 3}});
  };
  const std::vector<Sizes> states = {{3, 3}, {0, 3}, {5, 3}, {1, 3}};
  const Elements gru = parameters(3), lstm = parameters(4), rnn = parameters(1);
  check_like_each_element(
      {random_leaves(layer_tokens), random_leaves(states)},
      [&](const Elements& at) { return torch::gru_cell(at[0], at[1], gru[0], gru[1], gru[2], gru[3]); },
      [&](const Elements& at) { return torch::gru_cell(at[0], at[1], gru[0], gru[1], gru[2], gru[3]); }, gru);
  for (const auto& cell : {torch::rnn_tanh_cell, torch::rnn_relu_cell}) {
    const auto step = [&](const Elements& at) { return cell(at[0], at[1], rnn[0], rnn[1], rnn[2], rnn[3]); };
    check_like_each_element({random_leaves(layer_tokens), random_leaves(states)}, step, step, rnn);
  }
  const auto step = [&](const Elements& at) {
    const auto [hidden, cell] = torch::lstm_cell(at[0], {at[1], at[2]}, lstm[0], lstm[1], lstm[2], lstm[3]);
    return hidden + cell * 2;
  };
  check_like_each_element({random_leaves(layer_tokens), random_leaves(states), random_leaves(states)}, step, step,
                          lstm);
  CHECK_THROWS_WITH(
      torch::gru_cell(NestedTensor(random_leaves(layer_tokens)), torch::zeros({4, 3}, torch::kDouble), gru[0], gru[1]),
      ContainsSubstring(
          "[nested_tensor.gru_cell] expected states of the input's lengths (3, 4), (0, 4), (5, 4), (1, 4), "
          "nested, got shape (4, 3); gru, lstm and rnn run along each sequence"));
}

TEST_CASE("NestedTensor: bilinear is of the two vectors of each token", "[nested]") {
  torch::manual_seed(5);
  const Elements own = random_leaves({{2, 4, 3}, {2}});
  for (const std::vector<Sizes>& second : {std::vector<Sizes>{{3, 3}, {0, 3}, {5, 3}, {1, 3}}}) {
    const auto call = [&](const Elements& at) { return torch::bilinear(at[0], at[1], own[0], own[1]); };
    check_like_each_element({random_leaves(layer_tokens), random_leaves(second)}, call, call, own);
  }
  const auto grids = [&](const Elements& at) { return torch::bilinear(at[0], at[1], own[0], {}); };
  check_like_each_element({random_leaves({{2, 3, 4}, {1, 2, 4}}), random_leaves({{2, 3, 3}, {1, 2, 3}})}, grids, grids,
                          {own[0]});
  CHECK_THROWS_WITH(
      torch::bilinear(NestedTensor(random_leaves(layer_tokens)), torch::ones({4, 5, 3}, torch::kDouble), own[0]),
      ContainsSubstring("[nested_tensor.bilinear] expected two NestedTensors as inputs and a plain weight"));
}

TEST_CASE("NestedTensor: dropout of channels drops those of LibTorch for the padded tensor", "[nested]") {
  struct Dropped {
    std::string name;
    std::vector<Sizes> shapes;
    bool batch_first;
  };
  for (const Dropped& one : std::vector<Dropped>{{"(C, L)", {{4, 3}, {4, 7}, {4, 1}}, true},
                                                 {"(L, C)", {{3, 4}, {7, 4}, {0, 4}}, true},
                                                 {"(C, H, W)", {{4, 3, 5}, {4, 6, 2}}, true},
                                                 {"(C, D, H, W)", {{2, 3, 5, 2}, {2, 6, 2, 2}}, true},
                                                 {"numbers", {{3}, {5}}, true},
                                                 {"length first", {{3, 4}, {7, 4}}, false}}) {
    for (const bool alpha : {false, true}) {
      for (const double p : {0.0, 0.4, 1.0}) {
        INFO(one.name << (alpha ? ", alpha" : "") << ", p " << p);
        const auto drop = [&](const Tensor& x, bool train) {
          torch::manual_seed(6);
          return alpha ? torch::feature_alpha_dropout(x, p, train) : torch::feature_dropout(x, p, train);
        };
        const Elements leaves = random_leaves(one.shapes);
        const NestedTensor x(leaves, {.batch_first = one.batch_first});
        const NestedTensor got(drop(x, true)), expected = x.nested_like(drop(x.tensor(), true));
        CHECK(got.concat().allclose(expected.concat()));
        const auto gradients = torch::autograd::grad({got.square().sum()}, leaves);
        const auto wanted = torch::autograd::grad({expected.square().sum()}, leaves);
        for (std::size_t i = 0; i < leaves.size(); ++i) {
          CHECK(gradients[i].allclose(wanted[i]));
        }
        CHECK(NestedTensor(drop(x, false)).concat().equal(x.concat()));
        Tensor changed = x.detach().clone();
        torch::manual_seed(6);
        alpha ? torch::feature_alpha_dropout_(changed, p, true) : torch::feature_dropout_(changed, p, true);
        CHECK(NestedTensor(changed).concat().allclose(expected.concat()));
      }
    }
  }
  torch::nn::Dropout2d layer(0.5);
  const NestedTensor images(random_leaves({{4, 3, 5}, {4, 6, 2}}));
  for (const Tensor& element : NestedTensor(layer(images)).elements()) {
    for (const Tensor& channel : element.unbind(0)) {
      CHECK((channel.eq(0).all().item<bool>() || channel.ne(0).all().item<bool>()));
    }
  }
  CHECK_THROWS_WITH(torch::feature_dropout(images, 1.5, true),
                    ContainsSubstring("[nested_tensor.feature_dropout] expected a probability from 0 to 1, got 1.5"));
}

TEST_CASE("NestedTensor: ctc_loss reads the lengths of nested probabilities and targets", "[nested]") {
  const std::vector<Sizes> shapes = {{6, 5}, {9, 5}, {4, 5}};
  const std::vector<std::int64_t> lengths = {6, 9, 4}, label_lengths = {2, 4, 1};
  torch::manual_seed(9);
  std::vector<Tensor> labels;
  for (const std::int64_t length : label_lengths) {
    labels.push_back(torch::randint(1, 5, {length}, torch::kLong));
  }
  const NestedTensor targets(labels);
  for (const bool batch_first : {false, true}) {
    for (const std::int64_t reduction : {0, 1, 2}) {
      const Elements leaves = random_leaves(shapes);
      const NestedTensor x(leaves, {.batch_first = batch_first});
      const Tensor input = x.log_softmax(-1);
      Elements each;
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        each.push_back(torch::ctc_loss(leaves[i].log_softmax(-1), labels[i], torch::tensor(lengths[i]),
                                       torch::tensor(label_lengths[i]), 0, at::Reduction::None));
      }
      Tensor expected = torch::stack(each);
      expected = reduction == 0   ? expected
                 : reduction == 1 ? (expected / torch::tensor(label_lengths)).mean()
                                  : expected.sum();
      const std::vector<Tensor> got = {
          torch::ctc_loss(input, targets, lengths, label_lengths, 0, reduction),
          torch::ctc_loss(input, targets, torch::IntArrayRef(), torch::IntArrayRef(), 0, reduction),
          torch::ctc_loss(input, targets.tensor(), torch::tensor(lengths), torch::tensor(label_lengths), 0, reduction),
          torch::ctc_loss(input, torch::cat(labels), torch::tensor(lengths), torch::tensor(label_lengths), 0,
                          reduction)};
      const auto wanted = torch::autograd::grad({expected.sum()}, leaves);
      for (const Tensor& loss : got) {
        CHECK(loss.allclose(expected));
        const auto gradients = torch::autograd::grad({loss.sum()}, leaves, {}, true);
        for (std::size_t i = 0; i < leaves.size(); ++i) {
          CHECK(gradients[i].allclose(wanted[i], 1e-5, 1e-7));
        }
      }
    }
  }
  const NestedTensor x(random_leaves(shapes));
  CHECK(torch::nn::CTCLoss()(x.log_softmax(-1), targets, torch::tensor(lengths), torch::tensor(label_lengths))
            .isfinite()
            .item<bool>());
  CHECK_THROWS_WITH(torch::ctc_loss(x, targets, {6, 8, 4}, label_lengths),
                    ContainsSubstring("[nested_tensor.ctc_loss] expected input_lengths (6, 9, 4) of the NestedTensor, "
                                      "or none, got (6, 8, 4)"));
  CHECK_THROWS_WITH(torch::ctc_loss(torch::zeros({9, 3, 5}, torch::kDouble), targets, lengths, label_lengths),
                    ContainsSubstring("expected a NestedTensor as log_probs, got one as targets alone"));
}

}  // namespace
}  // namespace nested_layers
