// Metrics over shards of steps: the metrics, the data drawn for them, and their values as bits.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>

#include "exact_numbers.hpp"

namespace global_parts_test {

namespace m = danling::metrics;
using danling::GlobalMetrics;
using danling::MetricEntry;
using danling::MetricFunc;
using danling::MetricState;
using danling::RunningSums;
using exact_numbers::Draw;
using exact_numbers::Shards;

/// The rows of one shard of a step.
struct Rows {
  at::Tensor preds;
  at::Tensor targets;
};

constexpr int kShards = 4;
constexpr int kSteps = 25;

/// Steps of shards of 0 to 6 rows.
class Data {
 public:
  using Make = Rows (*)(Draw& draw, std::int64_t rows);
  Data(std::uint32_t seed, Make make, int shards = kShards) {
    Draw draw(seed, 9, 3, 24);
    for (int step = 0; step < kSteps; ++step) {
      auto& parts = steps_.emplace_back();
      for (int shard = 0; shard < shards; ++shard) {
        parts.push_back(make(draw, step == 3 && shard == 1 ? 0 : 1 + draw.weight(5)));
      }
    }
  }
  const Rows& at(int step, int shard) const {
    return steps_[static_cast<std::size_t>(step)][static_cast<std::size_t>(shard)];
  }
  /// All rows in the order of steps and shards.
  Rows all() const {
    std::vector<at::Tensor> preds;
    std::vector<at::Tensor> targets;
    for (const auto& parts : steps_) {
      for (const Rows& rows : parts) {
        preds.push_back(rows.preds);
        targets.push_back(rows.targets);
      }
    }
    return {at::cat(preds), at::cat(targets)};
  }

 private:
  std::vector<std::vector<Rows>> steps_;
};

inline at::Tensor drawn(Draw& draw, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape, at::kFloat);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = static_cast<float>(draw());
  }
  return out;
}

inline at::Tensor labels(Draw& draw, std::int64_t rows, std::int64_t classes) {
  at::Tensor out = at::empty({rows}, at::kLong);
  for (std::int64_t i = 0; i < rows; ++i) {
    out.mutable_data_ptr<std::int64_t>()[i] = draw.weight(classes - 1);
  }
  return out;
}

inline Rows numbers(Draw& draw, std::int64_t rows) { return {drawn(draw, {rows}), drawn(draw, {rows})}; }
inline Rows binary(Draw& draw, std::int64_t rows) { return {drawn(draw, {rows}).sigmoid(), labels(draw, rows, 2)}; }
inline Rows classes(Draw& draw, std::int64_t rows) {
  return {drawn(draw, {rows, 5}).softmax(1), labels(draw, rows, 5)};
}
inline Rows words(Draw& draw, std::int64_t rows) { return {drawn(draw, {rows, 40}), labels(draw, rows, 40)}; }

// Depends on the order of rows.
inline MetricFunc in_places() {
  return {.name = "places", .preds_targets = true, .compute = [](const MetricState& s) {
            double sum = 0.0;
            for (std::int64_t i = 0; i < s.preds().size(0); ++i) {
              sum = sum * 0.9 + static_cast<double>(s.preds().const_data_ptr<float>()[i]);
            }
            return danling::MetricValue(sum);
          }};
}

inline danling::RunningSumsPtr sums_of(bool merged) {
  RunningSums sums{.key = merged ? "merged" : "added", .of_batch = [](const at::Tensor& preds, const at::Tensor&) {
                     return preds.to(at::kDouble).sum() / 3.0;
                   }};
  if (merged) {
    sums.merge = [](at::Tensor& total, const at::Tensor& more) { total.mul_(0.5).add_(more); };
  }
  return std::make_shared<RunningSums>(sums);
}

inline MetricFunc value_of(const char* name, const danling::RunningSumsPtr& sums) {
  return {.name = name, .sums = {sums}, .compute = [sums](const MetricState& s) { return s.sums(sums); }};
}

struct Suite {
  const char* name;
  Data::Make make;
  std::vector<MetricEntry> (*metrics)();
};

inline const std::array kSuites = {
    Suite{"regression", numbers,
          [] {
            return std::vector<MetricEntry>{m::mae(),
                                            m::mse(),
                                            m::rmse(),
                                            m::mape(),
                                            m::r2_score(),
                                            m::explained_variance(),
                                            m::pearson(),
                                            m::concordance(),
                                            m::spearman(),
                                            m::kendall(),
                                            in_places(),
                                            value_of("added", sums_of(false)),
                                            value_of("merged", sums_of(true))};
          }},
    Suite{"moments alone", numbers, [] { return std::vector<MetricEntry>{m::mse(), m::pearson(), m::r2_score()}; }},
    Suite{"binary", binary,
          [] {
            return std::vector<MetricEntry>{
                m::binary_auroc(),    m::binary_auprc(),      m::binary_accuracy(), m::binary_f1_score(),
                m::binary_log_loss(), m::binary_hinge_loss(), m::binary_mcc(),      m::binary_calibration_error()};
          }},
    Suite{"classes", classes,
          [] {
            return std::vector<MetricEntry>{m::multiclass_auroc(5),         m::multiclass_auprc(5),
                                            m::multiclass_accuracy(5),      m::multiclass_f1_score(5),
                                            m::multiclass_cohen_kappa(5),   m::multiclass_confusion_matrix(5),
                                            m::multiclass_log_loss(5),      m::multiclass_hinge_loss(5),
                                            m::multiclass_jaccard_index(5), m::multiclass_calibration_error(5)};
          }},
    Suite{"words", words, [] { return std::vector<MetricEntry>{m::perplexity()}; }},
};

inline std::string bits(const danling::Result& result) {
  std::string text;
  for (const auto& [name, value] : result) {
    std::vector<double> numbers;
    if (const auto* number = std::get_if<double>(&value)) {
      numbers = {*number};
    } else if (const auto* array = std::get_if<danling::Result::Array>(&value)) {
      numbers = array->values;
    } else {
      numbers = std::get<std::vector<double>>(value);
    }
    text += name + ":";
    for (const double number : numbers) {
      char digits[40];
      std::snprintf(digits, sizeof digits, " %a", number);
      text += std::isnan(number) ? " nan" : digits;
    }
    text += "\n";
  }
  return text;
}

inline std::string read(const GlobalMetrics& metrics) {
  return bits(metrics.average()) + bits(metrics.batch()) + bits(metrics.count()) + bits(metrics.n());
}

inline danling::GlobalMetricsOptions as_given() {
  return {.preprocess = [](const at::Tensor& preds, const at::Tensor& targets) { return std::pair(preds, targets); }};
}

inline void feed(GlobalMetrics& metrics, const Data& data, int step, Shards own, bool numbered) {
  for (int shard = own.begin; shard < own.end; ++shard) {
    if (numbered) {
      metrics.begin_batch(step);
    } else if (shard > own.begin) {
      metrics.continue_batch();
    }
    metrics.update(data.at(step, shard).preds, data.at(step, shard).targets);
  }
}

}  // namespace global_parts_test
