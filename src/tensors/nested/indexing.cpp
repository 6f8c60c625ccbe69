// Indexing with index tensors and masks: index, index_put_, masked_select, take, gather.
#include <algorithm>
#include <optional>

#include <ATen/ops/_assert_async.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>

#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/shapes.hpp>
#include <tensors/nested/token_index.hpp>

namespace danling::inline v0::detail {
namespace {

using Indices = c10::List<std::optional<at::Tensor>>;

std::vector<at::Tensor> indices_of(Call& call) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& index : call["indices"].toListRef()) {
    out.push_back(index.isNone() ? at::Tensor() : index.toTensor());
  }
  return out;
}

Indices to_indices(const std::vector<at::Tensor>& tensors) {
  Indices out;
  for (const at::Tensor& tensor : tensors) {
    out.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
  }
  return out;
}

bool is_mask(const at::Tensor& index) { return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte; }

/// Returns a mask as a mask of rows or of values. Accepts nested masks and masks of the padded shape's first
/// dimensions; nullopt for other indices.
std::optional<at::Tensor> values_mask(Call& call, const at::Tensor& self, const at::Tensor& index) {
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const auto ragged_rank = static_cast<std::int64_t>(structure.ragged->rank());
  if (const NestedTensorImpl* other = nested(index)) {
    call.expect(is_mask(index), "expected a mask, got a NestedTensor of ", c10::toString(index.scalar_type()));
    call.expect(other->structure().matches(structure), "expected a mask of the same ragged sizes, got ",
                text_of_shapes(*other), " for elements ", text_of_shapes(impl), text_of_layouts(*other, impl));
    call.expect(other->values().sizes() == impl.values().sizes() || other->values().dim() == 1,
                "expected a mask of values or of rows, got ", text_of_shapes(*other));
    return values_of(index).to(at::kBool);
  }
  if (!is_mask(index) || index.dim() < 2) {
    return std::nullopt;
  }
  bool fits = index.dim() <= self.dim();
  for (std::int64_t dim = 0; fits && dim < index.dim(); ++dim) {
    fits = index.size(dim) == self.size(dim);
  }
  for (std::int64_t dim = 0; dim < ragged_rank && index.dim() != self.dim(); ++dim) {
    fits = fits && structure.ragged_dims[static_cast<std::size_t>(dim)] == dim && index.dim() == 1 + ragged_rank;
  }
  call.expect(fits, "expected a mask of the padded shape (", join(self.sizes()),
              "), or of its ragged dimensions, got (", join(index.sizes()), ")");
  return pack(index, structure).to(at::kBool);
}

/// Selects values of each element. Waits for the device, since lengths depend on the mask.
at::Tensor choose(Call& call, const at::Tensor& self, const at::Tensor& mask) {
  const NestedTensorImpl& impl = *nested(self);
  Structure structure = impl.structure();
  const std::int64_t last = structure.ragged_dims.empty() ? -1 : structure.ragged_dims.back();
  if (mask.dim() > 1 && last + 1 != static_cast<std::int64_t>(structure.ragged_dims.size())) {
    // The values of an element are not in the order of its dimensions.
    expect_fallback_allowed(call);
    std::vector<at::Tensor> chosen;
    for (std::int64_t element = 0; element < structure.batch(); ++element) {
      chosen.push_back(at::index(element_of(self, element), to_indices({element_of(mask, structure, element)})));
    }
    call.expect(!chosen.empty(), "expected at least one element to select values from, got none");
    return nest(chosen, structure);
  }
  const at::Tensor by_row = mask.dim() == 1 ? mask.to(at::kLong) : mask.flatten(1).sum(1);
  const at::Tensor ends = by_row.cumsum(0).cpu();
  std::vector<std::int64_t> sizes;
  std::int64_t before = 0;
  for (std::int64_t element = 0; element < structure.batch(); ++element) {
    const std::int64_t row = structure.ragged->begin(element + 1);
    const std::int64_t end = row == 0 ? 0 : ends.const_data_ptr<std::int64_t>()[row - 1];
    sizes.push_back(end - before);
    before = end;
  }
  structure.ragged = std::make_shared<Ragged>(structure.batch(), 1, std::move(sizes));
  structure.ragged_dims = {0};
  return wrap(at::index(values_of(self), to_indices({mask})), std::move(structure));
}

