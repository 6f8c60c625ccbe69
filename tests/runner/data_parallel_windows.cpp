// Data parallel windows that differ between ranks, updates or models: numbers of one process with the whole batch.
#include <danling/nn/sync_batch_norm.hpp>

#include "ddp_runner.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

template <class Base>
std::string trained_window(TinyConfig config, const dl::Group& group, const std::function<void(Base&)>& with) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  DdpRunner<Base> runner(config, group);
  if (with) {
    with(runner);
  }
  runner.train();
  return runner.numbers();
}

/// Largest relative difference of `processes` to one with the whole batch; all ranks must have the same bits.
template <class Base>
double difference_to_one(const TinyConfig& config, int processes, const std::function<void(Base&)>& with = nullptr) {
  TinyConfig whole = config;
  whole.dataloader.batch_size = *config.dataloader.batch_size * processes;
  const std::string one = trained_window<Base>(whole, dl::Group(), with);
  const auto all = danling_test::run_ranks(
      processes, [&](const dl::Group& group) { return trained_window<Base>(config, group, with); });
  CHECK_THAT(one, StartsWith("numbers:"));
  for (const std::string& rank : all) {
    CHECK(rank == all.front());
  }
  return relative_difference(all.front(), one);
}

TEST_CASE("ddp: loss.backward() in place of backward(loss) is an error, since no sum of the ranks follows",
          "[runner][ddp]") {
  const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) -> std::string {
    const Folder folder;
    DdpRunner<PlainBackward> runner(two_epochs(folder), group);
    return error_of<dl::Error>([&] { runner.train(); });
  });
  for (const std::string& text : texts) {
    CHECK_THAT(text, ContainsSubstring("[runner.step] expected a call of backward(loss) in train_step before step(), "
                                       "which sums gradients over processes, got gradients without one; call it in "
                                       "place of loss.backward()"));
  }
}

TinyConfig windows_config() {
  TinyConfig config;
  config.epochs = 2;
  config.dropout = 0;
  config.hidden = 4;
  config.records = 48;
  config.precision = "fp64";
  config.optim.type = "sgd";
  config.optim.momentum = 0.9;
  config.dataloader.batch_size = 4;
  return config;
}

/// Losses without a normalizer: micro-batches count alike.
struct UniformRunner : TinyRunner {
  explicit UniformRunner(const TinyConfig& config) : TinyRunner(config) {
    criterion = [](const at::Tensor& scores, const at::Tensor& target) {
      return torch::nn::functional::cross_entropy(scores, target);
    };
    metrics = nullptr;
  }
  ~UniformRunner() override { close(); }
};

TEST_CASE("ddp: a line of the log is of the ranks that have a part in its batch, as in one process", "[runner][ddp]") {
  struct Lines : dl::Callback {
    std::vector<double> values;
    std::string name() const override { return "lines"; }
    void on_log(const dl::LogEvent& event) override {
      if (event.mode == dl::RunnerMode::train && event.iteration) {
        values.push_back(*event.values.number("loss"));
      }
    }
  };
  TinyConfig config = windows_config();
  config.epochs = 1;
  config.records = 49;  // the last batch has one sample, of rank 0
  config.log_interval = 1;
  const auto lines_of = [&](const dl::Group& group) {
    const Folder folder;
    TinyConfig run = config;
    run.workspace_root = folder.path().string();
    run.dataloader.batch_size = 8 / group.size();
    DdpRunner<> runner(run, group);
    auto& lines = runner.add(Lines());
    runner.train();
    std::string out = "numbers:";
    for (const double value : lines.values) {
      out += dl::detail::concat(" ", value);
    }
    return out;
  };
  const std::string one = lines_of(dl::Group());
  CHECK(std::count(one.begin(), one.end(), ' ') == 6);
  for (const std::string& rank : danling_test::run_ranks(2, lines_of)) {
    CHECK(relative_difference(rank, one) < 1e-9);
  }
}

