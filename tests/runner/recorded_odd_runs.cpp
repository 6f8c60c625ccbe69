// compile: steps that do more than compute, compared with eager runs.
#include "odd_runner.hpp"

namespace runner_test {
namespace {

TEST_CASE("compile: gradients that a step sets itself", "[runner]") {
  check_odd({"a backward pass of LibTorch before that of the runner", [](OddRunner& runner, dl::Batch& batch) {
               runner.weight().square().mean().backward();
               return plain(runner, batch);
             }});
  check_odd({"a gradient that is assigned before the backward pass", [](OddRunner& runner, dl::Batch& batch) {
               runner.weight().mutable_grad() = batch.input.slice(0, 0, 4) * 0.1;
               return plain(runner, batch);
             }});
  check_odd({"a gradient that is replaced before the update",
             [](OddRunner& runner, dl::Batch& batch) {
               const at::Tensor prediction = runner.model(batch.input);
               const at::Tensor loss = runner.criterion(prediction, batch.target);
               runner.backward(loss);
               const at::Tensor mask = batch.extra.at("mask").tensor();
               runner.weight().mutable_grad() = runner.weight().grad() * mask;
               runner.step();
               return dl::StepOutput{prediction, loss};
             },
             {},
             {},
             "",
             [](dl::Batch& batch, std::int64_t i) { batch.extra["mask"] = torch::full({4, 4}, i < 20 ? 1.0 : 0.5); }});
}

TEST_CASE("compile: a step within a step runs as it is", "[runner]") {
  check_odd({"inference in the update", plain, {}, [](OddRunner& runner) {
               dl::Batch batch{.input = wave(1, 64), .target = {}};
               runner.infer_on_batch(batch);
             }});
}

TEST_CASE("compile: meters of a step", "[runner]") {
  const auto with_meter = [](const std::function<void(OddRunner&, const at::Tensor&)>& update) {
    return [update](OddRunner& runner, dl::Batch& batch) {
      const dl::StepOutput out = plain(runner, batch);
      update(runner, out.loss);
      return out;
    };
  };
  check_odd({"a weight that differs from step to step",
             with_meter([](OddRunner& runner, const at::Tensor& loss) {
               runner.meters["a"].update(loss, 1 + runner.steps % 5);
             }),
             {},
             {},
             "the next step has a meter, n = 2 in place of a meter, n = 1"});
  check_odd({"a tensor and a number",
             with_meter([](OddRunner& runner, const at::Tensor& loss) {
               runner.meters["a"].update(loss);
               runner.meters["a"].update(0.5);
             }),
             {},
             {},
             "a meter is updated with a number; pass a tensor"});
  check_odd({"one that lives in the step",
             with_meter([](OddRunner&, const at::Tensor& loss) {
               dl::AverageMeter meter;
               meter.update(loss);
             }),
             {},
             {},
             "a meter, n = 1 exists only during the step"});
  check_odd({"meters that are replaced",
             with_meter([](OddRunner& runner, const at::Tensor& loss) { runner.meters["a"].update(loss); }),
             [](OddRunner& runner, std::int64_t i) {
               if (i == 20) {
                 runner.meters = dl::AverageMeters();
               }
             },
             {},
             "the object of \"a meter, n = 1\" no longer exists: a meter or metric was recreated"});
}

TEST_CASE("compile: what a step changes besides its results", "[runner]") {
  check_odd({"memory of a parameter",
             [](OddRunner& runner, dl::Batch& batch) {
               const dl::StepOutput out = plain(runner, batch);
               const at::NoGradGuard no_grad;
               runner.weight().set_data(runner.weight().clamp(-0.5, 0.5));
               return out;
             },
             {},
             {},
             "it replaces the memory of 0.weight"});
  check_odd({"the mode of a module",
             [](OddRunner& runner, dl::Batch& batch) {
               const dl::StepOutput out = plain(runner, batch);
               runner.model.as<torch::nn::Sequential>()->ptr(1)->train(runner.steps % 2 == 0);
               return out;
             },
             {},
             {},
             "it changes which parameters require gradients, or the mode of a module"});
  check_odd({"its batch, past the operators",
             [](OddRunner& runner, dl::Batch& batch) {
               batch.input.mutable_data_ptr<float>()[0] += 0.5F;
               return plain(runner, batch);
             },
             {},
             {},
             "the step changes its batch outside of LibTorch's operators"});
  auto state = std::make_shared<at::Tensor>();
  check_odd({"a state that the next step reads",
             [state](OddRunner& runner, dl::Batch& batch) {
               const at::Tensor loss = (runner.model(batch.input) * *state - batch.target).square().mean();
               runner.backward(loss);
               runner.step();
               *state = runner.weight().detach().abs().sum(1).gt(0.01).to(torch::kFloat);
               return dl::StepOutput{at::Tensor(), loss};
             },
             [state](OddRunner&, std::int64_t i) { *state = i == 0 ? torch::ones({4}) : *state; },
             {},
             "it reads a tensor Float [4] that the previous step created"});
}

TEST_CASE("compile: what a batch has besides tensors", "[runner]") {
  const Body by_tokens = [](OddRunner& runner, dl::Batch& batch) {
    const at::Tensor loss =
        (runner.model(batch.input) - batch.target).square().sum() / static_cast<double>(batch.num_tokens.value_or(1));
    runner.backward(loss);
    runner.step();
    return dl::StepOutput{at::Tensor(), loss};
  };
  check_odd({"a number of tokens that the step reads, and that changes late",
             by_tokens,
             {},
             {},
             "the number other of aten::div.Scalar, after 0.weight was read changes from step to step: 20., then 32.",
             [](dl::Batch& batch, std::int64_t i) { batch.num_tokens = i < 20 || i % 2 == 0 ? 32 : 20; }});
  check_odd({"a number of tokens that it does not read", plain, {}, {}, "", [](dl::Batch& batch, std::int64_t i) {
               batch.num_tokens = i < 20 ? 32 : i;
             }});
  check_odd({"entries that are null",
             [](OddRunner& runner, dl::Batch& batch) {
               const auto& mask = batch.extra.at("mask");
               const at::Tensor loss = ((runner.model(batch.input) - batch.target) *
                                        (mask.is_tensor() ? mask.tensor() : 1 - batch.extra.at("ignored").tensor()))
                                           .square()
                                           .mean();
               runner.backward(loss);
               runner.step();
               return dl::StepOutput{at::Tensor(), loss};
             },
             {},
             {},
             "",
             [](dl::Batch& batch, std::int64_t i) {
               batch.extra["mask"] = i < 20 ? dl::State(wave(i).gt(0).to(torch::kFloat)) : dl::State();
               batch.extra["ignored"] = i < 20 ? dl::State() : dl::State(wave(i).gt(0).to(torch::kFloat));
             }});
}

TEST_CASE("compile: tensors of the program", "[runner]") {
  auto offset = std::make_shared<at::Tensor>(torch::full({1, 4}, 0.25));
  const Body with_offset = [offset](OddRunner& runner, dl::Batch& batch) {
    const at::Tensor loss = (runner.model(batch.input) + *offset - batch.target).square().mean();
    runner.backward(loss);
    runner.step();
    return dl::StepOutput{at::Tensor(), loss};
  };
  check_odd({"of another shape from some step on",
             with_offset,
             [offset](OddRunner&, std::int64_t i) {
               if (i == 0 || i == 20) {
                 offset->set_data(torch::full({i == 0 ? 1 : 8, 4}, 0.25));
               }
             },
             {},
             "a tensor Float [1, 4] of the program is Float [8, 4] now"});
  auto seen = std::make_shared<at::Tensor>();
  check_odd({"that are made for inference, and changed there",
             [seen](OddRunner& runner, dl::Batch& batch) {
               const dl::StepOutput out = plain(runner, batch);
               const c10::InferenceMode inference;
               seen->add_(out.loss.detach());
               return out;
             },
             [seen](OddRunner&, std::int64_t i) {
               const c10::InferenceMode inference;
               *seen = i == 0 ? torch::zeros({}) : *seen;
             }});
}

TEST_CASE("compile: a sparse tensor in a batch", "[runner]") {
  check_odd(
      {"sparse",
       [](OddRunner& runner, dl::Batch& batch) {
         const at::Tensor mask = batch.extra.at("mask").tensor().to_dense();
         const at::Tensor loss = ((runner.model(batch.input) - batch.target) * mask).square().mean();
         runner.backward(loss);
         runner.step();
         return dl::StepOutput{at::Tensor(), loss};
       },
       {},
       {},
       "a sparse tensor in aten::_to_dense",
       [](dl::Batch& batch, std::int64_t i) { batch.extra["mask"] = wave(i).gt(0).to(torch::kFloat).to_sparse(); }});
}

TEST_CASE("compile: more kinds of steps than cache_size are said once", "[runner]") {
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 60;
  config.compile.enable = true;
  config.compile.cache_size = 2;
  OddRunner runner(config);
  runner.body = plain;
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  for (std::int64_t i = 0; i < 60; ++i) {
    const std::int64_t rows = 2 + i / 6 % 3;  // each shape comes again
    runner.train_on_batch({.input = wave(i, rows), .target = wave(i + 1, rows)});
  }
  runner.finish_training();
  const std::string text =
      "compile: there are more kinds of steps (shapes of a batch, numbers in it, training, evaluation) than "
      "compile.cache_size = 2: the others run eagerly";
  CHECK(std::count(warnings.begin(), warnings.end(), text) == 1);
  CHECK(runner.compile_report().replayed > 0);
  CHECK(runner.compile_report().tapes <= 2);
}

TEST_CASE("compile: the criterion that is replaced in the middle of a run", "[runner]") {
  check_odd({"criterion", plain, [](OddRunner& runner, std::int64_t i) {
               if (i == 20) {
                 runner.criterion = torch::nn::L1Loss();
               }
             }});
}

/// A batch of the program, with all of its members.
struct Weighted {
  at::Tensor input, target, weight;
  double scale = 1.0;
  std::int64_t size() const { return input.size(0); }
  Weighted to(c10::Device device) const { return {input.to(device), target.to(device), weight.to(device), scale}; }
  auto parts() { return std::tie(input, target, weight, scale); }
  auto parts() const { return std::tie(input, target, weight, scale); }
};

class WeightedBatchRunner : public dl::BasicTorchRunner<Weighted> {
 public:
  explicit WeightedBatchRunner(const TinyConfig& config) : BasicTorchRunner(config) { model = even_layer(); }
  ~WeightedBatchRunner() override { close(); }

 protected:
  dl::StepOutput train_step(Weighted& batch) override {
    const at::Tensor loss = ((model(batch.input) - batch.target).square() * batch.weight).mean() * batch.scale;
    backward(loss);
    step();
    return {at::Tensor(), loss};
  }
};

TEST_CASE("compile: a batch of the program that shows its parts", "[runner]") {
  const auto weights = [](bool recorded) {
    return after_pushed<WeightedBatchRunner>(
        recorded, [](std::int64_t i) { return Weighted{wave(i), wave(i + 1), wave(i + 2).abs(), i < 20 ? 1.0 : 0.5}; },
        [](const auto& runner) { return dl::clone(runner.model.state_dict()); });
  };
  CHECK(dl::first_difference(weights(true), weights(false)) == "");
}

}  // namespace
}  // namespace runner_test
