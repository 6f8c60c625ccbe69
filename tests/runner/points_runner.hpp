// A runner over the points of the fixture as batches of any type, with predictions of any type.
#pragma once

#include "fixture.hpp"

namespace runner_test {

/// The batches of `points` as `Convert` gives them.
template <class Convert>
struct ConvertedPoints {
  Points points;
  std::int64_t size() const { return points.size(); }
  auto get_batch(std::span<const std::int64_t> indices) { return Convert()(points.get_batch(indices)); }
  bool train() const { return points.training; }
};

struct Unchanged {
  dl::Batch operator()(dl::Batch batch) const { return batch; }
};

using Arguments = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// The four features as three inputs, of two, one and one.
struct ToArguments {
  std::pair<Arguments, at::Tensor> operator()(const dl::Batch& batch) const {
    const at::Tensor& x = batch.input;
    return {{x.slice(1, 0, 2), x.slice(1, 2, 3), x.slice(1, 3, 4)}, batch.target};
  }
};

using Both = std::tuple<at::Tensor, at::Tensor>;
using Named = std::map<std::string, at::Tensor>;

inline at::Tensor logits_of(const Both& prediction) { return std::get<0>(prediction); }
inline at::Tensor logits_of(const Named& prediction) { return prediction.at("output"); }
inline at::Tensor logits_of(const dl::State& prediction) { return prediction.at("output").tensor(); }

/// TinyRunner with another model, batches `B` that `Convert` makes, and predictions `P`.
template <class B = dl::Batch, class Convert = Unchanged, class P = at::Tensor>
class PointsRunner : public dl::BasicTorchRunner<B, P> {
 public:
  explicit PointsRunner(const TinyConfig& config, dl::ModelHandle net = {}) : dl::BasicTorchRunner<B, P>(config) {
    this->model = std::move(net);
    this->criterion = torch::nn::CrossEntropyLoss();
    this->datasets["train"] = ConvertedPoints<Convert>{{make_points(config.records, 0), true}};
    this->datasets["val"] = ConvertedPoints<Convert>{{make_points(20, 1000), false}};
    this->metrics = make_tiny_metrics();
  }
  ~PointsRunner() override { this->close(); }
};

/// The results of a training run, compared bit for bit.
struct Learned {
  std::string results;
  std::vector<at::Tensor> parameters;
  at::Tensor inferred;
};

/// Trains, and infers the validation points; `output_of` returns the tensor of a prediction.
template <class Runner, class OutputOf = std::identity>
Learned learn(Runner& runner, const OutputOf& output_of = {}) {
  runner.train();
  Learned out;
  out.results = runner.results().latest()->result.text();
  for (const auto& [name, parameter] : runner.model.named_parameters()) {
    out.parameters.push_back(parameter.detach().clone());
  }
  if constexpr (std::same_as<decltype(runner.infer("val")), at::Tensor>) {
    out.inferred = runner.infer("val");
  } else {
    std::vector<at::Tensor> parts;
    for (const auto& prediction : runner.infer("val")) {
      parts.push_back(output_of(prediction));
    }
    out.inferred = torch::cat(parts);
  }
  return out;
}

inline void check_same(const Learned& a, const Learned& b) {
  CHECK(a.results == b.results);
  REQUIRE(a.parameters.size() == b.parameters.size());
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    CHECK(a.parameters[i].equal(b.parameters[i]));
  }
  CHECK(a.inferred.equal(b.inferred));
}

inline TinyConfig three_epochs(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.dropout = 0;
  return config;
}

}  // namespace runner_test
