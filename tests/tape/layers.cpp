// Replays of the layers that models consist of.
#include <ATen/autocast_mode.h>

#include <tape/steps.hpp>

namespace {
using namespace tape_test;
namespace nn = torch::nn;

TEST_CASE("Tape: replays of a perceptron have the bits of its steps", "[tape]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    nn::Sequential net(nn::Linear(7, 33), nn::ReLU(), nn::Linear(33, 18), nn::ReLU(), nn::Linear(18, 5));
    net->to(dtype);
    check_replays(classifier(net, {16, 7}, 5, dtype));
  }
}

TEST_CASE("Tape: replays of a batch of one", "[tape]") {
  check_replays(classifier(nn::Sequential(nn::Linear(3, 1), nn::ReLU(), nn::Linear(1, 2)), {1, 3}, 2));
}

TEST_CASE("Tape: replays of a perceptron of many elements, which several threads would share", "[tape]") {
  check_replays(classifier(nn::Sequential(nn::Linear(64, 256), nn::ReLU(), nn::Linear(256, 10)), {200, 64}, 10));
}

TEST_CASE("Tape: replays of convolutions and poolings of odd sizes", "[tape]") {
  struct Net : nn::Module {
    nn::Conv2d first = register_module("first", nn::Conv2d(nn::Conv2dOptions(2, 6, 3).padding(1)));
    nn::Conv2d second = register_module("second", nn::Conv2d(nn::Conv2dOptions(6, 4, 3).stride(2)));
    nn::Linear last = register_module("last", nn::Linear(4 * 3 * 1, 5));
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor a = torch::max_pool2d(torch::relu(first(x)), 3, 2, 1);
      return last(torch::max_pool2d(torch::relu(second(a)), {2, 3}, {1, 1}).flatten(1));
    }
  };
  check_replays(classifier(std::make_shared<Net>(), {3, 2, 17, 15}));
}

TEST_CASE("Tape: replays of poolings by halves, of channels last, of ceilings and dilations", "[tape]") {
  struct Net : nn::Module {
    nn::Conv2d first = register_module("first", nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)));
    nn::Linear last = register_module("last", nn::Linear(4 * 2 * 2, 5));
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor a = torch::max_pool2d(torch::relu(first(x)), 2);  // 6 x 7 of 13 x 14
      const at::Tensor b = torch::max_pool2d(a, {2, 3}, {2, 3}, {0, 1}, 1, /*ceil_mode=*/true);
      return last(torch::max_pool2d(b, 2, 1, 0, /*dilation=*/1).flatten(1));
    }
  };
  check_replays(classifier(std::make_shared<Net>(), {2, 3, 13, 14}));
  struct Last : Net {
    at::Tensor forward(const at::Tensor& x) { return Net::forward(x.contiguous(at::MemoryFormat::ChannelsLast)); }
  };
  check_replays(classifier(std::make_shared<Last>(), {2, 3, 13, 14}));
  struct Dilated : nn::Module {
    nn::Conv2d first = register_module("first", nn::Conv2d(nn::Conv2dOptions(3, 4, 3)));
    at::Tensor forward(const at::Tensor& x) {
      return torch::adaptive_avg_pool2d(torch::max_pool2d(first(x), 3, 2, 1, /*dilation=*/2), {1, 1}).flatten(1);
    }
  };
  check_replays(classifier(std::make_shared<Dilated>(), {2, 3, 13, 14}, 4));
}

TEST_CASE("Tape: replays of dropout draw the numbers of the step", "[tape]") {
  nn::Sequential net(nn::Linear(7, 40), nn::Dropout(0.5), nn::ReLU(), nn::Dropout(0.1), nn::Linear(40, 5));
  check_replays(classifier(net, {16, 7}));
  nn::Sequential certain(nn::Linear(7, 40), nn::Dropout(0.0), nn::Dropout(1.0), nn::Linear(40, 5));
  check_replays(classifier(certain, {16, 7}));
  nn::Sequential planes(nn::Conv2d(2, 5, 3), nn::Dropout2d(0.3), nn::Flatten());
  check_replays(classifier(planes, {6, 2, 3, 3}));
}

TEST_CASE("Tape: replays of normalisations, and the running statistics they leave", "[tape]") {
  nn::Sequential images(nn::Conv2d(2, 6, 3), nn::BatchNorm2d(6), nn::ReLU(), nn::GroupNorm(nn::GroupNormOptions(2, 6)),
                        nn::InstanceNorm2d(nn::InstanceNorm2dOptions(6).track_running_stats(true)), nn::Flatten(),
                        nn::Linear(24, 5));
  check_replays(classifier(images, {4, 2, 4, 4}));
  nn::Sequential rows(nn::Linear(7, 12), nn::BatchNorm1d(12), nn::LayerNorm(nn::LayerNormOptions({12})),
                      nn::Linear(12, 5));
  check_replays(classifier(rows, {9, 7}));
  rows->eval();
  check_replays(classifier(rows, {9, 7}));
}

