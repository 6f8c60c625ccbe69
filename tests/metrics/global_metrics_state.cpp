// States that GlobalMetrics accepts or refuses; batches of inference mode; sums on another device.
#include <cmath>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <danling/metrics/build.hpp>
#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/multi_task_metrics.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/cuda.hpp>
#include <support/error.hpp>

namespace global_metrics_state_tests {

using danling::GlobalMetrics;
using danling::MetricError;
using danling::MetricFunc;
using danling::MetricState;
using danling::RunningSums;
using danling::State;
using danling::StateError;
using danling::metrics::Task;
using danling_test::error_of;

using Merge = std::function<void(at::Tensor&, const at::Tensor&)>;

// Sums whose dtype and shape are unknown before the first batch.
MetricFunc float_sums(Merge merge = {}) {
  const auto sums = std::make_shared<RunningSums>(RunningSums{
      .key = "floats",
      .of_batch = [](const at::Tensor& preds, const at::Tensor&) { return preds.sum().reshape({1}).expand({2}); },
      .merge = std::move(merge)});
  return {.name = "floats", .sums = {sums}, .compute = [sums](const MetricState& s) { return s.sums(sums)[0]; }};
}

MetricFunc first_error() {
  return {.name = "first", .preds_targets = true, .compute = [](const MetricState& s) {
            return s.preds().sub(s.targets()).flatten().select(0, 0);  // throws without rows
          }};
}

struct TaskMetric {
  MetricFunc metric;
  at::Tensor preds;
  at::Tensor targets;
};

// All metrics of the library, with data for each.
std::vector<TaskMetric> all_metrics() {
  using namespace danling::metrics;
  std::vector<TaskMetric> out;
  for (const Task task : {Task::binary, Task::multiclass, Task::multilabel, Task::regression}) {
    const std::int64_t size = task == Task::binary ? 1 : 3;
    at::Tensor preds = at::rand({20, size}).squeeze(1);
    at::Tensor targets = task == Task::multiclass   ? at::randint(0, 3, {20}, at::kLong)
                         : task == Task::regression ? at::rand({20, size})
                                                    : at::randint(0, 2, {20, size}, at::kLong).squeeze(1);
    if (task == Task::multiclass) {
      preds = preds.softmax(1);
    }
    for (const std::string& name : metric_func_registry(task).names()) {
      const bool curve = name == "roc" || name == "precision_recall_curve";
      const danling::metrics::MetricsSpec spec{.type = std::string(to_string(task)),
                                               .thresholds = curve ? std::optional<std::int64_t>(5) : std::nullopt};
      MetricFuncOptions options(spec, size);
      for (MetricFunc& metric : metric_func_registry(task).at(name)(options)) {
        out.push_back({metric.named(name), preds, targets});
      }
    }
    if (task == Task::multiclass) {
      out.push_back({multiclass_hinge_loss(3, {.mode = HingeMode::one_vs_all}), preds, targets});
      out.push_back({multiclass_auroc(3, {.thresholds = 5}), preds, targets});
      out.push_back({perplexity(), preds.log().unsqueeze(0), targets.unsqueeze(0)});
    } else if (task == Task::multilabel) {
      out.push_back({multilabel_auprc(3, {.thresholds = 5}), preds, targets});
    } else if (task == Task::binary) {
      out.push_back({binary_auroc({.thresholds = 5}), preds, targets});
    }
  }
  return out;
}

TEST_CASE("RunningSums: those of the library say their dtype and shape before any batch", "[metrics]") {
  for (const auto& [metric, preds, targets] : all_metrics()) {
    INFO(metric.name);
    for (const auto& which : metric.sums) {
      INFO(which->key);
      REQUIRE(which->form);
      const at::Tensor made = which->of_batch(preds, targets);
      CHECK(made.scalar_type() == which->form->dtype);
      CHECK(made.sizes() == which->form->shape);
    }
  }
}

TEST_CASE("GlobalMetrics: takes the state of the library's metrics, and no sums of another dtype or shape",
          "[metrics]") {
  for (const auto& [metric, preds, targets] : all_metrics()) {
    INFO(metric.name);
    const danling::GlobalMetricsOptions as_given{
        .preprocess = [](const at::Tensor& p, const at::Tensor& t) { return std::pair(p, t); }};
    GlobalMetrics saved({metric}, as_given);
    GlobalMetrics fresh({metric}, as_given);
    saved.update(preds, targets);
    const State state = danling::clone(saved.state_dict());
    fresh.load_state_dict(state);
    CHECK(fresh.average().text(9) == saved.average().text(9));
    fresh.update(preds, targets);
    fresh.reset();
    for (const auto& which : metric.sums) {
      const at::Tensor sums = state.at("sums").at(which->key).tensor();
      for (const char* place : {"sums", "last_sums"}) {
        for (const at::Tensor& other : {sums.flatten().slice(0, 1), sums.to(at::kFloat), sums.unsqueeze(0)}) {
          State bad = danling::clone(state);
          bad[place][which->key] = other;
          CHECK_THAT(error_of<StateError>([&] { fresh.load_state_dict(bad); }),
                     ContainsSubstring("[global_metrics.load_state_dict] expected the sums '" + which->key + "' as "));
        }
      }
    }
    CHECK(std::isnan(*fresh.count().number(metric.name)) == false);
    CHECK(*fresh.count().number(metric.name) == 0);
  }
}

TEST_CASE("GlobalMetrics: a state's sums are told by dtype and shape, and may lie in memory in any order",
          "[metrics]") {
  GlobalMetrics metrics({danling::metrics::multiclass_confusion_matrix(2)});
  metrics.update(at::arange(4, at::kLong).remainder(2), at::zeros({4}, at::kLong));
  State state = danling::clone(metrics.state_dict());
  const std::string key = state.at("sums").map().begin()->key.string();
  const auto refusal = [&](const State& sums) {
    State bad = danling::clone(state);
    bad["sums"][key] = sums;
    return error_of<StateError>([&] { metrics.load_state_dict(bad); });
  };
  const std::string begin = "[global_metrics.load_state_dict] expected the sums '" + key + "' as ";
  CHECK(refusal(at::zeros({3}, at::kLong)) == begin + "Long [2, 2], got Long [3]");
  CHECK(refusal(at::zeros({2, 2}, at::kDouble)) == begin + "Long [2, 2], got Double [2, 2]");
  CHECK(refusal(at::ones({2, 2}, at::kLong).to_sparse()) == begin + "a dense tensor, got another one");
  CHECK(refusal(at::Tensor()) == begin + "a dense tensor, got another one");
  CHECK(refusal(std::int64_t{3}) == begin + "a dense tensor, got an integer");
  const std::string before = metrics.average().text(0);
  state["sums"][key] = metrics.sums(key).t().contiguous().t();
  metrics.load_state_dict(state);
  CHECK(metrics.average().text(0) == before);

  GlobalMetrics own({float_sums()});
  own.update(at::ones({2}), at::ones({2}));
  State other = danling::clone(own.state_dict());
  other["sums"]["floats"] = at::ones({3});
  CHECK(error_of<StateError>([&] { own.load_state_dict(other); }) ==
        "[global_metrics.load_state_dict] expected the sums 'floats' as Float [2], got Float [3]");
  GlobalMetrics fresh({float_sums()});
  CHECK(error_of<StateError>([&] { fresh.load_state_dict(other); }) ==
        "[global_metrics.load_state_dict] expected the sums 'floats' as Float [3], got Float [2]");
}

TEST_CASE("GlobalMetrics: a state whose predictions the metrics cannot read is refused", "[metrics]") {
  GlobalMetrics metrics({danling::metrics::multiclass_auroc(3)});
  metrics.update(at::rand({4, 3}).softmax(1), at::arange(4, at::kLong).remainder(3));
  const std::string before = metrics.average().text(6);
  State bad = danling::clone(metrics.state_dict());
  bad["preds"] = at::rand({4, 5});
  CHECK_THAT(error_of<StateError>([&] { metrics.load_state_dict(bad); }),
             ContainsSubstring("[global_metrics.load_state_dict] expected predictions and targets that the metrics can "
                               "read, got Float [4, 5] and Long [4]: [metrics."));
  bad["preds"] = at::rand({4, 3}).to_sparse();
  CHECK(error_of<StateError>([&] { metrics.load_state_dict(bad); }) ==
        "[global_metrics.load_state_dict] expected dense predictions and targets, got sparse or nested ones");
  CHECK(metrics.average().text(6) == before);
  // A metric that throws without rows does not prevent loading rows.
  GlobalMetrics own({first_error()});
  own.update(at::ones({2}), at::zeros({2}));
  GlobalMetrics fresh({first_error()});
  fresh.load_state_dict(own.state_dict());
  CHECK(*fresh.average().number("first") == 1);
}

TEST_CASE("GlobalMetrics, MultiTaskMetrics: the state of another container is refused by what it lacks", "[metrics]") {
  GlobalMetrics global({danling::metrics::mse()});
  danling::StreamMetrics stream({danling::metrics::mse()});
  const auto refusal = [&](const State& state) { return error_of<StateError>([&] { global.load_state_dict(state); }); };
  const std::string begin = "[global_metrics.load_state_dict] expected ";
  CHECK(refusal(stream.state_dict()) == begin + "n, count, sums and last_sums, got a state without 'n'");
  CHECK(refusal(std::int64_t{3}) == begin + "a map, got an integer");
  State state = danling::clone(global.state_dict());
  state["n"] = "many";
  CHECK(refusal(state) == begin + "an integer 'n', got a string");
  state = danling::clone(global.state_dict());
  state["last_sums"] = std::int64_t{1};
  CHECK(refusal(state) == begin + "a map 'last_sums', got an integer");
  danling::MultiTaskMetrics tasks;
  tasks.add("a", danling::metrics::mse());
  CHECK(error_of<StateError>([&] { tasks.load_state_dict(std::int64_t{3}); }) ==
        "[multi_task_metrics.load_state_dict] expected tasks [a], got an integer");
}

TEST_CASE("GlobalMetrics: batches of inference mode and others follow each other in any order", "[metrics]") {
  const Merge merge = [](at::Tensor& total, const at::Tensor& more) { total = total + more; };
  for (const int inference : {0, 1, 2}) {
    INFO("in inference mode: batch " << inference);
    const auto create = [&] {
      return std::make_unique<GlobalMetrics>(
          std::vector<danling::MetricEntry>{first_error(), float_sums(inference == 0 ? merge : Merge())});
    };
    const auto feed = [](GlobalMetrics& metrics, int batch) {
      // Not contiguous, so that they are copied by LibTorch.
      metrics.update(at::arange(6, at::kFloat).add(batch).view({2, 3}).t(), at::zeros({3, 2}));
    };
    const auto expected = create();
    const auto metrics = create();
    for (int batch = 0; batch < 3; ++batch) {
      feed(*expected, batch);
      const c10::InferenceMode mode(batch == inference);
      feed(*metrics, batch);
      CHECK(metrics->average().text(3) == expected->average().text(3));
      CHECK(metrics->value().text(3) == expected->value().text(3));
    }
    CHECK(danling::bitwise_equal(metrics->state_dict(), expected->state_dict()));
    {
      const c10::InferenceMode mode;
      metrics->load_state_dict(danling::clone(expected->state_dict()));
    }
    feed(*metrics, 3);
    feed(*expected, 3);
    CHECK(danling::bitwise_equal(metrics->state_dict(), expected->state_dict()));
  }
}

TEST_CASE("GlobalMetrics: sums loaded on the host go to the device of the batches, which nothing waits for",
          "[metrics]") {
  for (const bool adds : {true, false}) {
    const Merge merge = [](at::Tensor& total, const at::Tensor& more) { total.add_(more); };
    GlobalMetrics metrics({float_sums(adds ? Merge() : merge)});
    metrics.update(at::ones({2}), at::ones({2}));
    metrics.load_state_dict(danling::clone(metrics.state_dict()));
    // No copy from this device is possible.
    metrics.update(at::ones({2}, at::kMeta), at::ones({2}, at::kMeta));
    CHECK(metrics.sums("floats").is_meta());
    CHECK(*metrics.count().number("floats") == 4);
  }
}

TEST_CASE("GlobalMetrics: a pinned buffer may be filled again after an update, sums follow to CUDA",
          "[metrics][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  GlobalMetrics metrics({first_error(), float_sums()}, {.device = at::Device(at::kCUDA)});
  const at::Tensor buffer = at::empty({std::int64_t{1} << 22}, at::TensorOptions().pinned_memory(true));
  const at::Tensor zeros = at::zeros_like(buffer);
  for (int batch = 0; batch < 8; ++batch) {
    buffer.fill_(batch);
    metrics.update(buffer, zeros);
  }
  const at::Tensor kept = metrics.preds().view({8, -1}).cpu();
  CHECK(at::equal(kept, at::arange(8, at::kFloat).unsqueeze(1).expand_as(kept)));
  metrics.load_state_dict(danling::clone(metrics.state_dict()));
  metrics.update(buffer.cuda(), zeros.cuda());
  CHECK(metrics.sums("floats").is_cuda());
}

}  // namespace global_metrics_state_tests
