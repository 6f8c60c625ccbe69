#include <danling/metrics/losses.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/scalar_tensor.h>

#include <danling/tape/observer.hpp>

#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace {

/// The mean of a loss, with its graph; 0 without items, so that no gradient becomes nan.
at::Tensor loss_mean(const at::Tensor& value) {
  check<MetricError>(value.defined(), "losses.compute", "expected a loss, got an undefined tensor");
  if (value.dim() == 0) {
    return value;
  }
  return value.numel() == 0 ? value.sum() : value.mean();
}

/// A replay would not compute the number again.
void refuse_number() { tape::mark_unrecordable("a loss is a number of the program; return a tensor"); }

}  // namespace

at::Tensor detail::number_tensor() {
  at::Tensor out = at::scalar_tensor(0.0, at::kDouble);
  out.unsafeGetTensorImpl()->set_wrapped_number(true);
  return out;
}

MetricValue detail::over_samples(const MetricValue& value, std::int64_t samples) {
  const auto* tensor = std::get_if<at::Tensor>(&value.get());
  if (tensor == nullptr || (tensor->defined() && tensor->numel() == 1)) {
    return value;
  }
  if (!tensor->defined() || tensor->numel() != samples) {
    fail<MetricError>("batch_metric.compute", "expected one value per sample, ", samples,
                      ", or one for the batch, got ", tensor_text(*tensor));
  }
  return MetricValue::per_sample(*tensor);
}

void detail::LossSum::add(const MetricValue& value, double weight, const at::Tensor& weight_tensor) {
  // A loss of weight 0 needs no backward pass if others have a weight, and may be nan.
  if (weight == 0.0 && (total_.defined() || unweighted_.defined())) {
    return;
  }
  at::Tensor mean;
  std::visit(
      [&](const auto& given) {
        using T = std::decay_t<decltype(given)>;
        if constexpr (std::is_same_v<T, double>) {
          refuse_number();
          number_ += weight == 0.0 ? 0.0 : weight * given;
        } else if constexpr (std::is_same_v<T, at::Tensor>) {
          mean = loss_mean(given);
        } else if constexpr (std::is_same_v<decltype(given.sum), double>) {
          refuse_number();
          number_ += given.n > 0 && weight != 0.0 ? weight * given.sum / static_cast<double>(given.n) : 0.0;
        } else if constexpr (std::is_same_v<decltype(given.n), at::Tensor>) {
          mean = given.sum.div(given.n.clamp_min(1));
        } else {
          mean = given.sum.div(std::max<std::int64_t>(given.n, 1));
        }
      },
      value.get());
  if (mean.defined() && weight == 0.0) {
    unweighted_ = mean;
  } else if (mean.defined()) {
    const at::Tensor weighted = weight == 1.0             ? mean
                                : weight_tensor.defined() ? mean.mul(weight_tensor)
                                                          : mean.mul(weight);
    total_ = total_.defined() ? total_.add(weighted) : weighted;
  }
}

at::Tensor detail::LossSum::take() {
  if (!total_.defined() && unweighted_.defined()) {
    total_ = unweighted_.mul(0.0);
  }
  if (!total_.defined()) {
    return at::scalar_tensor(number_);
  }
  return number_ == 0.0 ? total_ : total_.add(number_);
}

double detail::finite_weight(const std::string& name, double weight) {
  check<MetricError>(std::isfinite(weight), "losses.weight", "expected a finite weight of ", quote(name), ", got ",
                     weight);
  return weight;
}

Result detail::loss_pairs(const Result& values, const std::vector<double>& weights) {
  Result pairs;
  auto weight = weights.begin();
  for (const auto& [name, value] : values) {
    const auto* number = std::get_if<double>(&value);
    pairs.set(name,
              std::vector<double>{*weight++, number != nullptr ? *number : std::numeric_limits<double>::quiet_NaN()});
  }
  return pairs;
}

LossesBase::~LossesBase() = default;
Losses::~Losses() = default;

std::int64_t PredictionBatch::size() const {
  const at::Tensor& rows = target.defined() ? target : prediction;
  return rows.defined() && rows.dim() > 0 ? rows.size(0) : 1;
}

Losses::Losses(std::vector<Entry> losses)
    : BatchLosses<PredictionBatch>([&] {
        std::vector<BatchLosses<PredictionBatch>::Entry> entries;
        for (auto& entry : losses) {
          entries.emplace_back(std::move(entry.name), std::move(entry.loss));
        }
        return entries;
      }()) {}

}  // namespace danling::inline v0
