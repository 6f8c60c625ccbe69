// A unit of sharded parameters, which are gathered, freed and reduced together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <parallel/rows.hpp>

namespace danling::inline v0::detail {

/// The split of parameters, and the dtypes and devices of their parts.
struct ShardLayout {
  RowSplit split{1};
  std::int64_t rank = 0;
  bool plain = false;                                       ///< parameters stay whole: ZeRO-1 and 2, or one rank
  bool offload = false;                                     ///< rows are on the host
  at::ScalarType param_dtype = at::ScalarType::Undefined;   ///< of whole tensors; undefined: that of the rows
  at::ScalarType reduce_dtype = at::ScalarType::Undefined;  ///< of sent gradients; undefined: their dtype
  bool exact = false;  ///< 16-bit gradients are sent in float32: they are sums over some shards
};

struct ShardedParameter {
  std::string name;
  at::Tensor parameter;           ///< parameter of the module: has sizes, but values only if plain
  at::Tensor whole;               ///< a leaf of autograd, whose memory is freed between uses; `parameter` if plain
  at::Tensor rows;                ///< rows of this rank, a leaf for the optimizer; `parameter` if this rank has all
  at::Tensor module_tensor = {};  ///< tensor that the module has during a ShardedModel::FullParameters
  bool has_new = false;           ///< got a gradient since the last reduction, in a pass that sums
};

class ShardUnit {
 public:
  /// Parameters of one dtype, whose rows are sent together.
  struct Pack {
    std::vector<std::size_t> members;
    std::vector<std::size_t> trained;  ///< members that require gradients
    at::Tensor rows = {};              ///< rows of this rank, concatenated and padded to `longest`; if not plain
  };

  /// Takes the parameters' values and keeps the rows of this rank.
  ShardUnit(std::string name, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
            const ShardLayout& layout);

  const std::string& name() const { return name_; }
  const ShardLayout& layout() const { return layout_; }
  std::vector<ShardedParameter>& parameters() { return parameters_; }
  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  std::vector<Pack>& packs() { return packs_; }
  std::int64_t numel() const;
  RowRange range(const ShardedParameter& parameter, std::int64_t rank) const {
    return layout_.split.range(rows_of(parameter.whole), rank);
  }
  /// Number of values in the rows of a rank.
  std::int64_t size_of(const std::vector<std::size_t>& members, std::int64_t rank) const;
  std::int64_t longest(const std::vector<std::size_t>& members) const;

  bool is_whole() const { return is_whole_; }
  /// Allocates memory for the whole tensors, uninitialized.
  void allocate();
  /// The same; `memory_of(index)` returns the memory of a parameter.
  void allocate(const std::function<c10::DataPtr(std::size_t index)>& memory_of);
  /// Frees the memory of the whole tensors. Reading it then throws.
  void release();
  /// Copies this rank's rows from the `module_tensor`s.
  void store_rows();

  /// Returns whether a whole tensor has a gradient since the last reduction or drop.
  bool has_gradients() const;
  /// Returns whether every whole tensor that requires a gradient has a new one.
  bool is_complete() const;
  /// Returns the gradients of the whole tensors and drops them there.
  std::vector<at::Tensor> take_gradients();
  void drop_gradients();
  /// Adds the sum of a pack's gradients to those of the rows. `sum` has the gradients of the trained members,
  /// concatenated, then per member the number of ranks with a gradient. A parameter without a gradient on any rank gets
  /// none. `has`: whether this rank has one.
  void accept(const Pack& pack, const at::Tensor& sum, const std::vector<bool>& has);

 private:
  std::string name_;
  ShardLayout layout_;
  std::vector<ShardedParameter> parameters_;
  std::vector<Pack> packs_;
  bool is_whole_ = false;
};

/// The dtype in which gradients of `dtype` are added.
at::ScalarType sum_dtype(at::ScalarType dtype);
/// The dtype in which gradients of a pack are sent.
at::ScalarType reduce_dtype(const ShardUnit& unit, const ShardUnit::Pack& pack);

}  // namespace danling::inline v0::detail
