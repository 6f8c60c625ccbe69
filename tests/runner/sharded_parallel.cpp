// Sharded training: several processes with parts of each batch and of the parameters, against one with the whole.
#include <danling/parallel/parallelizable.hpp>
#include <danling/runner/parallel_parts.hpp>

#include "models.hpp"
#include "sharded_runner.hpp"

namespace runner_test {
namespace {

/// A model that has nothing to slice: ranks along `tensor` compute the same.
struct SameEverywhereImpl : torch::nn::SequentialImpl, dl::parallel::Parallelizable {
  using torch::nn::SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& input) { return torch::nn::SequentialImpl::forward(input); }
  void parallelize(const dl::ParallelContext&) override {}
};

class SameRunner : public TinyRunner {
 public:
  explicit SameRunner(const TinyConfig& config) : TinyRunner(config) {
    auto net = std::make_shared<SameEverywhereImpl>();
    const auto layers = make_tiny_net(config);
    for (const auto& layer : *layers) {
      net->push_back(layer);
    }
    model = net;
  }
};

struct FsdpCase {
  std::string name;
  std::function<void(TinyConfig&)> set;
  double tolerance = 1e-6;
};

/// @param same  processes that read the same samples
template <class Base = TinyRunner>
void compare_fsdp(const FsdpCase& fsdp_case, int processes, std::int64_t batch_size, int same = 1) {
  INFO(fsdp_case.name << ", " << processes << " processes");
  TinyConfig config = fsdp_config();
  fsdp_case.set(config);
  TinyConfig whole = config;
  whole.stack = "ddp";
  whole.dataloader.batch_size = batch_size * processes / same;
  whole.fsdp = {};
  whole.parallel = {};
  config.dataloader.batch_size = batch_size;
  const std::string reference = train_fsdp<Base>(whole, dl::Group());
  const auto texts =
      danling_test::run_ranks(processes, [&](const dl::Group& group) { return train_fsdp<Base>(config, group); });
  for (const std::string& text : texts) {
    CHECK(text == texts.front());
  }
  INFO(texts.front().substr(0, 3000));
  CHECK(relative_difference(texts.front(), reference) < fsdp_case.tolerance);
}

TEST_CASE("fsdp: two processes with half the batch and half the parameters each are one with the whole",
          "[runner][fsdp]") {
  const FsdpCase cases[] = {
      {"float32", [](TinyConfig&) {}},
      {"each layer a unit", [](TinyConfig& config) { config.fsdp.units = {"Linear"}; }},
      {"units that stay whole",
       [](TinyConfig& config) { config.fsdp.units = {"Linear"}, config.fsdp.reshard_after_forward = false; }},
      {"clipping by norm", [](TinyConfig& config) { config.max_grad_norm = 0.1; }},
      {"clipping by value", [](TinyConfig& config) { config.max_grad_value = 0.01; }},
      {"accumulation, the last window short", [](TinyConfig& config) { config.accum_steps = 3; }},
      {"AdamW",
       [](TinyConfig& config) { config.optim.type = "adamw", config.optim.momentum.reset(), config.optim.eps = 1e-3; }},
      {"by steps", [](TinyConfig& config) { config.epochs.reset(), config.steps = 17; }},
      {"float64", [](TinyConfig& config) { config.precision = "fp64"; }, 1e-12},
  };
  for (const auto& fsdp_case : cases) {
    compare_fsdp(fsdp_case, 2, 4);
  }
}

/// Its predictions have the type of `fsdp.mp_policy.output_dtype`.
struct TypedOutputRunner : TinyRunner {
  using TinyRunner::TinyRunner;
  ~TypedOutputRunner() override { close(); }
  dl::StepOutput train_step(dl::Batch& batch) override {
    dl::StepOutput out = TinyRunner::train_step(batch);
    danling_test::expect(out.prediction.scalar_type() == at::kFloat, "predictions in float32");
    return out;
  }
};

TEST_CASE("fsdp: operators compute in a type of their own, and the model returns another", "[runner][fsdp]") {
  for (const int processes : {1, 2}) {
    compare_fsdp<TypedOutputRunner>({"float64 inside",
                                     [](TinyConfig& config) {
                                       config.fsdp.units = {"Linear"};
                                       config.fsdp.mp_policy.param_dtype = "float64";
                                       config.fsdp.mp_policy.output_dtype = "float32";
                                     },
                                     1e-5},
                                    processes, 8 / processes);
  }
  TinyConfig config = fsdp_config();
  CHECK_FALSE(dl::detail::needs_grid(config));
  config.fsdp.mp_policy.output_dtype = "bfloat16";
  const auto one = dl::detail::build_grid(dl::ProcessIdentity(), config, dl::detail::topology_of(config, 1, 0));
  dl::ModelHandle model = torch::nn::Linear(2, 3);
  one->prepare(model, at::kCPU);
  CHECK(model(torch::ones({1, 2})).scalar_type() == at::kBFloat16);
}

TEST_CASE("fsdp: several models with their own optimizers, windows and averages are those of one process",
          "[runner][fsdp]") {
  const auto stage = [](std::int64_t number, bool shared_memory) {
    return [=](TinyConfig& config) {
      set_adversaries(config);
      config.fsdp.stage = number;
      config.fsdp.shared_memory = shared_memory;
      config.fsdp.units = {"Linear"};
      config.max_grad_norm = 0.05;
    };
  };
  for (const bool shared_memory : {true, false}) {
    compare_fsdp<AdversaryRunner>({"two models, stage 3", stage(3, shared_memory)}, 2, 4);
    compare_fsdp<AdversaryRunner>({"two models, stage 2", stage(2, shared_memory)}, 2, 4);
    compare_fsdp<AdversaryRunner>({"two models, stage 1", stage(1, shared_memory)}, 2, 4);
    compare_fsdp<AdversaryRunner>({"two models, windows of one",
                                   [&](TinyConfig& config) {
                                     stage(3, shared_memory)(config);
                                     config.optim.models["generator"].accum_steps = 2;
                                   }},
                                  2, 4);
  }
  compare_fsdp<AdversaryRunner>(
      {"two models, averages", [&](TinyConfig& config) { stage(3, true)(config), config.ema.enabled = true; }}, 2, 4);
  compare_fsdp<AdversaryRunner>({"two models, replicas",
                                 [&](TinyConfig& config) {
                                   stage(3, true)(config);
                                   config.stack = "parallel";
                                   config.parallel.axes.replicate = 2;
                                   config.parallel.axes.shard = 2;
                                 }},
                                4, 2);
}

TEST_CASE("fsdp: ranks with other numbers of batches, in training and evaluation, are one with the whole",
          "[runner][fsdp]") {
  compare_fsdp({"three ranks", [](TinyConfig& config) { config.fsdp.units = {"Linear"}; }}, 3, 3);
  compare_fsdp({"large batches", [](TinyConfig& config) { config.fsdp.units = {"Linear"}; }}, 2, 7);
  for (const std::int64_t stage : {1, 2, 3}) {
    for (const std::int64_t accum : {2, 3, 4}) {
      compare_fsdp({dl::detail::concat("stage ", stage, ", windows of ", accum, " in which ranks end"),
                    [=](TinyConfig& config) {
                      config.fsdp.stage = stage;
                      config.fsdp.units = {"Linear"};
                      config.accum_steps = accum;
                      config.max_grad_norm = 0.1;
                    }},
                   3, 3);
    }
  }
}

TEST_CASE("fsdp: every layout of replicas and shards is one process with the whole", "[runner][fsdp]") {
  const auto grid = [](std::int64_t replicate, std::int64_t shard, std::int64_t context = 1) {
    return [=](TinyConfig& config) {
      config.stack = "parallel";
      config.parallel.axes.replicate = replicate;
      config.parallel.axes.shard = shard;
      config.parallel.axes.context = context;
      config.fsdp.units = {"Linear"};
      config.max_grad_norm = 0.1;
    };
  };
  compare_fsdp({"2 x 2", grid(2, 2)}, 4, 2);
  compare_fsdp({"2 x rest, with a last batch that not all ranks have", grid(2, -1)}, 4, 3);
  compare_fsdp({"4 x 1", grid(4, 1)}, 4, 2);
  compare_fsdp({"3 x 1, with a last batch that not all ranks have", grid(-1, 1)}, 3, 3);
  compare_fsdp({"1 x 4", grid(1, 4)}, 4, 2);
}

TEST_CASE("parallel: ranks that compute the same samples count them once", "[runner][fsdp]") {
  const auto grid = [](std::int64_t shard, std::int64_t tensor, std::int64_t expert) {
    return [=](TinyConfig& config) {
      config.stack = "parallel";
      config.parallel.axes.shard = shard;
      config.parallel.axes.tensor = tensor;
      config.parallel.axes.expert = expert;
      config.max_grad_norm = 0.1;
      config.record = false;  // each rank has a directory of its own here
      config.accum_steps = 2;
    };
  };
  compare_fsdp<SameRunner>({"tensor 2", grid(1, 2, 1)}, 2, 8, 2);
  compare_fsdp<SameRunner>({"shard 2 x tensor 2", grid(2, 2, 1)}, 4, 4, 2);
  compare_fsdp<SameRunner>({"tensor 2 x expert 2", grid(1, 2, 2)}, 4, 8, 4);
  compare_fsdp<SameRunner>({"shard 2 x tensor 2, with a last batch that not all ranks have", grid(2, 2, 1)}, 4, 7, 2);
}

/// Reads the gradients of each update, and halves the parameters behind each epoch.
struct Halving : dl::Callback {
  double squares = 0, norm = 0;
  void on_gradients(const dl::GradientsEvent& event) override {
    for (const auto& [name, parameter] : event.parameters()) {
      squares += (parameter.grad() / event.divisor).square().sum().item<double>();
    }
  }
  void on_result(const dl::ResultEvent& event) override {
    const auto whole = event.runner.gather_parameters(/*writes=*/true);
    const at::NoGradGuard no_grad;
    for (auto& [name, parameter] : dynamic_cast<dl::TorchRunnerBase&>(event.runner).model.named_parameters()) {
      norm += parameter.mul_(0.5).norm().item<double>();
    }
  }
};

TEST_CASE("fsdp: a callback sees the gradients of its rows, and reads and writes whole parameters", "[runner][fsdp]") {
  const auto watch = [](std::int64_t batch_size) {
    return [=](const dl::Group& group) -> std::string {
      TinyConfig config = fsdp_config();
      config.dataloader.batch_size = batch_size;
      config.record = false;
      FsdpRunner<> runner(config, group);
      const Halving& seen = runner.add(Halving());
      runner.train();
      at::Tensor squares = torch::tensor(seen.squares, torch::kDouble);
      group.all_reduce(squares);
      return dl::detail::concat(squares.item<double>(), " ", seen.norm);
    };
  };
  const auto numbers = [](const std::string& text) {
    std::istringstream in(text);
    double squares = 0, norm = 0;
    in >> squares >> norm;
    return std::pair(squares, norm);
  };
  const auto expected = numbers(watch(8)(dl::Group()));
  CHECK(expected.first > 0);
  for (const std::string& text : danling_test::run_ranks(2, watch(4))) {
    INFO(text);
    CHECK(numbers(text).first == Approx(expected.first).epsilon(1e-4));
    CHECK(numbers(text).second == Approx(expected.second).epsilon(1e-5));
  }
}

template <class Base>
void check_resume(TinyConfig config) {
  const auto train = [&](const dl::Group& group) {
    FsdpRunner<Base> runner(config, group);
    runner.train();
    return runner.numbers();
  };
  config.epochs = 4;
  const auto expected =
      danling_test::run_ranks(2, [&](const dl::Group& group) { return train_fsdp<Base>(config, group); });
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  for (const std::int64_t epochs : {2, 3}) {
    config.epochs = epochs;
    danling_test::run_ranks(2, train);
  }
  config.epochs = 4;
  CHECK(danling_test::run_ranks(2, train) == expected);
}

TEST_CASE("fsdp: a run that is resumed goes on as if it had not ended", "[runner][fsdp]") {
  TinyConfig config = fsdp_config();
  config.optim.type = "adamw", config.optim.momentum.reset(), config.optim.eps = 1e-3;
  config.dataloader.batch_size = 4;
  config.fsdp.units = {"Linear"};
  check_resume<TinyRunner>(config);
  set_adversaries(config);
  check_resume<AdversaryRunner>(config);
  config.checkpoint.backend = "dcp";
  check_resume<AdversaryRunner>(config);
}

TEST_CASE("fsdp: without axes the stack says what all processes share", "[runner][fsdp]") {
  TinyConfig config = fsdp_config();
  CHECK(dl::detail::topology_of(config, 4, 0).to_string() == "shard 4");
  config.stack = "auto";
  CHECK(config.stack_name() == "ddp");
  CHECK(dl::detail::topology_of(config, 4, 0).to_string() == "replicate 4");  // a ParallelRunner
  config.parallel.axes.shard = -1;
  CHECK(config.stack_name() == "parallel");
  CHECK(dl::detail::topology_of(config, 4, 0).to_string() == "shard 4");
  config.parallel.axes.shard = 3;
  CHECK(error_of<dl::ConfigError>([&] { dl::detail::topology_of(config, 4, 0); }) ==
        "[parallel.topology] expected axes of the grid (parallel.axes) that multiply to the 4 processes, got "
        "replicate(1) * shard(3) * context(1) * pipeline(1) * tensor(1) * expert(1) * expert_tensor(1); start as many "
        "processes, or set one axis to -1, for the remaining processes");
}

TEST_CASE("fsdp: what needs whole parameters is refused by its key", "[runner][fsdp]") {
  const auto message = [](const std::function<void(TinyConfig&)>& set) {
    TinyConfig config = fsdp_config();
    set(config);
    return error_of<dl::ConfigError>([&] { const TinyRunner runner(config); });
  };
  CHECK(message([](TinyConfig& config) { config.compile.enable = true; }) ==
        "[config.validate] expected 'stack: ddp' with 'compile.enable', got 'stack: fsdp'; unset one of the two");
  CHECK(message([](TinyConfig& config) { config.stack = "ddp", config.fsdp.units = {"Linear"}; }) ==
        "[config.validate] expected 'stack: fsdp' or 'parallel' with 'fsdp.units', got ddp");
  CHECK(message([](TinyConfig& config) { config.stack = "ddp", config.parallel.axes.shard = 2; }) ==
        "[config.validate] expected 'stack: fsdp' or 'parallel' with 'parallel.axes', got ddp");
  CHECK(message([](TinyConfig& config) { config.parallel.axes.tensor = 2; }) ==
        "[config.validate] expected 'stack: parallel' with 'parallel.axes.tensor', got fsdp");
  CHECK(message([](TinyConfig& config) { config.parallel.axes.shard = 0; }) ==
        "[config.validate] expected a number of processes above 0, or -1, for 'parallel.axes.shard', got 0");
  CHECK(message([](TinyConfig& config) { config.parallel.tensor_plan = {"layer=colwise"}; }) ==
        "[config.validate] expected 'stack: parallel' with 'parallel.tensor_plan', got fsdp");
  CHECK(message([](TinyConfig& config) {
          config.stack = "parallel", config.parallel.module_fqns_per_model_part = {"a", "b"};
        }) ==
        "[config.validate] expected 'parallel.axes.pipeline' above 1 with 'parallel.module_fqns_per_model_part', "
        "got 1");
  CHECK(message([](TinyConfig& config) { config.swa.enabled = true; }) ==
        "[config.validate] expected 'stack: ddp' with 'swa.enabled', got 'stack: fsdp'; unset one of the two");
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    TinyConfig config = fsdp_config();
    const Folder folder;
    config.workspace_root = folder.path().string();
    config.optim.type = "lamb";
    config.optim.momentum.reset();
    FsdpRunner<> runner(config, group);
    return error_of<dl::ConfigError>([&] { runner.train(); });
  });
  danling_test::check_ranks(texts,
                            "[runner.build_optimizer] expected an optimizer that updates each value by itself with "
                            "stack: fsdp (sgd, adam, adamw, ...), got LAMB, whose update depends on whole parameters");
}

