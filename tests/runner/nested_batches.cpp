// Sequences of different lengths in a runner: nested batches train as padded ones do.
#include <sstream>

#include <danling/tensors/nested_tensor.hpp>

#include <support/ranks.hpp>

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
        inner(register_module("inner", torch::nn::Sequential(torch::nn::Linear(hidden, hidden), torch::nn::ReLU()))),
        head(register_module("head", torch::nn::Linear(hidden, 3))) {}
  at::Tensor forward(const at::Tensor& tokens) {  // [N, L] -> [N, C, L]
    return head->forward(inner->forward(norm->forward(words->forward(tokens)))).transpose(1, 2);
  }
  torch::nn::Embedding words;
  torch::nn::LayerNorm norm;
  torch::nn::Sequential inner;
  torch::nn::Linear head;
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

/// Requests a stop before the training batch `stop`.
class StoppingTagger : public TaggerRunner {
 public:
  StoppingTagger(const TaggerConfig& config, std::int64_t stop) : TaggerRunner(config), stop_(stop) {}

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (stop_-- == 0) {
      request_stop();
    }
    return TaggerRunner::train_step(batch);
  }

 private:
  std::int64_t stop_;
};

/// Shares its records of evaluation with other ranks.
class RankTagger : public TaggerRunner {
 public:
  RankTagger(const TaggerConfig& config, const dl::Group& group) : TaggerRunner(config), group_(group) {
    dataloaders["val"] = std::make_shared<dl::data::Loader<dl::Batch>>(
        datasets.at("val"), dl::data::LoaderOptions{.batch_size = 3,
                                                    .split = "val",
                                                    .collation = dl::data::Collation::nested,
                                                    .shard = {.rank = group.rank(), .world_size = group.size()}});
  }

 protected:
  void init_distributed() override { set_parallelism(std::make_unique<dl::Parallelism>(group_)); }

 private:
  dl::Group group_;
};

