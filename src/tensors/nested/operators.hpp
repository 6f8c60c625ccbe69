// Which operators take nested tensors, and how: one table, from which the kernels are registered and the guide is made.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensors/nested/call.hpp"

namespace danling::inline v0::detail {

/// How an operator works on a nested tensor.
enum class Way {
  packed,   ///< one call on the packed values
  offsets,  ///< per sequence, by a kernel that knows where each begins
  mixed,    ///< packed along static dimensions, one call per element along ragged ones
  fallback  ///< one call per element; refused where fallbacks are forbidden
};

using Handler = void (*)(Call& call);

struct Operator {
  Way way = Way::packed;
  Handler handler = nullptr;
};

/// By name and overload: "aten::sum.dim_IntList". Operators with the tag `pointwise` need no entry. All others are
/// refused with their names.
class OperatorTable {
 public:
  /// Names without "aten::"; one without a point stands for all overloads that have no entry of their own, and for the
  /// variant in place.
  void add(Way way, Handler handler, std::initializer_list<const char*> names);
  const Operator* find(const c10::OperatorHandle& op) const;

 private:
  std::map<std::string, Operator, std::less<>> entries_;
};

/// Made once.
const OperatorTable& operator_table();
/// From the table, or by the tag `pointwise`; without a handler for those that are refused.
Operator find_operator(const c10::OperatorHandle& op);
/// For a kernel that calls per element only where values cannot stay packed, too.
/// @throws DataError where fallbacks are forbidden
void expect_fallback_allowed(Call& call);

// The parts of the table, a file each.
void add_elementwise(OperatorTable& table);
void add_creation(OperatorTable& table);
void add_matmul(OperatorTable& table);
void add_attention(OperatorTable& table);
void add_einsum(OperatorTable& table);
void add_inspection(OperatorTable& table);
void add_per_token(OperatorTable& table);
void add_views(OperatorTable& table);
void add_permutations(OperatorTable& table);
void add_dims(OperatorTable& table);
void add_slices(OperatorTable& table);
void add_splits(OperatorTable& table);
void add_orders(OperatorTable& table);
void add_joins(OperatorTable& table);
void add_pads(OperatorTable& table);
void add_indexing(OperatorTable& table);
void add_scatters(OperatorTable& table);

/// By the operators that LibTorch composes it of.
void call_composite(Call& call);
void add_reductions(OperatorTable& table);
void add_sorting(OperatorTable& table);
void add_softmax(OperatorTable& table);
void add_comparison(OperatorTable& table);
void add_losses(OperatorTable& table);
void add_convolution(OperatorTable& table);
void add_norms(OperatorTable& table);
void add_recurrent(OperatorTable& table);
void add_fallback(OperatorTable& table);
void add_feature_dropout(OperatorTable& table);
void add_embedding_bag(OperatorTable& table);
void add_distances(OperatorTable& table);
void add_linalg_norms(OperatorTable& table);
void add_ctc_loss(OperatorTable& table);
void add_token_index(OperatorTable& table);

/// On the packed values: each tensor argument is made to fit them, each result with as many rows is wrapped.
void call_elementwise(Call& call);
/// Once for each element, with dimensions counted in the element. Each result becomes a NestedTensor, or a plain tensor
/// of (batch) if the operator gives scalars. Way::fallback.
void call_per_element(Call& call);
/// The same, before the results are packed: by result, then by element. An empty batch gives what one call on an
/// element of ones returns, and the flag.
struct PerElement {
  std::vector<std::vector<at::Tensor>> results;
  bool empty_batch = false;
};
/// `adapt`: changes the arguments of one call.
PerElement run_per_element(Call& call, const std::function<void(std::vector<c10::IValue>&)>& adapt = {});
/// With the dimensions as ragged ones instead, where sizes differ along no other: equal lengths say nothing of which
/// dimension is the sequence's.
at::Tensor with_ragged_dims(Call& call, const at::Tensor& tensor, const c10::DimVector& ragged_dims);
/// Packs one result. `ragged_dims`: of an element; by default those of `like` where the rank is the same, and those
/// along which sizes differ.
at::Tensor nest_results(const PerElement& results, std::size_t which, const NestedTensorImpl& like,
                        std::optional<c10::DimVector> ragged_dims = std::nullopt);
/// Of an element: that of channels or classes, dimension 1 of the tensor as torch::nn counts. Where the sequence is
/// there, as in (batch, length, channels), it is the last one.
std::int64_t channel_dim(Call& call, const NestedTensorImpl& input);
/// Registers all kernels, at the first call. Thread-safe.
void register_operators();

}  // namespace danling::inline v0::detail
