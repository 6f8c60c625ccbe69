#include <metrics/shapes.hpp>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/ops/cat.h>
#include <c10/util/accumulate.h>

#include <danling/core/error.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <metrics/scalar.hpp>

namespace danling::inline v0::metrics {
namespace detail {

using danling::detail::shape_text;
using danling::detail::tensor_text;

bool fits_without(at::IntArrayRef scores, std::int64_t dim, at::IntArrayRef target) {
  const auto cut = static_cast<std::size_t>(dim);
  return scores.slice(0, cut) == target.slice(0, cut) && scores.slice(cut + 1) == target.slice(cut);
}

std::optional<std::int64_t> find_class_dim(at::IntArrayRef scores, at::IntArrayRef target,
                                           std::optional<std::int64_t> num_classes) {
  const auto dims = static_cast<std::int64_t>(scores.size());
  const auto fits = [&](std::int64_t dim) {
    return fits_without(scores, dim, target) && (!num_classes || scores[static_cast<std::size_t>(dim)] == *num_classes);
  };
  if (dims > 1 && fits(1)) {
    return 1;
  }
  for (std::int64_t dim = 0; dim < dims; ++dim) {
    if (fits(dim)) {
      return dim;
    }
  }
  return std::nullopt;
}

namespace {

std::int64_t wrapped_dim(std::int64_t dim, std::int64_t dims, const char* where) {
  const std::int64_t wrapped = dim < 0 ? dim + dims : dim;
  check<MetricError>(wrapped >= 0 && wrapped < dims, where, "expected class_dim among ", dims, " dimensions, got ",
                     dim);
  return wrapped;
}

at::Tensor class_dim_last(const at::Tensor& scores, std::int64_t dim) {
  return dim == scores.dim() - 1 ? scores : scores.movedim(dim, -1);
}

/// The dimension of the classes in every sample: the last one if it fits all samples, otherwise the first that does.
std::int64_t class_dim_of_samples(at::TensorList predictions, at::TensorList targets,
                                  std::optional<std::int64_t> num_classes) {
  const std::int64_t dims = predictions[0].dim();
  const auto fits = [&](std::int64_t dim) {
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      const std::int64_t size = predictions[i].dim() == dims ? predictions[i].size(dim) : -1;
      if (size != num_classes.value_or(predictions[0].size(dim)) ||
          !fits_without(predictions[i].sizes(), dim, targets[i].sizes())) {
        return false;
      }
    }
    return true;
  };
  if (fits(dims - 1)) {
    return dims - 1;
  }
  for (std::int64_t dim = 0; dim < dims - 1; ++dim) {
    if (fits(dim)) {
      return dim;
    }
  }
  return dims - 1;
}

at::Tensor join_samples(const std::vector<at::Tensor>& samples) {
  bool alike = samples[0].dim() > 0;
  for (const auto& sample : samples) {
    alike = alike && sample.dim() == samples[0].dim() && sample.sizes().slice(1) == samples[0].sizes().slice(1);
  }
  if (alike) {
    return at::cat(samples);
  }
  std::vector<at::Tensor> flat;
  for (const auto& sample : samples) {
    flat.push_back(sample.flatten());
  }
  return at::cat(flat);
}

PredsTargets join_pairs(at::TensorList predictions, at::TensorList targets, std::optional<std::int64_t> num_classes,
                        std::optional<std::int64_t> class_dim, const char* where) {
  check<MetricError>(predictions.size() == targets.size() && !predictions.empty(), where,
                     "expected as many predictions as targets, and at least one, got ", predictions.size(), " and ",
                     targets.size());
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    check<MetricError>(predictions[i].defined() && targets[i].defined(), where,
                       "expected defined tensors, got an undefined one in sample ", i);
  }
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> labels;
  const bool by_class = predictions[0].dim() == targets[0].dim() + 1;
  const std::int64_t dim = !by_class   ? 0
                           : class_dim ? wrapped_dim(*class_dim, predictions[0].dim(), where)
                                       : class_dim_of_samples(predictions, targets, num_classes);
  const std::int64_t classes = by_class ? num_classes.value_or(predictions[0].size(dim)) : 0;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const at::Tensor& input = predictions[i];
    const bool fits = by_class ? input.dim() == predictions[0].dim() && input.dim() == targets[i].dim() + 1 &&
                                     fits_without(input.sizes(), dim, targets[i].sizes())
                               : input.sizes() == targets[i].sizes();
    if (!fits) {
      fail<MetricError>(where, "expected predictions of the target's shape", by_class ? " and the classes" : "",
                        ", got ", shape_text(input.sizes()), " and ", shape_text(targets[i].sizes()), " in sample ", i);
    }
    if (by_class && input.size(dim) != classes) {
      fail<MetricError>(where, "expected ", classes, " classes in dimension ", dim, ", got ", shape_text(input.sizes()),
                        " in sample ", i);
    }
    inputs.push_back(by_class ? class_dim_last(input, dim).reshape({-1, classes}) : input);
    labels.push_back(by_class ? targets[i].flatten() : targets[i]);
  }
  return {by_class ? at::cat(inputs) : join_samples(inputs), join_samples(labels)};
}

