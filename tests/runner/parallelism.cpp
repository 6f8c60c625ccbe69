// Parallelism: gradients, requests and errors over several processes.
#include "fixture.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {

/// Data parallel training in twenty lines, without buckets and overlap.
class Summed : public dl::Parallelism {
 public:
  using Parallelism::Parallelism;
  std::string_view name() const override { return "summed"; }
  bool sums_gradients() const override { return true; }
  void begin_step(const dl::WindowPlace& place) override {
    CHECK_FALSE(inside);
    inside = true;
    closes.push_back(place.closes);
  }
  void end_step(const dl::WindowPlace&) noexcept override { inside = false; }
  void reduce_gradients(dl::optim::Optimizer& optimizer) override {
    CHECK(inside);
    CHECK(closes.back());
    for (const auto& param_group : optimizer.param_groups()) {
      for (const at::Tensor& param : param_group.params) {
        if (!param.grad().defined()) {  // a rank without a valid target has none
          param.mutable_grad() = torch::zeros_like(param);
        }
        group().all_reduce(param.mutable_grad());
      }
    }
  }
  bool inside = false;
  std::vector<bool> closes;
};

class SummedRunner : public RankRunner<TinyRunner, Summed> {
 public:
  using RankRunner::RankRunner;
  std::string numbers() const {
    std::string out = results().latest()->result.text(5);
    for (const auto& [name, value] : model.named_parameters()) {
      const auto all = value.detach().to(at::kDouble).flatten();
      for (std::int64_t i = 0; i < all.numel(); ++i) {
        out += dl::detail::concat(" ", all[i].item<double>());
      }
    }
    return out;
  }
};

std::vector<double> numbers_in(const std::string& text) {
  std::istringstream in(text.substr(text.rfind(':') + 1));
  std::vector<double> out;
  for (double number = 0; in >> number;) {
    out.push_back(number);
  }
  return out;
}

TEST_CASE("Parallelism: processes that sum gradients train as one process with the whole batch", "[runner]") {
  TinyConfig config;
  config.epochs = 3;
  config.dropout = 0;
  config.optim.type = "sgd";
  config.max_grad_norm = 0.1;
  config.dataloader.drop_last = true;
  SECTION("one micro-batch per update") {}
  SECTION("windows, the last one short") { config.accum_steps = 4; }
  const auto run = [&](const dl::Group& group, std::int64_t batch_size) {
    const Folder folder;
    TinyConfig own = config;
    own.workspace_root = folder.path().string();
    own.dataloader.batch_size = batch_size;
    SummedRunner runner(own, group);
    runner.train();
    return runner.numbers();
  };
  const auto whole = numbers_in(run(dl::Group(), 8));
  const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) { return run(group, 4); });
  CHECK(texts[0] == texts[1]);
  const auto shared = numbers_in(texts[0]);
  REQUIRE(shared.size() == whole.size());
  for (std::size_t i = 0; i < shared.size(); ++i) {
    CHECK(shared[i] == Approx(whole[i]).margin(1e-5));
  }
}

TEST_CASE("Parallelism: a process without a valid target makes the same update as the others", "[runner]") {
  TinyConfig config;
  config.epochs = 1;
  config.dropout = 0;
  config.optim.type = "sgd";
  config.dataloader.drop_last = true;
  config.dataloader.shuffle = false;
  const auto run = [&](const dl::Group& group) {
    struct Ignoring : SummedRunner {
      Ignoring(const TinyConfig& own, const dl::Group& joined) : SummedRunner(own, joined) {
        criterion = torch::nn::CrossEntropyLoss();
        auto points = make_points(16, 0);
        for (int i = 1; i < 16; i += 2) {
          points.target[i] = -100;  // all that rank 1 sees
        }
        datasets["train"] = Points{points, true};
        metrics = nullptr;
      }
    };
    const Folder folder;
    TinyConfig own = config;
    own.workspace_root = folder.path().string();
    own.dataloader.batch_size = 4;
    Ignoring runner(own, group);
    runner.train();
    return runner.numbers();
  };
  const auto texts = danling_test::run_ranks(2, run);
  CHECK(texts[0] == texts[1]);
}

