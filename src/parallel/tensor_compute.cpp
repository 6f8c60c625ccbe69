// Computations of sliced layers.
#include <ATen/ops/embedding.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/linear.h>

#include <danling/core/error.hpp>
#include <danling/parallel/tensor_functions.hpp>

#include <parallel/tensor_layers.hpp>

namespace danling::inline v0::detail {

using parallel::copy_to_group, parallel::gather_from_group, parallel::gather_sequence, parallel::reduce_from_group,
    parallel::reduce_scatter_sequence, parallel::scatter_to_group;

at::Tensor column_input(const at::Tensor& input, const Group& group, const ColumnLinear& options) {
  return options.sequence_parallel ? gather_sequence(input, group, options.sequence_dim) : copy_to_group(input, group);
}

at::Tensor column_output(const at::Tensor& product, const Group& group, const ColumnLinear& options) {
  return options.gather_output ? gather_from_group(product, group) : product;
}

at::Tensor column_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Group& group,
                         const ColumnLinear& options) {
  const at::Tensor whole = column_input(input, group, options);
  return column_output(torch::nn::functional::linear(whole, weight, bias), group, options);
}

at::Tensor row_input(const at::Tensor& input, std::int64_t features, const Group& group, const RowLinear& options) {
  const at::Tensor slice = options.input_is_parallel ? input : scatter_to_group(input, group, -1, options.input_sizes);
  const std::int64_t given = slice.dim() > 0 ? slice.size(-1) : 0;
  check<DataError>(given == features, "parallel.row_linear", "expected the ", features, " inputs of rank ",
                   group.rank(), " of ", group.size(), ", got ", given,
                   "; a whole input needs input_is_parallel(false), heads need the unit of the layer before");
  return slice;
}

at::Tensor row_output(const at::Tensor& product, const Group& group, const RowLinear& options) {
  return options.sequence_parallel ? reduce_scatter_sequence(product, group, options.sequence_dim)
                                   : reduce_from_group(product, group);
}

at::Tensor row_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Group& group,
                      const RowLinear& options) {
  if (group.alone()) {
    return torch::nn::functional::linear(input, weight, bias);
  }
  const at::Tensor slice = row_input(input, weight.size(1), group, options);
  const at::Tensor out = row_output(torch::nn::functional::linear(slice, weight), group, options);
  if (!bias.defined()) {
    return out;
  }
  // Each rank adds the bias to its part of the sequences: its gradients are addends.
  return out + (options.sequence_parallel ? copy_to_group(bias, group) : bias).to(out.scalar_type());
}

at::Tensor vocab_embedding(const at::Tensor& weight, const at::Tensor& indices, std::int64_t padding_idx,
                           const Group& group, const VocabEmbedding& options) {
  if (group.alone()) {
    return at::embedding(weight, indices, padding_idx);
  }
  const std::int64_t rows = weight.size(0), end = options.begin + rows;
  at::Tensor out;
  if (rows == 0) {
    auto sizes = indices.sizes().vec();
    sizes.push_back(weight.size(1));
    // The sum over no rows: builds the graph that the other ranks have.
    out = at::zeros(sizes, weight.options()) + weight.sum();
  } else {
    // The first or last part gets an index out of range; its lookup throws.
    at::Tensor mine = options.begin > 0 ? indices.ge(options.begin) : at::ones_like(indices, at::kBool);
    if (end < options.num_embeddings) {
      mine.logical_and_(indices.lt(end));
    }
    const at::Tensor local = (indices - options.begin).masked_fill_(mine.logical_not(), 0);
    const bool has_padding = padding_idx >= options.begin && padding_idx < end;
    out = at::embedding(weight, local, has_padding ? padding_idx - options.begin : -1);
    out = out.masked_fill(mine.logical_not_().unsqueeze_(-1), 0);
  }
  return options.sequence_parallel ? reduce_scatter_sequence(out, group, options.sequence_dim)
                                   : reduce_from_group(out, group);
}

}  // namespace danling::inline v0::detail
