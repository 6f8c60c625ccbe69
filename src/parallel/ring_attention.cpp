#include <danling/parallel/ring_attention.hpp>

#include <cmath>
#include <string>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <danling/core/error.hpp>

#include <parallel/held_group.hpp>
#include <parallel/ring_blocks.hpp>
#include <parallel/ring_exchange.hpp>

namespace danling::inline v0::parallel {
namespace {

constexpr auto ring_name = "parallel.ring_attention";

/// Keys and values, or their gradients, as one message.
struct RingMessage {
  at::Tensor flat;
  at::Tensor key, value;  ///< views of the message

  RingMessage() = default;
  RingMessage(at::Tensor values, at::IntArrayRef key_sizes, at::IntArrayRef value_sizes) : flat(std::move(values)) {
    const std::int64_t keys = c10::multiply_integers(key_sizes);
    key = flat.narrow(0, 0, keys).view(key_sizes);
    value = flat.narrow(0, keys, flat.numel() - keys).view(value_sizes);
  }
};

struct Ring {
  const Group& group;
  detail::RingLayout layout;
  double scale;

  /// The rank whose keys are here after some steps.
  std::int64_t source(int step) const { return (group.rank() + group.size() - step) % group.size(); }
  std::optional<detail::BlockPair> pair(int step) const {
    return detail::block_pair(layout, group.rank(), source(step));
  }
};

at::Tensor queries(const at::Tensor& tensor, const detail::BlockPair& pair) {
  return tensor.narrow(2, pair.query_begin, pair.query_count);
}

at::Tensor keys(const at::Tensor& tensor, const detail::BlockPair& pair) {
  return tensor.narrow(2, pair.key_begin, pair.key_count);
}

/// LibTorch's kernels read rows of head dim values.
at::Tensor with_whole_rows(const at::Tensor& tensor) { return tensor.stride(3) == 1 ? tensor : tensor.contiguous(); }

detail::BlockOutput attend_ring(const Ring& ring, const at::Tensor& query, RingMessage block) {
  detail::RingExchange exchange(ring.group);
  detail::BlockOutput out;
  for (int step = 0; step < ring.group.size(); ++step) {
    const bool travels = step + 1 < ring.group.size();
    if (travels) {
      exchange.start({block.flat});
    }
    if (const auto pair = ring.pair(step)) {
      const detail::BlockOutput own = detail::attend(queries(query, *pair), keys(block.key, *pair),
                                                     keys(block.value, *pair), pair->is_causal, ring.scale);
      if (step == 0) {
        out = own;
      } else {
        detail::merge({queries(out.values, *pair), queries(out.logsumexp, *pair)}, own);
      }
    }
    if (travels) {
      block = RingMessage(exchange.finish().front(), block.key.sizes(), block.value.sizes());
    }
  }
  return out;
}

/// Gradients of this rank's queries, keys and values. While it computes a pair, it receives the next keys, and the
/// gradients of the current ones with the contributions of earlier ranks.
detail::BlockGradients attend_around_backward(const Ring& ring, const at::Tensor& grad, const at::Tensor& query,
                                              RingMessage block, const detail::BlockOutput& out) {
  const auto wide = query.options().dtype(out.values.scalar_type());
  const at::Tensor output = out.values.to(query.scalar_type());
  const int size = ring.group.size();
  detail::RingExchange exchange(ring.group);
  at::Tensor query_gradients = at::zeros(query.sizes(), wide);
  RingMessage gradients;  // of the current keys and values
  for (int step = 0; step < size; ++step) {
    std::vector<at::Tensor> sent;
    if (step + 1 < size) {
      sent.push_back(block.flat);
    }
    if (step > 0) {
      sent.push_back(gradients.flat);
    }
    exchange.start(sent);
    const auto pair = ring.pair(step);
    detail::BlockGradients own;
    if (pair) {
      own = detail::attend_backward(queries(grad, *pair), queries(query, *pair), keys(block.key, *pair),
                                    keys(block.value, *pair), queries(output, *pair), queries(out.logsumexp, *pair),
                                    pair->is_causal, ring.scale);
      queries(query_gradients, *pair).add_(own.query);
    }
    std::vector<at::Tensor> received = exchange.finish();
    gradients = RingMessage(step > 0 ? received.back() : at::zeros({block.flat.numel()}, wide), block.key.sizes(),
                            block.value.sizes());
    if (pair) {
      keys(gradients.key, *pair).add_(own.key);
      keys(gradients.value, *pair).add_(own.value);
    }
    if (step + 1 < size) {
      block = RingMessage(received.front(), block.key.sizes(), block.value.sizes());
    }
  }
  exchange.start({gradients.flat});
  gradients = RingMessage(exchange.finish().front(), block.key.sizes(), block.value.sizes());
  return {query_gradients, gradients.key, gradients.value};
}

struct RingAttend : torch::autograd::Function<RingAttend> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value, const Group& group, bool is_causal, bool balanced, double scale) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Ring ring = {group, {is_causal, balanced, query.size(2), key.size(2)}, scale};
    const RingMessage block(at::cat({key.flatten(), value.flatten()}), key.sizes(), value.sizes());
    const detail::BlockOutput out = attend_ring(ring, with_whole_rows(query), block);
    const at::Tensor output = out.values.to(query.scalar_type());
    context->save_for_backward({query, key, value, output, out.logsumexp});
    context->saved_data["group"] = detail::hold_group(group);
    context->saved_data["is_causal"] = is_causal;
    context->saved_data["balanced"] = balanced;
    context->saved_data["scale"] = scale;
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list outputs) {
    detail::check_first_derivative(ring_name);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    auto& data = context->saved_data;
    const auto saved = context->get_saved_variables();
    const at::Tensor &query = saved[0], &key = saved[1], &value = saved[2];
    const Ring ring = {detail::held_group(data["group"]),
                       {data["is_causal"].toBool(), data["balanced"].toBool(), query.size(2), key.size(2)},
                       data["scale"].toDouble()};
    const RingMessage block(at::cat({key.flatten(), value.flatten()}), key.sizes(), value.sizes());
    const detail::BlockGradients gradients =
        attend_around_backward(ring, with_whole_rows(outputs[0]), with_whole_rows(query), block,
                               {saved[3].to(detail::accumulate_type(query.scalar_type())), saved[4]});
    const auto type = query.scalar_type();
    return {gradients.query.to(type), gradients.key.to(type), gradients.value.to(type), {}, {}, {}, {}};
  }
};

