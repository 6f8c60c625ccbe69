// Counting with LibTorch's kernels, without waiting.
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <metrics/functional/counts.hpp>
#include <tensors/ignored.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

struct DeviceDecisions {
  at::Tensor labels;     // int64
  at::Tensor predicted;  // int64
  at::Tensor counted;    // bool; undefined if all labels count
};

at::Tensor with_counted(const at::Tensor& mask, const at::Tensor& counted) {
  return counted.defined() ? mask.bitwise_and(counted) : mask;
}

at::Tensor count_of(const at::Tensor& counted, const at::Tensor& labels) {
  return counted.defined() ? counted.sum() : at::scalar_tensor(labels.numel(), labels.options().dtype(at::kLong));
}

at::Tensor among_classes(const at::Tensor& labels, const ClassRule& rule) {
  return labels.ge(0).bitwise_and_(labels.lt(rule.num_classes));
}

// Number of scores that rank before that of the label, as in the host's loop: by value, nan first; equal scores by
// position, unlike LibTorch's topk.
at::Tensor ranks_of(const at::Tensor& scores, const at::Tensor& labels) {
  const at::Tensor label = labels.clamp(0, scores.size(1) - 1).unsqueeze(1);
  const at::Tensor own = scores.gather(1, label);
  const at::Tensor earlier = at::arange(scores.size(1), labels.options()).lt(label);
  const at::Tensor nan_before = scores.isnan().bitwise_and_(earlier);
  const at::Tensor before = at::where(earlier, scores.lt(own), scores.le(own)).bitwise_not();
  return at::where(own.isnan(), nan_before, before).sum(1);
}

DeviceDecisions decide(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule) {
  DeviceDecisions out;
  out.labels = targets.to(at::kLong);
  if (rule.ignore_index) {
    out.counted = danling::detail::not_ignored(targets, *rule.ignore_index);
  }
  if (scores.dim() == 1) {
    out.predicted = scores.to(at::kLong);
    return out;
  }
  out.predicted = scores.argmax(1);
  if (rule.top_k > 1) {
    const at::Tensor among = among_classes(out.labels, rule).bitwise_and_(ranks_of(scores, out.labels).lt(rule.top_k));
    out.predicted = at::where(among, out.labels, out.predicted);
  }
  return out;
}

// Counts each of `size` values in `index`; uncounted values go to an additional element, which is cut off.
at::Tensor histogram(const at::Tensor& index, const at::Tensor& counts, std::int64_t size) {
  const at::Tensor inside = with_counted(index.ge(0).bitwise_and_(index.lt(size)), counts);
  const at::Tensor place = index.masked_fill(inside.bitwise_not(), size);
  return at::zeros({size + 1}, place.options()).scatter_add_(0, place, at::ones_like(place)).narrow(0, 0, size);
}

}  // namespace

at::Tensor right_on_device(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule) {
  const DeviceDecisions made = decide(scores, targets, rule);
  const at::Tensor right = with_counted(made.predicted.eq(made.labels), made.counted);
  return at::stack({right.sum(), count_of(made.counted, made.labels)});
}

at::Tensor classes_on_device(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule) {
  const DeviceDecisions made = decide(scores, targets, rule);
  const at::Tensor right = with_counted(made.predicted.eq(made.labels), made.counted);
  return at::stack({histogram(made.labels, right, rule.num_classes),
                    histogram(made.predicted, made.counted, rule.num_classes),
                    histogram(made.labels, made.counted, rule.num_classes)});
}

at::Tensor confusion_on_device(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule) {
  const DeviceDecisions made = decide(scores, targets, rule);
  const at::Tensor known =
      with_counted(among_classes(made.labels, rule).bitwise_and_(among_classes(made.predicted, rule)), made.counted);
  const at::Tensor cell = made.labels.mul(rule.num_classes).add_(made.predicted);
  return histogram(cell, known, rule.num_classes * rule.num_classes).view({rule.num_classes, rule.num_classes});
}

at::Tensor labels_on_device(const at::Tensor& scores, const at::Tensor& targets, const LabelRule& rule) {
  const at::Tensor predicted = at::isFloatingType(scores.scalar_type())
                                   ? scores.gt(rule.threshold).reshape({-1, rule.num_labels})
                                   : scores.ne(0).reshape({-1, rule.num_labels});
  const at::Tensor labels = targets.reshape({-1, rule.num_labels});
  const at::Tensor counted =
      rule.ignore_index ? danling::detail::not_ignored(labels, *rule.ignore_index) : at::Tensor();
  const at::Tensor positive = with_counted(labels.eq(1), counted);
  const at::Tensor negative = with_counted(labels.eq(0), counted);
  const at::Tensor refused = predicted.bitwise_not();
  const auto total = [](const at::Tensor& mask, const at::Tensor& other) { return mask.bitwise_and(other).sum(0); };
  return at::stack({total(negative, refused), total(negative, predicted), total(positive, refused),
                    total(positive, predicted)},
                   -1)
      .view({rule.num_labels, 2, 2});
}

}  // namespace danling::inline v0::metrics::detail
