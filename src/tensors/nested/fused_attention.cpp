#include <tensors/nested/fused_attention.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/SDPBackend.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <danling/core/error.hpp>

#include <tensors/nested/blocks.hpp>
#include <tensors/nested/product.hpp>
#include <tensors/nested/scores.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Returns contiguous rows, as the kernels expect.
at::Tensor packed_rows(const at::Tensor& values) { return tensors::raw(values); }

// ---- CUDA: one call for all sequences -------------------------------------------------------------------------------

/// (rows, heads, size).
at::Tensor with_heads(const at::Tensor& values) { return values.dim() == 3 ? values : values.unsqueeze(1); }

bool same_are_empty(const Ragged& a, const Ragged& b) {
  for (std::int64_t element = 0; element < a.batch(); ++element) {
    if ((a.rows_of(element) == 0) != (b.rows_of(element) == 0)) {
      return false;
    }
  }
  return true;
}

AttentionKernel find_cuda_kernel(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                                 const FusedAttention& attention) {
  constexpr std::int64_t most_blocks = 65535;  // limit of a grid's second and third dimension
  const auto type = queries.scalar_type();
  const bool half = type == at::kHalf || type == at::kBFloat16;
  const std::int64_t size = queries.size(-1), own = values.size(-1), step = half ? 8 : 4;
  // The kernels align a causal mask to the last position, LibTorch's mask to the first.
  const bool fits = (half || type == at::kFloat) && size % step == 0 && own % step == 0 && size > 0 && own > 0 &&
                    attention.queries->batch() <= most_blocks && with_heads(queries).size(1) <= most_blocks &&
                    std::max(queries.size(0), keys.size(0)) <= std::numeric_limits<std::int32_t>::max() &&
                    (!attention.is_causal || same(attention.queries, attention.keys)) &&
                    (attention.queries == attention.keys || same_are_empty(*attention.queries, *attention.keys));
  if (!fits) {
    return AttentionKernel::none;
  }
  // Checks the GPU and the program's settings with a batch of one sequence.
  const auto batch = [](const at::Tensor& x) { return with_heads(x.detach()).transpose(0, 1).unsqueeze(0); };
  const auto choice = static_cast<at::SDPBackend>(at::_fused_sdp_choice(
      batch(queries), batch(keys), batch(values), {}, attention.dropout, attention.is_causal, attention.scale));
  const at::Context& context = at::globalContext();
  const bool flash = choice == at::SDPBackend::flash_attention || choice == at::SDPBackend::cudnn_attention;
  // Larger sizes have no gradient kernel on some GPUs.
  if (flash && half && size == own && size <= 192 && context.userEnabledFlashSDP()) {
    return AttentionKernel::flash;
  }
  const bool efficient = flash || choice == at::SDPBackend::efficient_attention;
  return efficient && context.userEnabledMemEfficientSDP() ? AttentionKernel::efficient : AttentionKernel::none;
}

/// The result and the tensors that backward needs: logsumexp and the random state.
struct Attended {
  at::Tensor out, logsumexp, seed, offset;
};

/// Lengths as arguments of the CUDA kernels.
struct CudaLengths {
  CudaLengths(const FusedAttention& attention, at::Device device)
      : queries(attention.queries->starts_on(device)),
        keys(attention.keys->starts_on(device)),
        longest_query(attention.queries->longest()[0]),
        longest_key(attention.keys->longest()[0]) {}

  at::Tensor queries, keys;
  std::int64_t longest_query, longest_key;
};

