#include <danling/metrics/metrics.hpp>

#include <vector>

#include <danling/core/format.hpp>

#include <metrics/scalar.hpp>

namespace danling::inline v0 {

Metrics::~Metrics() = default;

std::string Metrics::text(int precision) const {
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

}  // namespace danling::inline v0
