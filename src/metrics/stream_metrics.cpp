#include <danling/metrics/stream_metrics.hpp>

#include <limits>

#include <ATen/core/grad_mode.h>

#include <metrics/meter_exchange.hpp>

namespace danling::inline v0 {
namespace {

std::int64_t batch_size(const at::Tensor& prediction) { return prediction.dim() == 0 ? 1 : prediction.size(0); }

}  // namespace

MetricMeter::MetricMeter(Metric metric, Preprocess preprocess)
    : metric_(std::move(metric)), preprocess_(std::move(preprocess)) {
  check<MetricError>(metric_ != nullptr, "metric_meter.create", "expected a metric, got an empty function");
}

void MetricMeter::update(const at::Tensor& prediction, const at::Tensor& target) {
  measure(prediction, target, std::nullopt);
}

void MetricMeter::update(const at::Tensor& prediction, const at::Tensor& target, std::int64_t n) {
  measure(prediction, target, n);
}

void MetricMeter::measure(const at::Tensor& prediction, const at::Tensor& target, std::optional<std::int64_t> n) {
  const c10::NoGradGuard no_grad;
  if (preprocess_) {
    const auto [input, label] = preprocess_(prediction, target);
    record(metric_(input, label), n ? *n : batch_size(input));
  } else {
    record(metric_(prediction, target), n ? *n : batch_size(prediction));
  }
}

void MetricMeter::record(const MetricValue& answer, std::int64_t n) {
  const auto* tensor = std::get_if<at::Tensor>(&answer.get());
  if (tensor != nullptr && tensor->defined() && tensor->numel() == 0) {
    AverageMeter::update(std::numeric_limits<double>::quiet_NaN(), n);
    return;
  }
  std::visit(
      [&](const auto& value) {
        if constexpr (requires { value.sum; }) {
          add(value.sum, value.n);
        } else {
          AverageMeter::update(value, n);
        }
      },
      answer.get());
}

StreamMetrics::StreamMetrics(std::vector<std::pair<std::string, Metric>> metrics, Preprocess preprocess)
    : preprocess_(std::move(preprocess)) {
  for (auto& [name, metric] : metrics) {
    add(name, std::move(metric));
  }
}

StreamMetrics::~StreamMetrics() = default;

MetricMeter& StreamMetrics::add(std::string_view name, Metric metric) {
  return meters_.add(name, MetricMeter(std::move(metric)));
}

void StreamMetrics::update(const at::Tensor& prediction, const at::Tensor& target) {
  measure(prediction, target, std::nullopt);
}

void StreamMetrics::update(const at::Tensor& prediction, const at::Tensor& target, std::int64_t n) {
  measure(prediction, target, n);
}

void StreamMetrics::measure(const at::Tensor& prediction, const at::Tensor& target, std::optional<std::int64_t> n) {
  const c10::NoGradGuard no_grad;
  const auto [input, label] = preprocess_ ? preprocess_(prediction, target) : base_preprocess(prediction, target);
  for (auto& entry : meters_) {
    entry.meter.update(input, label, n ? *n : batch_size(input));
  }
}

Result StreamMetrics::value() const {
  return meters_.collect([](const MetricMeter& meter) { return meter.value(); });
}

Result StreamMetrics::batch() const {
  return meters_.collect([](const MetricMeter& meter) { return meter.batch(); });
}

Result StreamMetrics::average() const {
  return meters_.collect([](const MetricMeter& meter) { return meter.average(); });
}

Result StreamMetrics::sum() const {
  return meters_.collect([](const MetricMeter& meter) { return meter.total(); });
}

Result StreamMetrics::count() const {
  return meters_.collect([](const MetricMeter& meter) { return static_cast<double>(meter.count()); });
}

Result StreamMetrics::n() const {
  return meters_.collect([](const MetricMeter& meter) { return static_cast<double>(meter.n()); });
}

void StreamMetrics::synchronize(const Group& group) {
  detail::MeterExchange exchange("stream_metrics.synchronize");
  for (auto& [name, meter] : meters_) {
    exchange.add(name, meter);
  }
  exchange.run(group);
}

State StreamMetrics::state_dict() const {
  State::Map state;
  for (const auto& [name, meter] : meters_) {
    state.set(name, meter.state_dict());
  }
  return state;
}

void StreamMetrics::load_state_dict(const State& state) {
  std::vector<std::string> expected;
  std::vector<AverageMeter> loaded;
  for (const auto& [name, meter] : meters_) {
    expected.push_back(name);
    if (const State* part = state.find(name)) {
      loaded.emplace_back().load_state_dict(*part);
    }
  }
  if (loaded.size() != expected.size() || state.map().size() != expected.size()) {
    std::vector<std::string> got;
    for (const auto& entry : state.map()) {
      got.push_back(entry.key.text());
    }
    fail<StateError>("stream_metrics.load_state_dict", "expected metrics [", join(expected), "], got [", join(got),
                     "]");
  }
  auto next = loaded.begin();
  for (auto& entry : meters_) {
    static_cast<AverageMeter&>(entry.meter) = std::move(*next++);
  }
}

}  // namespace danling::inline v0
