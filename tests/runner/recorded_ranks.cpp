// compile: recorded steps of several processes.
#include <danling/nn/sync_batch_norm.hpp>

#include "ddp_runner.hpp"
#include "models.hpp"
#include "recorded.hpp"

namespace runner_test {
namespace {

struct RankCase {
  std::string name;
  std::function<void(TinyConfig&)> set;
};

template <class Base>
std::vector<std::string> numbers_of(const TinyConfig& config, int processes, bool recorded) {
  return danling_test::run_ranks(processes, [&](const dl::Group& group) {
    const EagerToRecord schedule;
    const Folder folder;
    TinyConfig own = config;
    own.workspace_root = folder.path().string();
    own.compile.enable = recorded;
    DdpRunner<Base> runner(own, group);
    runner.train();
    const dl::CompileReport report = runner.compile_report();
    danling_test::expect(
        (report.replayed > 0) == recorded,
        dl::detail::concat("replays, got ", report.replayed, " of ", report.eager, dl::detail::join(report.refusals)));
    return runner.numbers();
  });
}

template <class Base = TinyRunner>
void compare_ranks(const RankCase& rank_case) {
  INFO(rank_case.name);
  TinyConfig config;
  config.epochs = 6;
  config.dataloader.batch_size = 4;
  rank_case.set(config);
  CHECK(numbers_of<Base>(config, 2, true) == numbers_of<Base>(config, 2, false));
}

TEST_CASE("compile: ddp, its sums between recorded pieces", "[runner][ddp]") {
  const RankCase cases[] = {
      {"AdamW, dropout, a short last batch", [](TinyConfig&) {}},
      {"windows, clipping",
       [](TinyConfig& config) {
         config.accum_steps = 3;
         config.max_grad_norm = 0.3;
       }},
      {"no overlap", [](TinyConfig& config) { config.ddp.overlap = false; }},
      {"many buckets", [](TinyConfig& config) { config.ddp.bucket_cap_mb = 1e-4; }},
      {"no shared memory", [](TinyConfig& config) { config.ddp.shared_memory = false; }},
      {"fp16", [](TinyConfig& config) { config.precision = "fp16"; }},
      {"PowerSGD", [](TinyConfig& config) { config.ddp.comm_hook = "powerSGD"; }},
      {"averages", [](TinyConfig& config) { config.ema.enabled = true; }},
      {"by steps, ranks with other numbers of batches",
       [](TinyConfig& config) { config.epochs.reset(), config.steps = 40, config.records = 47; }},
  };
  for (const RankCase& rank_case : cases) {
    compare_ranks(rank_case);
  }
}

TEST_CASE("compile: ddp with several models", "[runner][ddp]") {
  compare_ranks<GanRunner>({"two models", [](TinyConfig& config) {
                              const Folder folder;
                              config = gan_config(folder);
                              config.epochs = 6;
                            }});
}

TEST_CASE("compile: virtual ranks in two processes", "[runner][ddp]") {
  compare_ranks({"virtual ranks", [](TinyConfig& config) {
                   config.parallel.virtual_ranks = 4;
                   config.deterministic = true;
                 }});
}

/// Freezes its first layer now and then.
struct FreezingRunner : TinyRunner {
  explicit FreezingRunner(const TinyConfig& config) : TinyRunner(config) {
    struct Freeze : dl::Callback {
      void on_step(const dl::StepEvent& event) override {
        auto& runner = dynamic_cast<dl::TorchRunner&>(event.runner);
        if (const std::int64_t step = runner.state().train.global_step; step % 12 == 0) {
          for (auto& parameter : runner.model.as<torch::nn::Sequential>()->ptr(0)->parameters()) {
            parameter.set_requires_grad(step % 24 != 0);
          }
        }
      }
    };
    add(Freeze());
  }
};

TEST_CASE("compile: ddp, parameters that are frozen and thawed between updates", "[runner][ddp]") {
  compare_ranks<FreezingRunner>({"frozen", [](TinyConfig& config) { config.epochs = 12; }});
}

/// Returns, for each of two processes, the reason why its steps are not recorded.
template <class Base>
std::vector<std::string> refusals_of(const std::function<void(TinyConfig&)>& set) {
  return danling_test::run_ranks(2, [&](const dl::Group& group) {
    const EagerToRecord schedule;
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    config.dropout = 0;
    config.compile.enable = true;
    set(config);
    DdpRunner<Base> runner(config, group);
    return first_refusal(runner);
  });
}

/// Averages its loss over the processes.
struct AskingRunner : TinyRunner {
  using TinyRunner::TinyRunner;
  dl::StepOutput train_step(dl::Batch& batch) override {
    const dl::StepOutput out = TinyRunner::train_step(batch);
    at::Tensor all = out.loss.detach().clone();
    group().all_reduce(all);
    return out;
  }
};

/// Two losses, each with a backward pass.
struct TwicePassing : TinyRunner {
  using TinyRunner::TinyRunner;
  dl::StepOutput train_step(dl::Batch& batch) override {
    const at::Tensor prediction = model(batch.input);
    const at::Tensor loss = criterion(prediction, batch.target);
    backward(loss);
    backward(criterion(model(batch.input), batch.target) * 0.5);
    step();
    return {prediction, loss};
  }
};

TEST_CASE("compile: steps of several processes that run as they are", "[runner][ddp]") {
  for (const std::string& why : refusals_of<AskingRunner>([](TinyConfig&) {})) {
    CHECK(why == "processes exchange values inside of it: all_reduce");
  }
  for (const std::string& why : refusals_of<TwicePassing>([](TinyConfig&) {})) {
    CHECK(why == "it has several backward passes, whose sums over processes overlap; set ddp.overlap: false");
  }
  for (const std::string& why : refusals_of<TwicePassing>([](TinyConfig& config) { config.ddp.overlap = false; })) {
    CHECK(why == "none");
  }
  const std::string synced = "SyncBatchNorm exchanges its statistics in the forward pass";
  struct Synced : TinyRunner {
    explicit Synced(const TinyConfig& config) : TinyRunner(config) {
      model = torch::nn::Sequential(torch::nn::Linear(4, 3), dl::nn::SyncBatchNorm(3));
    }
  };
  for (const std::string& why : refusals_of<Synced>([](TinyConfig&) {})) {
    CHECK(why == synced);
  }
}

}  // namespace
}  // namespace runner_test