/// Returns the indices along the batch; nullopt if the index covers more than the batch.
std::optional<std::vector<std::int64_t>> batch_index(Call& call, const at::Tensor& self, const at::Tensor& index) {
  const NestedTensorImpl& impl = *nested(self);
  if (!index.defined() || nested(index) != nullptr || index.dim() != 1) {
    return std::nullopt;
  }
  if (!is_mask(index)) {
    return read_index(index);
  }
  call.expect(index.size(0) == impl.structure().batch(), "expected a mask of the batch, ", impl.structure().batch(),
              ", got one of ", index.size(0));
  std::vector<std::int64_t> out;
  const auto flags = read_index(index);
  for (std::size_t at = 0; at < flags.size(); ++at) {
    if (flags[at] != 0) {
      out.push_back(static_cast<std::int64_t>(at));
    }
  }
  return out;
}

/// Converts dimensions of the indices from the tensor's to the values'; nullopt if they index more than static
/// dimensions.
std::optional<std::vector<at::Tensor>> static_indices(const at::Tensor& self, const std::vector<at::Tensor>& indices) {
  const NestedTensorImpl& impl = *nested(self);
  std::vector<at::Tensor> out(static_cast<std::size_t>(impl.values().dim()));
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < indices.size(); ++at) {
    if (!indices[at].defined()) {
      continue;
    }
    const auto dim = impl.structure().element_dim(static_cast<std::int64_t>(at), impl.element_rank());
    const bool plain = nested(indices[at]) == nullptr && (!is_mask(indices[at]) || indices[at].dim() == 1);
    if (!dim || impl.structure().is_ragged(*dim) || !plain || (!places.empty() && places.back() + 1 != at)) {
      return std::nullopt;
    }
    places.push_back(at);
    out[static_cast<std::size_t>(impl.structure().values_dim(*dim))] = indices[at];
  }
  return out;
}

std::size_t count_defined(const std::vector<at::Tensor>& indices) {
  return static_cast<std::size_t>(
      std::count_if(indices.begin(), indices.end(), [](const at::Tensor& index) { return index.defined(); }));
}

void call_index(Call& call) {
  const at::Tensor self = call.tensor("self");
  const auto indices = indices_of(call);
  if (nested(self) == nullptr) {
    // Lookup of table rows by a nested tensor of indices.
    call.expect(indices.size() == 1 && !is_mask(indices[0]),
                "expected a NestedTensor, or numbers of rows of the tensor ", "of shape (", join(self.sizes()),
                "), got other NestedTensors as indices");
    call.finish(wrap(at::index(self, to_indices({values_of(indices[0])})), nested(indices[0])->structure()));
    return;
  }
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const std::size_t defined = count_defined(indices);
  if (defined == 1 && !indices.empty() && indices[0].defined()) {
    if (const auto mask = values_mask(call, self, indices[0])) {
      call.finish(choose(call, self, *mask));
      return;
    }
  }
  if (const auto found = static_indices(self, indices)) {
    const at::Tensor values = at::index(values_of(self), to_indices(*found));
    Structure out = structure;
    // One multi-dimensional index, or several indices, change the number of dimensions before a ragged one.
    const bool shifts = values.dim() != impl.values().dim();
    for (std::size_t at = 0; shifts && at < indices.size(); ++at) {
      const auto dim = structure.element_dim(static_cast<std::int64_t>(at), impl.element_rank());
      call.expect(!indices[at].defined() || structure.ragged_dims.empty() || structure.ragged_dims.back() < *dim,
                  "expected indices after the ragged dimensions, got other ones for elements ", text_of_shapes(impl));
    }
    call.finish(wrap(values, std::move(out)));
    return;
  }
  if (defined == 1) {
    const auto at = static_cast<std::size_t>(
        std::find_if(indices.begin(), indices.end(), [](const at::Tensor& index) { return index.defined(); }) -
        indices.begin());
    const auto dim = structure.element_dim(static_cast<std::int64_t>(at), impl.element_rank());
    if (!dim) {
      if (auto numbers = batch_index(call, self, indices[at])) {
        call.finish(take_along(call, self, std::nullopt, std::move(*numbers)));
        return;
      }
    } else if (nested(indices[at]) == nullptr && !is_mask(indices[at]) && indices[at].dim() == 1) {
      call.finish(take_along(call, self, dim, read_index(indices[at])));
      return;
    }
  }
  if (const auto found = token_indices(call, self, indices)) {
    call.finish(at::index(values_of(self), to_indices(*found)));
    return;
  }
  call.refuse(
      "expected an index of the batch, a mask, an index for the batch and each ragged dimension, or indices of "
      "static dimensions side by side, got ",
      defined, " indices for elements ", text_of_shapes(impl), "; index each of elements()");
}

