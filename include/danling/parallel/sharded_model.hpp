// Fully sharded parameters: each rank keeps some rows of every parameter, and units are whole only while they compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0 {

namespace detail {
class ShardedParameters;
}

struct ShardOptions {
  /// Modules that are gathered as one, each: regular expressions, searched in the name of a module ("layers\\.\\d+$")
  /// and in its type ("TransformerEncoderLayer"). The rest of the model is a unit too, which stays whole from its first
  /// use until the end of the backward pass.
  std::vector<std::string> units = {};
  /// Whether a unit is freed after its forward pass and gathered again for the backward pass, which costs traffic and
  /// saves memory. (FSDP2: reshard_after_forward)
  bool reshard_after_forward = true;
  /// Ranks that have the same rows in other groups, over which gradients are summed too. (HSDP's replicate axis)
  Group replicas = {};
};

/// Parameters of a module, split by rows over the ranks of a group. The module is not wrapped: its parameters keep
/// their sizes, and the first operator of a step that uses one gathers its unit. Gradients are summed over the ranks,
/// each of which gets those of its rows. Before and after a step parameters have no values; an operator that reads
/// one throws, by name. docs/parallel.md shows how. (PyTorch: fully_shard)
///
/// All ranks run the same operators of the model in the same order. For one thread at a time.
class ShardedModel {
 public:
  /// Splits the parameters of rank 0 of `group`, and of `replicas`, from which the others get them. Called by all
  /// ranks. The module may be on any device; buffers are left as they are.
  /// @throws ConfigError for a pattern that matches no module, DistributedError when the ranks' models differ,
  ///         StateError for a module that is sharded already, and for parameters that share memory but are not one
  ShardedModel(const std::shared_ptr<torch::nn::Module>& module, const Group& group, const ShardOptions& options = {});
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// Rows of this rank by the names of their parameters: leaves for an optimizer, of 0 rows where the ranks outnumber
  /// the parameter's. They keep their addresses. After finish_backward() they have gradients.
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  /// Those of one parameter of the module. @throws StateError for another tensor
  at::Tensor rows_of(const at::Tensor& parameter) const;
  /// The same of any ShardedModel; the tensor itself where it is not sharded.
  static at::Tensor trained(const at::Tensor& parameter);
  /// First row and number of rows of this rank, of a parameter with as many rows.
  std::pair<std::int64_t, std::int64_t> row_range(std::int64_t rows) const;
  /// Names of the units, with the number of values in each; the rest of the model is "".
  std::vector<std::pair<std::string, std::int64_t>> units() const;

  /// While one lives, operators may use the parameters: forward and backward pass. May be nested.
  class Step {
   public:
    explicit Step(ShardedModel& model);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    std::shared_ptr<detail::ShardedParameters> parameters_;
  };

  /// Whether backward passes sum gradients over ranks as they come; else they stay whole, in this rank's memory, until
  /// a pass for which it is true. (FSDP2: set_requires_gradient_sync)
  void set_requires_gradient_sync(bool value);
  /// After the backward passes of a window: sums what is left and frees all units. A parameter without a gradient on
  /// any rank gets none. Called by all ranks.
  void finish_backward();
  /// Drops gradients, also those that are not summed yet.
  void zero_grad();

  /// Called before each collective of a step, with its kind ('g' gathers, 'r' reduces) and unit: a program tells ranks
  /// without a batch by it, which follow(). All ranks of the step have one, or none.
  using Announcer = std::function<void(char kind, std::size_t unit)>;
  void set_announcer(Announcer announcer);
  /// Takes part in a collective that the others announced, with zero gradients.
  void follow(char kind, std::size_t unit);

  /// While one lives, the module's parameters have their values and are plain tensors, without gradients. What is
  /// written to them is kept if `writes`. Called by all ranks, outside of steps; may not be nested.
  class Whole {
   public:
    explicit Whole(ShardedModel& model, bool writes = false);
    ~Whole();
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;

   private:
    std::shared_ptr<detail::ShardedParameters> parameters_;
    bool writes_;
  };

 private:
  std::shared_ptr<detail::ShardedParameters> parameters_;
};

}  // namespace danling::inline v0
