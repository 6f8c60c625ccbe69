#include <danling/metrics/functional/perplexity.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <metrics/functional/score_values.hpp>
#include <metrics/ignored.hpp>
#include <metrics/scalar.hpp>

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

// A kernel of LibTorch takes longer to start than so few scores take by themselves.
constexpr std::int64_t few_scores = 8192;

template <class T>
at::Tensor few_likelihoods(const at::Tensor& rows, const at::Tensor& labels, std::optional<std::int64_t> ignore_index) {
  const T* row = rows.const_data_ptr<T>();
  const auto* label = labels.const_data_ptr<std::int64_t>();
  const std::int64_t vocabulary = rows.size(1);
  at::Tensor out = at::zeros({2}, at::kDouble);
  auto* sums = out.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < rows.size(0); ++i, row += vocabulary) {
    if (ignore_index == label[i]) {
      continue;
    }
    const auto highest = static_cast<double>(*std::max_element(row, row + vocabulary));
    double sum = 0.0;
    for (std::int64_t c = 0; c < vocabulary; ++c) {
      sum += std::exp(static_cast<double>(row[c]) - highest);
    }
    sums[0] += std::log(sum) + (highest - static_cast<double>(row[label[i]]));
    sums[1] += 1.0;
  }
  return out;
}

// [the sum of -log p, how many count]. Rows go through the softmax in blocks that stay in caches: a copy of all logits
// would need as much memory again.
at::Tensor likelihood_sums(const at::Tensor& logits, const at::Tensor& target,
                           std::optional<std::int64_t> ignore_index) {
  check_tokens(logits, target);
  const c10::NoGradGuard no_grad;
  const std::int64_t vocabulary = logits.size(-1);
  const at::Tensor labels = target.to(at::kLong).contiguous().view(-1);
  if (labels.is_cpu()) {
    check_vocabulary(labels, vocabulary, ignore_index);
  }
  if (logits.numel() == 0) {
    return at::zeros({2}, logits.options().dtype(at::kDouble));
  }
  const at::Tensor rows = logits.reshape({-1, vocabulary});
  if (rows.is_cpu() && rows.numel() <= few_scores) {
    return rows.scalar_type() == at::kDouble
               ? few_likelihoods<double>(rows.contiguous(), labels, ignore_index)
               : few_likelihoods<float>(rows.to(at::kFloat).contiguous(), labels, ignore_index);
  }
  at::Tensor out = at::zeros({2}, logits.options().dtype(at::kDouble));
  const std::int64_t block_elements = logits.is_cpu() ? std::int64_t{1} << 16 : std::int64_t{1} << 24;
  const std::int64_t block = std::max<std::int64_t>(1, block_elements / vocabulary);
  for (std::int64_t begin = 0; begin < rows.size(0); begin += block) {
    const std::int64_t length = std::min(block, rows.size(0) - begin);
    at::Tensor scores = rows.narrow(0, begin, length);
    if (at::isReducedFloatingType(scores.scalar_type())) {
      scores = scores.to(at::kFloat);
    }
    const at::Tensor label = labels.narrow(0, begin, length);
    const at::Tensor counted = ignore_index ? detail::not_ignored(label, *ignore_index) : at::Tensor();
    const at::Tensor index = label.clamp(0, vocabulary - 1).unsqueeze(1);
    const at::Tensor own = scores.gather(1, index).squeeze(1).to(at::kDouble);
    // Large scores are subtracted before they meet the logarithm, which is small. LibTorch's log-softmax is twice as
    // fast, but adds tens of thousands of terms in a row: of CPUs with short vectors it costs the fifth digit.
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