/// A label too few in one of the records.
struct Uneven {
  std::int64_t size() const { return 8; }
  dl::data::Sample get(std::int64_t index) const {
    dl::data::Sample out = Sentences{8}.get(index);
    out.target = index == 5 ? out.target.slice(0, 1) : out.target;
    return out;
  }
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

TEST_CASE("nested batches: a window of small batches is one large batch", "[runner][nested]") {
  TaggerConfig config;
  config.dataloader.batch_size = 4;
  config.accum_steps = 2;
  const Trained windows = train_with(config, dl::data::Collation::nested);
  config.dataloader.batch_size = 8;
  config.accum_steps = 1;
  const Trained batches = train_with(config, dl::data::Collation::nested);
  for (std::size_t i = 0; i < windows.parameters.size(); ++i) {
    CHECK(torch::allclose(windows.parameters[i], batches.parameters[i], 1e-9, 1e-9));
  }
  for (std::size_t i = 0; i < windows.numbers.size(); ++i) {
    CHECK(windows.numbers[i] == Approx(batches.numbers[i]).epsilon(1e-9));
  }
}

TEST_CASE("nested batches: layers may be computed again", "[runner][nested]") {
  TaggerConfig config;
  config.dataloader.collation = dl::data::Collation::nested;
  const Trained kept = train_with(config, dl::data::Collation::nested);
  config.recompute = {"inner[.]0"};
  const Trained again = train_with(config, dl::data::Collation::nested);
  CHECK(kept.numbers == again.numbers);
}

TEST_CASE("nested batches: a run stopped within epochs and windows has the bits of one without interruption",
          "[runner][nested]") {
  TaggerConfig config;
  config.dataloader.collation = dl::data::Collation::nested;
  config.dataloader.batch_size = 3;
  config.dataloader.num_workers = 2;
  config.accum_steps = 2;
  config.ema.enabled = true;
  const auto run = [&](const Folder& folder, std::int64_t stop) {
    TaggerConfig own = config;
    own.workspace_root = folder.path().string();
    own.auto_resume = true;
    StoppingTagger runner(own, stop);
    if (stop >= 0) {
      CHECK_THROWS_AS(runner.train(), dl::Stopped);
    } else {
      runner.train();
    }
    return dl::clone(runner.model.state_dict());
  };
  const Folder whole, parts;
  const dl::State expected = run(whole, -1);
  for (const std::int64_t stop : {3, 9, 4}) {
    run(parts, stop);
  }
  CHECK(dl::first_difference(run(parts, -1), expected) == "");
}

TEST_CASE("nested batches: several processes have the loss and accuracy of one", "[runner][nested]") {
  const auto run = [](const dl::Group& group) {
    const Folder folder;
    TaggerConfig config;
    config.workspace_root = folder.path().string();
    RankTagger runner(config, group);
    const auto result = runner.evaluate({"val"});
    return std::vector<double>{*result.number("val.loss"), *result.number("val.acc")};
  };
  const auto whole = run(dl::Group());
  for (const std::string& text : danling_test::run_ranks(2, [&](const dl::Group& group) {
         const auto numbers = run(group);
         return dl::detail::concat(numbers[0], " ", numbers[1]);
       })) {
    double loss = 0, accuracy = 0;
    std::istringstream(text) >> loss >> accuracy;
    CHECK(loss == Approx(whole[0]).epsilon(1e-9));
    CHECK(accuracy == Approx(whole[1]).epsilon(1e-12));
  }
}

TEST_CASE("nested batches: rates count tokens, and operations of the model are those of tokens", "[runner][nested]") {
  const Folder folder;
  TaggerConfig config;
  config.workspace_root = folder.path().string();
  config.epochs = 1;
  config.dataloader.collation = dl::data::Collation::nested;
  struct Rates : dl::Sink {
    std::string name() const override { return "rates"; }
    void scalars(const dl::ScalarRecord& record) override {
      if (record.mode == "train" && !record.iteration) {
        telemetry = record.telemetry;
      }
    }
    dl::Result telemetry;
  };
  const auto rates = std::make_shared<Rates>();
  std::int64_t samples = 0, tokens = 0;
  for (; samples < config.records; ++samples) {
    tokens += Sentences{config.records}.get(samples).input.numel();
  }
  {
    TaggerRunner runner(config);
    runner.add_sink(rates);
    runner.train();
    runner.close();
  }
  const double per_sample = static_cast<double>(tokens) / static_cast<double>(samples);
  CHECK(*rates->telemetry.number("tokens_per_s") == Approx(*rates->telemetry.number("samples_per_s") * per_sample));
  const double per_token = 3.0 * 2 * static_cast<double>(config.hidden * config.hidden + config.hidden * 3);
  CHECK(*rates->telemetry.number("tflops") * 1e12 == Approx(*rates->telemetry.number("tokens_per_s") * per_token));
}

TEST_CASE("nested batches: states with NestedTensors are copied and compared", "[runner][nested]") {
  const auto state = [](bool batch_first, double last) {
    dl::State out;
    out["bank"] = dl::NestedTensor({torch::ones({2, 3}), torch::full({4, 3}, last)}, {.batch_first = batch_first});
    return out;
  };
  for (const bool batch_first : {true, false}) {
    CHECK(dl::first_difference(dl::clone(state(batch_first, 2)), state(batch_first, 2)) == "");
    CHECK_THAT(dl::first_difference(state(batch_first, 2), state(batch_first, 3)),
               StartsWith("bank: in part 1, ") && EndsWith("that differ first at element 0"));
  }
  dl::State other;
  other["bank"] = dl::NestedTensor({torch::ones({4, 3}), torch::ones({2, 3})});
  CHECK_THAT(dl::first_difference(state(true, 1), other), StartsWith("bank: in part 0, "));
  other["bank"] = torch::ones({2, 4, 3});
  CHECK_THAT(dl::first_difference(state(true, 1), other), EndsWith("of which one is nested"));
}

TEST_CASE("nested batches: a target of another length is an error that names the shapes", "[runner][nested]") {
  const Folder folder;
  TaggerConfig config;
  config.workspace_root = folder.path().string();
  config.dataloader.collation = dl::data::Collation::nested;
  TaggerRunner runner(config);
  runner.datasets["train"] = Uneven{};
  CHECK_THAT(error_of<dl::Error>([&] { runner.train(); }),
             StartsWith("[data.collate] expected target of the length of its input Long [5], or of one shape in all "
                        "samples, got Long [4] in sample ") &&
                 EndsWith(" of split 'train'"));
}

}  // namespace
}  // namespace runner_test
