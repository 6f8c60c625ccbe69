// A unit of sharded parameters: what is gathered, freed and reduced at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

#include "parallel/rows.hpp"

namespace danling::inline v0::detail {

struct ShardedParameter {
  std::string name;
  at::Tensor parameter;  ///< of the module: sizes, but no values
  at::Tensor whole;      ///< a leaf of autograd; its memory is freed between uses
  at::Tensor rows;       ///< of this rank: a leaf for the optimizer
  bool has_new = false;  ///< whether it got a gradient since the last reduction, in a pass that sums
};

class ShardUnit {
 public:
  /// Takes the values of the parameters, whose rows it keeps.
  ShardUnit(std::string name, const std::vector<std::pair<std::string, at::Tensor>>& parameters, const Group& group,
            const Group& replicas);

  const std::string& name() const { return name_; }
  std::vector<ShardedParameter>& parameters() { return parameters_; }
  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  bool is_whole() const { return is_whole_; }
  std::int64_t numel() const;

  /// Fills the whole tensors. All ranks.
  void gather();
  /// Frees the memory of the whole tensors. Reading it then throws.
  void release();
  /// Sums the gradients of the whole tensors over ranks, adds them to those of the rows, and drops the former. All
  /// ranks. A parameter without gradient on any rank gets none.
  void reduce();
  /// Copies the rows of this rank out of the whole tensors.
  void store_rows();

  /// Whether a whole tensor has a gradient since the last reduction or drop.
  bool has_gradients() const;
  /// Whether each one that requires it has a new one.
  bool is_complete() const;
  void drop_gradients();

 private:
  /// Parameters of one dtype, whose rows lie in one buffer.
  struct Pack {
    std::vector<std::size_t> members;
    at::Tensor rows;  // of this rank, one behind the other
  };
  std::int64_t pack_size(const Pack& pack, std::int64_t rank) const;
  void gather(const Pack& pack);
  void reduce(const Pack& pack);
  void add_gradient(ShardedParameter& parameter, const at::Tensor& sum);

  std::string name_;
  Group group_, replicas_;
  std::vector<ShardedParameter> parameters_;
  std::vector<Pack> packs_;
  bool is_whole_ = false;
};

}  // namespace danling::inline v0::detail
