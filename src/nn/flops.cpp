#include <nn/flops.hpp>

#include <algorithm>
#include <unordered_map>

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <danling/tensors/nested_tensor.hpp>

namespace danling::inline v0::nn {
namespace {

bool is_tensor(c10::ArrayRef<c10::IValue> inputs, std::size_t i) {
  return i < inputs.size() && inputs[i].isTensor() && inputs[i].toTensor().defined();
}

// The inner dimension of a product whose first factor is argument number `first`.
std::optional<std::int64_t> product(c10::ArrayRef<c10::IValue> inputs, std::size_t first, c10::IntArrayRef sizes) {
  if (!is_tensor(inputs, first)) {
    return std::nullopt;
  }
  return 2 * c10::multiply_integers(sizes) * inputs[first].toTensor().size(-1);
}

std::optional<std::int64_t> convolution(c10::ArrayRef<c10::IValue> inputs, c10::IntArrayRef sizes) {
  if (!is_tensor(inputs, 0) || !is_tensor(inputs, 1)) {
    return std::nullopt;
  }
  const bool transposed = inputs.size() > 6 && inputs[6].isBool() && inputs[6].toBool();
  const auto weight = inputs[1].toTensor().sizes();
  const auto places = (transposed ? inputs[0].toTensor().sizes() : sizes).slice(2);
  return 2 * inputs[0].toTensor().size(0) * c10::multiply_integers(places) * c10::multiply_integers(weight);
}

std::optional<std::int64_t> attention(c10::ArrayRef<c10::IValue> inputs, c10::IntArrayRef) {
  if (!is_tensor(inputs, 0) || !is_tensor(inputs, 1) || !is_tensor(inputs, 2)) {
    return std::nullopt;
  }
  const auto query = inputs[0].toTensor().sizes();  // [batch, heads, length, dim]
  const auto value = inputs[2].toTensor().sizes();
  if (query.size() != 4 || value.size() != 4) {
    return std::nullopt;
  }
  const std::int64_t scores = query[0] * query[1] * query[2] * inputs[1].toTensor().size(2);
  return 2 * scores * (query[3] + value[3]);
}

template <std::size_t first>
std::optional<std::int64_t> product_of(c10::ArrayRef<c10::IValue> inputs, c10::IntArrayRef sizes) {
  return product(inputs, first, sizes);
}

}  // namespace

bool has_nested(c10::ArrayRef<const c10::IValue> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const c10::IValue& input) {
    return input.isTensor() && NestedTensor::is_nested(input.toTensor());
  });
}

FlopFormula flop_formula(std::string_view name) {
  static const std::unordered_map<std::string_view, FlopFormula> formulas = {
      {"aten::mm", product_of<0>},
      {"aten::bmm", product_of<0>},
      {"aten::mv", product_of<0>},
      {"aten::dot", product_of<0>},
      {"aten::mkldnn_linear", product_of<0>},
      {"mkldnn::_linear_pointwise", product_of<0>},
      {"aten::addmm", product_of<1>},
      {"aten::addmv", product_of<1>},
      {"aten::baddbmm", product_of<1>},
      {"aten::_addmm_activation", product_of<1>},
      {"aten::convolution", convolution},
      {"aten::_convolution", convolution},
      {"aten::_scaled_dot_product_flash_attention", attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
      {"aten::_scaled_dot_product_efficient_attention", attention},
      {"aten::_scaled_dot_product_cudnn_attention", attention},
  };
  const auto found = formulas.find(name);
  return found == formulas.end() ? nullptr : found->second;
}

}  // namespace danling::inline v0::nn
