// scaled_dot_product_attention of nested tensors: each sequence attends only to its own keys.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <tensors/nested/blocks.hpp>
#include <tensors/nested/fused_attention.hpp>
#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

struct AttentionOptions {
  double dropout = 0;
  bool is_causal = false;
  std::optional<double> scale;
  bool enable_gqa = false;
};

/// Returns the elements of each run as (count, sizes...). Differentiable, with one graph node for all runs.
std::vector<at::Tensor> blocks_of_runs(const at::Tensor& values, const Structure& structure,
                                       const std::vector<Run>& runs) {
  std::vector<std::int64_t> rows;
  for (const Run& run : runs) {
    rows.push_back(run.count * structure.ragged->rows_of(run.first));
  }
  std::vector<at::Tensor> out = values.split_with_sizes(rows);
  const std::int64_t rank = structure.element_rank(values.dim());
  c10::DimVector order = {0};  // from (count, ragged sizes..., static sizes...)
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    order.push_back(structure.is_ragged(dim)
                        ? 1 + static_cast<std::int64_t>(structure.ragged_index(dim))
                        : static_cast<std::int64_t>(structure.ragged->rank()) + structure.values_dim(dim));
  }
  for (std::size_t at = 0; at < runs.size(); ++at) {
    const auto own = structure.ragged->sizes(runs[at].first);
    c10::DimVector sizes = {runs[at].count};
    sizes.insert(sizes.end(), own.begin(), own.end());
    sizes.insert(sizes.end(), values.sizes().begin() + 1, values.sizes().end());
    out[at] = out[at].reshape(sizes).permute(order);
  }
  return out;
}

/// The inverse of blocks_of_runs for one run: (count, sizes...) -> (rows, static sizes...).
at::Tensor rows_of_block(const at::Tensor& full, const Structure& structure) {
  c10::DimVector order = {0}, sizes = {1};
  const std::int64_t rank = full.dim() - 1;
  for (const std::int64_t dim : structure.ragged_dims) {
    order.push_back(dim + 1);
    sizes[0] *= full.size(dim + 1);
  }
  sizes[0] *= full.size(0);
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    if (!structure.is_ragged(dim)) {
      order.push_back(dim + 1);
      sizes.push_back(full.size(dim + 1));
    }
  }
  return full.permute(order).reshape(sizes);
}

/// Selects the part of a mask for a run of sequences with equal lengths.
class Masks {
 public:
  Masks(Call& call, const std::optional<at::Tensor>& mask, const NestedTensorImpl& query, const NestedTensorImpl& key) {
    if (!mask) {
      return;
    }
    const std::int64_t batch = query.structure().batch(), length = query.size(-2), keys = key.size(-2);
    if (const NestedTensorImpl* own = nested(*mask)) {
      impl_ = own;
      call.expect(
          own->structure().batch() == batch && own->element_rank() >= 2 && own->element_rank() <= query.element_rank(),
          "expected a mask with elements (..., length, keys) for each of ", batch, " sequences, got ",
          text_of_shapes(*own));
      values_ = values_of(*mask);
      return;
    }
    const auto fits = [&](std::int64_t from_last, std::int64_t size) {
      return mask->dim() < from_last || mask->size(-from_last) == 1 || mask->size(-from_last) == size;
    };
    bool right = mask->dim() <= query.dim() && fits(1, keys) && fits(2, length) && fits(query.dim(), batch);
    for (std::int64_t dim = 3; dim < query.dim(); ++dim) {
      right = right && fits(dim, query.size(-dim));
    }
    call.expect(right && query.structure().batch_first, "expected a mask that broadcasts to the padded scores, (",
                length, ", ", keys, ") in the last dimensions, got one of shape (", join(mask->sizes()),
                ") for queries ", text_of_shapes(query), " and keys ", text_of_shapes(key));
    plain_ = *mask;
    while (plain_.dim() < query.dim()) {
      plain_ = plain_.unsqueeze(0);
    }
  }

  void split(const std::vector<Run>& runs) {
    if (impl_ != nullptr) {
      parts_ = blocks_of_runs(values_, impl_->structure(), runs);
    }
  }
  const Structure* structure() const { return impl_ == nullptr ? nullptr : &impl_->structure(); }

  std::optional<at::Tensor> of(std::size_t run, const Run& which, const at::Tensor& query,
                               const at::Tensor& key) const {
    if (impl_ != nullptr) {
      at::Tensor part = parts_[run];
      while (part.dim() < query.dim()) {
        part = part.unsqueeze(1);
      }
      return part;
    }
    if (!plain_.defined()) {
      return std::nullopt;
    }
    at::Tensor part = plain_.size(0) == 1 ? plain_ : plain_.narrow(0, which.first, which.count);
    part = part.size(-2) == 1 ? part : part.narrow(-2, 0, query.size(-2));
    return part.size(-1) == 1 ? part : part.narrow(-1, 0, key.size(-2));
  }

