// Data parallel training: several processes with parts of each batch against one with the whole.
#include "ddp_runner.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

struct DdpCase {
  std::string name;
  std::function<void(TinyConfig&)> set;
  /// The reference computes a batch in as many micro-batches as there are processes: with 16-bit kernels the gradient
  /// of the whole batch is rounded once, that of each part apart.
  bool by_parts = false;
  double tolerance = 1e-6;
};

template <class Base>
std::string train_ddp(const TinyConfig& config, const dl::Group& group) {
  const Folder folder;
  TinyConfig own = config;
  own.workspace_root = folder.path().string();
  DdpRunner<Base> runner(own, group);
  runner.train();
  return runner.numbers();
}

template <class Base = TinyRunner>
void compare_ddp(const DdpCase& ddp_case, int processes, std::int64_t batch_size) {
  INFO(ddp_case.name << ", " << processes << " processes");
  TinyConfig config;
  config.epochs = 2;
  config.dropout = 0;
  config.hidden = 32;
  config.optim.type = "sgd";
  config.optim.momentum = 0.9;
  ddp_case.set(config);
  TinyConfig whole = config;
  whole.dataloader.batch_size = ddp_case.by_parts ? batch_size : batch_size * processes;
  whole.accum_steps = ddp_case.by_parts ? config.accum_steps * processes : config.accum_steps;
  config.dataloader.batch_size = batch_size;
  const std::string reference = train_ddp<Base>(whole, dl::Group());
  const auto texts =
      danling_test::run_ranks(processes, [&](const dl::Group& group) { return train_ddp<Base>(config, group); });
  for (const std::string& text : texts) {
    CHECK(text == texts.front());
  }
  std::string shared = texts.front();
  if (ddp_case.by_parts) {  // counts other micro-batches
    shared = shared.substr(0, shared.rfind(' '));
    CHECK(relative_difference(shared, reference.substr(0, reference.rfind(' '))) < ddp_case.tolerance);
  } else {
    CHECK(relative_difference(shared, reference) < ddp_case.tolerance);
  }
}

TEST_CASE("ddp: two processes with half the batch each are one with the whole", "[runner][ddp]") {
  const auto whole_batches = [](TinyConfig& config) { config.dataloader.splits["train"].drop_last = true; };
  const DdpCase cases[] = {
      {"float32", whole_batches},
      {"clipping by norm", [](TinyConfig& config) { config.max_grad_norm = 0.1; }},
      {"clipping by value", [](TinyConfig& config) { config.max_grad_value = 0.01; }},
      {"accumulation, the last window short", [](TinyConfig& config) { config.accum_steps = 3; }},
      {"AdamW",
       [](TinyConfig& config) { config.optim.type = "adamw", config.optim.momentum.reset(), config.optim.eps = 1e-3; }},
      {"an average of the weights", [](TinyConfig& config) { config.ema.enabled = true, config.ema.decay = 0.9; }},
      {"a schedule", [](TinyConfig& config) { config.sched.type = "cosine"; }},
      {"by steps", [](TinyConfig& config) { config.epochs.reset(), config.steps = 17; }},
      {"by steps, accumulation",
       [](TinyConfig& config) { config.epochs.reset(), config.steps = 9, config.accum_steps = 2; }},
      {"float64", [](TinyConfig& config) { config.precision = "fp64"; }, false, 1e-12},
      {"bf16",
       [](TinyConfig& config) { config.precision = "bf16", config.dataloader.splits["train"].drop_last = true; }, true},
      {"fp16",
       [](TinyConfig& config) { config.precision = "fp16", config.dataloader.splits["train"].drop_last = true; }, true},
      {"no overlap", [](TinyConfig& config) { config.ddp.overlap = false; }},
      {"no shared memory", [](TinyConfig& config) { config.ddp.shared_memory = false; }},
      {"many buckets", [](TinyConfig& config) { config.ddp.bucket_cap_mb = 1e-4; }},
      {"gradients that travel in bfloat16", [](TinyConfig& config) { config.ddp.comm_hook = "bf16_compress"; }, false,
       0.02},
      {"gradients that travel in float16", [](TinyConfig& config) { config.ddp.comm_hook = "fp16_compress"; }, false,
       0.01},
  };
  for (const DdpCase& ddp_case : cases) {
    compare_ddp(ddp_case, 2, 4);
  }
}

