// The cases of tests/golden/data/metrics_functional.json, and the metrics by their names there.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <danling/metrics/functional.hpp>
#include <danling/metrics/preprocess.hpp>

#include <support/catch.hpp>

namespace golden_functional {

namespace dlm = danling::metrics;
using Json = nlohmann::json;

inline const Json& document() {
  static const Json parsed = [] {
    std::ifstream file(DANLING_SOURCE_DIR "/tests/golden/data/metrics_functional.json");
    return Json::parse(file);
  }();
  return parsed;
}

struct Case {
  std::string metric;
  std::string task;
  std::string dtype;
  Json options;
  Json expected;
  const Json* batch = nullptr;
  std::string name;

  bool half() const { return dtype == "float16" || dtype == "bfloat16"; }
  /// Half types are computed in float32, and their numbers here are exact, so float32's tolerance holds.
  double tolerance() const { return dtype == "float64" || dtype == "int64" ? 1e-6 : 1e-4; }
  std::optional<std::int64_t> integer(const char* key) const {
    return options.contains(key) ? std::optional(options.at(key).get<std::int64_t>()) : std::nullopt;
  }
  std::optional<std::int64_t> ignore_index() const {
    return options.contains("ignore_index") ? integer("ignore_index") : -100;
  }
  std::string text() const { return metric + " of " + task + " batch " + name + " (" + dtype + "), " + options.dump(); }
};

/// The cases; those of a metric with an alias occur again under the alias.
inline const std::vector<Case>& cases() {
  static const std::map<std::string, std::string> aliases = {{"jaccard_index", "iou"}, {"auprc", "average_precision"}};
  static const std::vector<Case> all = [] {
    std::vector<Case> out;
    for (const Json& c : document().at("cases")) {
      out.push_back({c.at("metric"), c.at("task"), c.at("dtype"), c.at("options"), c.at("expected"),
                     &document().at("batches").at(c.at("batch").get<std::string>()), c.at("batch")});
      const auto alias = aliases.find(out.back().metric);
      if (alias != aliases.end()) {
        out.push_back(out.back());
        out.back().metric = alias->second;
      }
    }
    return out;
  }();
  return all;
}

inline at::Tensor tensor_of(const Json& values, const Json& shape, double scale) {
  std::vector<double> numbers;
  for (const Json& v : values) {
    numbers.push_back(v.is_null() ? std::numeric_limits<double>::quiet_NaN() : v.get<double>() / scale);
  }
  return at::tensor(numbers, at::kDouble).view(shape.get<std::vector<std::int64_t>>());
}

inline at::Tensor input_of(const Case& c) {
  static const std::map<std::string, at::ScalarType> types = {{"float64", at::kDouble},
                                                              {"float32", at::kFloat},
                                                              {"float16", at::kHalf},
                                                              {"bfloat16", at::kBFloat16},
                                                              {"int64", at::kLong}};
  return tensor_of(c.batch->at("scores"), c.batch->at("shape"), c.batch->at("scale")).to(types.at(c.dtype));
}

inline at::Tensor target_of(const Case& c) {
  const double scale = c.batch->value("target_scale", 1.0);
  const at::Tensor target = tensor_of(c.batch->at("target"), c.batch->at("target_shape"), scale);
  return c.task == "regression" ? target.to(input_of(c).scalar_type()) : target.to(at::kLong);
}

// Options

inline dlm::Average average_of(const Case& c) {
  return danling::TextTraits<dlm::Average>::parse(c.options.value("average", "macro")).value();
}

inline dlm::ClassificationOptions classification_options(const Case& c) {
  return {.num_classes = c.integer("num_classes"),
          .num_labels = c.integer("num_labels"),
          .threshold = c.options.value("threshold", 0.5),
          .average = average_of(c),
          .top_k = c.options.value("top_k", std::int64_t{1}),
          .ignore_index = c.ignore_index(),
          .class_dim = c.integer("class_dim")};
}
inline dlm::BinaryOptions binary_options(const Case& c) {
  return {.threshold = c.options.value("threshold", 0.5), .ignore_index = c.ignore_index()};
}
inline dlm::MulticlassOptions multiclass_options(const Case& c) {
  return {
      .average = average_of(c), .top_k = c.options.value("top_k", std::int64_t{1}), .ignore_index = c.ignore_index()};
}
inline dlm::MultilabelOptions multilabel_options(const Case& c) {
  return {.average = average_of(c), .threshold = c.options.value("threshold", 0.5), .ignore_index = c.ignore_index()};
}

// Metrics

struct Metric {
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const Case&)> one_shot;
  /// Empty for curves, which are functions alone.
  std::function<danling::MetricFunc(const Case&)> func = {};
};

const std::map<std::string, Metric>& metrics();

}  // namespace golden_functional
