// Preprocessing common to all tasks: joins nested tensors, drops ignored labels and dimensions of size one.
#include <vector>

#include <ATen/core/List.h>

#include <danling/core/error.hpp>
#include <danling/metrics/preprocess.hpp>

#include <metrics/scalar.hpp>
#include <metrics/shapes.hpp>
#include <tensors/ignored.hpp>

namespace danling::inline v0::metrics {
namespace {

// Drops dimensions of size one after the first.
at::Tensor squeeze_behind_first(const at::Tensor& tensor) {
  bool squeezable = false;
  for (std::int64_t i = 1; i < tensor.dim(); ++i) {
    squeezable = squeezable || tensor.size(i) == 1;
  }
  if (!squeezable) {
    return tensor;
  }
  std::vector<std::int64_t> shape = {tensor.size(0)};
  for (std::int64_t i = 1; i < tensor.dim(); ++i) {
    if (tensor.size(i) != 1) {
      shape.push_back(tensor.size(i));
    }
  }
  return tensor.reshape(shape);
}

bool begins_with(at::IntArrayRef shape, at::IntArrayRef prefix) {
  return shape.size() >= prefix.size() && shape.slice(0, prefix.size()) == prefix;
}

}  // namespace

PredsTargets base_preprocess(const at::Tensor& prediction, const at::Tensor& target, const PreprocessOptions& options) {
  if (!prediction.defined() || !target.defined()) [[unlikely]] {
    fail<MetricError>("metrics.preprocess", "expected a prediction and a target, got ",
                      danling::detail::tensor_text(prediction), " and ", danling::detail::tensor_text(target));
  }
  const bool nested = detail::is_nested(prediction) || detail::is_nested(target);
  auto [input, label] =
      nested ? detail::dense_pair(prediction, target, "metrics.preprocess") : PredsTargets(prediction, target);
  const auto keep = [&input = input, &label = label](const at::Tensor& mask) {  // clang before 16 captures no bindings
    const c10::List<std::optional<at::Tensor>> rows({mask});
    input = input.index(rows);
    label = label.index(rows);
  };
  if (options.ignore_index || options.ignore_nan) {
    if (!begins_with(input.sizes(), label.sizes())) {
      fail<MetricError>("metrics.preprocess", "expected a prediction whose shape begins with the target's, got ",
                        danling::detail::shape_text(input.sizes()), " and ",
                        danling::detail::shape_text(label.sizes()));
    }
    if (options.ignore_index) {
      keep(danling::detail::not_ignored(label, *options.ignore_index));
    }
    if (options.ignore_nan) {
      keep(label.isnan().logical_not());
    }
  }
  if (input.numel() == label.numel()) {
    return {squeeze_behind_first(input), squeeze_behind_first(label)};
  }
  return {input, label};
}

}  // namespace danling::inline v0::metrics
