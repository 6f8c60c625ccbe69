#include <danling/data/transforms/mix.hpp>

#include <algorithm>
#include <cmath>

#include <ATen/ops/zeros.h>

#include <data/transforms/images.hpp>

namespace danling::inline v0::data::transforms {

namespace {

void check_labels(const at::Tensor& labels, std::int64_t num_classes, const BatchInfo& info, std::string_view name) {
  const at::Tensor values = labels.to(at::kLong).contiguous();
  const auto* value = values.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    if (value[i] < 0 || value[i] >= num_classes) {
      const auto at = static_cast<std::size_t>(i);
      fail<DataError>(concat("data.", name), "expected labels in [0, ", num_classes, "), got ", value[i],
                      " for sample ", i,
                      at < info.indices.size() ? concat(" (record ", info.indices[at], ")") : std::string());
    }
  }
}

at::Tensor as_one_hot(const at::Tensor& labels, std::int64_t num_classes, at::ScalarType dtype, const BatchInfo& info,
                      std::string_view name) {
  check<DataError>(labels.defined() && labels.dim() == 1 && at::isIntegralType(labels.scalar_type(), false),
                   concat("data.", name), "expected targets [N] of class numbers, got ",
                   labels.defined()
                       ? concat("shape [", join(labels.sizes()), "] of type ", c10::toString(labels.scalar_type()))
                       : std::string("none"));
  if (labels.is_cpu()) {
    check_labels(labels, num_classes, info, name);
  }
  at::Tensor out = at::zeros({labels.size(0), num_classes}, labels.options().dtype(dtype));
  return out.scatter_(1, labels.to(at::kLong).unsqueeze(1), 1);
}

// Returns targets as floating-point probabilities.
at::Tensor probabilities(const Batch& batch, std::int64_t num_classes, const BatchInfo& info, std::string_view name) {
  const at::Tensor& target = batch.target;
  if (target.defined() && target.dim() == 2 && target.is_floating_point() &&
      (num_classes == 0 || target.size(1) == num_classes)) {
    return target;
  }
  check<DataError>(num_classes > 0, concat("data.", name),
                   "expected targets [N, classes] of probabilities since num_classes is not given, got ",
                   target.defined()
                       ? concat("shape [", join(target.sizes()), "] of type ", c10::toString(target.scalar_type()))
                       : std::string("none"));
  return as_one_hot(target, num_classes, at::kFloat, info, name);
}

at::Tensor mixed(const at::Tensor& tensor, double weight) {
  const at::Tensor from = tensor.contiguous();
  return from.roll(1, 0).mul_(1.0 - weight).add_(from.mul(weight));
}

void check_options(const MixOptions& options, std::string_view name) {
  check<ConfigError>(options.alpha > 0.0 && std::isfinite(options.alpha), concat("data.", name),
                     "expected an alpha above 0, got ", options.alpha);
  check<ConfigError>(options.num_classes >= 0, concat("data.", name), "expected num_classes of at least 0, got ",
                     options.num_classes);
}

// Both transforms mix samples of the batch, so they check the targets here.
void check_targets(const Batch& batch, std::string_view name) {
  check<DataError>(!batch.target.defined() || batch.target.dim() == 0 || batch.target.size(0) == batch.size(),
                   concat("data.", name), "expected as many targets as inputs (", batch.size(), "), got ",
                   batch.target.defined() && batch.target.dim() > 0 ? batch.target.size(0) : 0);
}

}  // namespace

Transform one_hot(std::int64_t num_classes, c10::ScalarType dtype) {
  check<ConfigError>(num_classes > 0, "data.one_hot", "expected at least one class, got ", num_classes);
  return [num_classes, dtype](Batch batch, const BatchInfo& info) {
    batch.target = as_one_hot(batch.target, num_classes, dtype, info, "one_hot");
    return batch;
  };
}

Transform mixup(MixOptions options) {
  check_options(options, "mixup");
  return [options](Batch batch, const BatchInfo& info) {
    check_targets(batch, "mixup");
    check<DataError>(batch.input.is_floating_point(), "data.mixup", "expected floating point inputs, got ",
                     c10::toString(batch.input.scalar_type()), "; put to_float() or normalize() before it");
    const at::Tensor labels = probabilities(batch, options.num_classes, info, "mixup");
    const double weight = Keys(info, "mixup").batch_random().beta(options.alpha, options.alpha);
    batch.input = mixed(batch.input, weight);
    batch.target = mixed(labels, weight);
    return batch;
  };
}

Transform cutmix(MixOptions options) {
  check_options(options, "cutmix");
  return [options](Batch batch, const BatchInfo& info) {
    const at::Tensor images = detail::images_of(batch, "cutmix");
    check_targets(batch, "cutmix");
    const at::Tensor labels = probabilities(batch, options.num_classes, info, "cutmix");
    const std::int64_t height = images.size(2);
    const std::int64_t width = images.size(3);
    Random random = Keys(info, "cutmix").batch_random();
    const double side = 0.5 * std::sqrt(1.0 - random.beta(options.alpha, options.alpha));
    const std::int64_t x = random.randint(width);
    const std::int64_t y = random.randint(height);
    const auto half_width = static_cast<std::int64_t>(side * static_cast<double>(width));
    const auto half_height = static_cast<std::int64_t>(side * static_cast<double>(height));
    const std::int64_t left = std::max<std::int64_t>(x - half_width, 0);
    const std::int64_t top = std::max<std::int64_t>(y - half_height, 0);
    const std::int64_t box_width = std::min(x + half_width, width) - left;
    const std::int64_t box_height = std::min(y + half_height, height) - top;
    const auto box = [&](const at::Tensor& tensor) {
      return tensor.narrow(2, top, box_height).narrow(3, left, box_width);
    };
    at::Tensor out = images.clone(at::MemoryFormat::Contiguous);
    box(out).copy_(box(images).roll(1, 0));
    const double kept = 1.0 - static_cast<double>(box_width * box_height) / static_cast<double>(width * height);
    batch.target = mixed(labels, kept);
    return detail::with_images(std::move(batch), std::move(out));
  };
}

}  // namespace danling::inline v0::data::transforms