/// Casts as autocast does for the operator: autocast does not apply inside a custom function.
at::Tensor cast_by_autocast(const at::Tensor& tensor) {
  const auto device = tensor.device().type();
  const bool casts =
      at::autocast::is_autocast_enabled(device) && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
  return casts ? tensor.to(at::autocast::get_autocast_dtype(device)) : tensor;
}

std::string sizes_text(const at::Tensor& tensor) {
  return concat(c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "]");
}

void check_shapes(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const RingAttentionFuncOptions& options) {
  const auto text = [&] {
    return concat("query ", sizes_text(query), ", key ", sizes_text(key), ", value ", sizes_text(value));
  };
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4 || !query.is_floating_point() ||
      key.scalar_type() != query.scalar_type() || value.scalar_type() != query.scalar_type()) {
    fail<DataError>(ring_name, "expected floating [batch, heads, local length, head dim] of one dtype, got ", text());
  }
  if (key.size(0) != query.size(0) || key.size(3) != query.size(3) ||
      !key.sizes().slice(0, 3).equals(value.sizes().slice(0, 3))) {
    fail<DataError>(ring_name, "expected equal batches and head dims, and as many values as keys, got ", text());
  }
  const std::int64_t heads = query.size(1), key_heads = key.size(1);
  if (options.enable_gqa ? key_heads == 0 || heads % key_heads != 0 : heads != key_heads) {
    fail<DataError>(ring_name, "expected ", options.enable_gqa ? "a multiple of the key heads" : "equal heads",
                    ", got ", heads, " query heads and ", key_heads, " key heads",
                    options.enable_gqa ? "" : "; grouped-query attention needs enable_gqa");
  }
  if (options.is_causal && (key.size(2) != query.size(2) || (options.balanced && query.size(2) % 2 != 0))) {
    fail<DataError>(ring_name, "expected as many keys as queries",
                    options.balanced ? ", of the two parts of a balanced sequence" : "", " in causal attention, got ",
                    query.size(2), " queries and ", key.size(2), " keys on each rank");
  }
}

}  // namespace

at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Group& group,
                          const RingAttentionFuncOptions& options) {
  if (group.size() == 1) {
    return at::scaled_dot_product_attention(query, key, value, {}, 0.0, options.is_causal, options.scale,
                                            options.enable_gqa);
  }
  const at::Tensor own_query = cast_by_autocast(query), own_key = cast_by_autocast(key),
                   own_value = cast_by_autocast(value);
  check_shapes(own_query, own_key, own_value, options);
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
  return RingAttend::apply(own_query, own_key, own_value, group, options.is_causal, options.balanced, scale);
}

}  // namespace danling::inline v0::parallel
