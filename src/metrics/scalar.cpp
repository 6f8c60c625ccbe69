#include <metrics/scalar.hpp>

#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

template <class T>
double read(const void* data) {
  return static_cast<double>(*static_cast<const T*>(data));
}

}  // namespace

double read_scalar(const at::Tensor& tensor) {
  // item() dispatches through three operators; a plain host tensor can be read directly.
  if (tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_neg() &&
      !tensor._is_zerotensor()) {
    const void* data = tensor.const_data_ptr();
    switch (tensor.scalar_type()) {
      case at::kFloat:
        return read<float>(data);
      case at::kDouble:
        return read<double>(data);
      case at::kLong:
        return read<std::int64_t>(data);
      case at::kInt:
        return read<std::int32_t>(data);
      case at::kBFloat16:
        return static_cast<double>(static_cast<float>(*static_cast<const c10::BFloat16*>(data)));
      case at::kHalf:
        return static_cast<double>(static_cast<float>(*static_cast<const c10::Half*>(data)));
      default:
        break;
    }
  }
  if (tensor.is_complex()) {
    fail<MetricError>("metrics.read", "expected a real number, got ", tensor_text(tensor));
  }
  return tensor.item().toDouble();
}

std::string shape_text(at::IntArrayRef shape) { return concat("[", join(shape), "]"); }

std::string tensor_text(const at::Tensor& tensor) {
  return tensor.defined() ? concat(c10::toString(tensor.scalar_type()), " ", shape_text(tensor.sizes()))
                          : "an undefined tensor";
}

Result::Value elements_value(const at::Tensor& numbers) {
  const auto* data = numbers.const_data_ptr<double>();
  std::vector<double> values(data, data + numbers.numel());
  if (numbers.dim() < 2) {
    return values;
  }
  return Result::Array{.shape = numbers.sizes().vec(), .values = std::move(values)};
}

std::string value_text(const Result::Value& value, int precision) {
  if (const auto* number = std::get_if<double>(&value)) {
    return to_fixed(*number, precision);
  }
  if (const auto* nested = std::get_if<Result>(&value)) {
    return nested->text(precision);
  }
  if (const auto* array = std::get_if<Result::Array>(&value)) {
    return array->text([&](double element) { return to_fixed(element, precision); });
  }
  std::string out = "[";
  for (const double element : std::get<std::vector<double>>(value)) {
    out += out.size() > 1 ? ", " : "";
    out += to_fixed(element, precision);
  }
  return out + "]";
}

}  // namespace danling::inline v0::detail
