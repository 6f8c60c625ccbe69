// The work of bench/metrics.cpp: meters and metrics that danling and Python update or compute from the same data.
#include "metrics_work.hpp"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <variant>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/metrics/average_meter.hpp>
#include <danling/metrics/factory.hpp>
#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>

#include "results.hpp"

namespace metrics_bench {
namespace {

namespace fs = std::filesystem;
using bench::give_up;
using Clock = std::chrono::steady_clock;
using dl::metrics::Average;
using dl::metrics::Mode;

constexpr std::int64_t kBatches = 100;

// Seconds per call.
double time_calls(std::int64_t calls, const std::function<void(std::int64_t calls)>& work) {
  const auto begin = Clock::now();
  work(calls);
  return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(calls);
}

}  // namespace

Works::Works(std::int64_t samples) {
  at::manual_seed(0);
  logits_ = at::randn({kBatches, 64, 10});
  labels_ = at::randint(0, 10, {kBatches, 64}, at::kLong);
  targets_ = at::randint(0, 2, {samples}, at::kLong);
  values_ = at::rand({samples}).mul_(9).add_(1);  // no zeros: implementations of MAPE treat them differently
  predicted_ = values_ + at::randn({samples});
  words_ = at::randn({256, 32'000}).mul_(3).to(at::kBFloat16);
  word_ids_ = at::randint(0, 32'000, {256}, at::kLong);
  scores_ = at::sigmoid(at::randn({samples}) + targets_);
  for (std::int64_t i = 0; i < kBatches; ++i) {
    pairs_.emplace_back(logits_[i], labels_[i]);
  }
  start_peers();
  add_meters();
  add_metrics();
  add_auroc();
  add_once();
}

void Works::start_peers() {
  const std::string python = bench::python_of_peers(DANLING_PYTHON);
  if (python.empty()) {
    return;
  }
  std::string folder = (fs::temp_directory_path() / "danling-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    give_up("expected to create a directory in " + fs::temp_directory_path().string());
  }
  const std::string file = folder + "/data.pth";
  dl::save_file(dl::State::Map{{"logits", logits_},
                               {"labels", labels_},
                               {"scores", scores_},
                               {"targets", targets_},
                               {"values", values_},
                               {"predicted", predicted_},
                               {"words", words_},
                               {"word_ids", word_ids_}},
                file);
  peers_ =
      std::make_unique<Peers>(python, DANLING_SOURCE_DIR "/bench/metrics_peers.py", std::vector<std::string>{file});
  fs::remove_all(folder);  // Python has already read the file
}

Contestant Works::peer(const std::string& name, const std::string& command, std::int64_t calls, double ratio) {
  return {.name = name,
          .time = [=, this] { return peers_->ask("time " + command + " " + std::to_string(calls)); },
          .value = [=, this] { return peers_->ask("value " + command); },
          .ratio = ratio,
          .failure = peers_ ? "" : bench::no_python,
          .peer = true};
}

void Works::add_meters() {
  const at::Tensor scalar = at::scalar_tensor(0.5, at::kFloat);
  const auto meter = [](auto value, std::int64_t calls) {
    return [=]() mutable {
      dl::AverageMeter made;
      return time_calls(calls, [&](std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          made.update(value, 64);
        }
      });
    };
  };
  const auto mean = [](auto value) {
    return [=] {
      dl::AverageMeter made;
      made.update(value, 64);
      return made.avg();
    };
  };
  works_.push_back({"AverageMeter.update of a number",
                    10e-9,
                    {{.name = "danling (C++)", .time = meter(0.5, 1'000'000), .value = mean(0.5)},
                     peer("DanLing", "danling_number", 2000, 0),
                     peer("torchmetrics MeanMetric", "torchmetrics_number", 500, 0)}});
  works_.push_back({"AverageMeter.update of a scalar tensor on the host",
                    200e-9,
                    {{.name = "danling (C++)", .time = meter(scalar, 100'000), .value = mean(scalar)},
                     peer("DanLing", "danling_tensor", 2000, 0),
                     peer("torchmetrics MeanMetric", "torchmetrics_tensor", 500, 0)}});
}

std::function<double()> Works::updates(std::function<std::shared_ptr<dl::Metrics>()> make, std::int64_t calls) const {
  return [=, this] {
    const auto metrics = make();
    return time_calls(calls, [&](std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto& [logits, labels] = pairs_[static_cast<std::size_t>(i % kBatches)];
        metrics->update(logits, labels);
      }
    });
  };
}

std::function<double()> Works::averages(std::function<std::shared_ptr<dl::Metrics>()> make) const {
  return [=, this] {
    const auto metrics = make();
    for (const auto& [logits, labels] : pairs_) {
      metrics->update(logits, labels);
    }
    double sum = 0;
    for (const auto& [name, value] : metrics->average()) {
      sum += std::get<double>(value);
    }
    return sum;
  };
}

void Works::add_metrics() {
  const auto make = [](Mode mode) { return [mode] { return dl::metrics::multiclass_metrics(10, {.mode = mode}); }; };
  const auto accuracy = [] {
    return dl::metrics::multiclass_metrics(10, {.mode = Mode::stream},
                                           {dl::metrics::multiclass_accuracy(10, {.average = Average::micro})});
  };
  const auto one_shot = [this] {
    return time_calls(10'000, [&](std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto& [logits, labels] = pairs_[static_cast<std::size_t>(i % kBatches)];
        dl::metrics::accuracy(logits, labels, {.num_classes = 10, .average = Average::micro});
      }
    });
  };
  works_.push_back(
      {"accuracy of a batch of 64x10",
       10e-6,
       {{.name = "danling (C++) StreamMetrics.update", .time = updates(accuracy, 10'000), .value = averages(accuracy)},
        {.name = "danling (C++) metrics::accuracy", .time = one_shot, .value = averages(accuracy)},
        peer("DanLing StreamMetrics.update", "danling_accuracy", 200, 0),
        peer("torchmetrics update", "torchmetrics_accuracy", 200, 0)}});
  works_.push_back({"auroc, auprc, acc, f1, mcc of a batch of 64x10, averaged over batches",
                    0,
                    {{.name = "danling (C++) StreamMetrics.update",
                      .time = updates(make(Mode::stream), 2'000),
                      .value = averages(make(Mode::stream))},
                     peer("DanLing StreamMetrics.update", "danling_stream", 20, 50)}});
  works_.push_back({"the same of all data",
                    0,
                    {{.name = "danling (C++) GlobalMetrics.update",
                      .time = updates(make(Mode::global), 10'000),
                      .value = averages(make(Mode::global))},
                     peer("DanLing GlobalMetrics.update", "danling_global", 200, 3),
                     peer("torchmetrics MetricCollection.update", "torchmetrics_global", 50, 0)}});
}

void Works::add_auroc() {
  const auto compute = [this] { return dl::metrics::auroc(scores_, targets_).item<double>(); };
  works_.push_back({"AUROC of " + std::to_string(scores_.size(0)) + " samples",
                    0,
                    {{.name = "danling (C++) metrics::auroc",
                      .time = [compute] { return time_calls(1, [&](std::int64_t) { compute(); }); },
                      .value = compute},
                     peer("scikit-learn roc_auc_score", "sklearn_auroc", 1, 2),
                     peer("torchmetrics binary_auroc", "torchmetrics_auroc", 1, 2)}});
}

void Works::add_function(const std::string& title, const std::string& command, std::int64_t calls,
                         std::function<at::Tensor()> compute, const std::vector<std::string>& peers, double tolerance) {
  const auto value = [compute] { return compute().item<double>(); };
  const auto time = [value, calls] {
    return time_calls(calls, [&](std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        value();
      }
    });
  };
  Work work{title, 0, {{.name = "danling (C++)", .time = time, .value = value}}, title.starts_with("perplexity")};
  for (const std::string& name : peers) {
    work.contestants.push_back(peer(name, name + "_" + command, calls, 1));
    work.contestants.back().tolerance = tolerance;
  }
  works_.push_back(std::move(work));
}

void Works::add_once() {
  namespace m = dl::metrics;
  for (const std::int64_t size : {std::int64_t{10'000}, values_.size(0)}) {
    const at::Tensor p = predicted_.narrow(0, 0, std::min(size, values_.size(0)));
    const at::Tensor t = values_.narrow(0, 0, p.size(0));
    const std::string of = " of " + std::to_string(p.size(0)) + " samples";
    const std::string end = size == 10'000 ? "_few" : "_all";
    const std::int64_t calls = size == 10'000 ? 200 : 5;
    const std::vector<std::string> both = {"torchmetrics", "sklearn"};
    add_function("MAE" + of, "mae" + end, calls, [=] { return m::mae(p, t); }, both);
    add_function("MSE" + of, "mse" + end, calls, [=] { return m::mse(p, t); }, both);
    add_function("RMSE" + of, "rmse" + end, calls, [=] { return m::rmse(p, t); }, both);
    add_function("MAPE" + of, "mape" + end, calls, [=] { return m::mape(p, t); }, both, 1e-3);
    add_function("R2" + of, "r2" + end, calls, [=] { return m::r2_score(p, t); }, both, 1e-4);
    add_function(
        "explained variance" + of, "variance" + end, calls, [=] { return m::explained_variance(p, t); }, both, 1e-4);
    const std::int64_t few = size == 10'000 ? 20 : 1;
    const at::Tensor tied = p.mul(10).floor();
    const at::Tensor tied_values = t.mul(10).floor();
    add_function(
        "Spearman with ties" + of, "spearman" + end, few, [=] { return m::spearman(tied, tied_values); },
        size == 10'000 ? std::vector<std::string>{"torchmetrics", "scipy"} : std::vector<std::string>{"scipy"}, 1e-4);
    add_function("Kendall with ties" + of, "kendall" + end, few, [=] { return m::kendall(tied, tied_values); },
                 {"scipy"});
    const at::Tensor scores = scores_.narrow(0, 0, p.size(0));
    const at::Tensor labels = targets_.narrow(0, 0, p.size(0));
    add_function(
        "AUROC up to a rate of 0.1" + of, "partial" + end, few,
        [=] { return m::auroc(scores, labels, {.max_fpr = 0.1}); }, both, 1e-4);
  }
  // torchmetrics' softmax rounds to bf16.
  add_function(
      "perplexity of 256 words of 32000, bf16", "perplexity", 1, [this] { return m::perplexity(words_, word_ids_); },
      {"torchmetrics"}, 0.05);
  const at::Tensor wide = words_.to(at::kFloat);
  add_function("perplexity of 256 words of 32000, float32", "perplexity_wide", 1,
               [=, this] { return m::perplexity(wide, word_ids_); }, {"torchmetrics"});
}

}  // namespace metrics_bench
