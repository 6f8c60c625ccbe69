// The table of operators that accept nested tensors; kernels and the guide are generated from it.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tensors/nested/call.hpp>

namespace danling::inline v0::detail {

/// Execution of an operator on a nested tensor.
enum class Way {
  packed,   ///< one call on the packed values
  offsets,  ///< per sequence, by a kernel that uses the offsets
  mixed,    ///< packed along static dimensions, one call per element along ragged ones
  fallback  ///< one call per element; throws if fallbacks are forbidden
};

using Handler = void (*)(Call& call);

struct Operator {
  Way way = Way::packed;
  Handler handler = nullptr;
};

/// Handlers by name and overload ("aten::sum.dim_IntList"). Operators with the tag `pointwise` need no entry. All
/// others throw an error with their name.
class OperatorTable {
 public:
  /// Adds a handler for names without "aten::". A name without a point covers all overloads without an entry, and the
  /// in-place variant.
  void add(Way way, Handler handler, std::initializer_list<const char*> names);
  const Operator* find(const c10::OperatorHandle& op) const;

 private:
  std::map<std::string, Operator, std::less<>> entries_;
};

/// Builds the table at the first call.
const OperatorTable& operator_table();
/// Finds an operator in the table or by the tag `pointwise`; unsupported operators have no handler.
Operator find_operator(const c10::OperatorHandle& op);
/// Also for kernels that call per element only if values cannot stay packed.
/// @throws DataError when fallbacks are forbidden
void expect_fallback_allowed(Call& call);

// The parts of the table, one file each.
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

/// Calls the operators that LibTorch composes the call of.
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

/// Calls the operator on packed values: fits each tensor argument to them, and wraps each result with as many rows.
void call_elementwise(Call& call);
/// Calls the operator once per element (Way::fallback), with dimensions counted in the element. Wraps each result in a
/// NestedTensor, or in a plain (batch) tensor if the operator returns scalars.
void call_per_element(Call& call);
/// Unpacked results of call_per_element, by result, then by element. For an empty batch, the results for one element of
/// ones.
struct PerElement {
  std::vector<std::vector<at::Tensor>> results;
  bool empty_batch = false;
};
/// `adapt` changes the arguments of each call.
PerElement run_per_element(Call& call, const std::function<void(std::vector<c10::IValue>&)>& adapt = {});
/// Marks other dimensions as ragged, if sizes differ along no other: equal lengths do not show which dimension is the
/// sequence.
at::Tensor with_ragged_dims(Call& call, const at::Tensor& tensor, const c10::DimVector& ragged_dims);
/// Packs one result. `ragged_dims` are counted in an element; by default those of `like` if the rank is equal, and
/// those whose sizes differ.
at::Tensor nest_results(const PerElement& results, std::size_t which, const NestedTensorImpl& like,
                        std::optional<c10::DimVector> ragged_dims = std::nullopt);
/// Returns the dimension (of an element) with channels or classes: dimension 1 of the tensor, as in torch::nn, or the
/// last one if dimension 1 is the sequence, as in (batch, length, channels).
std::int64_t channel_dim(Call& call, const NestedTensorImpl& input);
/// Registers all kernels at the first call. Thread-safe.
void register_operators();

}  // namespace danling::inline v0::detail
