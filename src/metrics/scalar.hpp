// Reads numbers from tensors, and formats both as text.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <danling/core/result.hpp>

namespace danling::inline v0::detail {

/// The number in a one-element tensor; waits for the device. @throws MetricError for complex tensors.
double read_scalar(const at::Tensor& tensor);

/// `[2, 3]`.
std::string shape_text(at::IntArrayRef shape);

/// `Float [2, 3]`, or `an undefined tensor`.
std::string tensor_text(const at::Tensor& tensor);

/// The elements of a contiguous float64 tensor on the host: a list, or an array of its shape.
Result::Value elements_value(const at::Tensor& numbers);

/// `0.9000`, `[0.9000, 0.8000]`, or `[[1.0000, 0.0000], [0.0000, 1.0000]]`.
std::string value_text(const Result::Value& value, int precision);

}  // namespace danling::inline v0::detail