TEST_CASE("parallel: a runner that does not cut batches is refused axes that need it", "[runner][fsdp]") {
  for (const char* axis : {"context", "pipeline"}) {
    INFO(axis);
    TinyConfig config = fsdp_config();
    config.stack = "parallel";
    config.record = false;
    (std::string_view(axis) == "context" ? config.parallel.axes.context : config.parallel.axes.pipeline) = 2;
    const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) {
      FsdpRunner<> runner(config, group);
      return error_of<dl::ConfigError>([&] { runner.train(); });
    });
    danling_test::check_ranks(
        texts, dl::detail::concat("[runner.materialize_model] expected a runner that derives from ParallelRunner with "
                                  "parallel.axes.",
                                  axis, " above 1, got another"));
  }
}

TEST_CASE("fsdp: adapters are refused", "[runner][fsdp]") {
  TinyConfig config = fsdp_config();
  config.record = false;
  config.lora.r = 2;
  config.lora.target_modules = {"0"};
  const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) {
    FsdpRunner<> runner(config, group);
    return error_of<dl::ConfigError>([&] { runner.train(); });
  });
  danling_test::check_ranks(texts,
                            "[runner.materialize_model] expected no adapters ('lora') with stack: fsdp, got some; use "
                            "stack: ddp");
}

}  // namespace
}  // namespace runner_test
