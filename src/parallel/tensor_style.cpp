#include <parallel/tensor_style.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>

#include <danling/core/error.hpp>
#include <danling/parallel/tensor_functions.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::string_view style_name = "parallel.plan";

const ShardMeta* sliced_meta(const c10::IValue& value) {
  const ShardMeta* meta = value.isTensor() ? shard_meta(value.toTensor()) : nullptr;
  return meta != nullptr && meta->style != nullptr && meta->style->is_sliced() ? meta : nullptr;
}

/// The style of an argument; null unless it is the only slice among the first `count`.
const ShardMeta* only_sliced(const c10::IValue* arguments, std::size_t at, std::size_t count) {
  for (std::size_t other = 0; other < count; ++other) {
    if (other != at && sliced_meta(arguments[other]) != nullptr) {
      return nullptr;
    }
  }
  return sliced_meta(arguments[at]);
}

/// If it is sharded too, operators of LibTorch gather it.
at::Tensor plain_weight(const at::Tensor& tensor, const ShardMeta& meta) {
  if (!meta.values.defined()) {
    return without_style(tensor);
  }
  const auto sharded = c10::make_intrusive<ShardMeta>(meta);
  sharded->style = nullptr;
  return make_sharded_view(meta.values, *sharded);
}

[[noreturn]] void refuse_use(const c10::OperatorHandle& op, const ShardMeta& meta) {
  fail<StateError>(style_name, "expected ", quote(meta.name), ", a slice, to be used as its layer does, got ",
                   op.operator_name().name, " of it; write the layer with dl::parallel's, or leave it out of the plan");
}

/// The column style for a product: an embedding of the vocabulary that is also the output layer returns logits of its
/// classes.
std::optional<ColumnLinear> column_of(const ParameterStyle& style) {
  if (style.column || !style.vocab) {
    return style.column;
  }
  return ColumnLinear{.sequence_parallel = style.vocab->sequence_parallel, .sequence_dim = style.vocab->sequence_dim};
}

template <class Product>
at::Tensor styled_product(const c10::OperatorHandle& op, const ShardMeta& meta, const at::Tensor& input,
                          std::int64_t features, const Product& product) {
  const ParameterStyle& style = *meta.style;
  if (const auto column = column_of(style)) {
    // F::linear adds a bias to the result: if the output is gathered, to the whole result.
    return column_output(product(column_input(input, style.group, *column), !column->gather_output), style.group,
                         *column);
  }
  if (!style.row) {
    refuse_use(op, meta);
  }
  return row_output(product(row_input(input, features, style.group, *style.row), false), style.group, *style.row);
}

at::Tensor styled_linear(const c10::OperatorHandle& op, const ShardMeta& any, const c10::IValue* arguments) {
  const ShardMeta* meta = only_sliced(arguments, 1, 3);
  if (meta == nullptr || meta->is_transposed) {
    refuse_use(op, any);
  }
  const at::Tensor weight = plain_weight(arguments[1].toTensor(), *meta);
  const at::Tensor bias = arguments[2].isNone() ? at::Tensor() : arguments[2].toTensor();
  bool has_bias = false;
  at::Tensor out =
      styled_product(op, *meta, arguments[0].toTensor(), weight.size(1), [&](const at::Tensor& input, bool with_bias) {
        has_bias = with_bias;
        return at::linear(input, weight, with_bias ? bias : at::Tensor());
      });
  return bias.defined() && !has_bias ? at::add(out, bias) : out;
}

/// matmul(input, weight^T), as F::linear calls it.
at::Tensor styled_matmul(const c10::OperatorHandle& op, const ShardMeta& any, const c10::IValue* arguments) {
  const ShardMeta* meta = only_sliced(arguments, 1, 2);
  if (meta == nullptr || !meta->is_transposed) {
    refuse_use(op, any);
  }
  const at::Tensor weight = plain_weight(arguments[1].toTensor(), *meta);
  return styled_product(op, *meta, arguments[0].toTensor(), weight.size(0),
                        [&](const at::Tensor& input, bool) { return at::matmul(input, weight); });
}

/// addmm(bias, input, weight^T).
at::Tensor styled_addmm(const c10::OperatorHandle& op, const ShardMeta& any, const c10::IValue* arguments) {
  const ShardMeta* meta = only_sliced(arguments, 2, 3);
  if (meta == nullptr || !meta->is_transposed) {
    refuse_use(op, any);
  }
  const at::Tensor weight = plain_weight(arguments[2].toTensor(), *meta);
  const at::Tensor bias = arguments[0].toTensor();
  const at::Scalar beta = arguments[3].toScalar(), alpha = arguments[4].toScalar();
  bool has_bias = false;
  at::Tensor out =
      styled_product(op, *meta, arguments[1].toTensor(), weight.size(0), [&](const at::Tensor& input, bool with_bias) {
        has_bias = with_bias;
        return with_bias ? at::addmm(bias, input, weight, beta, alpha) : at::mm(input, weight);
      });
  if (has_bias) {
    return out;
  }
  out = alpha.equal(1) ? out : at::mul(out, alpha);
  return at::add(out, beta.equal(1) ? bias : at::mul(bias, beta));
}

