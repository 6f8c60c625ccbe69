// RingAttention: projections before and after ring_attention.
#include <ostream>

#include <danling/core/error.hpp>
#include <danling/parallel/ring_attention.hpp>

#include <parallel/axis_group.hpp>

namespace danling::inline v0::parallel {

RingAttentionImpl::RingAttentionImpl(const RingAttentionOptions& options_) : options(options_) {
  options.num_key_heads = options.num_key_heads == 0 ? options.num_heads : options.num_key_heads;
  check<ConfigError>(options.num_heads > 0 && options.embed_dim > 0 && options.embed_dim % options.num_heads == 0,
                     "parallel.RingAttention", "expected embed_dim to be a multiple of num_heads, got ",
                     options.embed_dim, " and ", options.num_heads);
  check<ConfigError>(options.num_key_heads > 0 && options.num_heads % options.num_key_heads == 0,
                     "parallel.RingAttention", "expected num_heads to be a multiple of num_key_heads, got ",
                     options.num_heads, " and ", options.num_key_heads);
  RingAttentionImpl::reset();
}

void RingAttentionImpl::reset() {
  const std::int64_t head_dim = options.embed_dim / options.num_heads;
  const std::int64_t heads = options.num_heads + 2 * options.num_key_heads;
  qkv = register_module(
      "qkv", torch::nn::Linear(torch::nn::LinearOptions(options.embed_dim, heads * head_dim).bias(options.bias)));
  projection = register_module(
      "projection",
      torch::nn::Linear(torch::nn::LinearOptions(options.embed_dim, options.embed_dim).bias(options.bias)));
}

at::Tensor RingAttentionImpl::forward(const at::Tensor& input, const Rotate& rotate) {
  check<DataError>(input.dim() == 3 && input.size(2) == options.embed_dim, "parallel.RingAttention",
                   "expected [batch, local length, ", options.embed_dim, "], got [", join(input.sizes()), "]");
  const std::int64_t head_dim = options.embed_dim / options.num_heads;
  const at::Tensor all = qkv(input).unflatten(2, {-1, head_dim}).transpose(1, 2);  // [batch, heads, length, head dim]
  at::Tensor query = all.narrow(1, 0, options.num_heads);
  at::Tensor key = all.narrow(1, options.num_heads, options.num_key_heads);
  const at::Tensor value = all.narrow(1, options.num_heads + options.num_key_heads, options.num_key_heads);
  if (rotate) {
    rotate(query, key);
  }
  const at::Tensor out = ring_attention(query, key, value, group_,
                                        {.is_causal = options.is_causal,
                                         .enable_gqa = options.num_key_heads != options.num_heads,
                                         .balanced = options.balanced});
  return projection(out.transpose(1, 2).flatten(2));
}

void RingAttentionImpl::parallelize(const ParallelContext& context) { group_ = detail::axis_group(context, "context"); }

void RingAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "danling::parallel::RingAttention(" << options.embed_dim << ", num_heads=" << options.num_heads
         << ", num_key_heads=" << options.num_key_heads << ", is_causal=" << std::boolalpha << options.is_causal
         << ", ranks=" << group_.size() << ")";
}

}  // namespace danling::inline v0::parallel