Attended attend_on_cuda(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const FusedAttention& attention, bool for_backward) {
  const CudaLengths lengths(attention, q.device());
  if (kernel == AttentionKernel::flash) {
    auto [out, logsumexp, state, unused, mask] = at::_flash_attention_forward(
        with_heads(q), with_heads(k), with_heads(v), lengths.queries, lengths.keys, lengths.longest_query,
        lengths.longest_key, attention.dropout, attention.is_causal, /*return_debug_mask=*/false, attention.scale);
    return {out.view(q.sizes()), logsumexp, state, unused};
  }
  auto [out, logsumexp, seed, offset, longest_query, longest_key] = at::_efficient_attention_forward(
      with_heads(q).unsqueeze(0), with_heads(k).unsqueeze(0), with_heads(v).unsqueeze(0), {}, lengths.queries,
      lengths.keys, lengths.longest_query, lengths.longest_key, attention.dropout, attention.is_causal ? 1 : 0,
      /*compute_log_sumexp=*/for_backward, attention.scale);
  auto sizes = q.sizes().vec();
  sizes.back() = v.size(-1);
  return {out.reshape(sizes), logsumexp, seed, offset};
}

variable_list attend_on_cuda_backward(AttentionKernel kernel, const at::Tensor& gradient, const variable_list& saved,
                                      const FusedAttention& attention) {
  const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &logsumexp = saved[4];
  const CudaLengths lengths(attention, q.device());
  at::Tensor of_q, of_k, of_v;
  if (kernel == AttentionKernel::flash) {
    std::tie(of_q, of_k, of_v) = at::_flash_attention_backward(
        with_heads(gradient), with_heads(q), with_heads(k), with_heads(v), with_heads(out), logsumexp, lengths.queries,
        lengths.keys, lengths.longest_query, lengths.longest_key, attention.dropout, attention.is_causal, saved[5],
        saved[6], attention.scale);
  } else {
    const auto batch = [](const at::Tensor& x) { return with_heads(x).unsqueeze(0); };
    at::Tensor of_bias;
    std::tie(of_q, of_k, of_v, of_bias) = at::_efficient_attention_backward(
        batch(gradient), batch(q), batch(k), batch(v), {}, batch(out), lengths.queries, lengths.keys,
        lengths.longest_query, lengths.longest_key, logsumexp, attention.dropout, saved[5], saved[6],
        attention.is_causal ? 1 : 0, /*bias_requires_grad=*/false, attention.scale);
  }
  return {of_q.reshape(q.sizes()), of_k.reshape(k.sizes()), of_v.reshape(v.sizes())};
}

// ---- CPU: one call for each run -------------------------------------------------------------------------------------

Layout layout_of_sequences(const at::Tensor& values, const RaggedPtr& lengths) {
  Structure structure;
  structure.ragged = lengths;
  structure.ragged_dims = {values.dim() - 2};
  return {structure};
}

/// (count, heads, length, size).
at::Tensor block_with_heads(const at::Tensor& values, const RaggedPtr& lengths, const Run& run) {
  const at::Tensor out = block(values, layout_of_sequences(values, lengths), run.first, run.count);
  return out.dim() == 4 ? out : out.unsqueeze(1);
}

/// Calls `function(run)` for each run that has queries and keys.
void each_run_on_cpu(const at::Tensor& q, const FusedAttention& attention,
                     const std::function<void(const Run&)>& function) {
  const Structure query = *layout_of_sequences(q, attention.queries).structure,
                  key = *layout_of_sequences(q, attention.keys).structure;
  const auto per_row = static_cast<double>(q.numel()) / static_cast<double>(std::max<std::int64_t>(q.size(0), 1));
  const auto work = [&](const Run& run) {
    return per_row * static_cast<double>(run.count * attention.queries->rows_of(run.first)) *
           static_cast<double>(attention.keys->rows_of(run.first));
  };
  each_run_in_parallel(runs_of_equal(attention.queries->batch(), {&query, &key}), true, work, [&](const Run& run) {
    if (attention.queries->rows_of(run.first) > 0 && attention.keys->rows_of(run.first) > 0) {
      function(run);
    }
  });
}

/// Returns logsumexp as (count, heads, length) for the run's rows.
at::Tensor logsumexp_of_run(const at::Tensor& all, const RaggedPtr& lengths, const Run& run) {
  const std::int64_t heads = all.size(1), rows = lengths->rows_of(run.first);
  return all.narrow(0, lengths->begin(run.first), run.count * rows).view({run.count, heads, rows});
}

