// A hundred updates of every registered optimizer against Python's (tests/golden/optimizer_steps.py).
#include <cmath>
#include <memory>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <danling/checkpoint/io.hpp>
#include <danling/config/config.hpp>
#include <danling/optim/build.hpp>

#include <optim/golden.hpp>

#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace {

using namespace danling_test;
namespace optim = danling::optim;
using danling::State;

constexpr int last_step = 100;
constexpr int saved_after = 50;

const Json& step_numbers() {
  static const Json document = [] {
    std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/optimizer_steps.json");
    REQUIRE(file.good());
    return Json::parse(file);
  }();
  return document;
}

/// The formulas of the script: irregular numbers without zeros.
template <class Formula>
at::Tensor filled(const std::vector<std::int64_t>& shape, at::ScalarType dtype, Formula&& formula) {
  at::Tensor out = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
  double* values = out.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    values[i] = formula(static_cast<double>(i));
  }
  return out.to(dtype);
}

/// One run of a case of the script: its parameters, its optimizer, and the steps taken.
class Run {
 public:
  Run(const std::string& name, at::ScalarType dtype, const std::vector<at::Tensor>& from = {}, int steps = 0)
      : case_(step_numbers()["cases"][name]), step_(steps) {
    for (std::size_t index = 0; index < case_["shapes"].size(); ++index) {
      const auto shape = case_["shapes"][index].get<std::vector<std::int64_t>>();
      at::Tensor value = from.empty()
                             ? filled(shape, dtype, [&](double i) { return std::cos(0.9 * i + double(index)); })
                             : from[index].detach().clone();
      params.push_back(value.set_requires_grad(true));
    }
    optim::OptimizerSpec spec;
    spec.type = case_["type"].get<std::string>();
    const Json& options = case_["groups"];
    std::vector<optim::ResolvedGroup> groups(options.size());
    for (std::size_t i = 0; i < params.size(); ++i) {
      auto& group = groups[groups.size() == 2 && i >= 2 ? 1 : 0];
      group.params.push_back(params[i]);
      group.names.push_back(step_numbers()["names"][i].get<std::string>());
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      danling::load_text(groups[g].options, options[g].dump(), name);
      groups[g].where = "optim";
    }
    optimizer = optim::optimizers().at(*spec.type)(spec, groups);
  }

  void advance() {
    ++step_;
    for (std::size_t index = 0; index < params.size(); ++index) {
      const bool missing = case_.contains("gaps") && index == 1 && (step_ < 3 || step_ % 7 == 3);
      const double phase = 0.3 * step_ * (1 + 0.1 * double(index)) + double(index);
      params[index].mutable_grad() = missing ? at::Tensor()
                                             : filled(params[index].sizes().vec(), params[index].scalar_type(),
                                                      [&](double i) { return std::sin(1.7 * i + phase); });
    }
    const Json factors = case_.value("lr_factors", Json::object());
    for (auto& group : optimizer->param_groups()) {
      group.lr *= factors.value(std::to_string(step_), 1.0);
    }
    optimizer->step();
  }

  void advance_to(int step) {
    while (step_ < step) {
      advance();
    }
  }

  std::vector<at::Tensor> params;
  std::shared_ptr<optim::Optimizer> optimizer;

 private:
  const Json& case_;
  int step_;
};

/// The tolerance of a step: a distance for each dtype, and twice Python's rounding error, since another order of the
/// same operations rounds as much. Muon multiplies matrices in bfloat16, whose bits depend on the CPU.
double limit_of(const std::string& name, const std::string& dtype, const Json& rounding) {
  static const std::map<std::string, double> base = {{"float32", 1e-6}, {"float64", 1e-11}, {"bfloat16", 1e-2}};
  return (name.starts_with("muon") ? 2e-2 : base.at(dtype)) + 2 * rounding.get<double>();
}

/// `limit` is relative to the largest number that the parameter has in any of `steps`.
void check_near(const std::vector<at::Tensor>& params, const Json& steps, const std::string& step, double limit) {
  for (std::size_t i = 0; i < params.size(); ++i) {
    CAPTURE(step, i, limit);
    double largest = 0;
    for (const auto& [other, values] : steps.items()) {
      for (const double value : values[i]) {
        largest = std::max(largest, std::abs(value));
      }
    }
    const at::Tensor want = tensor_of(steps[step][i], at::kDouble, params[i].sizes());
    const at::Tensor got = params[i].detach().to(at::kDouble);
    if (want.numel() > 0) {
      CHECK(got.sub(want).abs().max().item().toDouble() <= limit * largest);
    }
  }
}

