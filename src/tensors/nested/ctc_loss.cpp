// ctc_loss with the sequence lengths of the NestedTensor.
#include <ATen/ops/ctc_loss.h>

#include <vector>

#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

/// Reads lengths as numbers; waits for the device if they are in a tensor there, as LibTorch does.
std::vector<std::int64_t> lengths_in(const c10::IValue& value) {
  return value.isTensor() ? read_index(value.toTensor()) : value.toIntVector();
}

/// Returns the lengths of the sequences; lengths in the arguments must be equal or absent.
std::vector<std::int64_t> own_lengths(Call& call, const char* argument, const at::Tensor& tensor) {
  const std::vector<std::int64_t> own = sizes_along(nested(tensor)->structure(), 0), given = lengths_in(call[argument]);
  call.expect(given.empty() || given == own, "expected ", argument, " (", join(own),
              ") of the NestedTensor, or none, got (", join(given), ")");
  return own;
}

/// Passes padded probabilities to LibTorch's kernel, which reads them up to each length.
void call_ctc_loss(Call& call) {
  const at::Tensor input = call.tensor("log_probs"), targets = call.tensor("targets");
  call.expect(nested(input) != nullptr, "expected a NestedTensor as log_probs, got one as targets alone");
  const NestedTensorImpl& impl = *nested(input);
  call.expect(impl.element_rank() == 2 && impl.structure().ragged_dims == c10::DimVector{0},
              "expected log_probs of elements (length, classes), got ", text_of_shapes(impl));
  const auto input_lengths = own_lengths(call, "input_lengths", input);
  std::vector<std::int64_t> target_lengths;
  at::Tensor labels = targets;
  if (const NestedTensorImpl* own = nested(targets)) {
    call.expect(own->element_rank() == 1 && own->structure().batch() == impl.structure().batch(),
                "expected targets of elements (length), one for each sequence of ", text_of_shapes(impl), ", got ",
                text_of_shapes(*own));
    target_lengths = own_lengths(call, "target_lengths", targets);
    labels = values_of(targets);
  } else {
    target_lengths = lengths_in(call["target_lengths"]);
  }
  Structure structure = impl.structure();
  structure.batch_first = false;
  call.finish(at::ctc_loss(pad(values_of(input), structure, 0), labels, input_lengths, target_lengths,
                           call.integer("blank"), call.integer("reduction"), call.boolean("zero_infinity")));
}

}  // namespace

void add_ctc_loss(OperatorTable& table) { table.add(Way::offsets, call_ctc_loss, {"ctc_loss"}); }

}  // namespace danling::inline v0::detail