Attended attend_on_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const FusedAttention& attention) {
  const bool reads_all = attention.queries == attention.keys;
  at::Tensor out = reads_all ? at::empty(q.sizes(), q.options()) : at::zeros(q.sizes(), q.options());
  at::Tensor logsumexp =
      at::empty({q.size(0), with_heads(q).size(1)}, q.options().dtype(at::toOpMathType(q.scalar_type())));
  each_run_on_cpu(q, attention, [&](const Run& run) {
    const auto [own, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        block_with_heads(q, attention.queries, run), block_with_heads(k, attention.keys, run),
        block_with_heads(v, attention.keys, run), 0, attention.is_causal, {}, attention.scale);
    block_with_heads(out, attention.queries, run).copy_(own);
    logsumexp_of_run(logsumexp, attention.queries, run).copy_(sums);
  });
  return {out, logsumexp, {}, {}};
}

variable_list attend_on_cpu_backward(const at::Tensor& gradient, const variable_list& saved,
                                     const FusedAttention& attention) {
  const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &logsumexp = saved[4];
  const auto empty_or_zeros = [&](const at::Tensor& like) {
    return attention.queries == attention.keys ? at::empty_like(like) : at::zeros_like(like);
  };
  const at::Tensor of_q = empty_or_zeros(q), of_k = empty_or_zeros(k), of_v = empty_or_zeros(v);
  each_run_on_cpu(q, attention, [&](const Run& run) {
    const auto queries = [&](const at::Tensor& x) { return block_with_heads(x, attention.queries, run); };
    const auto keys = [&](const at::Tensor& x) { return block_with_heads(x, attention.keys, run); };
    const auto [own_q, own_k, own_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        queries(gradient), queries(q), keys(k), keys(v), queries(out),
        logsumexp_of_run(logsumexp, attention.queries, run), 0, attention.is_causal, {}, attention.scale);
    queries(of_q).copy_(own_q);
    keys(of_k).copy_(own_k);
    keys(of_v).copy_(own_v);
  });
  return {of_q, of_k, of_v};
}

// ---- both -----------------------------------------------------------------------------------------------------------

/// Attends with explicit scores, by operators that support double backward.
at::Tensor attend_by_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const FusedAttention& attention) {
  const Layout queries = layout_of_sequences(q, attention.queries), keys = layout_of_sequences(k, attention.keys);
  const std::int64_t batch = attention.queries->batch(), rank = q.dim();
  std::vector<std::int64_t> lengths;
  for (std::int64_t element = 0; element < batch; ++element) {
    lengths.push_back(attention.queries->rows_of(element));
    lengths.push_back(attention.keys->rows_of(element));
  }
  Structure scores;
  scores.ragged = std::make_shared<Ragged>(batch, 2, std::move(lengths));
  scores.ragged_dims = {rank - 2, rank - 1};
  std::vector<std::int64_t> sizes = q.sizes().vec();
  sizes.pop_back();
  sizes[0] = scores.ragged->rows();
  const at::Tensor products = product(q.mul(attention.scale), queries, k, keys.exchanged(), {scores}, sizes, batch);
  sizes = q.sizes().vec();
  sizes.back() = v.size(-1);
  return product(softmax_in_blocks(products, scores, rank - 1, false), {scores}, v, keys, queries, sizes, batch);
}

struct AttentionPlan : torch::CustomClassHolder {
  FusedAttention attention;
  AttentionKernel kernel = AttentionKernel::none;
};

Attended attend(const AttentionPlan& plan, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                bool for_backward) {
  return plan.kernel == AttentionKernel::cpu ? attend_on_cpu(q, k, v, plan.attention)
                                             : attend_on_cuda(plan.kernel, q, k, v, plan.attention, for_backward);
}

