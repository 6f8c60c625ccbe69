// A unit of sharded parameters: what is gathered, freed and reduced at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/rows.hpp"

namespace danling::inline v0::detail {

/// How parameters are split, and in which types and places their parts are.
struct ShardLayout {
  RowSplit split{1};
  std::int64_t rank = 0;
  bool plain = false;                                       ///< parameters stay whole, ZeRO-1 and 2; all of one rank do
  bool offload = false;                                     ///< rows are on the host
  at::ScalarType param_dtype = at::ScalarType::Undefined;   ///< of whole tensors; undefined: that of the rows
  at::ScalarType reduce_dtype = at::ScalarType::Undefined;  ///< of gradients on their way; undefined: their own
  bool exact = false;  ///< gradients of 16 bits travel in float32: they are sums of some shards
};

struct ShardedParameter {
  std::string name;
  at::Tensor parameter;   ///< of the module: sizes, but no values, unless it is plain
  at::Tensor whole;       ///< a leaf of autograd, whose memory is freed between uses; `parameter` where it is plain
  at::Tensor rows;        ///< of this rank: a leaf for the optimizer; `parameter` where this rank has all
  at::Tensor shown = {};  ///< what the module has in a ShardedModel::Whole
  bool has_new = false;   ///< whether it got a gradient since the last reduction, in a pass that sums
};

class ShardUnit {
 public:
  /// Parameters of one dtype, whose rows travel together.
  struct Pack {
    std::vector<std::size_t> members;
    std::vector<std::size_t> trained;  ///< those that require gradients
    at::Tensor rows = {};              ///< of this rank, one behind the other, and up to `longest`; if not plain
  };

  /// Takes the values of the parameters, whose rows it keeps.
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
  /// Values of the rows of a rank.
  std::int64_t size_of(const std::vector<std::size_t>& members, std::int64_t rank) const;
  std::int64_t longest(const std::vector<std::size_t>& members) const;

  bool is_whole() const { return is_whole_; }
  /// Allocates memory for the whole tensors, not yet filled.
  void allocate();
  /// The same; `memory_of(index)` is that of a parameter.
  void allocate(const std::function<c10::DataPtr(std::size_t index)>& memory_of);
  /// Frees the memory of the whole tensors. Reading it then throws.
  void release();
  /// Copies the rows of this rank out of the shown tensors.
  void store_rows();

  /// Whether a whole tensor has a gradient since the last reduction or drop.
  bool has_gradients() const;
  /// Whether each one that requires it has a new one.
  bool is_complete() const;
  /// The gradients of the whole tensors, which are dropped.
  std::vector<at::Tensor> take_gradients();
  void drop_gradients();
  /// Adds the sum of a pack's gradients to those of the rows: of its trained members one behind the other, then one
  /// number for each: the ranks that have a gradient. A parameter without gradient on any rank gets none.
  /// `has`: whether this rank has one.
  void accept(const Pack& pack, const at::Tensor& sum, const std::vector<bool>& has);

 private:
  std::string name_;
  ShardLayout layout_;
  std::vector<ShardedParameter> parameters_;
  std::vector<Pack> packs_;
  bool is_whole_ = false;
};

/// A type in which gradients of `dtype` are added.
at::ScalarType sum_dtype(at::ScalarType dtype);
/// The type of gradients of a pack on their way.
at::ScalarType reduce_dtype(const ShardUnit& unit, const ShardUnit::Pack& pack);

}  // namespace danling::inline v0::detail
