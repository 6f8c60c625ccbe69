// softmax and log_softmax: packed along a static dimension, per sequence along a ragged one.
#include <tensors/nested/operators.hpp>
#include <tensors/nested/reduction_plan.hpp>
#include <tensors/nested/scores.hpp>

namespace danling::inline v0::detail {
namespace {

template <at::Tensor (*function)(const at::Tensor&, const Segments&), bool is_logarithm>
void call_softmax(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const Structure structure = impl.structure();
  const auto dim = structure.element_dim(call.integer("dim"), impl.element_rank());
  call.expect(dim.has_value(), "expected a dimension of the elements ", text_of_shapes(impl),
              ", got that of the batch");
  at::Tensor values = values_of(self);
  if (!structure.is_ragged(*dim)) {
    call["self"] = values;
    call["dim"] = structure.values_dim(*dim);
    call.run();
    call.result(0) = wrap(call.result(0).toTensor(), structure);
    return;
  }
  if (call.has("dtype") && !call["dtype"].isNone()) {
    values = values.to(call["dtype"].toScalarType());
  } else if (call.has("half_to_float") && call.boolean("half_to_float")) {
    values = values.to(at::kFloat);
  }
  call.expect(at::isFloatingType(values.scalar_type()), "expected floating values, got ", values.dtype().name());
  if (structure.ragged->rank() > 1) {  // many sequences along the dimension: the rows of each element
    call.finish(wrap(softmax_in_blocks(values, structure, *dim, is_logarithm), structure));
    return;
  }
  const ReductionPlan plan(call, impl, {call.integer("dim")}, false);
  call.finish(wrap(function(values, plan.segments(values.device())), structure));
}

}  // namespace

void add_softmax(OperatorTable& table) {
  table.add(Way::offsets, call_softmax<segment_softmax, false>, {"softmax.int", "_softmax", "special_softmax"});
  table.add(Way::offsets, call_softmax<segment_log_softmax, true>,
            {"log_softmax.int", "_log_softmax", "special_log_softmax"});
}

}  // namespace danling::inline v0::detail
