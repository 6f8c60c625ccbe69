// Mistakes of a program that would spoil a run without an error: each is one warning, or an error.
#include <ATen/Parallel.h>

#include "fixture.hpp"
#include "hosted.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

using Warnings = std::vector<std::string>;

/// The warnings of one training run.
template <class Runner>
Warnings warnings_of(Runner& runner) {
  Warnings out;
  collect_warnings(runner, out);
  runner.train();
  return out;
}

/// A step without metrics, with a loss of the test.
struct Stepping : TinyRunner {
  explicit Stepping(const TinyConfig& config) : TinyRunner(config) { metrics = {}; }
  std::function<at::Tensor(Stepping&, dl::Batch&)> loss_of;
  std::function<void(Stepping&)> before_update;
  dl::StepOutput train_step(dl::Batch& batch) override {
    const at::Tensor loss = loss_of(*this, batch);
    backward(loss);
    if (before_update) {
      before_update(*this);
    }
    step();
    return {{}, loss};
  }
  using TinyRunner::optimizer;
};

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(logits, target);
}

TEST_CASE("silent mistakes: parameters that no model has are one warning", "[runner]") {
  const Folder folder;
  Stepping runner(two_epochs(folder));
  torch::nn::Linear forgotten(3, 3);
  runner.loss_of = [&](Stepping& self, dl::Batch& batch) {
    return cross_entropy(forgotten->forward(self.model(batch.input)), batch.target);
  };
  CHECK(warnings_of(runner) ==
        Warnings{"the loss depends on tensors that require gradients and are in no model and no optimizer, of shape "
                 "[3, 3], [3]: they are neither trained nor saved; register them in the model (register_module, "
                 "register_parameter), or call requires_grad_(false)"});
}

TEST_CASE("silent mistakes: an input that requires a gradient, and parameters of a program's optimizer, are none",
          "[runner]") {
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  const bool own_optimizer = GENERATE(false, true);
  if (own_optimizer) {
    config.optim = {};
  }
  Stepping runner(config);
  if (own_optimizer) {
    const at::Tensor scale = torch::ones({1}, at::kFloat).requires_grad_();
    auto parameters = runner.model.named_parameters();
    parameters.emplace_back("scale", scale);
    runner.optimizer = dl::optim::build_optimizer({"adamw"}, parameters);
    runner.loss_of = [scale](Stepping& self, dl::Batch& batch) {
      return cross_entropy(self.model(batch.input) * scale, batch.target);
    };
  } else {  // a gradient penalty
    runner.loss_of = [](Stepping& self, dl::Batch& batch) {
      const at::Tensor input = batch.input.detach().requires_grad_();
      const at::Tensor logits = self.model(input);
      const at::Tensor slope = torch::autograd::grad({logits.sum()}, {input}, {}, true, true)[0];
      return cross_entropy(logits, batch.target) + slope.square().mean();
    };
  }
  CHECK(warnings_of(runner).empty());
}

TEST_CASE("silent mistakes: gradients that change before the update of a window are one warning", "[runner]") {
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  config.accum_steps = GENERATE(1, 2);
  Stepping runner(config);
  runner.loss_of = [](Stepping& self, dl::Batch& batch) {
    return cross_entropy(self.model(batch.input), batch.target);
  };
  runner.before_update = [](Stepping& self) {
    std::vector<at::Tensor> parameters;
    for (const auto& [name, parameter] : self.model.named_parameters()) {
      parameters.push_back(parameter);
    }
    torch::nn::utils::clip_grad_norm_(parameters, 0.1);
  };
  const Warnings expected = {
      "runner.step: train_step changes gradients between backward(loss) and step(), where they are sums over the "
      "micro-batches so far, not those of the update; to clip set optim.max_grad_norm or optim.max_grad_value, to "
      "change them otherwise use on_gradients of a callback"};
  CHECK(warnings_of(runner) == (config.accum_steps > 1 ? expected : Warnings()));
}

TEST_CASE("silent mistakes: a first update of zero gradients is one warning", "[runner]") {
  const Folder folder;
  Stepping runner(two_epochs(folder));
  runner.loss_of = [](Stepping& self, dl::Batch& batch) {  // softmax over one class
    return cross_entropy(self.model(batch.input).slice(1, 0, 1), torch::zeros_like(batch.target));
  };
  CHECK(warnings_of(runner) ==
        Warnings{"all gradients of the first update are zero: nothing is trained; does the loss fit the output (a "
                 "softmax over one class is constant), and does it depend on the prediction?"});
}

TEST_CASE("silent mistakes: parameters that require gradients after training began are one warning", "[runner]") {
  struct Thaw : dl::Callback {
    void on_round_begin(const dl::RoundEvent& event) override {
      if (event.index == 1) {
        for (auto& [name, parameter] : static_cast<TinyRunner&>(event.runner).model.named_parameters()) {
          parameter.requires_grad_();
        }
      }
    }
  };
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  const bool by_config = GENERATE(true, false);
  if (by_config) {
    config.optim.freeze = std::vector<std::string>{"^0\\."};
  } else {
    config.optim = {};
  }
  TinyRunner runner(config);
  runner.add(std::make_shared<Thaw>());
  const at::Tensor weight = runner.model.named_parameters().front().second;
  const at::Tensor before = weight.detach().clone();
  if (!by_config) {
    weight.requires_grad_(false);
    runner.model.named_parameters().at(1).second.requires_grad_(false);
    runner.optimizer = dl::optim::build_optimizer({"adamw"}, runner.model.named_parameters());
  }
  const Warnings expected = {
      "2 parameters require gradients and are in no optimizer, 2 of them since training began, such as '0.bias': they "
      "are not trained. An optimizer holds the parameters that required gradients when it was made: to train them "
      "later, freeze them by requires_grad_(false) in on_round_begin, not by optim.freeze; do not replace a model"};
  CHECK(warnings_of(runner) == (by_config ? expected : Warnings()));
  CHECK(at::equal(weight.detach(), before) == by_config);
}

