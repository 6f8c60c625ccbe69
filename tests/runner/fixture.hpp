// A small learning problem and a runner for it, shared by the tests of the runner.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/danling.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

#include "run_files.hpp"
#include "runner/step_tapes.hpp"

namespace runner_test {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using danling_test::error_of;

struct TinyConfig : dl::RunnerConfig {
  std::int64_t hidden = 8;
  double dropout = 0.5;
  std::int64_t records = 50;
  TinyConfig() {
    seed = 7;
    console = false;
    device = "cpu";
    dataloader.batch_size = 8;
    dataloader.drop_last = false;
    optim.type = "adamw";
    optim.lr = 0.05;
    if (std::getenv("DANLING_TEST_COMPILE") != nullptr) {  // by hand: what recorded steps do to all these tests
      compile.enable = true;
      compile.verify = 1;
      danling::detail::tape_schedule() = {.warm = 0, .trial = 0};
    }
  }
  explicit TinyConfig(const Folder& folder) : TinyConfig() { workspace_root = folder.path().string(); }
  void fields(dl::Fields& f) override {
    f("hidden", hidden, "hidden units");
    f("dropout", dropout, "share of hidden units dropped");
    f("records", records, "training records").non_semantic();
  }
};

/// Classification of points on three circles: the points `from` to `from + records`.
inline dl::Batch make_points(std::int64_t records, std::int64_t from) {
  auto angle = torch::arange(from, from + records, torch::kDouble) * 2.399963;
  auto label = torch::arange(from, from + records, torch::kLong) % 3;
  auto radius = 1.0 + label.to(torch::kDouble);
  dl::Batch batch;
  batch.input = torch::stack({radius * angle.cos(), radius * angle.sin(), radius, angle.sin()}, 1).to(torch::kFloat);
  batch.target = label;
  return batch;
}

struct Points {
  dl::Batch all;
  bool training;
  std::int64_t size() const { return all.input.size(0); }
  dl::Batch get_batch(std::span<const std::int64_t> indices) {
    const auto index = torch::tensor(at::ArrayRef<std::int64_t>(indices.data(), indices.size()), torch::kLong);
    dl::Batch batch;
    batch.input = all.input.index_select(0, index);
    batch.target = all.target.index_select(0, index);
    return batch;
  }
  bool train() const { return training; }
};

/// The training points as a stream.
struct PointStream {
  dl::Batch all = make_points(50, 0);
  std::int64_t at = 0;
  std::optional<dl::data::Sample> next() {
    if (at == all.size()) {
      return std::nullopt;
    }
    const std::int64_t i = at++;
    return dl::data::Sample{.input = all.input[i], .target = all.target[i]};
  }
  void reset(std::int64_t) { at = 0; }
  dl::State state_dict() const { return at; }
  void load_state_dict(const dl::State& state) { at = state.integer(); }
  bool train() const { return true; }
};

inline torch::nn::Sequential make_tiny_net(const TinyConfig& config) {
  return torch::nn::Sequential(torch::nn::Linear(4, config.hidden), torch::nn::ReLU(),
                               torch::nn::Dropout(config.dropout), torch::nn::Linear(config.hidden, 3));
}

inline auto make_tiny_metrics() {
  using namespace dl::metrics;
  return multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
}

/// 50 records to train, in 7 batches of 8 and 2, and 20 to evaluate, in 3 batches.
class TinyRunner : public dl::TorchRunner {
 public:
  explicit TinyRunner(const TinyConfig& config) : TorchRunner(config) {
    model = make_tiny_net(config);
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = Points{make_points(config.records, 0), true};
    datasets["val"] = Points{make_points(20, 1000), false};
    metrics = make_tiny_metrics();
  }
  ~TinyRunner() override { close(); }

  /// Called before each training micro-batch with the number of those before it.
  std::function<void(TinyRunner&, std::int64_t)> before_step;
  std::int64_t micro_batches = 0;
  /// Called before each evaluation batch with the number of those before it.
  std::function<void(TinyRunner&, std::int64_t)> before_evaluation_step;
  std::int64_t evaluation_batches = 0;
  /// Replaces the loss of each evaluation batch, given the epochs that are done.
  std::function<double(std::int64_t)> evaluation_loss;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (!config().compile.enable) {
      begin_step();
    }
    return TorchRunner::train_step(batch);
  }
  // Steps that are replayed do not call train_step.
  std::int64_t step_variant() const override {
    auto& self = const_cast<TinyRunner&>(*this);
    mode() == dl::RunnerMode::train ? self.begin_step() : self.begin_evaluation_step();
    return 0;
  }
  void begin_step() {
    if (before_step) {
      before_step(*this, micro_batches);
    }
    ++micro_batches;
  }
  void begin_evaluation_step() {
    if (before_evaluation_step) {
      before_evaluation_step(*this, evaluation_batches);
    }
    ++evaluation_batches;
  }
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    if (!config().compile.enable) {
      begin_evaluation_step();
    }
    auto output = TorchRunner::evaluate_step(batch);
    if (evaluation_loss) {
      output.loss = torch::full({}, evaluation_loss(state().train.epoch));
    }
    return output;
  }
};

