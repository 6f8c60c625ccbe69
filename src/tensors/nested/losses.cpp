// Losses over valid positions: padding of plain targets is ignored, and means divide by the number of valid targets.
#include <utility>

#include <tensors/nested/broadcast.hpp>
#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::int64_t no_reduction = 0;  // at::Reduction::None

/// Returns the structure of the target for logits of `structure`: without the class dimension.
Structure without_dim(const Structure& structure, std::int64_t gone) {
  Structure out = structure;
  for (std::int64_t& dim : out.ragged_dims) {
    dim -= dim > gone ? 1 : 0;
  }
  return out;
}

/// Returns the values of a nested or padded target.
at::Tensor target_values(Call& call, const at::Tensor& target, const Structure& structure,
                         const NestedTensorImpl& input) {
  if (const NestedTensorImpl* own = nested(target)) {
    call.expect(own->structure().matches(structure), "expected a target of the input's lengths ", text_of_shapes(input),
                ", got elements ", text_of_shapes(*own),
                input.structure().batch_first != own->structure().batch_first ? text_of_layouts(input, *own) : "");
    return values_of(target);
  }
  const std::int64_t rank = target.dim() - 1;
  bool fits = rank >= static_cast<std::int64_t>(structure.ragged->rank()) &&
              target.size(structure.batch_dim(rank)) == structure.batch();
  for (std::size_t at = 0; fits && at < structure.ragged_dims.size(); ++at) {
    const std::int64_t dim = structure.ragged_dims[at];
    fits = dim < rank && target.size(structure.tensor_dim(dim, rank)) == structure.ragged->longest()[at];
  }
  call.expect(fits, "expected a target padded to the input's longest sizes, or nested, of its lengths ",
              text_of_shapes(input), ", got one of shape (", join(target.sizes()), ") for an input of shape (",
              join(input.sizes()), ")");
  return pack(target, structure);
}

/// cross_entropy_loss, nll_loss_nd and similar: moves the classes to dimension 1 of the values.
void call_class_loss(Call& call) {
  at::Tensor input = call.tensor("self");
  const at::Tensor target = call.tensor("target");
  call.expect(nested(input) != nullptr || nested(target) != nullptr, "expected a NestedTensor as input or target");
  if (nested(input) == nullptr) {
    // Padded logits (batch, classes, longest...) with nested targets.
    const NestedTensorImpl& own = *nested(target);
    const bool probabilities = !at::isIntegralType(target.scalar_type(), /*includeBool=*/false);
    call.expect(!probabilities && input.dim() == own.dim() + 1 && own.structure().batch_first,
                "expected nested logits, or padded ones (batch, classes, longest...) with nested labels, got (",
                join(input.sizes()), ") with elements ", text_of_shapes(own));
    at::Tensor last = input.movedim(1, -1);
    for (std::int64_t dim = 0; dim < own.dim(); ++dim) {
      call.expect(last.size(dim) == own.size(dim), "expected logits padded to the target's longest sizes, got (",
                  join(input.sizes()), ") with elements ", text_of_shapes(own));
    }
    input = wrap(pack(last, own.structure()), own.structure());
  }
  const NestedTensorImpl& impl = *nested(input);
  const std::int64_t classes =
      nested(call.tensor("self")) == nullptr ? impl.element_rank() - 1 : channel_dim(call, impl);
  const std::int64_t values_dim = impl.structure().values_dim(classes);
  const Structure kept = without_dim(impl.structure(), classes);
  const bool probabilities = target.dim() == input.dim();  // a probability per class
  at::Tensor packed = target_values(call, target, probabilities ? impl.structure() : kept, impl);
  const at::Tensor logits = values_of(input).movedim(values_dim, 1);
  packed = probabilities ? packed.movedim(values_dim, 1) : packed;
  auto expected = logits.sizes().vec();
  if (!probabilities) {
    expected.erase(expected.begin() + 1);
  }
  call.expect(packed.sizes() == c10::IntArrayRef(expected), "expected a target for each position of the input ",
              text_of_shapes(impl), ", got one of shape (", join(target.sizes()), ")");
  const bool whole = call.integer("reduction") != no_reduction;
  call["self"] = logits;
  call["target"] = packed;
  call.run();
  if (!whole) {
    call.result(0) = wrap(call.result(0).toTensor(), kept);
  }
}

/// Losses of vectors along the last dimension: a row of values is a row of a plain batch.
void call_vector_loss(Call& call) {
  const at::Tensor first = call.first_nested();
  const NestedTensorImpl& impl = *nested(first);
  const Structure& structure = impl.structure();
  const bool vectors = impl.values().dim() == 2 && !structure.is_ragged(impl.element_rank() - 1);
  call.expect(vectors, "expected elements of ragged dimensions and one static last one, got ", text_of_shapes(impl));
  for (std::size_t at = 0; at < call.size(); ++at) {
    c10::IValue& value = call[at];
    const bool is_weight = call.schema().arguments()[at].name() == "weight";
    if (value.isTensor() && value.toTensor().defined() && !is_weight) {
      value = target_values(call, value.toTensor(), structure, impl);
    }
  }
  call.run();
  const at::Tensor result = call.result(0).toTensor();
  if (result.dim() > 0) {
    call.result(0) = wrap(result, structure);
  }
}

/// Expands plain tensors to the nested tensor.
void call_broadcast_tensors(Call& call) {
  std::vector<at::Tensor> tensors = call.tensors("tensors");
  const NestedTensorImpl* like = nullptr;
  for (const at::Tensor& tensor : tensors) {
    like = like == nullptr ? nested(tensor) : like;
  }
  call.expect(like != nullptr, "expected a NestedTensor in the list, got none");
  for (at::Tensor& tensor : tensors) {
    if (const NestedTensorImpl* own = nested(tensor)) {
      call.expect(own->structure().matches(like->structure()) && own->values().sizes() == like->values().sizes(),
                  "expected NestedTensors of the same shapes, got elements ", text_of_shapes(*like), " and ",
                  text_of_shapes(*own));
      continue;
    }
    const at::Tensor values = broadcast_to_values(call, tensor, *like);
    tensor = wrap(values.expand(like->values().sizes()), like->structure());
  }
  call.finish(std::vector<c10::IValue>{std::move(tensors)});
}

}  // namespace

void add_losses(OperatorTable& table) {
  table.add(Way::packed, call_class_loss, {"cross_entropy_loss", "nll_loss_nd", "nll_loss", "nll_loss2d"});
  table.add(Way::packed, call_vector_loss,
            {"cosine_embedding_loss", "triplet_margin_loss", "multi_margin_loss", "multilabel_margin_loss",
             "pairwise_distance"});
  table.add(Way::packed, call_broadcast_tensors, {"broadcast_tensors"});
  // One loss per input value; the reduction covers only valid values.
  table.add(Way::packed, call_elementwise,
            {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy",
             "binary_cross_entropy_with_logits", "soft_margin_loss", "poisson_nll_loss", "hinge_embedding_loss",
             "margin_ranking_loss", "log_sigmoid"});
}

}  // namespace danling::inline v0::detail
