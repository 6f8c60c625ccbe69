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

std::vector<at::Tensor> MetricValue::tensors() const {
  return std::visit(
      [](const auto& value) -> std::vector<at::Tensor> {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, at::Tensor>) {
          return {value};
        } else if constexpr (std::is_same_v<T, Sum<at::Tensor, std::int64_t>>) {
          return {value.sum};
        } else if constexpr (std::is_same_v<T, Sum<at::Tensor, at::Tensor>>) {
          return {value.sum, value.n};
        } else {
          return {};
        }
      },
      value_);
}

MetricValue MetricValue::with(const std::vector<at::Tensor>& tensors) const {
  return std::visit(
      [&](const auto& value) -> MetricValue {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, at::Tensor>) {
          return MetricValue(tensors.at(0));
        } else if constexpr (std::is_same_v<T, Sum<at::Tensor, std::int64_t>>) {
          return MetricValue::sum(tensors.at(0), value.n);
        } else if constexpr (std::is_same_v<T, Sum<at::Tensor, at::Tensor>>) {
          return MetricValue::sum(tensors.at(0), tensors.at(1));
        } else {
          return *this;
        }
      },
      value_);
}

}  // namespace danling::inline v0