TEST_CASE("ddp: a rank whose pass is over applies the update of losses without a normalizer as the others do",
          "[runner][ddp]") {
  TinyConfig config = windows_config();
  config.records = 46;
  config.dataloader.batch_size = 3;
  const auto weights = [](const TinyConfig& run, const dl::Group& group) {
    const std::string numbers = trained_window<UniformRunner>(run, group, nullptr);
    std::size_t end = 0;
    for (int number = 0; number < 36; ++number) {  // 4 x 4 + 4 + 4 x 3 + 3, behind a name; then losses
      end = numbers.find(' ', end + 1);
    }
    return numbers.substr(0, end);
  };
  for (const std::int64_t accum_steps : {1, 4}) {
    config.accum_steps = accum_steps;
    const auto all = danling_test::run_ranks(3, [&](const dl::Group& group) { return weights(config, group); });
    danling_test::check_ranks(all, all.front());
    if (accum_steps == 1) {  // else the micro-batches of a window have other sizes
      TinyConfig whole = config;
      whole.dataloader.batch_size = 9;
      CHECK(relative_difference(all.front(), weights(whole, dl::Group())) < 1e-12);
    }
  }
  config.accum_steps = 1;
  config.deterministic = true;
  config.parallel.virtual_ranks = 4;
  config.dataloader.batch_size = 2;
  for (const std::int64_t records : {50, 51}) {
    config.records = records;
    const std::string one = trained_window<UniformRunner>(config, dl::Group(), nullptr);
    for (const int processes : {2, 4}) {
      danling_test::check_ranks(
          danling_test::run_ranks(
              processes, [&](const dl::Group& group) { return trained_window<UniformRunner>(config, group, nullptr); }),
          one);
    }
  }
}

/// Several backward passes in a step; with 0 three of them in each fourth step, else one.
template <int passes>
struct PassesRunner : TinyRunner {
  using TinyRunner::TinyRunner;
  ~PassesRunner() override { close(); }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    dl::StepOutput out;
    const int now = passes > 0 ? passes : micro_batches % 4 == 3 ? 3 : 1;
    if (before_step) {
      before_step(*this, micro_batches);
    }
    ++micro_batches;
    for (int i = 0; i < now; ++i) {
      const auto scores = model(batch.input.to(at::kDouble) * (1.0 + i));
      const auto loss = torch::nn::functional::cross_entropy(scores, batch.target);
      backward(loss);
      out = {scores, loss};
    }
    step();
    return out;
  }
};

TEST_CASE("ddp: any number of backward passes in a step, also one that changes", "[runner][ddp]") {
  const TinyConfig config = windows_config();
  CHECK(difference_to_one<PassesRunner<2>>(config, 2) < 1e-12);
  CHECK(difference_to_one<PassesRunner<3>>(config, 2) < 1e-12);
  CHECK(difference_to_one<PassesRunner<0>>(config, 2) < 1e-12);
}

TEST_CASE("ddp: a run with two backward passes in a step resumes bit for bit", "[runner][ddp]") {
  TinyConfig config = windows_config();
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  const auto resumed = danling_test::run_ranks(2, [&](const dl::Group& group) {
    {
      DdpRunner<PassesRunner<2>> runner(config, group);
      runner.before_step = [](TinyRunner& self, std::int64_t before) {
        if (before == 4) {
          self.request_stop();
        }
      };
      CHECK_THROWS_AS(runner.train(), dl::Stopped);
    }
    DdpRunner<PassesRunner<2>> runner(config, group);
    runner.train();
    return runner.numbers();
  });
  config.auto_resume = false;
  const auto straight = danling_test::run_ranks(
      2, [&](const dl::Group& group) { return trained_window<PassesRunner<2>>(config, group, nullptr); });
  CHECK(resumed == straight);
}

TEST_CASE("ddp: parameters that are frozen and thawed between updates", "[runner][ddp]") {
  TinyConfig config = windows_config();
  using Trains = std::function<bool(std::int64_t)>;
  const Trains cases[] = {[](std::int64_t done) { return done >= 3; }, [](std::int64_t done) { return done < 3; },
                          [](std::int64_t done) { return done % 4 < 2; }};
  for (const Trains& trains : cases) {
    for (const bool overlap : {true, false}) {
      config.ddp.overlap = overlap;
      CHECK(difference_to_one<TinyRunner>(config, 2, [&](TinyRunner& runner) {
              runner.before_step = [&trains](TinyRunner& self, std::int64_t) {
                self.model.named_parameters()[0].second.requires_grad_(trains(self.state().train.global_step));
              };
            }) < 1e-12);
    }
  }
}