TEST_CASE("Optimizer: a hundred updates of every kind give Python's numbers", "[optim][steps]") {
  for (const auto& [name, golden] : step_numbers()["cases"].items()) {
    for (const char* dtype : {"float32", "float64", "bfloat16"}) {
      Run run(name, dtype_of(dtype));
      std::size_t kept = 0;
      for (int step = 1; kept < golden[dtype]["params"].size(); ++step) {
        run.advance();
        if (const Json& steps = golden[dtype]["params"]; steps.contains(std::to_string(step))) {
          CAPTURE(name, dtype);
          check_near(run.params, steps, std::to_string(step), limit_of(name, dtype, golden[dtype]["rounding"][kept++]));
        }
      }
      CHECK(kept == (std::string(dtype) == "float32" ? 5 : std::string(dtype) == "float64" ? 3 : 2));
    }
  }
}

TEST_CASE("Optimizer: a state of every kind has Python's layout, and Python's goes on", "[optim][steps]") {
  for (const auto& [name, golden] : step_numbers()["cases"].items()) {
    CAPTURE(name);
    const Json& expected = golden["float32"];
    Run run(name, at::kFloat);
    run.advance_to(saved_after);
    if (!name.starts_with("muon")) {
      check_same_state(run.optimizer->state_dict(), state_of(expected["state"]), "float32");
    }
    std::vector<at::Tensor> saved;
    for (std::size_t i = 0; i < run.params.size(); ++i) {
      saved.push_back(tensor_of(expected["params"]["50"][i], at::kFloat, run.params[i].sizes()));
    }
    Run resumed(name, at::kFloat, saved, saved_after);
    resumed.optimizer->load_state_dict(state_of(expected["state"]));
    resumed.advance_to(last_step);
    check_near(resumed.params, expected["params"], "100", limit_of(name, "float32", expected["rounding"][4]));
  }
}

TEST_CASE("Optimizer: every kind that is saved, loaded and continued equals uninterrupted bit for bit",
          "[optim][steps]") {
  for (const auto& [name, golden] : step_numbers()["cases"].items()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      CAPTURE(name, dtype);
      Run run(name, dtype);
      run.advance_to(40);
      Run resumed(name, dtype, run.params, 40);
      resumed.optimizer->load_state_dict(run.optimizer->state_dict());
      run.advance_to(60);
      resumed.advance_to(60);
      for (std::size_t i = 0; i < run.params.size(); ++i) {
        CHECK(at::equal(run.params[i], resumed.params[i]));
      }
      CHECK(danling::first_difference(run.optimizer->state_dict(), resumed.optimizer->state_dict()).empty());
    }
  }
}

// ---- closures -------------------------------------------------------------------------------------------------------

/// The function of the script over all parameters together; sets their gradients.
at::Tensor objective(std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> parts;
  for (const auto& param : params) {
    parts.push_back(param.detach().reshape({-1}));
  }
  const at::Tensor flat = at::cat(parts);
  const std::int64_t count = flat.numel();
  const at::Tensor a = flat.narrow(0, 0, count - 1);
  const at::Tensor b = flat.narrow(0, 1, count - 1);
  const at::Tensor bend = b.sub(a.square());
  const at::Tensor value = bend.square().mul(4).add(a.neg().add(1).square()).sum().add(flat.pow(4).sum().mul(0.1));
  const at::Tensor grad = flat.pow(3).mul(0.4);
  grad.narrow(0, 0, count - 1).sub_(bend.mul(a).mul(16)).sub_(a.neg().add(1).mul(2));
  grad.narrow(0, 1, count - 1).add_(bend.mul(8));
  std::int64_t offset = 0;
  for (auto& param : params) {
    param.mutable_grad() = grad.narrow(0, offset, param.numel()).reshape(param.sizes()).clone();
    offset += param.numel();
  }
  return value;
}

/// One run of LBFGS.
class ClosureRun {
 public:
  ClosureRun(const std::string& name, at::ScalarType dtype, const std::vector<at::Tensor>& from = {}) {
    const Json& golden = step_numbers()["closures"][name];
    std::vector<std::string> names;
    for (std::size_t index = 0; index < step_numbers()["closure_shapes"].size(); ++index) {
      const auto shape = step_numbers()["closure_shapes"][index].get<std::vector<std::int64_t>>();
      params.push_back((from.empty() ? filled(shape, dtype, [&](double i) { return std::cos(0.9 * i + double(index)); })
                                     : from[index].detach().clone())
                           .set_requires_grad(true));
      names.push_back(step_numbers()["names"][index].get<std::string>());
    }
    optim::OptimizerSpec spec;
    spec.type = "lbfgs";
    std::vector<optim::ResolvedGroup> groups = {{params, names, {}, "optim"}};
    danling::load_text(groups[0].options, golden["options"].dump(), name);
    optimizer = optim::optimizers().at("lbfgs")(spec, groups);
  }

