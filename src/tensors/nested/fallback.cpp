// Operators without a kernel for packed values: one call per element.
#include <algorithm>
#include <array>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>

#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::array<std::string_view, 10> dim_arguments = {"dim",       "dims",    "dim0", "dim1",  "dim2",
                                                            "start_dim", "end_dim", "axis", "axis0", "axis1"};
/// Length of the placeholder element for an empty batch: must be large enough for convolution kernels.
constexpr std::int64_t placeholder_length = 32;

/// Converts dimensions of the tensor to dimensions of an element.
c10::IValue map_dims(Call& call, const c10::IValue& dims, const NestedTensorImpl& impl) {
  const auto map = [&](std::int64_t dim) {
    const auto mapped = impl.structure().element_dim(dim, impl.element_rank());
    call.expect(mapped.has_value(), "expected dimensions of the elements ", text_of_shapes(impl),
                ", got that of the batch: ", dim);
    return *mapped;
  };
  if (dims.isInt()) {
    return map(dims.toInt());
  }
  if (!dims.isIntList()) {
    return dims;
  }
  std::vector<std::int64_t> out;
  for (const std::int64_t dim : dims.toIntVector()) {
    out.push_back(map(dim));
  }
  return out;
}

/// An argument for each element: the elements of its nested tensors, or the same value for all.
class ArgumentByElement {
 public:
  ArgumentByElement(Call& call, const c10::IValue& value, const NestedTensorImpl& first) : value_(value) {
    if (value.isTensor()) {
      add(call, value.toTensor(), first);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        add(call, tensor, first);
      }
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        call.expect(!tensor || nested(*tensor) == nullptr, "expected tensors, got a NestedTensor in a list");
      }
    }
  }

  c10::IValue at(std::int64_t element) const {
    if (values_.empty() || std::none_of(structures_.begin(), structures_.end(), [](auto* s) { return s != nullptr; })) {
      return value_;
    }
    std::vector<at::Tensor> out;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const Structure* structure = structures_[i];
      out.push_back(structure == nullptr ? values_[i]
                    : element < 0        ? placeholder(values_[i], *structure)
                                         : element_of(values_[i], *structure, element));
    }
    return value_.isTensor() ? c10::IValue(out.front()) : c10::IValue(out);
  }
  /// The values of an argument that is one tensor.
  const at::Tensor& values() const { return values_.front(); }

 private:
  void add(Call& call, const at::Tensor& tensor, const NestedTensorImpl& first) {
    const NestedTensorImpl* impl = nested(tensor);
    structures_.push_back(impl == nullptr ? nullptr : &impl->structure());
    values_.push_back(impl == nullptr ? tensor : values_of(tensor));
    call.expect(impl == nullptr || impl->structure().batch() == first.structure().batch(),
                "expected NestedTensors of one number of elements, got elements ", text_of_shapes(first), " and ",
                ShapesText(impl));
  }
  static at::Tensor placeholder(const at::Tensor& values, const Structure& structure) {
    c10::DimVector sizes;
    for (std::int64_t dim = 0; dim < structure.element_rank(values.dim()); ++dim) {
      sizes.push_back(structure.is_ragged(dim) ? placeholder_length : values.size(structure.values_dim(dim)));
    }
    return at::ones(sizes, values.options());
  }

  c10::IValue value_;
  std::vector<at::Tensor> values_;
  std::vector<const Structure*> structures_;
};

}  // namespace

PerElement run_per_element(Call& call, const std::function<void(std::vector<c10::IValue>&)>& adapt) {
  const at::Tensor first = call.first_nested();
  const NestedTensorImpl& impl = *nested(first);
  std::vector<ArgumentByElement> arguments;
  for (std::size_t at = 0; at < call.size(); ++at) {
    const std::string& name = call.schema().arguments()[at].name();
    const bool is_dim = std::find(dim_arguments.begin(), dim_arguments.end(), name) != dim_arguments.end();
    arguments.emplace_back(call, is_dim ? map_dims(call, call[at], impl) : call[at], impl);
  }
  PerElement out;
  out.results.resize(call.num_results());
  out.empty_batch = impl.structure().batch() == 0;
  const bool in_place = call.is_in_place();
  for (std::int64_t element = out.empty_batch ? -1 : 0; element < impl.structure().batch(); ++element) {
    std::vector<c10::IValue> own;
    for (const ArgumentByElement& argument : arguments) {
      own.push_back(argument.at(element));
    }
    if (adapt) {
      adapt(own);
    }
    const std::vector<c10::IValue> results = call.run_with(std::move(own));
    for (std::size_t at = 0; at < out.results.size(); ++at) {
      call.expect(results[at].isTensor(), "expected an operator that returns tensors, got a ", results[at].tagKind());
      out.results[at].push_back(results[at].toTensor());
    }
  }
  if (in_place && nested(call[0].toTensor()) != nullptr) {
    replace_values(call[0].toTensor(), arguments[0].values());
  }
  return out;
}