TEST_CASE("ddp: a parameter that is thawed at the beginning of an epoch", "[runner][ddp]") {
  struct Thaw : dl::Callback {
    std::string name() const override { return "thaw"; }
    void on_round_begin(const dl::RoundEvent& event) override {
      dynamic_cast<TinyRunner&>(event.runner).model.named_parameters()[0].second.requires_grad_(event.index >= 1);
    }
  };
  CHECK(difference_to_one<TinyRunner>(windows_config(), 2, [](TinyRunner& runner) { runner.add(Thaw()); }) < 1e-12);
}

TEST_CASE("ddp: an optimizer that replaces another one of the program's own loop", "[runner][ddp]") {
  const auto two_stages = [](TinyConfig config, const dl::Group& group) {
    const Folder folder;
    config.workspace_root = folder.path().string();
    DdpRunner<> runner(config, group);
    for (int stage = 0; stage < 2; ++stage) {
      if (stage == 1) {
        std::vector<at::Tensor> params;
        for (const auto& [name, param] : runner.model.named_parameters()) {
          params.push_back(param);
        }
        runner.optimizer = dl::optim::sgd(params, {.lr = 0.02});
      }
      for (int i = 0; i < 6; ++i) {
        auto batch = make_points(8 / group.size(), stage * 48 + i * 8 + 8 / group.size() * group.rank());
        batch.input = batch.input.to(at::kDouble);
        runner.train_on_batch(batch);
      }
      runner.finish_training();
    }
    return runner.numbers();
  };
  TinyConfig config = windows_config();
  config.epochs.reset();
  for (const std::int64_t accum_steps : {1, 2, 3}) {
    config.accum_steps = accum_steps;
    const auto both = danling_test::run_ranks(2, [&](const dl::Group& group) { return two_stages(config, group); });
    CHECK(both[0] == both[1]);
    CHECK(relative_difference(both[0], two_stages(config, dl::Group())) < 1e-12);
  }
}

TEST_CASE("ddp: a program's own loop ends when all ranks have, whatever their numbers of batches", "[runner][ddp]") {
  const auto all = danling_test::run_ranks(3, [](const dl::Group& group) {
    TinyConfig config = windows_config();
    config.epochs.reset();
    const Folder folder;
    config.workspace_root = folder.path().string();
    DdpRunner<> runner(config, group);
    for (int i = 0; i < 6 - 2 * group.rank(); ++i) {
      auto batch = make_points(4, i * 12 + 4 * group.rank());
      batch.input = batch.input.to(at::kDouble);
      runner.train_on_batch(batch);
    }
    runner.finish_training();
    return dl::detail::concat(runner.state().train.global_step, " updates, ", runner.numbers());
  });
  danling_test::check_ranks(all, all.front());
  CHECK_THAT(all.front(), StartsWith("6 updates, "));
}

TEST_CASE("ddp: in a program's own loop all ranks count the update that closes another's last window",
          "[runner][ddp]") {
  for (const bool first_has_more : {false, true}) {
    const auto all = danling_test::run_ranks(2, [&](const dl::Group& group) {
      TinyConfig config = windows_config();
      config.epochs.reset();
      config.accum_steps = 2;
      const Folder folder;
      config.workspace_root = folder.path().string();
      DdpRunner<> runner(config, group);
      const int batches = (group.rank() == 0) == first_has_more ? 5 : 2;
      for (int i = 0; i < batches; ++i) {
        auto batch = make_points(4, i * 8 + 4 * group.rank());
        batch.input = batch.input.to(at::kDouble);
        runner.train_on_batch(batch);
      }
      runner.finish_training();
      return dl::detail::concat(runner.state().train.global_step, " updates");
    });
    danling_test::check_ranks(all, "3 updates");
  }
}

