#include <parallel/ring_blocks.hpp>

#include <limits>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

namespace danling::inline v0::parallel::detail {
namespace {

/// LibTorch's kernel requires values with the keys' head dim, and non-empty tensors.
bool has_flash(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const auto type = query.scalar_type();
  return query.device().is_cpu() && (type == at::kDouble || type == at::kFloat || type == at::kBFloat16) &&
         query.size(3) == value.size(3) && query.numel() > 0 && key.numel() > 0;
}

/// Expands [batch, key heads, keys, dim] to the heads of the queries.
at::Tensor expand_heads(const at::Tensor& keys, std::int64_t heads) {
  const std::int64_t own = keys.size(1);
  return own == heads ? keys : keys.unsqueeze(2).expand({-1, -1, heads / own, -1, -1}).flatten(1, 2);
}

at::Tensor sum_heads(const at::Tensor& gradients, std::int64_t heads) {
  const std::int64_t own = gradients.size(1);
  return own == heads ? gradients : gradients.unflatten(1, {heads, own / heads}).sum(2);
}

/// Scaled products in the accumulate dtype; minus infinity for later keys.
at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, bool is_causal, double scale) {
  at::Tensor scores = at::matmul(query, key.transpose(2, 3)).mul_(scale);
  if (is_causal) {
    const at::Tensor later = at::ones({query.size(2), key.size(2)}, query.options().dtype(at::kBool)).triu_(1);
    scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
  }
  return scores;
}

}  // namespace

std::optional<BlockPair> block_pair(const RingLayout& layout, std::int64_t rank, std::int64_t source) {
  BlockPair pair = {.query_count = layout.queries, .key_count = layout.keys};
  if (!layout.is_causal) {
    return pair;
  }
  if (source == rank) {  // both are in order, so the triangle is that of the whole sequence
    pair.is_causal = true;
    return pair;
  }
  if (!layout.balanced) {
    return source < rank ? std::optional(pair) : std::nullopt;
  }
  if (source < rank) {  // its first part comes before both of ours, its second after both
    pair.key_count = layout.keys / 2;
  } else {  // both of its parts come between ours
    pair.query_begin = layout.queries / 2;
    pair.query_count = layout.queries - pair.query_begin;
  }
  return pair;
}

at::ScalarType accumulate_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

BlockOutput attend(const at::Tensor& query, const at::Tensor& few_keys, const at::Tensor& few_values, bool is_causal,
                   double scale) {
  const at::Tensor key = expand_heads(few_keys, query.size(1)), value = expand_heads(few_values, query.size(1));
  const auto type = accumulate_type(query.scalar_type());
  if (has_flash(query, key, value)) {
    const auto [values, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal, {}, scale);
    return {values.to(type), logsumexp};
  }
  at::Tensor scores = scores_of(query.to(type), key.to(type), is_causal, scale);
  const at::Tensor logsumexp = at::logsumexp(scores, 3);
  return {at::matmul(scores.sub_(logsumexp.unsqueeze(3)).exp_(), value.to(type)), logsumexp};
}

void merge(const BlockOutput& into, const BlockOutput& block) {
  // Every query has already attended to its own key, so no sum is empty.
  const at::Tensor all = at::logaddexp(into.logsumexp, block.logsumexp);
  into.values.mul_(at::exp(into.logsumexp - all).unsqueeze(3));
  into.values.addcmul_(block.values, at::exp(block.logsumexp - all).unsqueeze(3));
  into.logsumexp.copy_(all);
}

BlockGradients attend_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& few_keys,
                               const at::Tensor& few_values, const at::Tensor& output, const at::Tensor& logsumexp,
                               bool is_causal, double scale) {
  const at::Tensor key = expand_heads(few_keys, query.size(1)), value = expand_heads(few_values, query.size(1));
  BlockGradients out;
  if (has_flash(query, key, value)) {
    std::tie(out.query, out.key, out.value) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad, query, key, value, output, logsumexp, 0.0, is_causal, {}, scale);
  } else {
    const auto type = accumulate_type(query.scalar_type());
    const at::Tensor wide_query = query.to(type), wide_key = key.to(type), wide_grad = grad.to(type);
    const at::Tensor weights = scores_of(wide_query, wide_key, is_causal, scale).sub_(logsumexp.unsqueeze(3)).exp_();
    out.value = at::matmul(weights.transpose(2, 3), wide_grad);
    const at::Tensor mean = (wide_grad * output).sum(3, /*keepdim=*/true);
    const at::Tensor scores =
        at::matmul(wide_grad, value.to(type).transpose(2, 3)).sub_(mean).mul_(weights).mul_(scale);
    out.query = at::matmul(scores, wide_key);
    out.key = at::matmul(scores.transpose(2, 3), wide_query);
  }
  out.key = sum_heads(out.key, few_keys.size(1));
  out.value = sum_heads(out.value, few_values.size(1));
  return out;
}

}  // namespace danling::inline v0::parallel::detail