  double advance() {
    return optimizer
        ->step([this] {
          ++evaluations;
          return objective(params);
        })
        .item()
        .toDouble();
  }

  std::vector<at::Tensor> params;
  std::shared_ptr<optim::Optimizer> optimizer;
  std::int64_t evaluations = 0;
};

TEST_CASE("LBFGS: updates with a closure give the numbers and evaluations of torch.optim", "[optim][steps]") {
  for (const auto& [name, golden] : step_numbers()["closures"].items()) {
    for (const char* dtype : {"float64", "float32"}) {
      const Json& expected = golden[dtype];
      const bool exact = std::string(dtype) == "float64";
      ClosureRun run(name, dtype_of(dtype));
      for (std::size_t step = 0; step < expected["losses"].size(); ++step) {
        CAPTURE(name, dtype, step);
        CHECK(run.advance() == Approx(expected["losses"][step].get<double>()).epsilon(exact ? 1e-9 : 1e-4));
        if (exact) {
          CHECK(run.evaluations == expected["evaluations"][step]);
        }
        if (expected["params"].contains(std::to_string(step + 1))) {
          check_near(run.params, expected["params"], std::to_string(step + 1), exact ? 1e-9 : 1e-4);
        }
      }
    }
  }
}

TEST_CASE("LBFGS: a state of torch.optim goes on, and one of its own bit for bit", "[optim][steps]") {
  for (const auto& [name, golden] : step_numbers()["closures"].items()) {
    CAPTURE(name);
    const Json& expected = golden["float64"];
    std::vector<at::Tensor> saved;
    for (std::size_t i = 0; i < expected["params"]["3"].size(); ++i) {
      const auto shape = step_numbers()["closure_shapes"][i].get<std::vector<std::int64_t>>();
      saved.push_back(tensor_of(expected["params"]["3"][i], at::kDouble, shape));
    }
    ClosureRun python(name, at::kDouble, saved);
    python.optimizer->load_state_dict(state_of(expected["state"]));
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      ClosureRun run(name, dtype);
      for (int step = 0; step < 3; ++step) {
        run.advance();
      }
      ClosureRun resumed(name, dtype, run.params);
      resumed.optimizer->load_state_dict(run.optimizer->state_dict());
      for (int step = 0; step < 3; ++step) {
        run.advance();
        resumed.advance();
      }
      for (std::size_t i = 0; i < run.params.size(); ++i) {
        CHECK(at::equal(run.params[i], resumed.params[i]));
      }
      CHECK(danling::first_difference(run.optimizer->state_dict(), resumed.optimizer->state_dict()).empty());
    }
    for (int step = 0; step < 3; ++step) {
      python.advance();
    }
    check_near(python.params, expected["params"], "6", 1e-6);
  }
}

TEST_CASE("Optimizer: Python's optimizers open a state of every kind and go on", "[optim][steps][python]") {
  if (python_with_torch().empty()) {
    WARN("skipped: no Python with torch; set DANLING_PYTHON");
    return;
  }
  const TempDir folder;
  for (const auto& [name, golden] : step_numbers()["cases"].items()) {
    Run run(name, at::kFloat);
    run.advance_to(saved_after);
    State::List params;
    for (const auto& param : run.params) {
      params.emplace_back(param.detach());
    }
    danling::save(State::Map{{"params", std::move(params)}, {"optimizer", run.optimizer->state_dict()}},
                  folder / (name + ".pth"));
  }
  for (const auto& [name, golden] : step_numbers()["closures"].items()) {
    ClosureRun run(name, at::kDouble);
    State::List params;
    for (int step = 0; step < 3; ++step) {
      run.advance();
    }
    for (const auto& param : run.params) {
      params.emplace_back(param.detach());
    }
    danling::save(State::Map{{"params", std::move(params)}, {"optimizer", run.optimizer->state_dict()}},
                  folder / (name + ".pth"));
  }
  CHECK(run_python("tests/golden/optimizer_steps.py", {"resume", folder.path().string()}));
}

}  // namespace
