#include <support/ranks.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

/// Data parallel training in twenty lines: what a later part of the library does with buckets and overlap.
class Summed : public dl::Parallelism {
 public:
  using Parallelism::Parallelism;
  std::string_view name() const override { return "summed"; }
  void begin_step(const dl::WindowPlace& place) override {
    CHECK_FALSE(inside);
    inside = true;
    closes.push_back(place.closes);
  }
  void end_step(const dl::WindowPlace&) noexcept override { inside = false; }
  void reduce_gradients(dl::optim::Optimizer& optimizer) override {
    CHECK(inside);
    CHECK(closes.back());
    for (at::Tensor& gradient : dl::optim::gradients(optimizer)) {
      group().all_reduce(gradient);
    }
  }
  dl::StepPacket agree(const dl::StepPacket& mine) override {
    dl::StepPacket all;
    for (const auto& text : group().all_gather(dl::concat(mine.weight, mine.stop ? " stop" : ""))) {
      all.weight += std::stod(text);
      all.stop = all.stop || text.ends_with("stop");
    }
    return all;
  }
  bool inside = false;
  std::vector<bool> closes;
};

class SummedRunner : public TinyRunner {
 public:
  SummedRunner(const TinyConfig& config, const dl::Group& group) : TinyRunner(config), joined_(group) {}
  std::string numbers() const {
    std::string out = results().latest()->result.text(5);
    for (const auto& [name, value] : model.named_parameters()) {
      const auto all = value.detach().to(at::kDouble).flatten();
      for (std::int64_t i = 0; i < all.numel(); ++i) {
        out += dl::concat(" ", all[i].item<double>());
      }
    }
    return out;
  }

 protected:
  void init_distributed() override { set_parallelism(std::make_unique<Summed>(joined_)); }

 private:
  dl::Group joined_;
};

std::vector<double> numbers_in(const std::string& text) {
  std::istringstream in(text.substr(text.rfind(':') + 1));
  std::vector<double> out;
  for (double number = 0; in >> number;) {
    out.push_back(number);
  }
  return out;
}

TEST_CASE("Parallelism: processes that add up gradients train as one with a batch of all", "[runner]") {
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

TEST_CASE("Parallelism: begin and end surround each micro-batch, also one that throws", "[runner]") {
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
    runner.before_step = [](TinyRunner&, std::int64_t done) {
      if (done == 1) {
        throw std::runtime_error("a bad batch");
      }
    };
    CHECK_THROWS(runner.train());
    CHECK(seen->closes == std::vector<bool>{false, false});
  }
  CHECK_FALSE(seen->inside);
}

TEST_CASE("Parallelism: one process has every axis alone, and an unknown axis is an error", "[runner]") {
  const dl::Parallelism single;
  CHECK(single.name() == "single");
  for (const auto* name : {"replicate", "shard", "context", "pipeline", "tensor", "expert"}) {
    CHECK(single.axis(name).rank == 0);
    CHECK(single.axis(name).size == 1);
  }
  CHECK(danling_test::error_of<dl::ConfigError>([&] { single.axis("tensors"); }) ==
        "[parallelism.axis] expected an axis among [replicate, shard, context, pipeline, tensor, expert, "
        "expert_tensor], got 'tensors'; did you mean 'tensor'?");
}

TEST_CASE("TorchRunner: backward and step outside of a training step are errors", "[runner]") {
  struct Open : TinyRunner {
    using TinyRunner::backward;
    using TinyRunner::TinyRunner;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      auto output = TinyRunner::evaluate_step(batch);
      step();
      return output;
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  Open runner(config);
  CHECK(danling_test::error_of<dl::StateError>([&] { runner.step(); }) ==
        "[runner.step] expected a call from train_step, got one outside of a training step");
  CHECK(danling_test::error_of<dl::StateError>([&] { runner.backward(torch::ones({})); }) ==
        "[runner.backward] expected a call from train_step, got one outside of a training step");
  CHECK(danling_test::error_of<dl::StateError>([&] { runner.evaluate(); }) ==
        "[runner.step] expected a call from train_step, got one outside of a training step, in mode evaluate; in "
        "evaluate_step of split 'val', epoch 0, step 0, with input Float [8, 4] and target Long [8]");
}

}  // namespace
}  // namespace runner_test
