// Distillation: a frozen teacher, loaded by config, and the loss against its logits.
#include <cmath>

#include "fixture.hpp"

namespace runner_test {
namespace {

/// Another architecture than that of the student, with dropout, which a teacher must not apply.
torch::nn::Sequential make_teacher() {
  return torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Tanh(), torch::nn::Dropout(0.5),
                               torch::nn::Linear(16, 3));
}

struct StudentRunner : TinyRunner {
  explicit StudentRunner(const TinyConfig& config) : TinyRunner(config) { teacher = make_teacher(); }
  ~StudentRunner() override { close(); }
};

/// A config with the weights of a teacher.
struct Taught : Folder {
  Taught() : config(*this) {
    torch::manual_seed(21);
    net = make_teacher();
    dl::save_file(dl::ModelHandle(net).state_dict(), file());
    net->eval();
    config.epochs = 1;
    config.dropout = 0;
    config.distill.checkpoint = file().string();
  }
  fs::path file() const { return path() / "teacher.pth"; }
  TinyConfig config;
  torch::nn::Sequential net{nullptr};
};

/// T^2 KL(teacher || student), by the formula.
double divergence(const at::Tensor& student, const at::Tensor& teacher, double temperature) {
  const at::Tensor p = (teacher / temperature).softmax(1), q = (student / temperature).softmax(1);
  return temperature * temperature * (p * (p.log() - q.log())).sum(1).mean().item<double>();
}

TEST_CASE("distill: the loss has a term against the logits of the loaded teacher", "[runner]") {
  Taught taught;
  taught.config.distill.temperature = 4.0;
  taught.config.distill.weight = 0.7;
  dl::set_option(taught.config, "losses.target.weight", "0.3");
  StudentRunner runner(taught.config);
  const dl::Result result = runner.evaluate({"val"});
  const torch::NoGradGuard no_grad;
  const dl::Batch val = make_points(20, 1000);
  const at::Tensor logits = runner.model(val.input);
  const double target = torch::nn::functional::cross_entropy(logits, val.target).item<double>();
  const double distill = divergence(logits, taught.net->forward(val.input), 4.0);
  CHECK(*result.number("val.losses.target.0") == 0.3);
  CHECK(*result.number("val.losses.target.1") == Approx(target).epsilon(1e-5));
  CHECK(*result.number("val.losses.distill.0") == 0.7);
  CHECK(*result.number("val.losses.distill.1") == Approx(distill).epsilon(1e-5));
  CHECK(*result.number("val.loss") == Approx(0.3 * target + 0.7 * distill).epsilon(1e-5));
}

TEST_CASE("distill: the teacher is frozen, and no part of the saved run", "[runner]") {
  Taught taught;
  StudentRunner runner(taught.config);
  runner.train();
  for (const auto& [name, parameter] : runner.teacher.named_parameters()) {
    CHECK_FALSE(parameter.requires_grad());
    CHECK_FALSE(parameter.grad().defined());
    CHECK(parameter.equal(taught.net->named_parameters()[name]));
  }
  CHECK_FALSE(runner.teacher.module()->is_training());
  CHECK(runner.optimizer->param_groups().front().params.size() == 4);
  runner.close();
  const dl::State saved = dl::load_file(find_file(taught, "latest.pth"));
  CHECK(saved.find("models") == nullptr);
  CHECK(saved.at("model").map().size() == 4);
}

TEST_CASE("distill: a student without labels learns from the teacher alone", "[runner]") {
  Taught taught;
  taught.config.epochs = 30;
  StudentRunner runner(taught.config);
  runner.criterion = {};
  const auto& rows = runner.train().rows();
  CHECK(*rows.front().result.number("train.loss") > 5 * *rows.back().result.number("train.loss"));
  const torch::NoGradGuard no_grad;
  runner.model.train(false);
  const dl::Batch val = make_points(20, 1000);
  const at::Tensor agrees = runner.model(val.input).argmax(1).eq(taught.net->forward(val.input).argmax(1));
  CHECK(agrees.to(torch::kDouble).mean().item<double>() >= 0.9);
}

TEST_CASE("distill: a run with a scheduled weight resumes bit for bit, and its dropout is that without a teacher",
          "[runner]") {
  Taught taught;
  taught.config.epochs = 3;
  taught.config.dropout = 0.5;
  taught.config.precision = "bf16";
  dl::set_option(taught.config, "losses.distill.schedule", "cosine");
  dl::set_option(taught.config, "losses.distill.length", "15");
  const auto through = [&] {
    const Folder folder;
    TinyConfig config = taught.config;
    config.workspace_root = folder.path().string();
    StudentRunner runner(config);
    runner.train();
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  }();
  check_same(run_stopped<StudentRunner>(taught.config, {4, 9}), through);

  TinyConfig alone = taught.config;
  alone.distill = {};
  alone.losses = {};
  StudentRunner untaught(alone);
  untaught.teacher = {};
  untaught.train();
  CHECK(dl::first_difference(untaught.state_dict().at("state").at("rng"), through.checkpoint.at("state").at("rng")) ==
        "");
}

TEST_CASE("distill: positions without a target do not count, where the criterion ignores them", "[runner]") {
  Taught taught;
  const auto term = [&](bool by_config) {
    TinyConfig config = taught.config;
    if (by_config) {
      dl::set_option(config, "losses.ce.type", "cross_entropy");
    }
    StudentRunner runner(config);
    dl::Batch val = make_points(20, 1000);
    val.target.slice(0, 5).fill_(-100);
    runner.datasets["val"] = Points{val, false};
    runner.metrics = nullptr;
    const dl::Result result = runner.evaluate({"val"});
    const torch::NoGradGuard no_grad;
    const at::Tensor input = val.input.slice(0, 0, 5);
    const double expected = divergence(runner.model(input), taught.net->forward(input), 2.0);
    CHECK(*result.number("val.losses.distill.1") == Approx(expected).epsilon(1e-5));
  };
  term(false);
  term(true);
}

TEST_CASE("distill: what is missing or does not fit is refused in one line", "[runner]") {
  Taught taught;
  const auto error = [](const TinyConfig& config, auto prepare) {
    StudentRunner runner(config);
    prepare(runner);
    return error_of<dl::Error>([&] { runner.initialize(); });
  };
  const auto nothing = [](StudentRunner&) {};
  CHECK(error(taught.config, [](StudentRunner& runner) { runner.teacher = {}; }) ==
        "[runner.distill] expected a teacher for 'distill.checkpoint', got none; assign `teacher` in the constructor "
        "of your runner");
  TinyConfig missing = taught.config;
  missing.distill.checkpoint = "/nowhere/teacher.pth";
  CHECK(error(missing, nothing) ==
        "[runner.distill] expected a file for 'distill.checkpoint', got none at '/nowhere/teacher.pth'");
  CHECK_THAT(error(taught.config, [](StudentRunner& runner) { runner.teacher = torch::nn::Linear(4, 3); }),
             ContainsSubstring("in file '" + taught.file().string() + "'"));
  CHECK(error(taught.config,
              [](StudentRunner& runner) {
                runner.criterion = [](const at::Tensor& prediction, const dl::Batch&) { return prediction.sum(); };
              }) ==
        "[runner.distill] expected a criterion of (prediction, target), tensors, with a teacher, got another; add "
        "nn::DistillationLoss to your losses instead");
  TinyConfig both = taught.config;
  both.distill.weight = 0.5;
  dl::set_option(both, "losses.distill.weight", "0.5");
  CHECK(error(both, nothing) ==
        "[runner.losses] expected one of 'losses.distill.weight' and 'distill.weight', got both");
}

TEST_CASE("distill: an own train_step calls compute_teacher_logits before the criterion", "[runner]") {
  struct OwnStep : StudentRunner {
    using StudentRunner::StudentRunner;
    bool consults = false;
    dl::StepOutput train_step(dl::Batch& batch) override {
      if (consults) compute_teacher_logits(batch);
      at::Tensor prediction = model(batch.input);
      at::Tensor loss = criterion(prediction, batch.target);
      backward(loss);
      step();
      return {prediction, loss};
    }
  };
  Taught taught;
  {
    OwnStep runner(taught.config);
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.distill] expected the teacher's logits for this batch, got none; call compute_teacher_logits(batch) "
          "in "
          "your train_step and evaluate_step, before the criterion; in train_step of split 'train', epoch 1, step 1, "
          "with input Float [8, 4] and target Long [8]");
  }
  OwnStep runner(taught.config);
  runner.consults = true;
  CHECK(runner.train().latest()->result.number("train.losses.distill.1") != nullptr);
}

}  // namespace
}  // namespace runner_test
