#include <danling/metrics/metrics.hpp>

#include <typeinfo>
#include <vector>

#include <c10/util/Type.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/metrics/preprocess.hpp>

#include <metrics/scalar.hpp>

namespace danling::inline v0 {

MetricsBase::~MetricsBase() = default;
Metrics::~Metrics() = default;

void MetricsBase::continue_batch() {}
void MetricsBase::begin_batch(std::int64_t) {}

State MetricsBase::merge_states(std::span<const State>) const {
  fail<StateError>("metrics.merge_states", "expected metrics that can merge the states of several ranks, got ",
                   c10::demangle(typeid(*this).name()),
                   ", which does not override merge_states; resume with the number of processes that saved the run");
}

std::optional<State> MetricsBase::share_of_state(const State& merged, std::int64_t begin, std::int64_t) const {
  return begin == 0 ? std::optional<State>(merged) : std::nullopt;
}

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

}  // namespace danling::inline v0
