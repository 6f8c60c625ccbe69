#include <danling/parallel/tensor_layers.hpp>

#include <cmath>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/init.h>

#include <danling/core/error.hpp>
#include <danling/parallel/rank_rng_guard.hpp>
#include <danling/parallel/tensor_functions.hpp>
#include <danling/parallel/topology.hpp>

#include <parallel/tensor_layers.hpp>
#include <parallel/tensor_slices.hpp>

namespace danling::inline v0::parallel {

using danling::detail::slice_parameter;

void ParallelLayer::parallelize(const ParallelContext& context) { parallelize(context, "tensor"); }

void ParallelLayer::parallelize(const ParallelContext& context, std::string_view axis) {
  check<StateError>(!is_sliced_, "parallel.parallelize", "expected a layer that is whole, got a ", name(),
                    " that was parallelized before");
  group_ = context.group(axis);
  if (!group_.alone()) {
    is_sliced_ = true;
    slice(axis);
  }
}

namespace {

/// Initializes as LinearImpl::reset_parameters().
void fill_linear(at::Tensor& weight, at::Tensor& bias) {
  torch::nn::init::kaiming_uniform_(weight, std::sqrt(5));
  if (bias.defined()) {
    const auto [fan_in, fan_out] = torch::nn::init::_calculate_fan_in_and_fan_out(weight);
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    torch::nn::init::uniform_(bias, -bound, bound);
  }
}

void print_linear(std::ostream& stream, std::string_view type, std::int64_t in, std::int64_t out, bool bias,
                  const Group& group, const at::Tensor& weight) {
  stream << type << "(in_features=" << in << ", out_features=" << out << ", bias=" << (bias ? "true" : "false");
  if (!group.alone()) {
    stream << ", weight [" << weight.size(0) << ", " << weight.size(1) << "] of rank " << group.rank() << " of "
           << group.size();
  }
  stream << ")";
}

}  // namespace

// ---- linear ---------------------------------------------------------------------------------------------------------

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const ColumnParallelLinearOptions& of) : options(of) {
  check<ConfigError>(of.unit() > 0 && of.out_features() % of.unit() == 0, "parallel.column_linear",
                     "expected out_features in whole units, got ", of.out_features(), " in units of ", of.unit());
  weight = register_parameter("weight", at::empty({of.out_features(), of.in_features()}));
  bias = register_parameter("bias", of.bias() ? at::empty({of.out_features()}) : at::Tensor(), of.bias());
  fill_linear(weight, bias);
}

void ColumnParallelLinearImpl::slice(std::string_view axis) {
  const auto sizes = part_sizes(options.out_features(), group().size(), options.unit());
  slice_parameter(weight, "weight", group(), axis, 0, sizes);
  if (bias.defined()) {
    slice_parameter(bias, "bias", group(), axis, 0, sizes);
  }
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& input) {
  return danling::detail::column_linear(input, weight, bias, group(),
                                        {.gather_output = options.gather_output(),
                                         .sequence_parallel = options.sequence_parallel(),
                                         .sequence_dim = options.sequence_dim()});
}

void ColumnParallelLinearImpl::pretty_print(std::ostream& stream) const {
  print_linear(stream, "ColumnParallelLinear", options.in_features(), options.out_features(), bias.defined(), group(),
               weight);
}

RowParallelLinearImpl::RowParallelLinearImpl(const RowParallelLinearOptions& of) : options(of) {
  check<ConfigError>(of.unit() > 0 && of.in_features() % of.unit() == 0, "parallel.row_linear",
                     "expected in_features in whole units, got ", of.in_features(), " in units of ", of.unit());
  check<ConfigError>(of.input_is_parallel() || !of.sequence_parallel(), "parallel.row_linear",
                     "expected input_is_parallel with sequence_parallel, got a whole input");
  weight = register_parameter("weight", at::empty({of.out_features(), of.in_features()}));
  bias = register_parameter("bias", of.bias() ? at::empty({of.out_features()}) : at::Tensor(), of.bias());
  fill_linear(weight, bias);
}

void RowParallelLinearImpl::slice(std::string_view axis) {
  sizes_ = part_sizes(options.in_features(), group().size(), options.unit());
  slice_parameter(weight, "weight", group(), axis, 1, sizes_);
  if (bias.defined()) {
    at::Tensor values = bias.detach();
    group().broadcast(values, 0);
  }
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& input) {
  return danling::detail::row_linear(input, weight, bias, group(),
                                     {.input_is_parallel = options.input_is_parallel(),
                                      .sequence_parallel = options.sequence_parallel(),
                                      .sequence_dim = options.sequence_dim(),
                                      .input_sizes = sizes_});
}

void RowParallelLinearImpl::pretty_print(std::ostream& stream) const {
  print_linear(stream, "RowParallelLinear", options.in_features(), options.out_features(), bias.defined(), group(),
               weight);
}

// ---- embedding ------------------------------------------------------------------------------------------------------

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(const VocabParallelEmbeddingOptions& of) : options(of) {
  if (auto& padding = options.padding_idx()) {
    const std::int64_t given = *padding;
    *padding += given < 0 ? of.num_embeddings() : 0;
    check<ConfigError>(*padding >= 0 && *padding < of.num_embeddings(), "parallel.vocab_embedding",
                       "expected a padding_idx of ", of.num_embeddings(), " embeddings, got ", given);
  }
  weight = register_parameter("weight", at::empty({of.num_embeddings(), of.embedding_dim()}));
  torch::nn::init::normal_(weight);
  if (options.padding_idx()) {
    const at::NoGradGuard no_grad;
    weight[*options.padding_idx()].zero_();
  }
}

void VocabParallelEmbeddingImpl::slice(std::string_view axis) {
  const auto sizes = part_sizes(options.num_embeddings(), group().size());
  begin_ = danling::detail::part_offset(sizes, group().rank());
  slice_parameter(weight, "weight", group(), axis, 0, sizes);
}

at::Tensor VocabParallelEmbeddingImpl::forward(const at::Tensor& indices) {
  return danling::detail::vocab_embedding(weight, indices, options.padding_idx().value_or(-1), group(),
                                          {.sequence_parallel = options.sequence_parallel(),
                                           .sequence_dim = options.sequence_dim(),
                                           .begin = begin_,
                                           .num_embeddings = options.num_embeddings()});
}

void VocabParallelEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "VocabParallelEmbedding(num_embeddings=" << options.num_embeddings()
         << ", embedding_dim=" << options.embedding_dim();
  if (options.padding_idx()) {
    stream << ", padding_idx=" << *options.padding_idx();
  }
  if (!group().alone()) {
    stream << ", rows " << begin_ << " to " << begin_ + weight.size(0) << " of rank " << group().rank() << " of "
           << group().size();
  }
  stream << ")";
}

// ---- dropout --------------------------------------------------------------------------------------------------------

ParallelDropoutImpl::ParallelDropoutImpl(double probability) : p(probability) {
  check<ConfigError>(p >= 0 && p <= 1, "parallel.dropout", "expected a probability from 0 to 1, got ", p);
}

void ParallelDropoutImpl::slice(std::string_view) {}

at::Tensor ParallelDropoutImpl::forward(const at::Tensor& input) {
  if (!is_training() || p == 0) {
    return input;
  }
  const RankRNGGuard numbers(group(), input.device());
  return torch::nn::functional::dropout(input, torch::nn::functional::DropoutFuncOptions().p(p).training(true));
}

void ParallelDropoutImpl::pretty_print(std::ostream& stream) const { stream << "ParallelDropout(p=" << p << ")"; }

}  // namespace danling::inline v0::parallel
