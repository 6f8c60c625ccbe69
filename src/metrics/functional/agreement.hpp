// Measures of agreement between predicted and target labels, from counts by class.
#pragma once

#include <ATen/core/Tensor.h>

#include <danling/metrics/functional/cohen_kappa.hpp>

#include <metrics/functional/counts.hpp>

namespace danling::inline v0::metrics::detail {

/// Reduces label matrices [labels, 2, 2] to counts by class, [3, 2], as of class_sums: those of the matrices' sum.
at::Tensor two_class_counts(const at::Tensor& label_counts);

// From counts by class, [3, classes]; the device version does not wait.
double mcc_on_host(const at::Tensor& class_counts);
at::Tensor mcc_on_device(const at::Tensor& class_counts);
double kappa_on_host(const at::Tensor& class_counts);
at::Tensor kappa_on_device(const at::Tensor& class_counts);

// From a confusion matrix.
double weighted_kappa_on_host(const at::Tensor& confusion, KappaWeights weights);
at::Tensor weighted_kappa_on_device(const at::Tensor& confusion, KappaWeights weights);

}  // namespace danling::inline v0::metrics::detail
