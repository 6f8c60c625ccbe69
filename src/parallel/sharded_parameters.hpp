// All units of a model, and when each is gathered: the implementation of ShardedModel, called by the parameter kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <distributed/tree_sum.hpp>
#include <parallel/sharded_traffic.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0 {
struct ShardOptions;
}

namespace danling::inline v0::detail {

/// Parameters that are gathered together. The first unit is the rest of the model, which may be empty.
struct UnitParameters {
  std::string name;
  std::vector<std::pair<std::string, at::Tensor>> parameters;
};
/// @throws ConfigError for a pattern that matches no module, StateError for parameters that cannot be sharded
std::vector<UnitParameters> find_units(torch::nn::Module& module, const std::vector<std::string>& patterns);
/// @throws ConfigError
void check_options(const ShardOptions& options);

class ShardedParameters : public std::enable_shared_from_this<ShardedParameters> {
 public:
  ShardedParameters(torch::nn::Module& module, const Group& group, const ShardOptions& options);
  /// Removes the values from the module's parameters. Call it once, when a shared_ptr owns this object.
  void hide();

  const Group& group() const { return group_; }
  const RowSplit& split() const { return layout_.split; }
  const std::vector<std::shared_ptr<ShardUnit>>& units() const { return units_; }
  const ShardTraffic* traffic() const { return traffic_.get(); }
  bool casts_inputs() const { return casts_inputs_; }

  // ---- a step -------------------------------------------------------------------------------------------------------
  void enter_step();
  void leave_step();
  bool in_step() const { return steps_ > 0; }
  /// Called before an operator with parameters of the units, and before its backward node.
  void use(const std::vector<ShardUnit*>& together);
  void set_sync(bool value) { sync_ = value; }
  void set_announcer(std::function<void(char kind, std::size_t unit)> announcer) { announcer_ = std::move(announcer); }
  void join_collective(char kind, std::size_t unit);
  void end_shard();
  bool has_missing_shards() const;
  void finish_backward();
  void update_parameters();
  void zero_grad();
  at::Tensor squared_grad_norm() const;
  void abort(std::string_view reason);

  // ---- outside of steps ---------------------------------------------------------------------------------------------
  void enter_full_parameters();
  void leave_full_parameters(bool writes);

 private:
  using Order = std::vector<ShardUnit*>;
  void use(ShardUnit& unit, const Order& together);
  void watch_gradients();
  void on_gradient(ShardUnit& unit, std::size_t parameter);
  void gather(ShardUnit& unit);
  void start_gather(ShardUnit& unit);
  void finish_gather(ShardUnit& unit);
  void release_all();
  void end_gathers();
  void reduce(ShardUnit& unit, std::vector<at::Tensor> gradients);
  void check_unchanged_flags() const;
  void announce(char kind, const ShardUnit& unit) const;
  bool is_root(const ShardUnit& unit) const { return &unit == units_.front().get(); }

  Group group_, replicas_;
  ShardLayout layout_;
  std::unique_ptr<ShardTraffic> traffic_;          // null if this rank has all
  std::vector<std::shared_ptr<ShardUnit>> units_;  // the rest of the model first
  std::vector<std::unique_ptr<TreeSum>> shards_;   // of virtual ranks, one per unit
  std::int64_t shards_of_rank_ = 0;
  bool reshards_;
  bool reduces_at_once_;  // reduces each unit as soon as its gradients are complete
  bool casts_inputs_;
  std::size_t prefetch_;
  std::int64_t steps_ = 0;
  bool has_full_parameters_ = false;
  bool is_stale_ = false;  // rows may have changed, plain parameters not yet
  bool sync_ = true;
  std::function<void(char kind, std::size_t unit)> announcer_;
  ShardUnit* in_use_ = nullptr;      // the last used unit, except the rest of the model
  Order order_;                      // units by first use in this step: the same on all ranks
  std::size_t reduced_ = 0;          // number reduced in this backward pass, from the end of `order_`
  bool has_begun_ = false;           // a parameter was used in this step
  bool has_graph_ = false;           // autograd recorded its first use
  std::vector<ShardUnit*> started_;  // gathers that are not finished
  Order gathers_, before_[2];        // of this step, and of the last step without and with a graph
};

/// Sets the keys of a module's tensor, and the place where operators find its values.
void mark_sharded(const at::Tensor& parameter, const std::shared_ptr<ShardedParameters>& owner,
                  const std::shared_ptr<ShardUnit>& unit, std::string_view name, const at::Tensor& whole);
/// Removes the keys; the tensor then has the memory of `whole`.
void unmark_sharded(const at::Tensor& parameter, const at::Tensor& whole);
/// Records the unit that has the rows of a plain parameter.
void remember_rows(const at::Tensor& parameter, const std::shared_ptr<ShardUnit>& unit);
bool is_sharded(const at::Tensor& tensor);
/// Rows of this rank; the tensor itself if it is not sharded.
at::Tensor rows_of_sharded(const at::Tensor& parameter);

}  // namespace danling::inline v0::detail