TEST_CASE("ddp: processes with other numbers of batches join the updates of the others", "[runner][ddp]") {
  const DdpCase cases[] = {
      {"a process without the last batch", [](TinyConfig& config) { config.records = 46; }},
      {"inside an accumulation window", [](TinyConfig& config) { config.records = 46, config.accum_steps = 4; }},
      {"after the last whole window", [](TinyConfig& config) { config.records = 46, config.accum_steps = 5; }},
      {"by steps",
       [](TinyConfig& config) {
         config.records = 46, config.epochs.reset(), config.steps = 20, config.accum_steps = 2;
       }},
      {"with clipping and lines of the log",
       [](TinyConfig& config) { config.records = 46, config.max_grad_norm = 0.5, config.log_interval = 1; }},
      {"lines of the log inside windows",
       [](TinyConfig& config) { config.records = 46, config.accum_steps = 4, config.log_interval = 1; }},
  };
  for (const DdpCase& ddp_case : cases) {
    compare_ddp(ddp_case, 3, 3);
  }
}

/// Some targets are not valid, and some batches of one process have none.
struct MaskedRunner : TinyRunner {
  explicit MaskedRunner(const TinyConfig& config) : TinyRunner(config) {
    dl::Batch points = make_points(config.records, 0);
    for (std::int64_t i = 0; i < config.records; ++i) {
      const bool valid = i < 8 ? i % 2 == 1 : i < 12 ? false : i < 16 || i % 5 != 0;
      points.target[i] = valid ? points.target[i].item<std::int64_t>() : -100;  // ignored by CrossEntropyLoss
    }
    datasets["train"] = Points{points, true};
    metrics = nullptr;
  }
  ~MaskedRunner() override { close(); }
};

TEST_CASE("ddp: micro-batches count by their valid targets, also where a process has none", "[runner][ddp]") {
  const auto in_order = [](TinyConfig& config) { config.dataloader.splits["train"].shuffle = false; };
  const DdpCase cases[] = {
      {"valid targets", in_order},
      {"valid targets of an accumulation window",
       [&](TinyConfig& config) { in_order(config), config.accum_steps = 3, config.log_interval = 1; }},
      {"valid targets in float64", [&](TinyConfig& config) { in_order(config), config.precision = "fp64"; }, false,
       1e-12},
  };
  for (const DdpCase& ddp_case : cases) {
    compare_ddp<MaskedRunner>(ddp_case, 2, 4);
    compare_ddp<MaskedRunner>(ddp_case, 3, 2);
  }
}

TEST_CASE("ddp: several models with their own optimizers, windows and averages are those of one process",
          "[runner][ddp]") {
  const DdpCase cases[] = {
      {"two models", set_adversaries},
      {"two models, clipped", [&](TinyConfig& config) { set_adversaries(config), config.max_grad_norm = 0.05; }},
      {"two models, windows of one",
       [&](TinyConfig& config) { set_adversaries(config), config.optim.models["generator"].accum_steps = 2; }},
      {"two models, averages", [&](TinyConfig& config) { set_adversaries(config), config.ema.enabled = true; }},
      {"two models in float64", [&](TinyConfig& config) { set_adversaries(config), config.precision = "fp64"; }, false,
       1e-12},
  };
  for (const DdpCase& ddp_case : cases) {
    compare_ddp<AdversaryRunner>(ddp_case, 2, 4);
  }
}

TEST_CASE("ddp: an optimizer that evaluates the loss again is refused with several processes", "[runner][ddp]") {
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    TinyConfig config;
    config.record = false;
    config.epochs = 1;
    config.optim.type = "lbfgs";
    return error_of<dl::ConfigError>([&] {
      DdpRunner<> runner(config, group);
      runner.train();
    });
  });
  for (const std::string& text : texts) {
    CHECK(text == "[runner.train] expected one process with LBFGS, which evaluates the loss of a step again, got 2");
  }
}

TEST_CASE("ddp: datasets of other sizes on the ranks are an error before training", "[runner][ddp]") {
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    TinyConfig config;
    config.record = false;
    config.epochs = 1;
    DdpRunner<> runner(config, group);
    runner.datasets["train"] = Points{make_points(group.rank() == 0 ? 40 : 48, 0), true};
    return error_of<dl::ConfigError>([&] { runner.train(); });
  });
  danling_test::check_ranks(
      texts,
      "[runner.train] expected the same number of samples in split 'train' on all ranks, since each rank reads a part "
      "of them, got 40 on rank 0 and 48 on rank 1; give every process the whole dataset");
}

}  // namespace
}  // namespace runner_test