/// Samples of a padded batch, cut to the sizes of the other tensor's samples in the dimensions that both have.
std::vector<at::Tensor> cut_padding(const at::Tensor& padded, const std::vector<at::Tensor>& samples,
                                    const char* where) {
  if (padded.dim() == 0 || padded.size(0) != static_cast<std::int64_t>(samples.size())) {
    fail<MetricError>(where, "expected a padded batch of ", samples.size(), " samples with a nested one, got ",
                      shape_text(padded.sizes()));
  }
  std::vector<at::Tensor> cut;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    at::Tensor sample = padded[static_cast<std::int64_t>(i)];
    for (std::int64_t dim = 0; dim < std::min(sample.dim(), samples[i].dim()); ++dim) {
      sample = sample.narrow(dim, 0, std::min(sample.size(dim), samples[i].size(dim)));
    }
    cut.push_back(sample);
  }
  return cut;
}

/// Returns whether both have their elements in the same order: the shapes are equal except for dimensions of size one,
/// or one tensor is flat.
bool same_order(at::IntArrayRef a, at::IntArrayRef b) {
  if (a == b) [[likely]] {
    return true;
  }
  const auto squeezed = [](at::IntArrayRef shape) {
    std::vector<std::int64_t> sizes;
    std::copy_if(shape.begin(), shape.end(), std::back_inserter(sizes), [](std::int64_t size) { return size != 1; });
    return sizes;
  };
  const auto left = squeezed(a);
  const auto right = squeezed(b);
  return left == right || left.size() <= 1 || right.size() <= 1;
}

/// Returns whether the last dimensions form rows of `columns`, or a flat tensor can be split into such rows.
bool ends_with_rows(at::IntArrayRef shape, std::int64_t columns) {
  std::int64_t product = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    if (product == columns) {
      return true;
    }
    if (product == 1 && shape[dim] % columns == 0 && c10::multiply_integers(shape.slice(0, dim)) == 1) {
      return true;
    }
    product *= shape[dim];
  }
  return product == columns || product == 0;
}

void check_pair(const at::Tensor& prediction, const at::Tensor& target, const char* where) {
  if (!prediction.defined() || !target.defined() || prediction.is_complex() || target.is_complex()) [[unlikely]] {
    fail<MetricError>(where, "expected real predictions and targets, got ", tensor_text(prediction), " and ",
                      tensor_text(target));
  }
  if (prediction.device() != target.device()) [[unlikely]] {
    fail<MetricError>(where, "expected prediction and target on one device, got ", prediction.device().str(), " and ",
                      target.device().str());
  }
}

}  // namespace

bool is_nested(const at::Tensor& tensor) { return tensor.is_nested() || NestedTensor::is_nested(tensor); }

namespace {

std::vector<at::Tensor> samples_of(const at::Tensor& tensor) {
  return NestedTensor::is_nested(tensor) ? NestedTensor(tensor).elements()
         : tensor.is_nested()            ? tensor.unbind()
                                         : std::vector<at::Tensor>();
}

/// The packed values, if both have the same lengths and the classes, if any, are the last dimension.
std::optional<PredsTargets> packed_pair(const at::Tensor& prediction, const at::Tensor& target,
                                        std::optional<std::int64_t> num_classes,
                                        std::optional<std::int64_t> class_dim) {
  if (!NestedTensor::is_nested(prediction) || !NestedTensor::is_nested(target)) {
    return std::nullopt;
  }
  const NestedTensor input(prediction), labels(target);
  const bool last = !class_dim || *class_dim == -1 || *class_dim == input.dim() - 1;
  const at::Tensor values = input.concat(), values_of_target = labels.concat();
  const bool by_class = values.dim() == values_of_target.dim() + 1 && values.size(-1) == num_classes.value_or(-1);
  const bool fits = last && input.has_lengths_of(labels) && (by_class || values.sizes() == values_of_target.sizes()) &&
                    values.sizes().slice(0, values_of_target.sizes().size()) == values_of_target.sizes();
  if (!fits) {
    return std::nullopt;
  }
  return by_class ? PredsTargets(values.reshape({-1, values.size(-1)}), values_of_target.flatten())
                  : PredsTargets(values, values_of_target);
}

}  // namespace