at::Tensor styled_embedding(const c10::OperatorHandle& op, const ShardMeta& any, const c10::IValue* arguments) {
  const ShardMeta* meta = only_sliced(arguments, 0, 2);
  if (meta == nullptr || meta->is_transposed || arguments[3].toBool() || arguments[4].toBool()) {
    refuse_use(op, any);
  }
  const ParameterStyle& style = *meta->style;
  const at::Tensor weight = plain_weight(arguments[0].toTensor(), *meta), indices = arguments[1].toTensor();
  if (style.vocab) {
    const std::int64_t padding_idx = style.vocab->padding_idx.value_or(arguments[2].toInt());
    return vocab_embedding(weight, indices, padding_idx, style.group, *style.vocab);
  }
  if (!style.embedding_columns) {
    refuse_use(op, *meta);
  }
  return column_output(at::embedding(weight, indices, arguments[2].toInt()), style.group, *style.embedding_columns);
}

}  // namespace

StyledOperator styled_operator(const c10::OperatorName& name) {
  static constexpr std::array<std::pair<std::string_view, StyledOperator>, 5> known = {
      {{"aten::linear", StyledOperator::linear},
       {"aten::matmul", StyledOperator::matmul},
       {"aten::mm", StyledOperator::matmul},
       {"aten::addmm", StyledOperator::addmm},
       {"aten::embedding", StyledOperator::embedding}}};
  for (const auto& [known_name, kind] : known) {
    if (name.name == known_name) {
      return name.overload_name.empty() ? kind : StyledOperator::unknown_product;
    }
  }
  static constexpr std::array<std::string_view, 12> products = {"aten::bmm",
                                                                "aten::baddbmm",
                                                                "aten::addbmm",
                                                                "aten::mv",
                                                                "aten::addmv",
                                                                "aten::addmm_",
                                                                "aten::bilinear",
                                                                "aten::_trilinear",
                                                                "aten::embedding_bag",
                                                                "aten::_embedding_bag",
                                                                "aten::embedding_renorm_",
                                                                "aten::_scaled_mm"};
  for (const std::string_view product : products) {
    if (name.name == product) {
      return StyledOperator::unknown_product;
    }
  }
  return StyledOperator::none;
}

bool call_styled(StyledOperator kind, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (kind == StyledOperator::none) {
    return false;
  }
  const std::size_t count = op.schema().arguments().size();
  const c10::IValue* arguments = stack->data() + (stack->size() - count);
  const ShardMeta* meta = nullptr;
  for (std::size_t at = 0; at < count && meta == nullptr; ++at) {
    meta = sliced_meta(arguments[at]);
  }
  if (meta == nullptr) {
    return false;
  }
  at::Tensor out;
  switch (kind) {
    case StyledOperator::linear:
      out = styled_linear(op, *meta, arguments);
      break;
    case StyledOperator::matmul:
      out = styled_matmul(op, *meta, arguments);
      break;
    case StyledOperator::addmm:
      out = styled_addmm(op, *meta, arguments);
      break;
    case StyledOperator::embedding:
      out = styled_embedding(op, *meta, arguments);
      break;
    default:
      refuse_use(op, *meta);
  }
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, std::move(out));
  return true;
}

bool sums_gradients(const ShardMeta& meta) { return meta.style != nullptr && meta.style->sums_gradients; }

at::Tensor values_of(const at::Tensor& tensor, const ShardMeta& meta, bool keeps) {
  const at::Tensor values = meta.values.defined() ? meta.values : without_style(tensor);
  const bool sums = !keeps && sums_gradients(meta) && c10::GradMode::is_enabled();
  return sums ? parallel::copy_to_group(values, meta.style->group) : values;
}

bool may_keep_style(const c10::OperatorName& name) {
  static constexpr std::array<std::string_view, 9> known = {
      "aten::t",     "aten::transpose.int", "aten::permute", "aten::numpy_T",   "aten::detach",
      "aten::alias", "aten::_to_copy",      "aten::clone",   "aten::empty_like"};
  return std::find(known.begin(), known.end(), c10::toString(name)) != known.end();
}

KeepsStyle keeps_style(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::string& name = op.operator_name().name;
  const c10::IValue* arguments = stack.data() + (stack.size() - op.schema().arguments().size());
  bool is_transposed = name == "aten::t" || name == "aten::numpy_T";
  if (name == "aten::transpose") {
    is_transposed = (arguments[1].toInt() - arguments[2].toInt()) % 2 != 0;
  } else if (name == "aten::permute") {
    const auto dims = arguments[1].toIntVector();
    is_transposed = !dims.empty() && dims[0] % 2 != 0;
  } else if (name == "aten::detach" || name == "aten::empty_like") {
    // Weight averages are created this way, and replace the parameter through set_data().
    return KeepsStyle::detached;
  }
  return is_transposed ? KeepsStyle::transposed : KeepsStyle::same;
}

void check_unstyled_use(const c10::OperatorHandle& op, const ShardMeta& meta, const at::Tensor& tensor) {
  const bool is_detached = meta.is_detached && !tensor.requires_grad();
  if (c10::GradMode::is_enabled() && meta.style != nullptr && meta.style->is_sliced() && !is_detached) {
    refuse_use(op, meta);
  }
}

}  // namespace danling::inline v0::detail