TEST_CASE("Tape: replays of activations", "[tape]") {
  nn::Sequential net(nn::Linear(7, 33), nn::GELU(), nn::Linear(33, 33), nn::Tanh(), nn::Linear(33, 33), nn::Sigmoid(),
                     nn::Linear(33, 33), nn::SiLU(), nn::Linear(33, 33), nn::LeakyReLU(), nn::ELU(), nn::Softplus(),
                     nn::GELU(nn::GELUOptions().approximate("tanh")), nn::Softmax(1), nn::ReLU6(), nn::Linear(33, 5));
  check_replays(classifier(net, {16, 7}));
  net->to(at::kDouble);
  check_replays(classifier(net, {16, 7}, 5, at::kDouble));
}

TEST_CASE("Tape: replays of embeddings", "[tape]") {
  nn::Embedding table(nn::EmbeddingOptions(11, 6).padding_idx(0));
  nn::EmbeddingBag bags(nn::EmbeddingBagOptions(11, 6).mode(torch::kMean));
  nn::Linear last(6, 5);
  Subject subject;
  for (const nn::Module* module : std::initializer_list<const nn::Module*>{table.get(), bags.get(), last.get()}) {
    subject.hold(*module);
  }
  subject.step = classifying([=](const at::Tensor& x) mutable { return last(table(x).mean(1) + bags(x)); });
  subject.batch = [](std::uint64_t seed) -> Tensors {
    return {random_labels(11, {8, 3}, seed), random_labels(5, {8}, seed + 50)};
  };
  check_replays(subject);
}

template <class Cell>
Subject recurrent(Cell cell) {
  nn::Linear last(6, 5);
  Subject subject;
  subject.hold(*cell);
  subject.hold(*last);
  subject.step =
      classifying([=](const at::Tensor& x) mutable { return last(std::get<0>(cell->forward(x)).select(1, -1)); });
  subject.batch = [](std::uint64_t seed) -> Tensors { return {random({3, 4, 7}, seed), random_labels(5, {3}, seed)}; };
  return subject;
}

TEST_CASE("Tape: replays of recurrent nets", "[tape]") {
  check_replays(recurrent(nn::LSTM(nn::LSTMOptions(7, 6).batch_first(true))));
  check_replays(recurrent(nn::LSTM(nn::LSTMOptions(7, 6).num_layers(2).dropout(0.3).batch_first(true))));
  check_replays(recurrent(nn::GRU(nn::GRUOptions(7, 6).num_layers(2).batch_first(true))));
  check_replays(recurrent(nn::GRU(nn::GRUOptions(7, 3).bidirectional(true).batch_first(true))));
  check_replays(recurrent(nn::RNN(nn::RNNOptions(7, 6).nonlinearity(torch::kReLU).batch_first(true))));
}

TEST_CASE("Tape: replays of a transformer's encoder", "[tape]") {
  nn::TransformerEncoder encoder(
      nn::TransformerEncoderOptions(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1), 2));
  nn::Linear last(8, 5);
  Subject subject;
  subject.hold(*encoder);
  subject.hold(*last);
  subject.step = classifying([=](const at::Tensor& x) mutable { return last(encoder(x.transpose(0, 1)).mean(0)); });
  subject.batch = [](std::uint64_t seed) -> Tensors { return {random({3, 6, 8}, seed), random_labels(5, {3}, seed)}; };
  check_replays(subject);
  encoder->eval();
  check_replays(subject);
}

TEST_CASE("Tape: replays of attention", "[tape]") {
  for (const bool causal : {false, true}) {
    for (const double dropout : {0.0, 0.2}) {
      check_replays(small([=](const at::Tensor& weight, const at::Tensor& x) {
        const at::Tensor q = (x * weight).view({1, 1, 3, 4});
        const at::Tensor k = (x + weight).view({1, 1, 3, 4});
        return torch::scaled_dot_product_attention(q, k, q * k, {}, dropout, causal).square().sum();
      }));
    }
  }
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    const at::Tensor q = (x * weight).view({1, 1, 3, 4});
    const at::Tensor mask = x.view({1, 1, 3, 4}).slice(3, 0, 3) > 0;
    return torch::scaled_dot_product_attention(q, q, q, mask).nan_to_num().sum();
  }));
}

TEST_CASE("Tape: replays of the softmax of few and of many classes", "[tape]") {
  for (const std::int64_t classes : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 128, 129}) {
    for (const std::int64_t rows : {1, 5, 64}) {
      CAPTURE(classes, rows);
      Subject subject = classifier(nn::Sequential(nn::Linear(3, classes)), {rows, 3}, classes);
      check_replays(subject);
    }
  }
}

TEST_CASE("Tape: replays under autocast", "[tape]") {
  nn::Sequential net(nn::Linear(8, 16), nn::GELU(), nn::Linear(16, 16), nn::ReLU(), nn::Linear(16, 5));
  Subject subject = classifier(net, {12, 8});
  subject.step = [net](const Tensors& batch, StepObserver* observer) mutable -> Tensors {
    at::Tensor scores;
    at::Tensor loss;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
    scores = net->forward(batch[0]);
    loss = torch::nn::functional::cross_entropy(scores, batch[1]);
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
    backward(loss, observer);
    return {loss.detach(), scores.detach()};
  };
  check_replays(subject);
  CHECK(subject.step(subject.batch(1), nullptr)[1].scalar_type() == at::kBFloat16);
}

}  // namespace
