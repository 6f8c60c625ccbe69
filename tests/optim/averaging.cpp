// Averages of weights, SWALR and the statistics of batch normalization against torch.optim.swa_utils
// (tests/golden/averaging.py).
#include <danling/optim/averaging.hpp>

#include <ATen/ops/full.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <danling/optim/batch_norm_statistics.hpp>
#include <danling/optim/lr_scheduler.hpp>
#include <danling/optim/sgd.hpp>
#include <danling/optim/swalr.hpp>

#include <optim/golden.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace averaging_test {

using danling::State;
using danling::optim::EMAOptions;
using danling::optim::SWAOptions;
using danling::optim::WeightAverage;
using danling_test::error_of;
using danling_test::Json;

const Json& golden() {
  static const Json document = [] {
    std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/averaging.json");
    REQUIRE(file.good());
    return Json::parse(file);
  }();
  return document;
}

torch::nn::Sequential make_layers() {
  return torch::nn::Sequential(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
}

void set_values(const torch::nn::Sequential& model, const Json& values) {
  const at::NoGradGuard guard;
  const auto set = [&](const auto& items) {
    for (const auto& item : items) {
      item.value().copy_(
          at::tensor(values.at(item.key()).template get<std::vector<double>>()).view(item.value().sizes()));
    }
  };
  set(model->named_parameters());
  set(model->named_buffers());
}

/// @param without_counts  without integer buffers, whose averages Python truncates
void check_weights(const State& weights, const Json& want, bool without_counts = false) {
  CHECK(weights.map().size() == want.size());
  for (const auto& entry : weights.map()) {
    const std::string& name = entry.key.string();
    CAPTURE(name);
    if (!without_counts || !name.ends_with("num_batches_tracked")) {
      const auto expected = at::tensor(want.at(name).get<std::vector<double>>(), at::kDouble);
      CHECK(at::allclose(entry.value.tensor().to(at::kDouble).flatten(), expected, 1e-6, 1e-7));
    }
  }
}

TEST_CASE("WeightAverage: the model's own weights return with its end", "[optim]") {
  torch::nn::Linear net(1, 1);
  torch::nn::init::constant_(net->weight, 1.0);
  {
    danling::optim::WeightAverage ema(*net, danling::optim::EMAOptions{.decay = 0.5, .warmup = 0});
    ema.update();
    torch::nn::init::constant_(net->weight, 3.0);
    ema.update();
    ema.apply();
    CHECK(net->weight.item<double>() == 2.0);
  }
  CHECK(net->weight.item<double>() == 3.0);
}

TEST_CASE("WeightAverage: an average that replaces an applied one returns the model's own weights", "[optim]") {
  torch::nn::Linear net(1, 1);
  torch::nn::init::constant_(net->weight, 1.0);
  const danling::optim::EMAOptions options{.decay = 0.5, .warmup = 0};
  danling::optim::WeightAverage ema(*net, options);
  ema.update();
  torch::nn::init::constant_(net->weight, 3.0);
  ema.update();
  ema.apply();
  CHECK(net->weight.item<double>() == 2.0);
  ema = danling::optim::WeightAverage(*net, options);
  CHECK(net->weight.item<double>() == 3.0);
  CHECK_FALSE(ema.is_applied());
}

TEST_CASE("WeightAverage: equals AveragedModel with an exponential or an equal average, of buffers too or with copies",
          "[optim]") {
  struct Case {
    const char* name;
    std::function<WeightAverage(const torch::nn::Module&)> make;
  };
  const auto ema = [](const EMAOptions& options) {
    return [options](const torch::nn::Module& model) { return WeightAverage(model, options); };
  };
  const auto [name, make] = GENERATE_COPY(
      Case{"ema", ema({.decay = 0.9, .warmup = 0})},
      Case{"ema_buffers", ema({.decay = 0.9, .warmup = 0, .use_buffers = true})},
      Case{"ema_warmup", ema({.decay = 0.5})},
      Case{"swa", [](const torch::nn::Module& model) { return WeightAverage(model, SWAOptions{.start = 0}); }});
  CAPTURE(name);
  auto model = make_layers();
  auto average = make(*model);
  CHECK_FALSE(average.has_average());
  const Json& numbers = golden()["averages"];
  for (std::size_t step = 0; step < numbers["path"].size(); ++step) {
    CAPTURE(step);
    set_values(model, numbers["path"][step]);
    CHECK(average.update());
    check_weights(average.weights(), numbers[name][step], std::string(name) == "ema_buffers");
    check_weights(average.model_weights(), numbers["path"][step]);
  }
  CHECK(average.count() == static_cast<std::int64_t>(numbers["path"].size()));
}

TEST_CASE("WeightAverage: start and interval choose the updates that are averaged", "[optim]") {
  auto model = make_layers();
  const Json& path = golden()["averages"]["path"];
  WeightAverage average(*model, SWAOptions{.start = 0.25, .interval = 2}, 8);
  std::vector<bool> taken;
  for (const auto& values : path) {
    set_values(model, values);
    taken.push_back(average.update());
  }
  CHECK(taken == std::vector<bool>{false, false, false, true, false, true, false, true});
  CHECK(average.start() == 2);
  CHECK(average.count() == 3);
  CHECK(average.updates() == 8);
  const auto at_step = [&](std::size_t step) { return path[step]["0.bias"][0].get<double>(); };
  CHECK(average.weights().at("0.bias").tensor()[0].item<double>() ==
        Approx((at_step(3) + at_step(5) + at_step(7)) / 3).epsilon(1e-6));
}

TEST_CASE("WeightAverage: apply puts the average into the model and restore takes it out, without copies", "[optim]") {
  auto model = make_layers();
  const auto weight = model->named_parameters()["0.weight"];
  const auto mean = model->named_buffers()["1.running_mean"];
  const void* memory = weight.data_ptr();
  WeightAverage average(*model, EMAOptions{.decay = 0.5, .warmup = 0});
  average.apply();  // before the first update there is none
  CHECK(weight.data_ptr() == memory);
  set_values(model, golden()["averages"]["path"][0]);
  average.update();
  set_values(model, golden()["averages"]["path"][1]);
  average.update();
  const at::Tensor trained = weight.detach().clone();
  average.apply();
  average.apply();
  CHECK(average.is_applied());
  CHECK(weight.data_ptr() == average.weights().at("0.weight").tensor().data_ptr());
  CHECK(mean.data_ptr() == average.weights().at("1.running_mean").tensor().data_ptr());
  CHECK(average.model_weights().at("0.weight").tensor().data_ptr() == memory);
  CHECK(weight.requires_grad());
  CHECK(error_of<danling::StateError>([&] { average.update(); }) ==
        "[optim.average] expected the model's weights, got the applied average; call restore()");
  average.restore();
  CHECK(weight.data_ptr() == memory);
  CHECK(at::equal(weight.detach(), trained));
  const at::Tensor input = at::randn({4, 3});
  model->forward(input).sum().backward();
  CHECK(weight.grad().defined());
}

TEST_CASE("WeightAverage: a graph made before an evaluation with the average gives the same gradient", "[optim]") {
  auto model = make_layers();
  WeightAverage average(*model, EMAOptions{});
  average.update();
  {
    const at::NoGradGuard guard;
    average.weights().at("0.weight").tensor().zero_();
  }
  const at::Tensor input = at::randn({4, 3});
  const auto weight = model->named_parameters()["0.weight"];
  model->forward(input).square().sum().backward();
  const at::Tensor want = weight.grad().clone();
  model->zero_grad();
  const at::Tensor loss = model->forward(input).square().sum();
  average.apply();
  average.restore();
  loss.backward();
  CHECK(at::allclose(weight.grad(), want, 1e-5, 1e-5));
}

TEST_CASE("WeightAverage: averages of half precision are float32 and keep steps that bfloat16 would lose", "[optim]") {
  const auto dtype = GENERATE(at::kBFloat16, at::kHalf);
  torch::nn::Linear layer(3, 2);
  layer->to(dtype);
  const at::NoGradGuard guard;
  layer->weight.fill_(1);
  WeightAverage average(*layer, EMAOptions{.decay = 0.9999, .warmup = 0});
  average.update();
  layer->weight.fill_(2);
  for (int i = 0; i < 10; ++i) {
    average.update();
  }
  const at::Tensor mean = average.weights().at("weight").tensor();
  CHECK(mean.scalar_type() == at::kFloat);
  CHECK(mean[0][0].item<double>() == Approx(2 - std::pow(0.9999, 10)).epsilon(1e-6));
  average.apply();
  CHECK(layer->weight.scalar_type() == dtype);
  CHECK(at::equal(layer->weight, mean.to(dtype)));
  average.restore();
  CHECK(layer->weight[0][0].item<double>() == 2);
}

TEST_CASE("WeightAverage: one pass over many tensors of any layout equals lerp of each", "[optim]") {
  const auto dtype = GENERATE(at::kFloat, at::kDouble);
  at::manual_seed(3);
  WeightAverage::NamedTensors state;
  for (const std::int64_t size : {1, 7, 32768, 32769, 100000, 0}) {
    state.emplace_back(danling::detail::concat("p", size), at::randn({size}, dtype).set_requires_grad(true));
  }
  state.emplace_back("transposed", at::randn({70, 50}, dtype).t().set_requires_grad(true));
  state.emplace_back("strided", at::randn({50, 70}, dtype).slice(1, 0, 60, 2).set_requires_grad(true));
  const bool lists = GENERATE(false, true);  // without the strided one, the kernel of the library
  if (!lists) {
    state.pop_back();
  }
  WeightAverage average(state, state, EMAOptions{.decay = 0.75, .warmup = 0});
  average.update();
  std::vector<at::Tensor> want;
  const at::NoGradGuard guard;
  for (auto& [name, tensor] : state) {
    const at::Tensor before = tensor.detach().clone();
    tensor.add_(at::randn(tensor.sizes(), dtype));
    want.push_back(at::lerp(before, tensor.detach(), 0.25));
  }
  average.update();
  const State weights = average.weights();
  for (std::size_t i = 0; i < state.size(); ++i) {
    CAPTURE(state[i].first);
    CHECK(at::allclose(weights.at(state[i].first).tensor(), want[i], 1e-6, 1e-6));
  }
}

TEST_CASE("WeightAverage: a frozen parameter takes no memory, and joins when it is trained", "[optim]") {
  torch::nn::Linear layer(3, 2);
  const at::NoGradGuard guard;
  layer->bias.set_requires_grad(false);
  WeightAverage average(*layer, EMAOptions{.decay = 0.5, .warmup = 0});
  average.update();
  CHECK(average.weights().at("bias").tensor().data_ptr() == layer->bias.data_ptr());
  layer->bias.set_requires_grad(true).fill_(1);
  average.update();
  layer->bias.fill_(3);
  average.update();
  CHECK(average.weights().at("bias").tensor()[0].item<double>() == 2);
}

TEST_CASE("WeightAverage: tied parameters are averaged once", "[optim]") {
  const at::Tensor shared = at::full({2}, 1.0).set_requires_grad(true);
  const WeightAverage::NamedTensors state = {{"a", shared}, {"b", shared}};
  WeightAverage average(state, {{"a", shared}}, EMAOptions{.decay = 0.5, .warmup = 0});
  average.update();
  const at::NoGradGuard guard;
  shared.fill_(3);
  average.update();
  CHECK(average.weights().at("b").tensor()[0].item<double>() == 2);
  CHECK(average.weights().at("a").tensor().data_ptr() == average.weights().at("b").tensor().data_ptr());
}

TEST_CASE("WeightAverage: an update that was skipped for non-finite gradients changes and counts nothing", "[optim]") {
  const auto flag = [](double value) { return at::full({1}, value, at::kFloat); };
  const Json& path = golden()["averages"]["path"];
  const bool equal = GENERATE(false, true);
  auto model = make_layers();
  auto average =
      equal ? WeightAverage(*model, SWAOptions{.start = 0}) : WeightAverage(*model, EMAOptions{.decay = 0.5});
  for (std::size_t step = 0; step < path.size(); ++step) {
    set_values(model, path[0]);
    average.update(flag(1));  // before the first average, and between two
    set_values(model, path[step]);
    average.update(flag(0));
    CHECK(average.count() == static_cast<std::int64_t>(step) + 1);
    State weights = average.weights();
    for (const char* name : {"1.running_mean", "1.running_var", "1.num_batches_tracked"}) {
      weights[name] = average.model_weights().at(name);
    }
    check_weights(weights, golden()["averages"][equal ? "swa" : "ema_warmup"][step]);
  }
  const State saved = danling::clone(average.state_dict());
  WeightAverage other(*model, EMAOptions{});
  other.load_state_dict(saved);
  CHECK(other.count() == average.count());
}

TEST_CASE("WeightAverage: a saved average continues bit for bit", "[optim]") {
  const Json& path = golden()["averages"]["path"];
  const auto run = [&](std::size_t saved_at) {
    auto model = make_layers();
    auto average = std::make_unique<WeightAverage>(*model, EMAOptions{.decay = 0.7, .start = 1});
    for (std::size_t step = 0; step < path.size(); ++step) {
      if (step == saved_at) {
        const State saved = danling::clone(average->state_dict());
        average = std::make_unique<WeightAverage>(*model, EMAOptions{.decay = 0.7, .start = 1});
        average->load_state_dict(saved);
      }
      set_values(model, path[step]);
      average->update();
    }
    return danling::clone(average->state_dict());
  };
  const State whole = run(path.size());
  for (const std::size_t saved_at : {0, 1, 4}) {
    CHECK(danling::first_difference(run(saved_at), whole) == "");
  }
}

TEST_CASE("WeightAverage: a state that does not fit changes nothing", "[optim]") {
  auto model = make_layers();
  WeightAverage average(*model, EMAOptions{});
  average.update();
  const State before = danling::clone(average.state_dict());
  State other = danling::clone(before);
  other["weights"]["0.bias"] = at::full({3}, 1.0F);
  CHECK(error_of<danling::StateError>([&] { average.load_state_dict(other); }) ==
        "[optim.average.load_state_dict] expected the shape [2] of '0.bias', got [3]");
  other["weights"].map().erase("0.bias");
  CHECK(error_of<danling::StateError>([&] { average.load_state_dict(other); }) ==
        "[optim.average.load_state_dict] expected '0.bias', got none");
  CHECK(error_of<danling::StateError>([&] { average.load_state_dict(State(1)); }) ==
        "[optim.average.load_state_dict] expected a map with 'weights', got an integer");
  CHECK(danling::first_difference(average.state_dict(), before) == "");
}

TEST_CASE("WeightAverage: options out of range are errors", "[optim]") {
  torch::nn::Linear layer(3, 2);
  const auto error = [&](const auto& options) {
    return error_of<danling::ConfigError>([&] { const WeightAverage average(*layer, options); });
  };
  CHECK(error(EMAOptions{.decay = 1.5}) == "[optim.average] expected decay in [0, 1], got 1.5");
  CHECK(error(EMAOptions{.warmup = -1}) == "[optim.average] expected warmup of 0 or more, got -1.0");
  CHECK(error(EMAOptions{.interval = 0}) == "[optim.average] expected interval of at least 1, got 0");
  CHECK(error(SWAOptions{.start = 1.5}) ==
        "[optim.average] expected swa.start below 1, a share of the run, or a whole number, got 1.5");
  CHECK(error(SWAOptions{}) ==
        "[optim.average] expected swa.start as a number of steps, where the run has no length, got 0.75");
}

TEST_CASE("SWALR: leads to its rate as torch's does after another schedule, also resumed", "[optim]") {
  using danling::optim::SGD;
  using danling::optim::StepLR;
  using danling::optim::SWALR;
  struct Case {
    const char* name;
    std::int64_t anneal;
    const char* strategy;
  };
  const auto [name, anneal, strategy] =
      GENERATE(Case{"cos", 4, "cos"}, Case{"linear", 3, "linear"}, Case{"at_once", 0, "cos"});
  CAPTURE(name);
  SGD optimizer({});
  optimizer.add_param_group({at::full({1}, 0.0).set_requires_grad(true)}, {.lr = 0.1});
  optimizer.add_param_group({at::full({1}, 0.0).set_requires_grad(true)}, {.lr = 0.01});
  StepLR schedule(optimizer, 2, 0.5);
  std::unique_ptr<SWALR> swa;
  const Json& want = golden()["rates"][name];
  for (std::size_t epoch = 0; epoch < want.size(); ++epoch) {
    CAPTURE(epoch);
    for (std::size_t group = 0; group < 2; ++group) {
      CHECK(optimizer.param_groups()[group].lr == Approx(want[epoch][group].get<double>()).epsilon(1e-12));
    }
    if (swa == nullptr) {
      schedule.step();
      if (epoch == 2) {
        swa = std::make_unique<SWALR>(optimizer, 0.05, anneal, strategy);
      }
    } else {
      const State saved = swa->state_dict();
      swa = std::make_unique<SWALR>(optimizer, 0.05, anneal, strategy);
      swa->load_state_dict(saved);
      swa->step();
    }
  }
  CHECK(error_of<danling::ConfigError>([&] { SWALR(optimizer, 0.1, 1, "cosine"); }) ==
        "[scheduler.build] expected anneal_strategy cos or linear, got 'cosine'");
}

TEST_CASE("update_bn: the statistics equal torch's, and momentum and mode are restored", "[optim]") {
  torch::nn::BatchNorm1d norm(3);
  torch::nn::Sequential model(norm, torch::nn::Dropout(0.5));
  model->eval();
  std::size_t next = 0;
  const Json& batches = golden()["statistics"]["batches"];
  danling::optim::update_bn(*model, [&] {
    if (next == batches.size()) {
      return false;
    }
    model->forward(at::tensor(batches[next++].get<std::vector<double>>()).to(at::kFloat).view({-1, 3}));
    return true;
  });
  State state;
  for (const auto& item : model->named_parameters()) state[item.key()] = item.value().detach();
  for (const auto& item : model->named_buffers()) state[item.key()] = item.value();
  check_weights(state, golden()["statistics"]["state"]);
  CHECK_FALSE(model->is_training());
  CHECK(norm->options.momentum() == 0.1);
}

TEST_CASE("BatchNormStatistics: ranks with other numbers of batches get the statistics of all", "[optim]") {
  const Json& numbers = golden()["statistics"];
  const auto texts = danling_test::run_ranks(2, [&](const danling::Group& group) {
    torch::nn::BatchNorm1d norm(3);
    danling::optim::BatchNormStatistics statistics({norm.get()});
    for (std::size_t i = 0; i < 3; ++i) {
      if ((i == 0) == (group.rank() == 0)) {
        norm->forward(at::tensor(numbers["batches"][i].get<std::vector<double>>()).to(at::kFloat).view({-1, 3}));
      }
    }
    statistics.finish(group);
    const auto same = [&](const at::Tensor& got, const char* name) {
      const auto want = at::tensor(numbers["state"][name].get<std::vector<double>>(), at::kDouble);
      return at::allclose(got.to(at::kDouble).flatten(), want, 1e-6, 1e-7);
    };
    return std::string(same(norm->running_mean, "0.running_mean") && same(norm->running_var, "0.running_var") &&
                               same(norm->num_batches_tracked, "0.num_batches_tracked")
                           ? "same"
                           : "other");
  });
  danling_test::check_ranks(texts, "same");
}

TEST_CASE("update_bn: an error and a pass without batches leave the statistics", "[optim]") {
  torch::nn::Sequential model(torch::nn::BatchNorm1d(3));
  model->forward(at::randn({4, 3}));
  const at::Tensor mean = model->named_buffers()["0.running_mean"].clone();
  danling::optim::update_bn(*model, [] { return false; });
  CHECK(at::equal(model->named_buffers()["0.running_mean"], mean));
  CHECK_THROWS_AS(danling::optim::update_bn(*model,
                                            [&]() -> bool {
                                              model->forward(at::randn({4, 3}));
                                              throw std::runtime_error("a bad batch");
                                            }),
                  std::runtime_error);
  CHECK(at::equal(model->named_buffers()["0.running_mean"], mean));
  CHECK(model->is_training());
}

}  // namespace averaging_test
