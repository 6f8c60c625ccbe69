// compile: what users of recorded steps do in and between them, compared with eager runs.

#include "hosted.hpp"
#include "odd_runner.hpp"
#include "run_files.hpp"

namespace runner_test {
namespace {

Body with(const std::function<void(OddRunner&, const at::Tensor& loss)>& more) {
  return [more](OddRunner& runner, dl::Batch& batch) {
    const dl::StepOutput out = plain(runner, batch);
    more(runner, out.loss);
    return out;
  };
}

TEST_CASE("compile: a step that changes a learning rate itself runs as it is", "[runner]") {
  check_odd({"the rate",
             with([](OddRunner& runner, const at::Tensor&) { runner.optimizer->param_groups()[0].lr *= 0.9; }),
             {},
             {},
             "it changes a learning rate or weight decay; only a callback or a schedule may"});
  check_odd({"between steps it may", plain, [](OddRunner& runner, std::int64_t i) {
               if (i > 0) {
                 runner.optimizer->param_groups()[0].lr *= 0.9;
               }
             }});
}

TEST_CASE("compile: a step that writes its parameters by pointer is found by the first check", "[runner]") {
  check_odd({"after the update",
             with([](OddRunner& runner, const at::Tensor&) { runner.weight().mutable_data_ptr<float>()[3] *= 0.99F; }),
             {},
             {},
             "its replay differs from the step: the step changes 0.weight outside of LibTorch's operators"});
}

TEST_CASE("compile: a step that reads, resets or groups a meter runs as it is", "[runner]") {
  const auto refused = [](const std::string& name, const std::function<void(dl::AverageMeter&)>& use,
                          const std::string& why) {
    check_odd({name,
               with([use](OddRunner& runner, const at::Tensor& loss) {
                 use(runner.meters["a"]);
                 runner.meters["a"].update(loss.detach());
               }),
               {},
               {},
               why});
  };
  refused("reset", [](dl::AverageMeter& meter) { meter.reset(); }, "the step resets a meter");
  refused("avg", [](dl::AverageMeter& meter) { meter.avg(); }, "the step reads a meter");
  refused("count", [](dl::AverageMeter& meter) { meter.count(); }, "the step reads a meter");
  refused("text", [](dl::AverageMeter& meter) { meter.text(); }, "the step reads a meter");
  refused(
      "begin_batch", [](dl::AverageMeter& meter) { meter.begin_batch(3); },
      "the step puts updates of a meter together (begin_batch)");
  refused(
      "continue_batch", [](dl::AverageMeter& meter) { meter.continue_batch(); },
      "the step puts updates of a meter together (continue_batch)");
}

TEST_CASE("compile: of two numbers of a batch, each counts for itself", "[runner]") {
  for (const bool reads_tokens : {true, false}) {
    CAPTURE(reads_tokens);
    const Body body = [=](OddRunner& runner, dl::Batch& batch) {
      const at::Tensor prediction = runner.model(batch.input);
      const auto number = static_cast<double>(reads_tokens ? *batch.num_tokens : *batch.loss_normalizer);
      const at::Tensor loss = (prediction - batch.target).square().sum() / number;
      runner.backward(loss);
      runner.step();
      return dl::StepOutput{prediction, loss};
    };
    // The number that is read is the same in both recordings, the other one is not.
    check_odd({"numbers", body, {}, {}, "", [=](dl::Batch& batch, std::int64_t i) {
                 const std::int64_t seldom = i >= 20 && i < 30 ? 20 : 32;
                 const std::int64_t often = 5 + i % 4;
                 batch.num_tokens = reads_tokens ? seldom : often;
                 batch.loss_normalizer = reads_tokens ? often : seldom;
               }});
  }
}

TEST_CASE("compile: a number of the batch that changes again and again ends the recordings", "[runner]") {
  const Body body = [](OddRunner& runner, dl::Batch& batch) {
    const at::Tensor prediction = runner.model(batch.input);
    const at::Tensor loss =
        (prediction - batch.target).square().sum() / static_cast<double>(batch.num_tokens.value_or(1));
    runner.backward(loss);
    runner.step();
    return dl::StepOutput{prediction, loss};
  };
  check_odd({"in runs of four",
             body,
             {},
             {},
             "num_tokens or loss_normalizer of its batches changes now and then",
             [](dl::Batch& batch, std::int64_t i) { batch.num_tokens = 20 + i / 4 % 2; }});
}

TEST_CASE("compile: weights that are tied, and untied between two passes", "[runner]") {
  const auto run = [](bool recorded) {
    const EagerToRecord schedule;
    const Folder folder;
    TinyConfig config = hosted(folder);
    config.compile.enable = recorded;
    OddRunner runner(config);
    const auto first = even_layer(), second = even_layer();
    second->weight.set_data(first->weight.detach());
    runner.model = torch::nn::Sequential(first, torch::nn::Tanh(), second);
    std::vector<double> losses;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t i = 0; i < 20; ++i) {
        losses.push_back(runner.evaluate_on_batch({.input = wave(i), .target = wave(i + 1)}).loss.item<double>());
      }
      runner.finish_evaluation();
      second->weight.set_data(second->weight.detach() * 0.5);
    }
    CHECK((runner.compile_report().replayed > 0) == recorded);
    return losses;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("compile: a program that only infers, and replaces its model", "[runner]") {
  const auto run = [](bool recorded) {
    const EagerToRecord schedule;
    const Folder folder;
    TinyConfig config(folder);
    config.compile.enable = recorded;
    OddRunner runner(config);
    std::vector<at::Tensor> out;
    for (std::int64_t i = 0; i < 40; ++i) {
      if (i == 20) {
        const torch::nn::Linear other = even_layer();
        const at::NoGradGuard no_grad;
        other->weight.mul_(-2);
        runner.model = other;
      }
      dl::Batch batch{.input = wave(i), .target = {}};
      out.push_back(runner.infer_on_batch(batch));
    }
    CHECK((runner.compile_report().replayed > 20) == recorded);
    return torch::stack(out);
  };
  CHECK(at::equal(run(true), run(false)));
}

/// A metric over a batch that is a function.
template <class B>
std::shared_ptr<dl::BatchMetric<B>> batch_metric(at::Tensor (*function)(const B&)) {
  struct Metric : dl::BatchMetric<B> {
    explicit Metric(at::Tensor (*given)(const B&)) : function(given) {}
    bool higher_better() const override { return false; }
    dl::MetricValue compute(const B& batch) override { return function(batch); }
    at::Tensor (*function)(const B&);
  };
  return std::make_shared<Metric>(function);
}

/// How far its prediction is from the target: which the step sets, and a replay does not.
struct Gapped {
  at::Tensor input, target, prediction;
  std::int64_t size() const { return input.size(0); }
  Gapped to(c10::Device device) const { return {input.to(device), target.to(device), prediction}; }
  auto parts() { return std::tie(input, target); }
  auto parts() const { return std::tie(input, target); }
};

class GappedRunner : public dl::BasicTorchRunner<Gapped> {
 public:
  explicit GappedRunner(const TinyConfig& config) : BasicTorchRunner(config) {
    model = even_layer();
    criterion = torch::nn::MSELoss();
    metrics = dl::BatchMetrics<Gapped>({{"gap", batch_metric<Gapped>([](const Gapped& batch) {
                                           return (batch.prediction - batch.target).abs().mean();
                                         })}});
  }
  ~GappedRunner() override { close(); }
};

TEST_CASE("compile: metrics over a batch see the prediction of the replay", "[runner]") {
  const auto gap = [](bool recorded) {
    return after_pushed<GappedRunner>(
        recorded, [](std::int64_t i) { return Gapped{wave(i), wave(i + 1), torch::zeros({8, 4})}; },
        [](const auto& runner) { return *runner.results().latest()->result.number("train.gap"); });
  };
  CHECK(gap(true) == gap(false));
}

/// Its bytes become numbers where they are moved to the device.
struct Bytes {
  at::Tensor input, target;
  std::int64_t size() const { return input.size(0); }
  Bytes to(c10::Device device) const { return {input.to(device).to(torch::kFloat) / 255, target.to(device)}; }
  auto parts() { return std::tie(input, target); }
  auto parts() const { return std::tie(input, target); }
};

class BytesRunner : public dl::BasicTorchRunner<Bytes> {
 public:
  explicit BytesRunner(const TinyConfig& config) : BasicTorchRunner(config) {
    model = even_layer();
    criterion = torch::nn::MSELoss();
  }
  ~BytesRunner() override { close(); }
};

TEST_CASE("compile: a batch that converts itself on the way to the device does so once", "[runner]") {
  const auto weights = [](bool recorded) {
    return after_pushed<BytesRunner>(
        recorded, [](std::int64_t i) { return Bytes{(wave(i).abs() * 255).to(torch::kByte), wave(i + 1)}; },
        [](const auto& runner) { return dl::clone(runner.model.state_dict()); });
  };
  CHECK(dl::first_difference(weights(true), weights(false)) == "");
}

TEST_CASE("compile: metrics of another kind between two evaluations", "[runner]") {
  const auto run = [](bool recorded) {
    const EagerToRecord schedule;
    const Folder folder;
    TinyConfig config(folder);
    config.compile.enable = recorded;
    TinyRunner runner(config);
    std::vector<double> out;
    for (int pass = 0; pass < 16; ++pass) {
      if (pass % 8 == 0) {
        runner.metrics = dl::StreamMetrics({{"gap", [](const at::Tensor& a, const at::Tensor& b) {
                                               return (a.argmax(1) - b).abs().to(at::kFloat).mean();
                                             }}});
      } else if (pass % 8 == 4) {
        runner.metrics = dl::BatchMetrics<dl::Batch>({{"gap", batch_metric<dl::Batch>([](const dl::Batch& batch) {
                                                         return batch.target.to(at::kFloat).mean();
                                                       })}});
      }
      out.push_back(*runner.evaluate({"val"}).number("val.gap"));
    }
    CHECK((runner.compile_report().replayed > 0) == recorded);
    return out;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("compile: a metric that an update feeds is counted once", "[runner]") {
  struct Fed : TinyRunner {
    explicit Fed(const TinyConfig& config) : TinyRunner(config) {
      metrics = dl::StreamMetrics({{"one", [this](const at::Tensor& a, const at::Tensor&) {
                                      ++calls;
                                      return a.sum();
                                    }}});
    }
    ~Fed() override { close(); }
    bool optimizer_step() override {
      update_metrics(torch::ones({3}), torch::ones({3}));
      return TinyRunner::optimizer_step();
    }
    std::int64_t calls = 0;
  };
  const auto calls = [](bool recorded) {
    const EagerToRecord schedule;
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 4;
    config.compile.enable = recorded;
    Fed runner(config);
    runner.train();
    CHECK((runner.compile_report().replayed > 0) == recorded);
    CHECK(runner.compile_report().refusals == std::vector<std::string>{});
    return runner.calls;
  };
  CHECK(calls(true) == calls(false));
}

// ---- kinds ----------------------------------------------------------------------------------------------------------

TEST_CASE("compile: where kinds come in turn, those that have a place keep it", "[runner]") {
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 150;
  config.compile.enable = true;
  config.compile.cache_size = 2;
  OddRunner runner(config);
  runner.body = plain;
  for (std::int64_t i = 0; i < 90; ++i) {
    const std::int64_t rows = 2 + i % 3;
    runner.train_on_batch({.input = wave(i, rows), .target = wave(i + 1, rows)});
  }
  const std::int64_t replayed = runner.compile_report().replayed;
  CHECK(replayed > 40);
  CHECK(runner.compile_report().tapes == 2);
  // A kind that has not come for long gives its place.
  for (std::int64_t i = 0; i < 60; ++i) {
    const std::int64_t rows = i % 2 == 0 ? 2 : 4;
    runner.train_on_batch({.input = wave(i, rows), .target = wave(i + 1, rows)});
  }
  runner.finish_training();
  CHECK(runner.compile_report().replayed > replayed + 30 + 5);
  CHECK(runner.compile_report().tapes == 2);
}

/// A clock whose steps take as long as a test says.
struct Clock {
  static inline std::vector<double> durations;
  static inline std::size_t reads;
  static double now() {
    static double time = 0;
    time += reads % 2 == 1 ? durations.at(reads / 2 % durations.size()) : 0;
    ++reads;
    return time;
  }
};

dl::CompileReport timed_run(std::vector<double> durations) {
  struct Schedule {
    Schedule() { danling::detail::tape_schedule() = {.warm = 1, .trial = 4, .now = Clock::now}; }
    ~Schedule() { danling::detail::tape_schedule() = {}; }
  } const schedule;
  Clock::durations = std::move(durations);
  Clock::reads = 0;
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 60;
  config.compile.enable = true;
  OddRunner runner(config);
  runner.body = plain;
  for (std::int64_t i = 0; i < 60; ++i) {
    runner.train_on_batch({.input = wave(i), .target = wave(i + 1)});
  }
  runner.finish_training();
  return runner.compile_report();
}

TEST_CASE("compile: a tape that loses three trials is dropped, one that wins one of them is kept", "[runner]") {
  // Of each trial two eager steps, then two replays; the least counts.
  const dl::CompileReport slow = timed_run({0.002, 0.001, 0.003, 0.004});
  CHECK(slow.refusals == std::vector<std::string>{"a replay takes 3000.0 microseconds, the step 1000.0"});
  CHECK(slow.replayed == 6);
  CHECK(slow.tapes == 0);
  const dl::CompileReport lucky = timed_run({0.002, 0.001, 0.003, 0.004, 0.002, 0.001, 0.001, 0.004});
  CHECK(lucky.refusals == std::vector<std::string>{});
  CHECK(lucky.tapes == 1);
  CHECK(lucky.replayed > 30);
}

TEST_CASE("compile: fullgraph makes each step of a kind that is left an error", "[runner]") {
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 10;
  config.compile.enable = true;
  config.compile.fullgraph = true;
  OddRunner runner(config);
  runner.body = with([](OddRunner&, const at::Tensor& loss) { (void)loss.item<double>(); });
  for (int i = 0; i < 2; ++i) {
    CHECK_THAT(error_of<dl::StateError>([&] { runner.train_on_batch({.input = wave(i), .target = wave(i + 1)}); }),
               StartsWith("[compile] expected a step that can be recorded (compile.fullgraph), got one of the training "
                          "steps of split 'train': the host reads a value"));
  }
}

TEST_CASE("compile: a condition that never holds again ends the replays", "[runner]") {
  check_odd({"torch::equal",
             [](OddRunner& runner, dl::Batch& batch) {
               const bool same = at::equal(batch.extra.at("a").tensor(), batch.extra.at("b").tensor());
               const at::Tensor prediction = runner.model(batch.input);
               const at::Tensor loss = runner.criterion(prediction, batch.target) * (same ? 1.0 : 0.5);
               runner.backward(loss);
               runner.step();
               return dl::StepOutput{prediction, loss};
             },
             {},
             {},
             "a recorded condition rarely holds",
             [](dl::Batch& batch, std::int64_t i) {
               batch.extra["a"] = torch::ones({2});
               batch.extra["b"] = torch::full({2}, i < 12 ? 1.0 : 2.0);
             }});
}

TEST_CASE("compile: the log says once for each mode that steps are replayed", "[runner]") {
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 6;
  config.compile.enable = true;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.close());
  const std::string log = logs_of(runner.workspace().dir());
  CHECK(count(log,
              "compile: the first train_step is replayed: its operators, metrics, meters and updates; its other code "
              "no longer runs") == 1);
  CHECK(count(log,
              "compile: the first evaluate_step is replayed: its operators, metrics and meters; its other code no "
              "longer runs") == 1);
}

}  // namespace
}  // namespace runner_test
