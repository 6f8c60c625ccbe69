#include <danling/metrics/functional/accuracy.hpp>

#include <vector>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>

#include <metrics/functional/accuracy.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0::metrics {
namespace {

using danling::detail::shape_text;
using danling::detail::tensor_text;

void check_labels(const at::Tensor& prediction, const at::Tensor& target, const char* where) {
  if (!prediction.defined() || !target.defined() || !at::isIntegralType(target.scalar_type(), /*includeBool=*/true))
      [[unlikely]] {
    fail<MetricError>(where, "expected a prediction and integer labels, got ", tensor_text(prediction), " and ",
                      tensor_text(target));
  }
  if (prediction.device() != target.device()) [[unlikely]] {
    fail<MetricError>(where, "expected prediction and target on one device, got ", prediction.device().str(), " and ",
                      target.device().str());
  }
}

bool fits_without(at::IntArrayRef scores, std::int64_t dim, at::IntArrayRef target) {
  const auto cut = static_cast<std::size_t>(dim);
  return scores.slice(0, cut) == target.slice(0, cut) && scores.slice(cut + 1) == target.slice(cut);
}

// The dimension of the classes; the prediction has one dimension more than the target.
std::int64_t class_dim_of(const at::Tensor& prediction, const at::Tensor& target, const AccuracyOptions& options) {
  const auto scores = prediction.sizes();
  const auto labels = target.sizes();
  const std::int64_t last = prediction.dim() - 1;
  if (options.class_dim) {
    const std::int64_t dim = *options.class_dim < 0 ? *options.class_dim + last + 1 : *options.class_dim;
    if (dim < 0 || dim > last || !fits_without(scores, dim, labels)) {
      fail<MetricError>("accuracy.compute", "expected a prediction of the target's shape but for class_dim ",
                        *options.class_dim, ", got ", shape_text(scores), " and ", shape_text(labels));
    }
    return dim;
  }
  std::int64_t found = -1;
  int candidates = 0;
  for (std::int64_t dim = 0; dim <= last; ++dim) {
    if (fits_without(scores, dim, labels) && (!options.num_classes || prediction.size(dim) == *options.num_classes)) {
      found = dim;
      ++candidates;
    }
  }
  if (candidates > 1 && found != last) {
    fail<MetricError>("accuracy.compute", "expected one dimension that can hold the classes, got several in ",
                      shape_text(scores), " for a target of shape ", shape_text(labels), "; set class_dim");
  }
  if (candidates == 0) {
    const std::string classes = options.num_classes ? concat(" of ", *options.num_classes, " classes") : "";
    fail<MetricError>("accuracy.compute", "expected a prediction of the target's shape and one dimension", classes,
                      " more, got ", shape_text(scores), " and ", shape_text(labels));
  }
  return found;
}

// Of two tensors of labels.
MetricValue share_of_equal(const at::Tensor& prediction, const at::Tensor& target,
                           std::optional<std::int64_t> ignore_index) {
  const at::Tensor right = prediction.eq(target);
  if (!ignore_index) {
    return MetricValue::sum(right.sum(), target.numel());
  }
  const at::Tensor counted = target.ne(*ignore_index);
  return MetricValue::sum(right.bitwise_and(counted).sum(), counted.sum());
}

}  // namespace

MetricValue accuracy(const at::Tensor& prediction, const at::Tensor& target, const AccuracyOptions& options) {
  check_labels(prediction, target, "accuracy.compute");
  const c10::NoGradGuard no_grad;
  if (prediction.dim() == target.dim() && options.top_k == 1 && prediction.sizes() == target.sizes() &&
      at::isIntegralType(prediction.scalar_type(), /*includeBool=*/true)) {
    return share_of_equal(prediction, target, options.ignore_index);
  }
  if (prediction.dim() != target.dim() + 1 || prediction.is_complex()) {
    fail<MetricError>("accuracy.compute", "expected scores with one dimension more than the target, got ",
                      tensor_text(prediction), " and ", tensor_text(target),
                      prediction.sizes() == target.sizes() ? "; for two classes use binary_accuracy" : "");
  }
  const std::int64_t dim = class_dim_of(prediction, target, options);
  if (options.num_classes && prediction.size(dim) != *options.num_classes) {
    fail<MetricError>("accuracy.compute", "expected ", *options.num_classes, " classes in dimension ", dim, ", got ",
                      shape_text(prediction.sizes()));
  }
  if (options.top_k < 1 || options.top_k > prediction.size(dim)) {
    fail<MetricError>("accuracy.compute", "expected top_k from 1 to the number of classes, ", prediction.size(dim),
                      ", got ", options.top_k);
  }
  return prediction.is_cpu() ? detail::accuracy_on_host(prediction, target, dim, options.top_k, options.ignore_index)
                             : detail::accuracy_on_device(prediction, target, dim, options.top_k, options.ignore_index);
}

MetricValue binary_accuracy(const at::Tensor& prediction, const at::Tensor& target,
                            const BinaryAccuracyOptions& options) {
  constexpr const char* where = "binary_accuracy.compute";
  check_labels(prediction, target, where);
  if (prediction.numel() != target.numel() || prediction.is_complex()) {
    fail<MetricError>(where, "expected as many real predictions as labels, got ", tensor_text(prediction), " and ",
                      tensor_text(target));
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor labels = target.flatten();
  const at::Tensor counted = options.ignore_index ? labels.ne(*options.ignore_index) : at::Tensor();
  if (labels.is_cpu()) {
    at::Tensor unknown = labels.ne(0).bitwise_and_(labels.ne(1));
    if (counted.defined()) {
      unknown.bitwise_and_(counted);
    }
    if (unknown.any().item().toBool()) {
      const std::string ignored = options.ignore_index ? concat(", or ", *options.ignore_index, " to ignore") : "";
      fail<MetricError>(where, "expected labels 0 and 1", ignored, ", got others");
    }
  }
  at::Tensor scores = prediction.flatten();
  if (at::isIntegralType(scores.scalar_type(), /*includeBool=*/true)) {
    return share_of_equal(scores, labels, options.ignore_index);
  }
  if (at::isReducedFloatingType(scores.scalar_type())) {
    scores = scores.to(at::kFloat);
  }
  at::Tensor outside = scores.lt(0).bitwise_or_(scores.gt(1));
  if (counted.defined()) {
    outside.bitwise_and_(counted);
  }
  // Whether these are logits is decided on the device: asking would wait.
  const at::Tensor logits = outside.any();
  const at::Tensor by_logit = scores.sigmoid().gt(options.threshold).bitwise_and_(logits);
  const at::Tensor by_probability = scores.gt(options.threshold).bitwise_and_(logits.bitwise_not());
  return share_of_equal(by_logit.bitwise_or(by_probability), labels, options.ignore_index);
}

}  // namespace danling::inline v0::metrics