TEST_CASE("silent mistakes: close() without finish_training() is one warning", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  HostedRunner runner(config);
  Warnings warnings;
  collect_warnings(runner, warnings);
  for (std::int64_t i = 0; i < 6; ++i) {
    runner.train_on_batch(pushed(i));
  }
  SECTION("without") {
    CHECK(runner.close());
    CHECK(warnings == Warnings{"runner.close: expected finish_training() after the last train_on_batch, got none: the "
                               "result of the run and 3 steps, except what earlier checkpoints hold, are not saved"});
  }
  SECTION("with it") {
    runner.finish_training();
    CHECK(runner.close());
    CHECK(warnings.empty());
  }
}

TEST_CASE("silent mistakes: a dataset that is replaced after initialize() is an error where it would be read",
          "[runner]") {
  const Folder folder;
  TinyRunner runner(two_epochs(folder));
  runner.train();
  const Points others{make_points(8, 500), false};
  const auto text = [](const char* split, const char* got) {
    return dl::detail::concat("[runner.loader] expected the dataset of split '", split,
                              "' to be set before initialize(), got ", got,
                              " later; make a runner for other data, or call evaluate_on_batch with your batches");
  };
  runner.datasets["val"] = others;
  CHECK(error_of<dl::StateError>([&] { runner.evaluate({"val"}); }) == text("val", "another one"));
  CHECK(error_of<dl::StateError>([&] { runner.infer("val"); }) == text("val", "another one"));
  runner.datasets["extra"] = others;
  CHECK(error_of<dl::StateError>([&] { runner.evaluate({"extra"}); }) == text("extra", "it"));
  CHECK(runner.infer("train").size(0) == 50);
}

TEST_CASE("silent mistakes: a loss of unknown weight over batches of different sizes is one warning of each split",
          "[runner]") {
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  const auto warnings_with = [&](const dl::CriterionHandle& criterion) {
    TinyRunner runner(config);
    runner.criterion = criterion;
    return warnings_of(runner);
  };
  const auto text = [](const char* split, int least) {
    return dl::detail::concat("the loss of split '", split, "' is an average over its batches, which have ", least,
                              " to 8 samples and count alike: nothing says what a loss of the step averages over; use "
                              "a loss of LibTorch or dl::Losses as `criterion`, or give batches a loss_normalizer");
  };
  CHECK(warnings_with(cross_entropy) == Warnings{text("train", 2), text("val", 4)});
  CHECK(warnings_with(torch::nn::CrossEntropyLoss()).empty());
  CHECK(warnings_with(dl::Losses({{"ce", cross_entropy}})).empty());
  config.dataloader.drop_last = true;
  CHECK(warnings_with(cross_entropy).empty());
}

TEST_CASE("silent mistakes: a test split that chooses the best checkpoint is one warning", "[runner]") {
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  const auto split = GENERATE(as<std::string>{}, "none", "val", "score_split", "test_splits");
  if (split == "score_split") {
    config.score_split = "test";
  } else if (split == "test_splits") {
    config.test_splits = std::vector<std::string>{"test"};
  }
  TinyRunner runner(config);
  runner.datasets.clear();
  runner.datasets["train"] = Points{make_points(50, 0), true};
  runner.datasets["test"] = Points{make_points(20, 1000), false};
  if (split == "val") {
    runner.datasets["val"] = Points{make_points(20, 2000), false};
  }
  const Warnings expected = {
      "split 'test' chooses the best checkpoint, since no other split is evaluated; put it into test_splits, and "
      "evaluate a split of the training data, or set score_split"};
  CHECK(warnings_of(runner) == (split == "none" ? expected : Warnings()));
}

TEST_CASE("silent mistakes: a number of threads that the process does not have is one warning", "[runner]") {
  const Folder folder;
  TinyConfig config = two_epochs(folder);
  const int threads = at::get_num_threads();
  for (const int asked : {threads, threads + 1}) {
    config.num_threads = asked;
    TinyRunner runner(config);
    const Warnings expected = {dl::detail::concat("num_threads: expected a process with ", asked, " threads, got ",
                                                  threads,
                                                  "; run() sets them, a program without it calls at::set_num_threads")};
    CHECK(warnings_of(runner) == (asked == threads ? Warnings() : expected));
  }
}

TEST_CASE("silent mistakes: a second backward pass through one graph is an error with a remedy", "[runner]") {
  const Folder folder;
  Stepping runner(two_epochs(folder));
  at::Tensor kept;
  runner.loss_of = [&](Stepping& self, dl::Batch& batch) {
    const at::Tensor logits = self.model(batch.input);
    const at::Tensor loss = cross_entropy(logits, batch.target) + (kept.defined() ? kept : torch::zeros({}));
    kept = logits.mean();
    return loss;
  };
  CHECK_THAT(
      error_of<dl::Error>([&] { runner.train(); }),
      ContainsSubstring("; call detach() on what a step keeps for the next one; add losses that share a graph, and "
                        "call backward(a + b) once; for two models with one loss "
                        "call backward(loss, name, /*retain_graph=*/true) for all but the last; in train_step"));
}

}  // namespace
}  // namespace runner_test