 private:
  const NestedTensorImpl* impl_ = nullptr;
  at::Tensor values_, plain_;
  std::vector<at::Tensor> parts_;
};

/// Attends with one CUDA kernel for the packed sequences; returns nullopt if no kernel applies.
std::optional<at::Tensor> attend_packed(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                        const AttentionOptions& options) {
  const Structure &q = nested(query)->structure(), &k = nested(key)->structure(), &v = nested(value)->structure();
  const c10::DimVector ragged_dims = {nested(query)->element_rank() - 2};
  if (!query.is_cuda() || q.ragged_dims != ragged_dims || k.ragged_dims != ragged_dims ||
      v.ragged_dims != ragged_dims || !k.batch_first || !same(k.ragged, v.ragged)) {
    return std::nullopt;
  }
  const at::Tensor queries = values_of(query), keys = values_of(key), values = values_of(value);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(queries.size(-1))));
  const FusedAttention attention = {q.ragged, k.ragged, scale, options.dropout, options.is_causal};
  const AttentionKernel kernel = find_attention_kernel(queries, keys, values, attention);
  return kernel == AttentionKernel::none ? std::nullopt
                                         : std::optional(attend_fused(kernel, queries, keys, values, attention));
}

at::Tensor attend_in_runs(Call& call, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          Masks& masks, const AttentionOptions& options) {
  const Structure &q = nested(query)->structure(), &k = nested(key)->structure(), &v = nested(value)->structure();
  std::vector<const Structure*> structures = {&q, &k, &v};
  if (masks.structure() != nullptr) {
    structures.push_back(masks.structure());
  }
  const std::vector<Run> runs = runs_of_equal(q.batch(), structures);
  masks.split(runs);
  const auto queries = blocks_of_runs(values_of(query), q, runs), keys = blocks_of_runs(values_of(key), k, runs),
             values = blocks_of_runs(values_of(value), v, runs);
  std::vector<at::Tensor> out;
  for (std::size_t at = 0; at < runs.size(); ++at) {
    const at::Tensor &one = queries[at], &own = keys[at], &read = values[at];
    call.expect(own.size(-2) == read.size(-2) && one.size(-1) == own.size(-1),
                "expected keys as long as values and as wide as queries, got queries ", text_of_shapes(*nested(query)),
                ", keys ", text_of_shapes(*nested(key)), ", values ", text_of_shapes(*nested(value)));
    auto sizes = one.sizes().vec();
    sizes.back() = read.size(-1);
    const bool nothing = one.numel() == 0 || own.size(-2) == 0 || read.numel() == 0;
    out.push_back(rows_of_block(
        nothing ? at::zeros(sizes, one.options())  // a sum over no keys
                : at::scaled_dot_product_attention(one, own, read, masks.of(at, runs[at], one, own), options.dropout,
                                                   options.is_causal, options.scale, options.enable_gqa),
        q));
  }
  return out.empty() ? values_of(query) : at::cat(out);
}

void call_attention(Call& call) {
  const at::Tensor query = call.tensor("query"), key = call.tensor("key"), value = call.tensor("value");
  const NestedTensorImpl *q = nested(query), *k = nested(key), *v = nested(value);
  call.expect(q != nullptr && k != nullptr && v != nullptr,
              "expected NestedTensors as query, key and value, got a tensor among them; make it one by nested_like()");
  for (const NestedTensorImpl* one : {q, k, v}) {
    const Structure& structure = one->structure();
    const std::int64_t rank = one->element_rank();
    call.expect(rank >= 2 && !structure.is_ragged(rank - 1) && structure.batch_dim(rank) < rank - 1 &&
                    structure.batch() == q->structure().batch() && rank == q->element_rank(),
                "expected as many elements (heads, length, size) in queries, keys and values, static in the last "
                "dimension and with the batch before the length, got ",
                text_of_shapes(*q), ", ", text_of_shapes(*k), ", ", text_of_shapes(*v));
  }
  AttentionOptions options;
  options.dropout = call["dropout_p"].toDouble();
  options.is_causal = call.boolean("is_causal");
  options.scale = call["scale"].toOptional<double>();
  options.enable_gqa = call.boolean("enable_gqa");
  const auto mask = call["attn_mask"].toOptional<at::Tensor>();
  const bool masked = mask && mask->defined();
  std::optional<at::Tensor> values = masked ? std::nullopt : attend_packed(query, key, value, options);
  if (!values) {
    Masks masks(call, masked ? mask : std::nullopt, *q, *k);
    values = attend_in_runs(call, query, key, value, masks, options);
  }
  call.finish(wrap(std::move(*values), q->structure()));
}

}  // namespace

void add_attention(OperatorTable& table) { table.add(Way::offsets, call_attention, {"scaled_dot_product_attention"}); }

}  // namespace danling::inline v0::detail
