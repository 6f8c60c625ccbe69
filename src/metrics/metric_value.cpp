#include <danling/metrics/metric_value.hpp>

#include <ATen/ops/scalar_tensor.h>

#include <danling/core/error.hpp>
#include <danling/metrics/average_meter.hpp>

#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace {

AverageMeter meter_of(const MetricValue::Value& given) {
  AverageMeter meter;
  std::visit(
      [&](const auto& value) {
        if constexpr (requires { value.sum; }) {
          meter.add(value.sum, value.n);
        } else {
          meter.update(value);
        }
      },
      given);
  return meter;
}

}  // namespace

MetricValue MetricValue::per_sample(const at::Tensor& values) {
  if (!values.defined() || values.is_complex()) {
    fail<MetricError>("metric_value.per_sample", "expected real values, got ", detail::tensor_text(values));
  }
  return sum(values.sum(at::kDouble), values.numel());
}

double MetricValue::number() const { return meter_of(value_).val(); }

at::Tensor MetricValue::tensor() const {
  const auto* tensor = std::get_if<at::Tensor>(&value_);
  return tensor != nullptr ? *tensor : meter_of(value_).value_tensor();
}

}  // namespace danling::inline v0
