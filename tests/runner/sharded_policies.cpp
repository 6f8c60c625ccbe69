// Sharded training where numbers are bad, or looked at: policies, norms and histograms are those of one process.
#include <map>

#include <danling/runner/parallel_parts.hpp>
#include <danling/telemetry/histogram.hpp>

#include "sharded_runner.hpp"

namespace runner_test {
namespace {

/// Linear layers one after another, of which two share a weight: one parameter with two names.
struct TwiceImpl : torch::nn::Module {
  explicit TwiceImpl(std::int64_t hidden)
      : in(register_module("in", torch::nn::Linear(4, hidden))),
        first(register_module("first", torch::nn::Linear(hidden, hidden))),
        out(register_module("out", torch::nn::Linear(hidden, 3))),
        scale(register_parameter("scale", torch::full({}, 0.8))) {
    register_parameter("second", first->weight);
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = torch::tanh(first(torch::tanh(in(input.to(scale.scalar_type())))));
    return out(torch::linear(x, first->weight)) * scale;
  }
  torch::nn::Linear in, first, out;
  at::Tensor scale;
};
TORCH_MODULE(Twice);

constexpr std::int64_t never = -1;

/// Of rank 1, or of one process, the inputs of one batch are no numbers.
struct BadBatchRunner : TinyRunner {
  explicit BadBatchRunner(const TinyConfig& config) : TinyRunner(config) { model = Twice(config.hidden); }
  ~BadBatchRunner() override { close(); }
  static inline std::int64_t bad = never;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (micro_batches == bad && rank() == world_size() - 1) {
      batch.input = batch.input * NAN;
    }
    return TinyRunner::train_step(batch);
  }
};

TinyConfig bad_config() {
  TinyConfig config = fsdp_config();
  config.precision = "fp64";
  config.hidden = 5;
  config.dataloader.batch_size = 4;
  config.fsdp.units = {"Linear"};
  return config;
}

TinyConfig of_one_process(TinyConfig config) {
  config.stack = "ddp";
  config.fsdp = {};
  config.checkpoint.backend = "auto";
  config.dataloader.batch_size = 8;
  return config;
}

TEST_CASE("fsdp: gradients of one rank that are not finite are skipped or rolled back on all, as in one process",
          "[runner][fsdp]") {
  at::set_num_threads(1);
  for (const auto& [action, bad, backend] : {std::tuple("skip", 9, "auto"), std::tuple("rollback", 2, "auto"),
                                             std::tuple("rollback", 2, "dcp"), std::tuple("rollback", 9, "dcp")}) {
    INFO(action << " before batch " << bad << ", checkpoint.backend " << backend);
    TinyConfig config = bad_config();
    config.on_nonfinite = action;
    config.checkpoint.backend = backend;
    config.epochs = 3;
    BadBatchRunner::bad = bad;
    const auto train = [](const TinyConfig& run, const dl::Group& group) {
      FsdpRunner<BadBatchRunner> runner(run, group);
      runner.train();
      return runner.numbers();
    };
    const Folder one, two;
    TinyConfig whole = of_one_process(config);
    whole.workspace_root = one.path().string();
    config.workspace_root = two.path().string();
    const std::string expected = train(whole, dl::Group());
    CHECK_THAT(expected, !ContainsSubstring("nan"));
    for (const std::string& rank :
         danling_test::run_ranks(2, [&](const dl::Group& group) { return train(config, group); })) {
      INFO(rank.substr(0, 500));
      CHECK(relative_difference(rank, expected) < 1e-12);
    }
  }
  BadBatchRunner::bad = never;
}

/// Norms in the log, and numbers of histograms.
struct Seen : dl::Sink {
  std::map<std::string, dl::Histogram> histograms;
  std::string name() const override { return "seen"; }
  bool wants_histograms() const override { return true; }
  void histogram(const dl::HistogramRecord& record) override {
    histograms.emplace(dl::detail::concat(record.name, " ", record.global_step), record.histogram);
  }
};
struct Norms : dl::Callback {
  std::string text;
  std::string name() const override { return "norms"; }
  void on_log(const dl::LogEvent& event) override {
    if (event.mode == dl::RunnerMode::train && event.iteration) {
      text += dl::detail::concat(" ", *event.values.number("grad_norm"));
    }
  }
};

TEST_CASE("fsdp: norms and histograms are of whole parameters, also where ranks have no last batch", "[runner][fsdp]") {
  at::set_num_threads(1);
  TinyConfig config = bad_config();
  config.epochs = 1;
  config.records = 44;  // the last batch is that of rank 0
  config.log_interval = 1;
  config.log_grad_norm = true;
  config.max_grad_value = 0.01;
  config.histogram_interval = 3;
  const auto seen_by = [](const TinyConfig& run, const dl::Group& group) {
    const Folder folder;
    TinyConfig own = run;
    own.workspace_root = folder.path().string();
    FsdpRunner<BadBatchRunner> runner(own, group);
    const auto seen = std::make_shared<Seen>();
    runner.add_sink(seen);
    auto& norms = runner.add(Norms());
    runner.train();
    runner.close();
    std::string out = "numbers:" + norms.text;
    for (const auto& [name, values] : seen->histograms) {
      out += dl::detail::concat(" ", values.min, " ", values.max, " ", values.sum, " ", values.sum_of_squares, " ",
                                values.count, " ", values.nonfinite);
    }
    return dl::detail::concat(out, " ", seen->histograms.size());
  };
  const std::string expected = seen_by(of_one_process(config), dl::Group());
  CHECK_THAT(expected, EndsWith(" 32"));  // eight names, weights and gradients, at two updates
  for (const std::int64_t stage : {1, 3}) {
    config.fsdp.stage = stage;
    const auto ranks = danling_test::run_ranks(2, [&](const dl::Group& group) { return seen_by(config, group); });
    INFO(ranks.front().substr(0, 500));
    CHECK(relative_difference(ranks.front(), expected) < 1e-9);
  }
  config.log_noise_scale = true;
  config.accum_steps = 2;
  danling_test::check_ranks(
      danling_test::run_ranks(
          2, [&](const dl::Group& group) { return error_of<dl::ConfigError>([&] { seen_by(config, group); }); }),
      "[runner.train] expected stack: ddp with log_noise_scale, got fsdp, where no rank has the gradients of a part of "
      "the batch");
}

TEST_CASE("parallel: ranks that compute other samples or layers draw other numbers, also on another grid",
          "[runner][fsdp]") {
  const auto drawn = [](dl::ParallelAxesConfig axes, const dl::State& before, std::int64_t ranks) {
    return danling_test::run_ranks(4, [=](const dl::Group& group) {
      const dl::detail::ShardedParallel parallelism(group, dl::detail::grid_topology(4, group.rank(), axes.list()),
                                                    dl::FsdpConfig());
      const auto from = parallelism.generators_from(before, ranks);
      return dl::detail::concat(parallelism.seed(100), from ? dl::detail::concat(" as ", *from) : " anew", ", ",
                                parallelism.num_reporting_ranks());
    });
  };
  using Ranks = std::vector<std::string>;
  const dl::State one = dl::State::Map();
  const dl::State sliced = dl::State::Map{{"tensor", 2}};
  const dl::State staged = dl::State::Map{{"pipeline", 2}, {"tensor", 2}};
  CHECK(drawn({.tensor = 4}, one, 1) == Ranks(4, "100 as 0, 1"));
  CHECK(drawn({.pipeline = 2, .tensor = 2}, sliced, 2) ==
        Ranks{"100 as 0, 1", "100 as 0, 1", "101 anew, 1", "101 anew, 1"});
  CHECK(drawn({.shard = 2, .pipeline = 2}, staged, 4) ==
        Ranks{"100 as 0, 2", "102 as 2, 2", "101 anew, 2", "103 anew, 2"});
  CHECK(drawn({.replicate = 2, .context = 2}, one, 3) ==
        Ranks{"100 as 0, 4", "101 as 1, 4", "102 as 2, 4", "103 anew, 4"});
}

TEST_CASE("parallel: micro-batches of a pipeline without a valid target do not enter its loss", "[runner][parallel]") {
  const at::Tensor half = torch::full({}, 0.5), nan = torch::full({}, NAN);
  CHECK(dl::detail::weighted_sum({half, nan}, {1.0, 0.0}).item<double>() == 0.5);
  CHECK(dl::detail::weighted_sum({nan, half, half}, {0.0, 0.5, 0.5}).item<double>() == 0.5);
  CHECK(std::isnan(dl::detail::weighted_sum({nan, nan}, {0.0, 0.0}).item<double>()));
}

}  // namespace
}  // namespace runner_test