/// Returns the values to write at a mask: one number, or one per valid position.
at::Tensor plain_values(Call& call, const at::Tensor& values, const at::Tensor& self) {
  if (nested(values) == nullptr) {
    return values;
  }
  call.expect(nested(values)->structure().batch() == nested(self)->structure().batch(), "expected values of ",
              text_of_shapes(*nested(self)), ", got ", text_of_shapes(*nested(values)));
  return values_of(values);
}

void call_index_put(Call& call) {
  const at::Tensor given = call.tensor("self"), values = call.tensor("values");
  call.expect(nested(given) != nullptr, "expected a NestedTensor, got one as an index of a tensor of shape (",
              join(given.sizes()), ")");
  const bool in_place = call.is_in_place(), accumulate = call.boolean("accumulate");
  const at::Tensor self = in_place ? given : given.clone();
  const NestedTensorImpl& impl = *nested(self);
  const auto indices = indices_of(call);
  const auto finish = [&](const at::Tensor& changed) {
    replace_values(self, changed);
    call.finish(self);
  };
  at::Tensor own = values_of(self);
  if (indices.size() == 1 && indices[0].defined()) {
    if (const auto mask = values_mask(call, self, indices[0])) {
      own.index_put_(to_indices({*mask}), plain_values(call, values, self), accumulate);
      finish(own);
      return;
    }
  }
  if (const auto found = static_indices(self, indices)) {
    call.expect(
        values.dim() == 0 || (nested(values) != nullptr && nested(values)->structure().matches(impl.structure())),
        "expected a number, or values for each row, got a tensor of shape (", join(values.sizes()), ")");
    own.index_put_(to_indices(*found), plain_values(call, values, self), accumulate);
    finish(own);
    return;
  }
  if (const auto found = token_indices(call, self, indices)) {
    call.expect(nested(values) == nullptr,
                "expected a plain tensor of values for single tokens, got a NestedTensor of ", text_of_shapes(impl));
    own.index_put_(to_indices(*found), values, accumulate);
    finish(own);
    return;
  }
  const std::size_t batch = static_cast<std::size_t>(impl.structure().batch_dim(impl.element_rank()));
  if (count_defined(indices) == 1 && indices.size() == batch + 1) {
    if (const auto numbers = batch_index(call, self, indices[batch])) {
      for (std::size_t at = 0; at < numbers->size(); ++at) {
        const std::int64_t number = (*numbers)[at], size = impl.structure().batch();
        call.expect(number >= -size && number < size, "expected indices from ", -size, " to ", size - 1, ", got ",
                    number);
        at::Tensor element = element_of(own, impl.structure(), number < 0 ? number + size : number);
        at::Tensor value = values;
        if (nested(values) != nullptr) {
          call.expect(nested(values)->structure().batch() == static_cast<std::int64_t>(numbers->size()), "expected ",
                      numbers->size(), " elements, got ", nested(values)->structure().batch());
          value = element_of(values, static_cast<std::int64_t>(at));
          call.expect(value.sizes() == element.sizes(), "expected elements that keep their shapes, (",
                      join(element.sizes()), "), got (", join(value.sizes()), "); NestedTensor::set can change them");
        }
        accumulate ? element.add_(value) : element.copy_(value);
      }
      finish(own);
      return;
    }
  }
  call.refuse(
      "expected an index of the batch, a mask, an index for the batch and each ragged dimension, or indices of "
      "static dimensions side by side, for elements ",
      text_of_shapes(impl), "; NestedTensor::set writes to each element");
}

