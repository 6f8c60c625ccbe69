// Scatters along a static dimension, and repeat_interleave.
#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

/// Calls the operator on the values, with `dim` converted; all nested arguments have the same rows.
void call_along_static(Call& call) {
  const at::Tensor self = call.tensor("self");
  call.expect(nested(self) != nullptr, "expected a NestedTensor, got one as an index or values of a tensor of shape (",
              join(self.sizes()), ")");
  const NestedTensorImpl& impl = *nested(self);
  const auto dim = impl.structure().element_dim(wrapped_dim(call, self, call.integer("dim")), impl.element_rank());
  call.expect(dim && !impl.structure().is_ragged(*dim), "expected a static dimension, got ", call.integer("dim"),
              " of elements ", text_of_shapes(impl));
  const bool in_place = call.is_in_place();
  for (std::size_t at = 0; at < call.size(); ++at) {
    if (!call[at].isTensor() || !call[at].toTensor().defined()) {
      continue;
    }
    const at::Tensor tensor = call[at].toTensor();
    if (const NestedTensorImpl* other = nested(tensor)) {
      call.expect(other->structure().matches(impl.structure()), "expected NestedTensors of the same ragged sizes, got ",
                  text_of_shapes(impl), " and ", text_of_shapes(*other));
      call[at] = values_of(tensor);
    } else {
      call.expect(tensor.dim() <= 1, "expected NestedTensors or rows of one dimension, got a tensor of shape (",
                  join(tensor.sizes()), ") for elements ", text_of_shapes(impl));
    }
  }
  call["dim"] = impl.structure().values_dim(*dim);
  call.run();
  if (in_place) {
    replace_values(self, call.result(0).toTensor());
    call.result(0) = self;
  } else {
    call.result(0) = wrap(call.result(0).toTensor(), impl.structure());
  }
}

/// Repeats each element, position or value.
void call_repeat_interleave(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const std::int64_t times = call.integers("repeats")->front();
  call.expect(times >= 0 && !call["dim"].isNone(), "expected a dimension and a number of 0 or above, got ", times);
  const auto dim = structure.element_dim(wrapped_dim(call, self, call.integer("dim")), impl.element_rank());
  if (!dim) {
    std::vector<std::int64_t> elements;
    for (std::int64_t at = 0; at < structure.batch() * times; ++at) {
      elements.push_back(at / times);
    }
    call.finish(own_copy(take_elements(self, elements), self));
    return;
  }
  if (!structure.is_ragged(*dim)) {
    call.finish(wrap(values_of(self).repeat_interleave(times, structure.values_dim(*dim)), structure));
    return;
  }
  auto counts = sizes_along(structure, *dim);
  for (std::int64_t& count : counts) {
    count *= times;
  }
  call.finish(
      copy_positions(self, *dim, counts, [&](std::int64_t, std::int64_t position) { return position / times; }));
}

}  // namespace

void add_scatters(OperatorTable& table) {
  table.add(Way::packed, call_along_static,
            {"index_fill", "index_add", "index_copy", "index_reduce", "scatter", "scatter_add", "scatter_reduce"});
  table.add(Way::offsets, call_repeat_interleave, {"repeat_interleave.self_int"});
}

}  // namespace danling::inline v0::detail
