// Sequences of different lengths in a runner: nested batches train as padded ones do.
#include <danling/tensors/nested_tensor.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

struct TaggerConfig : TinyConfig {
  TaggerConfig() {
    records = 30;
    precision = "fp64";
    dropout = 0;
    epochs = 3;
  }
};

/// Tokens below 6, of which each is labelled by its remainder of 3. Some labels are to be ignored.
struct Sentences {
  std::int64_t records;
  std::int64_t size() const { return records; }
  dl::data::Sample get(std::int64_t index) const {
    const std::int64_t length = 1 + index * 5 % 7;
    const at::Tensor tokens = (at::arange(length) * 5 + index) % 6;
    at::Tensor labels = tokens % 3;
    labels.index_put_({0}, index % 4 == 0 ? -100 : labels[0].item<std::int64_t>());
    return {.input = tokens, .target = labels};
  }
};

struct TaggerImpl : torch::nn::Module {
  explicit TaggerImpl(std::int64_t hidden)
      : words(register_module("words", torch::nn::Embedding(6, hidden))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({hidden})))),
        inner(register_module("inner", torch::nn::Linear(hidden, hidden))),
        head(register_module("head", torch::nn::Linear(hidden, 3))) {}
  at::Tensor forward(const at::Tensor& tokens) {  // [N, L] -> [N, C, L]
    return head->forward(torch::relu(inner->forward(norm->forward(words->forward(tokens))))).transpose(1, 2);
  }
  torch::nn::Embedding words;
  torch::nn::LayerNorm norm;
  torch::nn::Linear inner, head;
};
TORCH_MODULE(Tagger);

class TaggerRunner : public dl::TorchRunner {
 public:
  explicit TaggerRunner(const TaggerConfig& config) : TorchRunner(config) {
    model = Tagger(config.hidden);
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = Sentences{config.records};
    datasets["val"] = Sentences{12};
    using namespace dl::metrics;
    metrics = multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }
  ~TaggerRunner() override { close(); }
};

struct Trained {
  std::vector<at::Tensor> parameters;
  std::vector<double> numbers;  ///< losses and accuracies of all epochs
};

Trained train_with(TaggerConfig config, dl::data::Collation collation) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.dataloader.collation = collation;
  TaggerRunner runner(config);
  runner.train();
  Trained out;
  for (const auto& item : runner.model.named_parameters()) {
    out.parameters.push_back(item.second.detach().clone());
  }
  for (const auto& row : runner.results().rows()) {
    for (const char* name : {"train.loss", "val.loss", "train.acc", "val.acc"}) {
      const double* number = row.result.number(name);
      REQUIRE(number != nullptr);
      out.numbers.push_back(*number);
    }
  }
  return out;
}

void check_alike(const TaggerConfig& config, double tolerance) {
  const Trained nested = train_with(config, dl::data::Collation::nested);
  const Trained padded = train_with(config, dl::data::Collation::padded);
  REQUIRE(nested.numbers.size() == padded.numbers.size());
  for (std::size_t i = 0; i < nested.numbers.size(); ++i) {
    CHECK(nested.numbers[i] == Approx(padded.numbers[i]).epsilon(tolerance));
  }
  for (std::size_t i = 0; i < nested.parameters.size(); ++i) {
    CHECK(torch::allclose(nested.parameters[i], padded.parameters[i], tolerance, tolerance));
  }
}

TEST_CASE("nested batches: losses, metrics and weights are those of padded ones", "[runner][nested]") {
  check_alike(TaggerConfig(), 1e-9);
}

TEST_CASE("nested batches: windows weigh micro-batches by their valid tokens", "[runner][nested]") {
  TaggerConfig config;
  config.accum_steps = 2;
  config.max_grad_norm = 0.5;
  check_alike(config, 1e-9);
}

TEST_CASE("nested batches: an average of the weights and autocast take them", "[runner][nested]") {
  TaggerConfig config;
  config.ema.enabled = true;
  check_alike(config, 1e-9);
  config.precision = "bf16";
  check_alike(config, 0.1);
}

TEST_CASE("nested batches: recorded steps fall back or are right", "[runner][nested]") {
  TaggerConfig config;
  config.compile.enable = true;
  config.compile.verify = 1;
  check_alike(config, 1e-9);
}

TEST_CASE("nested batches: a resumed run has the bits of one without interruption", "[runner][nested]") {
  TaggerConfig config;
  config.dataloader.collation = dl::data::Collation::nested;
  const auto train = [&](const Folder& folder, std::int64_t epochs, bool resume) {
    TaggerConfig own = config;
    own.workspace_root = folder.path().string();
    own.epochs = epochs;
    own.auto_resume = resume;
    TaggerRunner runner(own);
    runner.train();
    return dl::clone(runner.model.state_dict());
  };
  const Folder whole, parts;
  const dl::State expected = train(whole, 4, false);
  train(parts, 2, false);
  CHECK(dl::first_difference(train(parts, 4, true), expected) == "");
}

TEST_CASE("nested batches: tokens without padding are counted, and predictions are nested", "[runner][nested]") {
  const Folder folder;
  TaggerConfig config;
  config.workspace_root = folder.path().string();
  config.epochs = 1;
  config.dataloader.collation = dl::data::Collation::nested;
  TaggerRunner runner(config);
  runner.train();
  const dl::Batch batch = dl::data::collate_nested({Sentences{30}.get(0), Sentences{30}.get(1)});
  CHECK(dl::detail::tokens_of(batch) == 1 + 6);
  const dl::NestedTensor predictions(runner.infer("val"));
  CHECK(predictions.batch_size() == 12);
  CHECK(predictions.shapes()[2] == std::vector<std::int64_t>{3, 1 + 2 * 5 % 7});
}

}  // namespace
}  // namespace runner_test