TEST_CASE("Parallelism: a request in one process takes effect in all at the same step", "[runner]") {
  struct Asking : dl::Callback {
    std::string what;
    std::string heard;
    std::string name() const override { return "asking"; }
    void on_step(const dl::StepEvent& event) override {
      if (event.runner.state().train.global_step == 2) {
        ask(event.runner, "");
      }
    }
    void on_evaluate_begin(const dl::SplitEvent& event) override {
      heard += dl::detail::concat("evaluate at ", event.runner.state().train.global_step, ", ");
      ask(event.runner, " in evaluation");
    }
    void on_save(const dl::SaveEvent& event) override {
      heard += dl::detail::concat("save at ", event.runner.state().train.global_step, ", ");
    }
    void ask(dl::BaseRunner& runner, const std::string& place) const {
      if (what == "stop" + place) {
        runner.request_stop();
      } else if (what == "end" + place) {
        runner.end_training("enough");
      } else if (what == "evaluate" + place) {
        runner.request_evaluation();
      } else if (what == "save" + place) {
        runner.request_save();
      }
    }
  };
  const auto run = [](const std::string& what) {
    const auto all = danling_test::run_ranks(2, [&](const dl::Group& group) {
      const Folder folder;
      TinyConfig config(folder);
      config.epochs = 2;
      config.dataloader.batch_size = 4;
      config.dataloader.drop_last = true;  // six batches
      config.checkpoint.interval = 0;
      config.score_name = "none";
      SummedRunner runner(config, group);
      runner.metrics = nullptr;
      auto& callback = runner.add(Asking());
      callback.what = group.rank() == 1 ? what : "";
      std::string end = "done";
      try {
        runner.train();
      } catch (const dl::Stopped& stopped) {
        end = "stopped";
      }
      return dl::detail::concat(callback.heard, end, " at ", runner.state().train.global_step);
    });
    // Only rank 0 writes.
    std::string silent = all[0];
    for (auto at = silent.find("save at "); at != std::string::npos; at = silent.find("save at ")) {
      silent.erase(at, silent.find(", ", at) + 2 - at);
    }
    CHECK(all[1] == silent);
    return all[0];
  };
  // Processes exchange requests with the next update or at the end of a round.
  CHECK(run("") == "evaluate at 6, evaluate at 12, save at 12, done at 12");
  CHECK(run("stop") == "save at 3, stopped at 3");
  CHECK(run("end") == "evaluate at 6, save at 6, done at 6");
  CHECK(run("evaluate") == "evaluate at 3, evaluate at 6, evaluate at 12, save at 12, done at 12");
  CHECK(run("save") == "save at 3, evaluate at 6, evaluate at 12, save at 12, done at 12");
  CHECK(run("stop in evaluation") == "evaluate at 6, save at 6, stopped at 6");
  CHECK(run("end in evaluation") == "evaluate at 6, save at 6, done at 6");
  CHECK(run("save in evaluation") == "evaluate at 6, save at 7, evaluate at 12, save at 12, done at 12");
}

TEST_CASE("Parallelism: an error in a step of one process ends the others with a message", "[runner]") {
  const std::int64_t log_interval = GENERATE(1, 100);
  const auto all = danling_test::run_ranks(2, [&](const dl::Group& group) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    config.accum_steps = 3;
    config.log_interval = log_interval;
    SummedRunner runner(config, group);
    runner.before_step = [&](TinyRunner&, std::int64_t done) {
      if (done == 1 && group.rank() == 1) {
        throw std::runtime_error("a bad batch");
      }
    };
    try {
      runner.train();
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("done");
  });
  CHECK_THAT(all[0],
             StartsWith("[group.collective] expected ") && ContainsSubstring("rank 1: a bad batch; in train_step of "));
  CHECK_THAT(all[1], ContainsSubstring("a bad batch"));
}

TEST_CASE("Parallelism: begin_step and end_step enclose each micro-batch, also one that throws", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.accum_steps = 3;
  Summed* seen = nullptr;
  struct Runner : TinyRunner {
    Summed** out;
    Runner(const TinyConfig& own, Summed** place) : TinyRunner(own), out(place) {}
    void init_distributed() override {
      auto made = std::make_unique<Summed>();
      *out = made.get();
      set_parallelism(std::move(made));
    }
  };
  Runner runner(config, &seen);
  SECTION("to the end") {
    runner.train();
    CHECK(seen->closes == std::vector<bool>{false, false, true, false, false, true, true});
  }
  SECTION("to an error") {
    throw_before(runner, 1);
    CHECK_THROWS(runner.train());
    CHECK(seen->closes == std::vector<bool>{false, false});
  }
  CHECK_FALSE(seen->inside);
}

TEST_CASE("Parallelism: one process has rank 0 and size 1 on each axis, and an unknown axis is an error", "[runner]") {
  const dl::Parallelism single;
  CHECK(single.name() == "single");
  for (const auto* name : {"replicate", "shard", "context", "pipeline", "tensor", "expert", "expert_tensor"}) {
    CHECK(single.axis(name).rank == 0);
    CHECK(single.axis(name).size == 1);
  }
  CHECK(error_of<dl::ConfigError>([&] { single.axis("tensors"); }) ==
        "[parallelism.axis] expected an axis among [replicate, shard, context, pipeline, tensor, expert, "
        "expert_tensor], got 'tensors'; did you mean 'tensor'?");
}

}  // namespace
}  // namespace runner_test