/// Two models with batches that state their weight.
struct WeightedPoints {
  Points points;
  std::int64_t size() const { return points.size(); }
  dl::Batch get_batch(std::span<const std::int64_t> indices) {
    dl::Batch batch = points.get_batch(indices);
    batch.loss_normalizer = batch.input.size(0);
    return batch;
  }
  bool train() const { return true; }
};

struct WeightedGanRunner : GanRunner {
  explicit WeightedGanRunner(const TinyConfig& config) : GanRunner(config) {
    datasets["train"] = WeightedPoints{Points{make_points(config.records, 0), true}};
  }
  ~WeightedGanRunner() override { close(); }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    const auto noise = batch.input.flip(1);
    const at::Tensor fake = models["generator"](noise);
    const auto parts = score(models["discriminator"](batch.input), 1.0);
    backward(parts + score(models["discriminator"](fake.detach()), 0.0), "discriminator");
    step("discriminator");
    const auto loss = score(models["discriminator"](fake), 1.0);
    backward(loss, "generator");
    step("generator");
    return {fake, loss};
  }
};

TEST_CASE("ddp: two models by steps and by epochs, where one rank has fewer batches", "[runner][ddp]") {
  TinyConfig config = windows_config();
  config.precision = "fp32";
  config.optim.momentum.reset();
  config.records = 46;
  config.dataloader.batch_size = 3;
  CHECK(difference_to_one<WeightedGanRunner>(config, 3) < 1e-6);
  config.epochs.reset();
  for (const std::int64_t steps : {6, 9, 17}) {
    config.steps = steps;
    CHECK(difference_to_one<WeightedGanRunner>(config, 3) < 1e-6);
  }
}

/// The generator runs before the discriminator is updated, and is updated after it.
struct NormGanRunner : WeightedGanRunner {
  explicit NormGanRunner(const TinyConfig& config) : WeightedGanRunner(config) {
    for (const char* name : {"generator", "discriminator"}) {
      models[name] = torch::nn::Sequential(torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6),
                                           torch::nn::Linear(6, std::string(name) == "generator" ? 4 : 1));
    }
  }
  ~NormGanRunner() override { close(); }
};

TEST_CASE("ddp: batch normalization in two models, one of which is updated while the graph of the other is needed",
          "[runner][ddp]") {
  TinyConfig config = windows_config();
  config.precision = "fp32";
  const auto all = danling_test::run_ranks(
      2, [&](const dl::Group& group) { return trained_window<NormGanRunner>(config, group, nullptr); });
  CHECK_THAT(all.front(), StartsWith("numbers:"));
  danling_test::check_ranks(all, all.front());  // weights and buffers
}

struct MaskedNormRunner : TinyRunner {
  explicit MaskedNormRunner(const TinyConfig& config) : TinyRunner(config) {
    torch::nn::Sequential net(torch::nn::Linear(4, config.hidden), dl::nn::SyncBatchNorm(config.hidden),
                              torch::nn::ReLU(), torch::nn::Linear(config.hidden, 3));
    model = net;
    dl::Batch points = make_points(config.records, 0);
    for (std::int64_t i = 0; i < points.target.size(0); ++i) {
      if (i % 8 >= 4) {  // the second rank's half of each batch, in their order
        points.target[i] = -100;
      }
    }
    datasets["train"] = Points{points, true};
    metrics = nullptr;
  }
  ~MaskedNormRunner() override { close(); }
};

TEST_CASE("ddp: a rank without a valid target takes part in the backward pass of SyncBatchNorm", "[runner][ddp]") {
  TinyConfig config = windows_config();
  config.epochs = 1;
  config.dataloader.splits["train"].shuffle = false;
  const auto all = danling_test::run_ranks(
      2, [&](const dl::Group& group) { return trained_window<MaskedNormRunner>(config, group, nullptr); });
  CHECK_THAT(all.front(), StartsWith("numbers:"));
  danling_test::check_ranks(all, all.front());
}

}  // namespace
}  // namespace runner_test
