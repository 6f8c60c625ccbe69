#include <danling/metrics/functional/perplexity.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <metrics/functional/log_sum_exp.hpp>
#include <metrics/functional/score_values.hpp>
#include <metrics/scalar.hpp>
#include <tensors/ignored.hpp>
#include <tensors/raw.hpp>
#include <tensors/workers.hpp>

namespace danling::inline v0::metrics {
namespace {

constexpr const char* perplexity_where = "metrics.perplexity";

void check_tokens(const at::Tensor& logits, const at::Tensor& target) {
  const bool fits = logits.defined() && target.defined() && logits.is_floating_point() &&
                    at::isIntegralType(target.scalar_type(), /*includeBool=*/false) &&
                    logits.dim() == target.dim() + 1 &&
                    logits.sizes().slice(0, logits.sizes().size() - 1) == target.sizes();
  if (!fits) [[unlikely]] {
    fail<MetricError>(perplexity_where, "expected logits [..., vocabulary] and integer targets [...], got ",
                      danling::detail::tensor_text(logits), " and ", danling::detail::tensor_text(target));
  }
  check<MetricError>(logits.device() == target.device(), perplexity_where,
                     "expected logits and targets on one device, got ", logits.device().str(), " and ",
                     target.device().str());
}

void check_vocabulary(const at::Tensor& labels, std::int64_t vocabulary, std::optional<std::int64_t> ignore_index) {
  const auto* data = labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    if ((data[i] < 0 || data[i] >= vocabulary) && ignore_index != data[i]) {
      fail<MetricError>(perplexity_where, "expected targets from 0 to ", vocabulary - 1, ", got ", data[i],
                        " at position ", i);
    }
  }
}

constexpr std::int64_t scores_per_task = 1 << 15;

// Returns [the sum of -log p, the number of counted targets].
template <class T>
at::Tensor sums_on_host(const at::Tensor& rows, const at::Tensor& labels, std::optional<std::int64_t> ignore_index) {
  const std::int64_t vocabulary = rows.size(1);
  const T* scores = rows.const_data_ptr<T>();
  const auto* label = labels.const_data_ptr<std::int64_t>();
  const auto counts = [&](std::int64_t i) { return ignore_index != label[i]; };
  std::vector<double> losses(static_cast<std::size_t>(rows.size(0)));
  tensors::for_each_range(rows.size(0), scores_per_task / vocabulary + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (counts(i)) {
        const T* row = scores + i * vocabulary;
        const detail::LogSumExp of_row = detail::log_sum_exp(row, vocabulary);
        losses[static_cast<std::size_t>(i)] = of_row.rest + (of_row.highest - static_cast<double>(row[label[i]]));
      }
    }
  });
  at::Tensor out = at::zeros({2}, at::kDouble);
  auto* sums = out.mutable_data_ptr<double>();
  // In row order, independent of the number of threads.
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    if (counts(i)) {
      sums[0] += losses[static_cast<std::size_t>(i)];
      sums[1] += 1.0;
    }
  }
  return out;
}

// The same on any device and for any dtype, with LibTorch's kernels. Works in blocks that fit caches: a copy of all
// logits would double the memory.
at::Tensor sums_by_kernels(const at::Tensor& rows, const at::Tensor& labels, std::optional<std::int64_t> ignore_index) {
  const std::int64_t vocabulary = rows.size(1);
  at::Tensor out = at::zeros({2}, rows.options().dtype(at::kDouble));
  const std::int64_t block_elements = rows.is_cpu() ? std::int64_t{1} << 16 : std::int64_t{1} << 24;
  const std::int64_t block = std::max<std::int64_t>(1, block_elements / vocabulary);
  for (std::int64_t begin = 0; begin < rows.size(0); begin += block) {
    const std::int64_t length = std::min(block, rows.size(0) - begin);
    at::Tensor scores = rows.narrow(0, begin, length);
    if (at::isReducedFloatingType(scores.scalar_type())) {
      scores = scores.to(at::kFloat);
    }
    const at::Tensor label = labels.narrow(0, begin, length);
    const at::Tensor counted = ignore_index ? danling::detail::not_ignored(label, *ignore_index) : at::Tensor();
    const at::Tensor index = label.clamp(0, vocabulary - 1).unsqueeze(1);
    const at::Tensor own = scores.gather(1, index).squeeze(1).to(at::kDouble);
    // Subtract large scores first, then add the small logarithm.
    const at::Tensor highest = scores.amax(1, /*keepdim=*/true);
    at::Tensor loss =
        (scores - highest).exp_().sum(1).to(at::kDouble).log_() + (highest.squeeze(1).to(at::kDouble) - own);
    if (counted.defined()) {
      loss = at::where(counted, loss, 0.0);
    }
    out.select(0, 0).add_(loss.sum());
    counted.defined() ? out.select(0, 1).add_(counted.sum()) : out.select(0, 1).add_(length);
  }
  return out;
}

at::Tensor likelihood_sums(const at::Tensor& logits, const at::Tensor& target,
                           std::optional<std::int64_t> ignore_index) {
  check_tokens(logits, target);
  const c10::NoGradGuard no_grad;
  const std::int64_t vocabulary = logits.size(-1);
  const at::Tensor labels = tensors::raw(target.to(at::kLong)).view(-1);
  if (labels.is_cpu()) {
    check_vocabulary(labels, vocabulary, ignore_index);
  }
  if (logits.numel() == 0) {
    return at::zeros({2}, logits.options().dtype(at::kDouble));
  }
  const at::Tensor rows = logits.detach().reshape({-1, vocabulary});
  if (rows.is_cpu() && rows.scalar_type() == at::kFloat) {
    return sums_on_host<float>(tensors::raw(rows), labels, ignore_index);
  }
  if (rows.is_cpu() && rows.scalar_type() == at::kBFloat16) {
    return sums_on_host<c10::BFloat16>(tensors::raw(rows), labels, ignore_index);
  }
  return sums_by_kernels(rows, labels, ignore_index);
}

}  // namespace

MetricFunc perplexity(const PerplexityOptions& options) {
  const auto sums = std::make_shared<const RunningSums>(RunningSums{
      .key = concat("token likelihood ignoring ", options.ignore_index ? concat(*options.ignore_index) : "nothing"),
      .of_batch = [ignore_index = options.ignore_index](
                      const at::Tensor& logits,
                      const at::Tensor& target) { return likelihood_sums(logits, target, ignore_index); },
      .form = RunningSums::Form{at::kDouble, {2}}});
  MetricFunc out{.name = "perplexity", .sums = {sums}, .logits = true, .higher_is_better = false};
  out.compute = [sums](const MetricState& state) -> MetricValue {
    const at::Tensor total = state.sums(sums);
    if (!total.is_cpu()) {
      return (total.select(0, 0) / total.select(0, 1)).exp();
    }
    const double* data = total.const_data_ptr<double>();
    return std::exp(data[0] / data[1]);
  };
  return out;
}

at::Tensor perplexity(const at::Tensor& logits, const at::Tensor& target, const PerplexityOptions& options) {
  return detail::one_shot(perplexity(options), {logits, target});
}

}  // namespace danling::inline v0::metrics