/// The validation loss of each epoch, for `evaluation_loss`; the last one holds for all epochs after it.
inline std::function<double(std::int64_t)> losses_by_epoch(std::vector<double> losses) {
  return [losses = std::move(losses)](std::int64_t epoch) {
    return losses.at(std::min(static_cast<std::size_t>(epoch), losses.size() - 1));
  };
}

/// Requests a stop before training micro-batch `number`, counted from 0.
inline void stop_before(TinyRunner& runner, std::int64_t number) {
  runner.before_step = [number](TinyRunner& self, std::int64_t done) {
    if (done == number) {
      self.request_stop();
    }
  };
}

/// Trains until a stop that is requested before training micro-batch `number`.
inline void train_until(TinyRunner& runner, std::int64_t number) {
  stop_before(runner, number);
  CHECK_THROWS_AS(runner.train(), dl::Stopped);
}

/// Trains until a stop that is requested before evaluation batch `number`.
inline void train_until_evaluation(TinyRunner& runner, std::int64_t number) {
  runner.before_evaluation_step = [number](TinyRunner& self, std::int64_t done) {
    if (done == number) {
      self.request_stop();
    }
  };
  CHECK_THROWS_AS(runner.train(), dl::Stopped);
}

/// Throws "a bad batch" before training micro-batch `number`.
inline void throw_before(TinyRunner& runner, std::int64_t number) {
  runner.before_step = [number](TinyRunner&, std::int64_t done) {
    if (done == number) {
      throw std::runtime_error("a bad batch");
    }
  };
}

/// Appends the warnings that the runner logs from now on.
inline void collect_warnings(dl::BaseRunner& runner, std::vector<std::string>& into) {
  runner.logger().set_sink([&into](dl::LogLevel level, std::string_view text) {
    if (level == dl::LogLevel::warning) {
      into.emplace_back(text);
    }
  });
}

inline TinyConfig two_epochs(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  return config;
}

/// Calls loss.backward() in place of backward(loss).
struct PlainBackward : TinyRunner {
  using TinyRunner::TinyRunner;
  dl::StepOutput train_step(dl::Batch& batch) override {
    const auto prediction = model(batch.input);
    const auto loss = torch::nn::functional::cross_entropy(prediction, batch.target);
    loss.backward();
    step();
    return {prediction, loss};
  }
};

/// A linear model with outputs [N, 1], over 16 records of these targets.
struct Regression : dl::TorchRunner {
  explicit Regression(const TinyConfig& config, const at::Tensor& target) : TorchRunner(config) {
    model = torch::nn::Linear(2, 1);
    criterion = torch::nn::MSELoss();
    for (const char* split : {"train", "val"}) {
      datasets[split] = dl::data::TensorDataset(torch::ones({16, 2}), target);
    }
  }
  ~Regression() override { close(); }
};

inline std::vector<std::int64_t> indices_of(const dl::ResultHistory& results) {
  std::vector<std::int64_t> out;
  for (const auto& row : results.rows()) {
    out.push_back(row.index);
  }
  return out;
}

/// Trains to the end; returns the directory of the run.
inline fs::path trained(const TinyConfig& config, std::function<double(std::int64_t)> evaluation_loss = nullptr) {
  TinyRunner runner(config);
  runner.evaluation_loss = std::move(evaluation_loss);
  runner.train();
  CHECK(runner.close());
  return runner.workspace().dir();
}

inline Outcome run_through(TinyConfig config) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  return outcome_of(trained(config));
}

/// Trains the same, stopped before the micro-batches `stops`, counted in each attempt, and resumed each time.
template <class Runner = TinyRunner>
Outcome run_stopped(TinyConfig config, const std::vector<std::int64_t>& stops) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  for (const std::int64_t stop : stops) {
    Runner runner(config);
    train_until(runner, stop);
  }
  Runner runner(config);
  runner.train();
  CHECK(runner.close());
  return outcome_of(runner.workspace().dir());
}

}  // namespace runner_test