PredsTargets dense_pair(const at::Tensor& prediction, const at::Tensor& target, const char* where,
                        std::optional<std::int64_t> num_classes, std::optional<std::int64_t> class_dim) {
  check_pair(prediction, target, where);
  if (!is_nested(prediction) && !is_nested(target)) [[likely]] {
    return {prediction, target};
  }
  if (auto packed = packed_pair(prediction, target, num_classes, class_dim)) {
    return *packed;
  }
  std::vector<at::Tensor> inputs = samples_of(prediction), labels = samples_of(target);
  if (!is_nested(prediction)) {
    inputs = cut_padding(prediction, labels, where);
  } else if (!is_nested(target)) {
    labels = cut_padding(target, inputs, where);
  }
  if (class_dim) {
    // Counted in the batch; the samples have one dimension less.
    const std::int64_t dim = wrapped_dim(*class_dim, prediction.dim(), where);
    check<MetricError>(dim > 0, where, "expected the classes in a dimension of the samples, got class_dim ", *class_dim,
                       ", the batch dimension");
    class_dim = dim - 1;
  }
  return join_pairs(inputs, labels, num_classes, class_dim, where);
}

PredsTargets flat_pair(const at::Tensor& prediction, const at::Tensor& target, std::int64_t columns,
                       const char* where) {
  if (!same_order(prediction.sizes(), target.sizes()) || prediction.numel() != target.numel()) [[unlikely]] {
    fail<MetricError>(where, "expected a prediction of the target's shape, got ", tensor_text(prediction), " and ",
                      tensor_text(target));
  }
  if (columns == 0) {
    return {prediction.dim() == 1 ? prediction : prediction.flatten(), target.dim() == 1 ? target : target.flatten()};
  }
  if (!ends_with_rows(target.sizes(), columns) || !ends_with_rows(prediction.sizes(), columns)) [[unlikely]] {
    fail<MetricError>(where, "expected ", columns, " values per item in the last dimensions, got ",
                      tensor_text(prediction), " and ", tensor_text(target));
  }
  const auto as_rows = [&](const at::Tensor& tensor) {
    return tensor.dim() == 2 && tensor.size(1) == columns ? tensor
                                                          : tensor.reshape({tensor.numel() / columns, columns});
  };
  return {as_rows(prediction), as_rows(target)};
}

PredsTargets flat_multiclass(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                             std::optional<std::int64_t> class_dim, const char* where) {
  check_pair(prediction, target, where);
  if (is_nested(prediction) || is_nested(target)) [[unlikely]] {
    // Joined samples have their classes last.
    const auto [joined, joined_labels] = dense_pair(prediction, target, where, num_classes, class_dim);
    return flat_multiclass(joined, joined_labels, num_classes,
                           joined.dim() == joined_labels.dim() + 1 ? std::optional<std::int64_t>(1) : std::nullopt,
                           where);
  }
  if (!at::isIntegralType(target.scalar_type(), /*includeBool=*/true)) [[unlikely]] {
    fail<MetricError>(where, "expected integer labels, got ", tensor_text(target));
  }
  const std::int64_t dims = prediction.dim();
  if (dims == target.dim() && !class_dim && target.sizes() == prediction.sizes() &&
      at::isIntegralType(prediction.scalar_type(), /*includeBool=*/true)) {
    return {prediction.flatten(), target.flatten()};
  }
  const std::int64_t dim = class_dim ? wrapped_dim(*class_dim, dims, where)
                           : dims == target.dim() + 1
                               ? find_class_dim(prediction.sizes(), target.sizes(), num_classes).value_or(dims - 1)
                               : dims - 1;
  const bool fits = dims > 0 && prediction.size(dim) == num_classes &&
                    (dims == target.dim() + 1 ? fits_without(prediction.sizes(), dim, target.sizes())
                                              : prediction.numel() == target.numel() * num_classes);
  if (!fits) [[unlikely]] {
    const std::string given = class_dim ? concat(" in dimension ", *class_dim) : "";
    fail<MetricError>(where, "expected a prediction of the target's shape plus a dimension of ", num_classes,
                      " classes", given, ", got ", tensor_text(prediction), " and ", tensor_text(target));
  }
  const auto flat_target = [&] { return target.dim() == 1 ? target : target.flatten(); };
  if (dims == 2 && dim == 1) [[likely]] {
    return {prediction, flat_target()};
  }
  return {class_dim_last(prediction, dim).reshape({target.numel(), num_classes}), flat_target()};
}

}  // namespace detail

PredsTargets concat_samples(at::TensorList predictions, at::TensorList targets, std::optional<std::int64_t> class_dim) {
  return detail::join_pairs(predictions, targets, std::nullopt, class_dim, "metrics.concat_samples");
}

}  // namespace danling::inline v0::metrics