at::Tensor nest_results(const PerElement& results, std::size_t which, const NestedTensorImpl& like,
                        std::optional<c10::DimVector> ragged_dims) {
  const std::vector<at::Tensor>& elements = results.results.at(which);
  const std::int64_t rank = elements.front().dim();
  if (rank == 0) {
    const at::Tensor out = at::stack(elements);
    return results.empty_batch ? out.narrow(0, 0, 0) : out;
  }
  for (const at::Tensor& element : elements) {
    check<DataError>(element.dim() == rank, "nested_tensor", "expected results of one rank, got shapes (",
                     join(elements.front().sizes()), ") and (", join(element.sizes()), ")");
  }
  if (!ragged_dims && rank == like.element_rank()) {
    // The ragged dimensions must not depend on the lengths of one batch.
    ragged_dims = like.structure().ragged_dims;
    if (!results.empty_batch) {
      bool same_everywhere = true;
      for (const at::Tensor& element : elements) {
        same_everywhere = same_everywhere && element.sizes() == elements.front().sizes();
      }
      for (const std::int64_t dim : same_everywhere ? c10::DimVector() : find_ragged_dims(elements)) {
        if (std::find(ragged_dims->begin(), ragged_dims->end(), dim) == ragged_dims->end()) {
          ragged_dims->push_back(dim);
        }
      }
      std::sort(ragged_dims->begin(), ragged_dims->end());
    }
  }
  const at::Tensor out = nest(elements, like.structure(), std::move(ragged_dims));
  if (!results.empty_batch) {
    return out;
  }
  Structure structure = nested(out)->structure();
  structure.ragged = std::make_shared<Ragged>(0, structure.ragged->rank(), std::vector<std::int64_t>());
  return wrap(nested(out)->values().narrow(0, 0, 0), std::move(structure));
}

at::Tensor with_ragged_dims(Call& call, const at::Tensor& tensor, const c10::DimVector& ragged_dims) {
  const NestedTensorImpl& impl = *nested(tensor);
  const Structure& structure = impl.structure();
  if (structure.ragged_dims == ragged_dims) {
    return tensor;
  }
  const std::vector<at::Tensor> elements = elements_of(tensor);
  for (const std::int64_t dim : structure.ragged_dims) {
    const bool stays = std::find(ragged_dims.begin(), ragged_dims.end(), dim) != ragged_dims.end();
    for (const at::Tensor& element : elements) {
      call.expect(stays || element.size(dim) == elements.front().size(dim),
                  "expected sizes that differ along dimension", ragged_dims.size() > 1 ? "s " : " ", join(ragged_dims),
                  " of the elements alone, got ", text_of_shapes(impl));
    }
  }
  if (!elements.empty()) {
    return nest(elements, structure, ragged_dims);
  }
  c10::DimVector sizes = {0};
  for (std::int64_t dim = 0; dim < impl.element_rank(); ++dim) {
    if (std::find(ragged_dims.begin(), ragged_dims.end(), dim) == ragged_dims.end()) {
      sizes.push_back(structure.is_ragged(dim) ? 0 : impl.values().size(structure.values_dim(dim)));
    }
  }
  Structure own = structure;
  own.ragged = std::make_shared<Ragged>(0, ragged_dims.size(), std::vector<std::int64_t>());
  own.ragged_dims = ragged_dims;
  return wrap(at::empty(sizes, impl.values().options()), std::move(own));
}

void call_per_element(Call& call) {
  const at::Tensor first = call.first_nested();
  const bool in_place = call.is_in_place();
  const PerElement results = run_per_element(call);
  std::vector<c10::IValue> out;
  for (std::size_t at = 0; at < results.results.size(); ++at) {
    out.emplace_back(in_place && at == 0 ? first : nest_results(results, at, *nested(first)));
  }
  call.finish(std::move(out));
}

/// Along a static dimension, one call on the values, whose sizes may change there; along a ragged one, one call per
/// element.
static void call_along_dim(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const Structure structure = impl.structure();
  const auto dim = structure.element_dim(call.integer("dim"), impl.element_rank());
  call.expect(dim.has_value(), "expected a dimension of the elements ", text_of_shapes(impl),
              ", got that of the batch");
  for (std::size_t at = 1; at < call.size(); ++at) {
    call.expect(!call[at].isTensor() || nested(call[at].toTensor()) == nullptr || structure.is_ragged(*dim),
                "expected one NestedTensor, got another as ", call.schema().arguments()[at].name());
  }
  if (structure.is_ragged(*dim)) {
    expect_fallback_allowed(call);
    return call_per_element(call);
  }
  call["self"] = values_of(self);
  call["dim"] = structure.values_dim(*dim);
  call.run();
  for (std::size_t at = 0; at < call.num_results(); ++at) {
    call.result(at) = wrap(call.result(at).toTensor(), structure);
  }
}

void add_fallback(OperatorTable& table) {
  // These are per-element operators without a use in training that justifies a kernel.
  table.add(Way::fallback, call_per_element, {"renorm", "tril", "triu", "im2col"});
  table.add(
      Way::mixed, call_along_dim,
      {"glu", "cumulative_trapezoid.dx", "fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_hfft", "fft_ihfft"});
}

}  // namespace danling::inline v0::detail
