#include <danling/metrics/metrics.hpp>

#include <vector>

#include <danling/core/format.hpp>
#include <danling/metrics/preprocess.hpp>

#include <metrics/scalar.hpp>

namespace danling::inline v0 {

MetricsBase::~MetricsBase() = default;
Metrics::~Metrics() = default;

std::optional<bool> MetricsBase::higher_is_better(std::string_view) const { return std::nullopt; }

std::string MetricsBase::text(int precision) const {
  const Result last = value();
  const Result mean = average();
  std::string out;
  for (const auto& [name, number] : last) {
    const Result::Value* of_mean = mean.find(name);
    out += out.empty() ? "" : "\t";
    out += concat(name, ": ", detail::value_text(number, precision));
    if (of_mean != nullptr) {
      out += concat(" (", detail::value_text(*of_mean, precision), ")");
    }
  }
  return out;
}

void Metrics::update_samples(at::TensorList predictions, at::TensorList targets) {
  const auto [prediction, target] = metrics::concat_samples(predictions, targets);
  update(prediction, target);
}

}  // namespace danling::inline v0
