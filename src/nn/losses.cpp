#include <danling/nn/losses.hpp>

#include <algorithm>
#include <limits>

#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <danling/config/fields.hpp>
#include <danling/core/error.hpp>
#include <danling/tensors/detail/describe.hpp>
#include <danling/tensors/detail/loss_targets.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <tensors/ignored.hpp>

namespace danling::inline v0::nn {
namespace {

/// (1 - p)^gamma. `rest` is 1 - p. Where it rounds to 0, the power's gradient would be infinite for gamma < 1.
at::Tensor focus(const at::Tensor& rest, double gamma) {
  return rest.clamp_min(std::numeric_limits<float>::min()).pow(gamma);
}

/// Dimension of the classes.
std::int64_t class_dim(const at::Tensor& logits) { return logits.dim() == 1 ? 0 : 1; }

/// The mean of elements, for losses of values.
class ElementLoss final : public TargetLoss {
 public:
  using Function = at::Tensor (*)(const at::Tensor&, const at::Tensor&, std::int64_t);
  ElementLoss(std::string_view type, Function function, const LossOptions& options)
      : TargetLoss(type, {}, options), function_(function) {}

 private:
  at::Tensor values(const at::Tensor& prediction, const at::Tensor& target) const override {
    // Broadcasting would compare each prediction with each target: [N, 1] and [N] give [N, N]. Nested tensors check the
    // lengths of their elements.
    if (target.defined() && prediction.sizes() != target.sizes() && !NestedTensor::is_nested(prediction) &&
        !NestedTensor::is_nested(target)) [[unlikely]] {
      fail<DataError>("loss.compute", "expected a prediction and a target of the same shape, got [",
                      join(prediction.sizes()), "] and [", join(target.sizes()), "]; ",
                      danling::detail::shape_remedy(prediction, target));
    }
    return function_(prediction, target.to(prediction.scalar_type()), at::Reduction::None);
  }