struct Attention : torch::autograd::Function<Attention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const c10::intrusive_ptr<AttentionPlan>& plan) {
    const Attended made = attend(*plan, q, k, v, true);
    context->save_for_backward({q, k, v, made.out, made.logsumexp, made.seed, made.offset});
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return made.out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto plan = c10::static_intrusive_pointer_cast<AttentionPlan>(context->saved_data["plan"].toCapsule());
    const variable_list saved = context->get_saved_variables();
    variable_list out;
    if (c10::GradMode::is_enabled()) {
      out = differentiable_backward(context, plan->attention, saved, gradients[0]);
    } else {
      const at::Tensor gradient = packed_rows(gradients[0]);
      out = plan->kernel == AttentionKernel::cpu
                ? attend_on_cpu_backward(gradient, saved, plan->attention)
                : attend_on_cuda_backward(plan->kernel, gradient, saved, plan->attention);
    }
    out.emplace_back();
    return out;
  }

  static variable_list differentiable_backward(AutogradContext* context, const FusedAttention& attention,
                                               const variable_list& saved, const at::Tensor& gradient) {
    check<DataError>(attention.dropout == 0 && !attention.is_causal, "nested_tensor.attention",
                     "expected no dropout and no causal mask for gradients of gradients, got a fused "
                     "kernel with them; switch fused kernels off before the forward pass: "
                     "at::globalContext().setSDPUseFlash(false) and setSDPUseMemEfficient(false)");
    // Aliases the saved tensors: the same tensor may be queries and keys.
    const variable_list own = {at::alias(saved[0]), at::alias(saved[1]), at::alias(saved[2])};
    variable_list wanted, out(own.size());
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at < own.size(); ++at) {
      if (context->needs_input_grad(at)) {
        wanted.push_back(own[at]);
        places.push_back(at);
      }
    }
    const auto found = torch::autograd::grad({attend_by_scores(own[0], own[1], own[2], attention)}, wanted, {gradient},
                                             /*retain_graph=*/true, /*create_graph=*/true);
    for (std::size_t at = 0; at < found.size(); ++at) {
      out[places[at]] = found[at];
    }
    return out;
  }
};

}  // namespace

bool may_fuse_attention() {
  const at::Context& context = at::globalContext();
  return context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP();
}

AttentionKernel find_attention_kernel(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                                      const FusedAttention& attention) {
  const auto type = queries.scalar_type();
  const bool alike = keys.scalar_type() == type && values.scalar_type() == type && keys.device() == queries.device() &&
                     values.device() == queries.device() && keys.dim() == queries.dim() &&
                     values.dim() == queries.dim() &&
                     (queries.dim() == 2 ||
                      (queries.dim() == 3 && keys.size(1) == queries.size(1) && values.size(1) == queries.size(1))) &&
                     keys.size(-1) == queries.size(-1) && attention.dropout >= 0 && attention.dropout < 1 &&
                     attention.scale > 0 && std::isfinite(attention.scale);
  if (!alike || queries.numel() == 0 || keys.numel() == 0 || values.numel() == 0) {
    return AttentionKernel::none;
  }
  if (queries.is_cuda()) {
    return find_cuda_kernel(queries, keys, values, attention);
  }
  // For short sequences one call per run costs more than explicit products (./dev bench nested).
  constexpr std::int64_t long_enough = 16;
  const bool on_cpu = queries.is_cpu() && attention.dropout == 0 && values.size(-1) == queries.size(-1) &&
                      attention.keys->rows() >= long_enough * attention.keys->batch() &&
                      at::globalContext().userEnabledFlashSDP();
  return on_cpu ? AttentionKernel::cpu : AttentionKernel::none;
}

at::Tensor attend_fused(AttentionKernel kernel, const at::Tensor& queries, const at::Tensor& keys,
                        const at::Tensor& values, const FusedAttention& attention) {
  auto plan = c10::make_intrusive<AttentionPlan>();
  plan->attention = attention;
  plan->kernel = kernel;
  const at::Tensor q = packed_rows(queries), k = packed_rows(keys), v = packed_rows(values);
  if (c10::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad())) {
    return Attention::apply(q, k, v, plan);
  }
  return attend(*plan, q, k, v, false).out;
}

}  // namespace danling::inline v0::detail