/// Unlike LibTorch, which returns one row of all selected values, returns one row per sequence, as specified.
void call_masked_select(Call& call) {
  const at::Tensor self = call.tensor("self"), mask = call.tensor("mask");
  call.expect(nested(self) != nullptr, "expected a NestedTensor, got one as a mask");
  const auto found = values_mask(call, self, mask);
  call.expect(found.has_value(), "expected a mask of the padded shape (", join(self.sizes()), "), got (",
              join(mask.sizes()), ")");
  const NestedTensorImpl& impl = *nested(self);
  at::Tensor whole = *found;
  while (whole.dim() < impl.values().dim()) {
    whole = whole.unsqueeze(-1);
  }
  call.finish(choose(call, self, whole.expand_as(impl.values())));
}

/// take: indexes all values, element by element.
void call_take(Call& call) {
  const at::Tensor self = call.tensor("self"), index = call.tensor("index");
  if (nested(self) == nullptr) {
    call["index"] = values_of(index);
    call.run();
    call.result(0) = wrap(call.result(0).toTensor(), nested(index)->structure());
    return;
  }
  std::vector<at::Tensor> rows;
  for (const at::Tensor& element : elements_of(self)) {
    rows.push_back(element.flatten());
  }
  call.expect(!rows.empty(), "expected at least one element to take values from, got none");
  const at::Tensor all = at::cat(rows);
  call.finish(nested(index) == nullptr ? all.take(index)
                                       : wrap(all.take(values_of(index)), nested(index)->structure()));
}

void call_gather(Call& call) {
  const at::Tensor self = call.tensor("self"), index = call.tensor("index");
  call.expect(nested(self) != nullptr && nested(index) != nullptr,
              "expected a NestedTensor and a nested index, got a plain ", nested(self) == nullptr ? "tensor" : "index",
              "; index({Slice(), -1}) is the last token of each");
  const NestedTensorImpl& impl = *nested(self);
  const NestedTensorImpl& other = *nested(index);
  const auto dim = impl.structure().element_dim(wrapped_dim(call, self, call.integer("dim")), impl.element_rank());
  call.expect(dim && other.element_rank() == impl.element_rank() &&
                  other.structure().batch() == impl.structure().batch() &&
                  other.structure().ragged_dims == impl.structure().ragged_dims,
              "expected a dimension of the elements and an index of their rank, got dimension ", call.integer("dim"),
              " and ", text_of_shapes(other), " for ", text_of_shapes(impl));
  if (!impl.structure().is_ragged(*dim)) {
    call.expect(other.structure().matches(impl.structure()), "expected an index of the same ragged sizes, got ",
                text_of_shapes(other), " for ", text_of_shapes(impl));
    call.finish(wrap(values_of(self).gather(impl.structure().values_dim(*dim), values_of(index)), impl.structure()));
    return;
  }
  call.expect(impl.structure().ragged->rank() == 1, "expected elements of one ragged dimension, got ",
              text_of_shapes(impl));
  // Converts indices within each sequence to row indices.
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(other.values().dim()), 1);
  sizes[0] = -1;
  const at::Tensor elements = other.structure().ragged->elements_on(self.device());
  const at::Tensor offsets = impl.structure().ragged->offsets_on(self.device());
  const at::Tensor begins = offsets.index_select(0, elements).view(sizes);
  const at::Tensor lengths = offsets.index_select(0, elements + 1).view(sizes) - begins;
  const at::Tensor own = values_of(index);
  // An index out of range would read a neighbour's token. At a device LibTorch's asynchronous assertion fails.
  const at::Tensor fits = own.ge(0).logical_and(own.lt(lengths)).all();
  if (fits.is_cpu()) {
    call.expect(fits.item<bool>(), "expected indices within the sizes of elements ", text_of_shapes(impl),
                ", got others");
  } else {
    at::_assert_async(fits, "nested_tensor.gather: expected indices within the sizes of the elements");
  }
  call.finish(wrap(values_of(self).gather(0, own.add(begins)), other.structure()));
}

}  // namespace

void add_indexing(OperatorTable& table) {
  table.add(Way::offsets, call_index, {"index.Tensor"});
  table.add(Way::offsets, call_index_put, {"index_put", "index_put_"});
  table.add(Way::offsets, call_masked_select, {"masked_select"});
  table.add(Way::packed, call_take, {"take"});
  table.add(Way::offsets, call_gather, {"gather"});
}

}  // namespace danling::inline v0::detail
