// compile: what makes steps another kind, which has a tape of its own.
#include <thread>

#include "recorded.hpp"

namespace runner_test {
namespace {

/// Learns `aim`, from the batches that a test pushes.
class Pushed : public dl::TorchRunner {
 public:
  explicit Pushed(const TinyConfig& config) : TorchRunner(config) { model = even_layer(); }
  ~Pushed() override { close(); }
  std::function<at::Tensor(const dl::Batch&)> aim = [](const dl::Batch& batch) { return batch.target; };
  at::Tensor weight() const { return model.as<torch::nn::Linear>()->weight; }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    const at::Tensor loss = (model(batch.input) - aim(batch)).square().mean();
    backward(loss);
    step();
    return {at::Tensor(), loss};
  }
};

using Change = std::function<void(Pushed&, std::int64_t)>;

/// 30 steps, eager and recorded, have the same weights.
dl::CompileReport check_kinds(const std::function<dl::Batch(std::int64_t)>& batch, const Change& change = {},
                              const std::function<at::Tensor(const dl::Batch&)>& aim = {}) {
  const EagerToRecord schedule;
  const auto run = [&](bool recorded) {
    const Folder folder;
    TinyConfig config(folder);
    config.steps = 30;
    config.optim.type = "sgd";
    config.compile.enable = recorded;
    config.compile.verify = 1;
    Pushed runner(config);
    runner.aim = aim ? aim : runner.aim;
    for (std::int64_t i = 0; i < 30; ++i) {
      if (change) {
        change(runner, i);
      }
      runner.train_on_batch(batch(i));
    }
    runner.finish_training();
    return std::pair(runner.weight().detach().contiguous().clone(), runner.compile_report());
  };
  const auto eager = run(false);
  const auto recorded = run(true);
  CHECK(at::equal(recorded.first, eager.first));
  CHECK(recorded.second.replayed > 0);
  return recorded.second;
}

TEST_CASE("compile: tensors of a batch that share memory in some steps only", "[runner]") {
  const auto report = check_kinds([](std::int64_t i) {
    const at::Tensor x = wave(i);
    const at::Tensor both = wave(i, 16);
    dl::Batch batch{.input = x, .target = x};
    if (i >= 20) {
      batch.target = wave(i + 50);
    } else if (i >= 10) {  // one behind the other
      batch.input = both.slice(0, 0, 8);
      batch.target = both.slice(0, i >= 15 ? 4 : 8, i >= 15 ? 12 : 16);
    }
    return batch;
  });
  CHECK(report.tapes == 4);
  CHECK(report.refusals.empty());
}

TEST_CASE("compile: names of a batch's parts, its lists and its other values", "[runner]") {
  const auto negates = [](const dl::Batch& batch) {
    const dl::State& extra = batch.extra;
    const at::Tensor left = extra.map().contains("left") ? extra.at("left").tensor() : -extra.at("right").tensor();
    return left * extra.at("weight").number() * static_cast<double>(extra.at("list").list().size());
  };
  const auto report = check_kinds(
      [](std::int64_t i) {
        dl::Batch batch{.input = wave(i), .target = {}};
        batch.extra[i < 12 ? "left" : "right"] = wave(i + 1);
        batch.extra["weight"] = i < 18 ? 0.5 : 0.25;
        batch.extra["list"] = dl::State::List(i < 24 ? 1 : 2, dl::State("name"));
        return batch;
      },
      {}, negates);
  CHECK(report.tapes == 4);
}

TEST_CASE("compile: a parameter that gets memory of other strides in the middle of a run", "[runner]") {
  const auto batch = [](std::int64_t i) { return dl::Batch{.input = wave(i), .target = wave(i + 1)}; };
  const auto report = check_kinds(batch, [](Pushed& runner, std::int64_t i) {
    if (i == 15) {
      runner.weight().set_data(runner.weight().detach().t().contiguous().t());
    }
  });
  CHECK(report.tapes == 2);
}

TEST_CASE("compile: gradients that the program sets before a step", "[runner]") {
  const auto batch = [](std::int64_t i) { return dl::Batch{.input = wave(i), .target = wave(i + 1)}; };
  check_kinds(batch, [](Pushed& runner, std::int64_t i) {
    if (i % 3 != 0) {  // with the strides of the parameter, then with others
      const at::Tensor gradient = wave(i, 4);
      runner.weight().mutable_grad() = i % 3 == 1 ? gradient : gradient.t();
    }
  });
}

TEST_CASE("compile: two runners in two threads record in turn", "[runner]") {
  const EagerToRecord schedule;
  const auto run = [](bool recorded, bool together) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 12;
    config.dropout = 0;
    config.dataloader.shuffle = false;
    config.compile.enable = recorded;
    std::vector<std::unique_ptr<TinyRunner>> runners;
    for (int i = 0; i < 2; ++i) {
      config.workspace_root = (folder.path() / std::to_string(i)).string();
      runners.push_back(std::make_unique<TinyRunner>(config));
    }
    std::vector<std::string> errors(2);
    const auto train = [&](std::size_t i) {
      try {
        runners[i]->train();
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    };
    if (together) {
      std::thread other(train, 1);
      train(0);
      other.join();
    } else {
      train(0);
      train(1);
    }
    CHECK(errors == std::vector<std::string>(2));
    CHECK((runners[0]->compile_report().replayed > 0 && runners[1]->compile_report().replayed > 0) == recorded);
    return std::pair(dl::clone(runners[0]->model.state_dict()), dl::clone(runners[1]->model.state_dict()));
  };
  const auto eager = run(false, false);
  const auto recorded = run(true, true);
  CHECK(dl::first_difference(recorded.first, eager.first) == "");
  CHECK(dl::first_difference(recorded.second, eager.second) == "");
}

}  // namespace
}  // namespace runner_test