  Function function_;
};

template <class L>
std::shared_ptr<TargetLoss> make(const LossOptions& options) {
  return std::make_shared<L>(options);
}

}  // namespace

void LossOptions::fields(Fields& f) {
  f("reduction", reduction, "reduction of the values of a batch; unset: mean");
  f("ignore_index", ignore_index, "ignore targets of this value; unset: -100 for classes");
  f("label_smoothing", label_smoothing, "share of a target to spread over all classes; unset: 0").range(0, 1);
  f("gamma", gamma, "exponent of a focal loss; unset: 2").at_least(0);
  f("alpha", alpha, "weight of the positive class; the negative class has 1 - alpha (sigmoid_focal)").range(0, 1);
  f("class_weights", class_weights, "one weight per class (cross_entropy, focal)").at_least(0);
}

TargetLoss::~TargetLoss() = default;

TargetLoss::TargetLoss(std::string_view type, std::initializer_list<std::string_view> known, const LossOptions& options)
    : options_(options) {
  const auto refuse = [&](bool set, std::string_view name) {
    if (set && std::find(known.begin(), known.end(), name) == known.end()) {
      fail<ConfigError>("loss.build", "expected options of ", type, " (reduction", known.size() == 0 ? "" : ", ",
                        join(known), "), got ", quote(name));
    }
  };
  refuse(options.ignore_index.has_value(), "ignore_index");
  refuse(options.label_smoothing.has_value(), "label_smoothing");
  refuse(options.gamma.has_value(), "gamma");
  refuse(options.alpha.has_value(), "alpha");
  refuse(options.class_weights.has_value(), "class_weights");
  const auto in_range = [&](const std::optional<double>& value, double high, std::string_view name,
                            std::string_view range) {
    check<ConfigError>(!value || (*value >= 0.0 && *value <= high), "loss.build", "expected ", name, " ", range,
                       ", got ", value.value_or(0.0));
  };
  in_range(options.label_smoothing, 1.0, "label_smoothing", "from 0 to 1");
  in_range(options.alpha, 1.0, "alpha", "from 0 to 1");
  in_range(options.gamma, std::numeric_limits<double>::max(), "gamma", "of at least 0");
  if (options.class_weights) {
    for (const double weight : *options.class_weights) {
      in_range(weight, std::numeric_limits<double>::max(), "class_weights", "of at least 0");
    }
  }
}

at::Tensor TargetLoss::class_weights(const at::Tensor& logits) const {
  if (!options_.class_weights) {
    return {};
  }
  if (!weights_.defined() || weights_.device() != logits.device() || weights_.scalar_type() != logits.scalar_type()) {
    weights_ = at::tensor(*options_.class_weights, at::kDouble).to(logits.options());
  }
  const std::int64_t classes = logits.dim() == 0 ? 1 : logits.size(class_dim(logits));
  check<DataError>(weights_.numel() == classes, "loss.class_weights", "expected one weight per class, ", classes,
                   ", got ", weights_.numel());
  return weights_;
}

at::Tensor widened(const at::Tensor& logits) {
  const auto type = logits.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? logits.to(at::kFloat) : logits;
}

std::optional<std::int64_t> TargetLoss::ignored(const at::Tensor&) const { return options_.ignore_index; }
bool TargetLoss::counts_targets() const { return options_.reduction.value_or(Reduction::mean) == Reduction::mean; }
std::int64_t TargetLoss::num_targets(const at::Tensor& target) const { return target.numel(); }

at::Tensor TargetLoss::count(const at::Tensor& logits, const at::Tensor& target) const {
  if (const auto value = ignored(target)) {
    return danling::detail::not_ignored(target, *value).sum();
  }
  return at::full({}, num_targets(target), logits.options().dtype(at::kLong));
}

at::Tensor TargetLoss::operator()(const at::Tensor& prediction, const at::Tensor& target) const {
  const Reduction reduction = options_.reduction.value_or(Reduction::mean);
  const at::Tensor logits = widened(prediction);
  const at::Tensor each = values(logits, target);
  if (reduction != Reduction::mean) {
    return reduction == Reduction::sum ? each.sum() : each;
  }
  if (counts_targets() && !ignored(target) && each.numel() > 0) {
    return each.mean();
  }
  const at::Tensor divisor = count(logits, target);
  return each.sum().div(counts_targets() ? divisor.clamp_min(1) : at::where(divisor.eq(0), 1.0, divisor));
}

std::pair<at::Tensor, at::Tensor> TargetLoss::sum_and_count(const at::Tensor& prediction,
                                                            const at::Tensor& target) const {
  const at::Tensor logits = widened(prediction);
  return {values(logits, target).sum(), count(logits, target)};
}

std::optional<std::int64_t> TargetLoss::normalizer(const at::Tensor& target) const {
  if (!target.defined() || options_.reduction.value_or(Reduction::mean) != Reduction::mean) {
    return std::nullopt;
  }
  const auto value = ignored(target);
  return value ? danling::detail::count_targets(target, *value) : num_targets(target);
}

namespace {

LossOptions of_classes(LossOptions options) {
  options.ignore_index = options.ignore_index.value_or(-100);
  return options;
}

at::Tensor without(const at::Tensor& target, std::int64_t ignored) { return target.masked_fill(target.eq(ignored), 0); }

at::Tensor zero_where_ignored(const at::Tensor& values, const at::Tensor& target, std::int64_t ignored) {
  return values.masked_fill(danling::detail::not_ignored(target, ignored).logical_not(), 0.0);
}

}  // namespace

CrossEntropyLoss::CrossEntropyLoss(const LossOptions& options)
    : TargetLoss("cross_entropy", {"ignore_index", "label_smoothing", "class_weights"}, of_classes(options)) {}

at::Tensor CrossEntropyLoss::values(const at::Tensor& logits, const at::Tensor& target) const {
  const at::Tensor wanted = target.to(target.is_floating_point() ? logits.scalar_type() : at::kLong);
  return at::cross_entropy_loss(logits, wanted, class_weights(logits), at::Reduction::None, *options().ignore_index,
                                options().label_smoothing.value_or(0.0));
}

std::optional<std::int64_t> CrossEntropyLoss::ignored(const at::Tensor& target) const {
  return target.is_floating_point() ? std::nullopt : options().ignore_index;
}

bool CrossEntropyLoss::counts_targets() const { return !options().class_weights && TargetLoss::counts_targets(); }

at::Tensor CrossEntropyLoss::count(const at::Tensor& logits, const at::Tensor& target) const {
  const auto value = ignored(target);
  const at::Tensor weights = value ? class_weights(logits) : at::Tensor();
  if (!weights.defined()) {
    return TargetLoss::count(logits, target);
  }
  const at::Tensor each = weights.index_select(0, without(target.to(at::kLong), *value).reshape(-1));
  return zero_where_ignored(each, target.to(at::kLong).reshape(-1), *value).sum();
}

std::int64_t CrossEntropyLoss::num_targets(const at::Tensor& target) const {
  if (!target.is_floating_point() || target.numel() == 0) {
    return target.numel();
  }
  return target.numel() / target.size(class_dim(target));
}

BinaryCrossEntropyLoss::BinaryCrossEntropyLoss(const LossOptions& options)
    : TargetLoss("binary_cross_entropy", {"ignore_index", "label_smoothing"}, options) {}

at::Tensor BinaryCrossEntropyLoss::values(const at::Tensor& logits, const at::Tensor& target) const {
  at::Tensor wanted = target.to(logits.scalar_type());
  if (const double smoothing = options().label_smoothing.value_or(0.0); smoothing != 0.0) {
    wanted = wanted.mul(1.0 - smoothing).add(smoothing / 2.0);
  }
  const at::Tensor each = at::binary_cross_entropy_with_logits(logits, wanted, {}, {}, at::Reduction::None);
  const auto value = ignored(target);
  return value ? zero_where_ignored(each, target, *value) : each;
}

FocalLoss::FocalLoss(const LossOptions& options)
    : TargetLoss("focal", {"ignore_index", "gamma", "class_weights"}, of_classes(options)) {}

at::Tensor FocalLoss::values(const at::Tensor& logits, const at::Tensor& target) const {
  const std::int64_t ignore_index = *options().ignore_index;
  const std::int64_t classes = class_dim(logits);
  const at::Tensor labels = without(target.to(at::kLong), ignore_index);
  const at::Tensor log_p = at::log_softmax(logits, classes).gather(classes, labels.unsqueeze(classes)).squeeze(classes);
  at::Tensor each = focus(log_p.expm1().neg(), options().gamma.value_or(2.0)).mul(log_p.neg());
  if (const at::Tensor weights = class_weights(logits); weights.defined()) {
    each = each.mul(weights.index_select(0, labels.reshape(-1)).view_as(each));
  }
  return zero_where_ignored(each, target.to(at::kLong), ignore_index);
}

SigmoidFocalLoss::SigmoidFocalLoss(const LossOptions& options)
    : TargetLoss("sigmoid_focal", {"ignore_index", "gamma", "alpha"}, options) {}

at::Tensor SigmoidFocalLoss::values(const at::Tensor& logits, const at::Tensor& target) const {
  const at::Tensor wanted = target.to(logits.scalar_type());
  const at::Tensor unwanted = wanted.neg().add(1.0);
  // 1 - p[t], without the rounding error of 1 - sigmoid.
  const at::Tensor rest = logits.neg().sigmoid().mul(wanted).add(logits.sigmoid().mul(unwanted));
  at::Tensor each = at::binary_cross_entropy_with_logits(logits, wanted, {}, {}, at::Reduction::None)
                        .mul(focus(rest, options().gamma.value_or(2.0)));
  if (const auto alpha = options().alpha) {
    each = each.mul(wanted.mul(*alpha).add(unwanted, 1.0 - *alpha));
  }
  const auto value = ignored(target);
  return value ? zero_where_ignored(each, target, *value) : each;
}

LossRegistry& losses() {
  static LossRegistry registry = [] {
    LossRegistry out("loss");
    out.add("cross_entropy", make<CrossEntropyLoss>);
    out.add("binary_cross_entropy", make<BinaryCrossEntropyLoss>);
    out.add("focal", make<FocalLoss>);
    out.add("sigmoid_focal", make<SigmoidFocalLoss>);
    out.add("mse",
            [](const LossOptions& options) { return std::make_shared<ElementLoss>("mse", at::mse_loss, options); });
    out.add("l1", [](const LossOptions& options) { return std::make_shared<ElementLoss>("l1", at::l1_loss, options); });
    return out;
  }();
  return registry;
}

}  // namespace danling::inline v0::nn
