// All units of a model, and when each is whole: what ShardedModel does, behind the kernels that see its parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/shard_unit.hpp"

namespace torch::nn {
class Module;
}

namespace danling::inline v0 {
struct ShardOptions;
}

namespace danling::inline v0::detail {

class ShardedParameters : public std::enable_shared_from_this<ShardedParameters> {
 public:
  ShardedParameters(torch::nn::Module& module, const Group& group, const ShardOptions& options);
  /// Takes the values away from the module's parameters. Once, when a shared_ptr owns this.
  void hide();

  const Group& group() const { return group_; }
  const std::vector<std::shared_ptr<ShardUnit>>& units() const { return units_; }

  // ---- a step -------------------------------------------------------------------------------------------------------
  void enter_step() { ++steps_; }
  void leave_step();
  bool in_step() const { return steps_ > 0; }
  /// An operator uses a parameter of the unit.
  void use(ShardUnit& unit);
  /// A node that used a parameter of the unit is about to run, or has run.
  void before_node(ShardUnit& unit);
  void set_sync(bool value) { sync_ = value; }
  void set_announcer(std::function<void(char kind, std::size_t unit)> announcer) { announcer_ = std::move(announcer); }
  void follow(char kind, std::size_t unit);
  void finish_backward();
  void zero_grad();

  // ---- outside of steps
  // -----------------------------------------------------------------------------------------------
  void show();
  void hide_again(bool writes);

 private:
  void find_units(torch::nn::Module& module, const ShardOptions& options);
  void watch_gradients();
  void on_gradient(ShardUnit& unit, std::size_t parameter);
  void reduce(ShardUnit& unit);
  void announce(char kind, const ShardUnit& unit) const;
  bool is_root(const ShardUnit& unit) const { return &unit == units_.front().get(); }

  Group group_, replicas_;
  std::vector<std::shared_ptr<ShardUnit>> units_;  // the rest of the model first
  bool reshards_;
  std::int64_t steps_ = 0;
  bool is_shown_ = false;
  bool sync_ = true;
  std::function<void(char kind, std::size_t unit)> announcer_;
  ShardUnit* in_use_ = nullptr;    // the last one, but for the rest of the model
  std::vector<ShardUnit*> order_;  // of their first use in this step: the same on all ranks
  std::size_t reduced_ = 0;        // from the last of `order_`, in this backward pass
};

/// Gives a tensor of the module the keys, and where operators find its values.
void mark_sharded(const at::Tensor& parameter, const std::shared_ptr<ShardedParameters>& owner,
                  const std::shared_ptr<ShardUnit>& unit, std::string_view name, const at::Tensor& whole);
/// Takes the keys away; the tensor then has the memory of `whole`.
void unmark_sharded(const at::Tensor& parameter, const at::Tensor& whole);
bool is_sharded(const at::Tensor& tensor);
/// Rows of this rank; the tensor itself where it is not sharded.
at::Tensor rows_of_sharded(const at::Tensor& parameter);

}  // namespace danling::inline v0::detail
