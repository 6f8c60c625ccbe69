// Fully sharded parameters: each rank keeps some rows of every parameter; units are gathered only while they compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
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

/// Dtypes of sharded parameters; undefined dtypes change nothing. (FSDP2: MixedPrecisionPolicy)
struct ShardPrecision {
  /// Dtype of gathered parameters, in which operators compute, and of their gradients. Rows, which an optimizer
  /// updates, keep their dtype.
  at::ScalarType param_dtype = at::ScalarType::Undefined;
  /// Dtype in which gradients are sent; they are added in float32 or wider. Undefined: that of the gradients.
  at::ScalarType reduce_dtype = at::ScalarType::Undefined;
  /// Dtype of the result of `cast_outputs`: C++ modules have no hooks that could convert their outputs.
  at::ScalarType output_dtype = at::ScalarType::Undefined;
  /// Operators with a parameter convert their other floating inputs to param_dtype. (FSDP2 converts the inputs of a
  /// module: the same except for inputs that reach no parameter.)
  bool cast_forward_inputs = true;
};

struct ShardOptions {
  /// Each matching module is a unit, which is gathered at once: regular expressions, searched for in a module's name
  /// ("layers\\.\\d+$") and in its type ("TransformerEncoderLayer"). The rest of the model is a unit too, which stays
  /// gathered from its first use until the end of the backward pass.
  std::vector<std::string> units = {};
  /// Frees a unit after its forward pass and gathers it again for the backward pass: costs traffic and saves memory.
  /// (FSDP2: reshard_after_forward)
  bool reshard_after_forward = true;
  /// Ranks with the same rows in other groups; gradients are summed over them too. (HSDP's replicate axis)
  Group replicas = {};
  /// ZeRO stage: ranks divide the optimizer state (1), also the gradients (2), also the parameters (3). With 1 and 2
  /// parameters are plain tensors of the module, which update_parameters() updates; with 1 gradients are summed at the
  /// end of a window, with 2 unit by unit in the backward pass.
  int stage = 3;
  /// Number of units to gather ahead of the one that computes, in the order of the previous step. Each needs its
  /// memory. No effect with shared memory, where nothing travels.
  std::int64_t prefetch = 1;
  /// `param_dtype` needs stage 3.
  ShardPrecision mixed_precision = {};
  /// Keeps rows, their gradients and thus the optimizer state in pinned host memory, for parameters on a device. Needs
  /// stage 3. (FSDP2: CPUOffloadPolicy)
  bool offload = false;
  /// Number of shards of a window's batch, a power of two; 0: none. Adds the gradients of the shards along one tree, so
  /// that parameters have the same bits for any number of ranks. A rank computes neighbouring shards while
  /// has_missing_shards() is true, and calls end_shard() after each.
  std::int64_t virtual_ranks = 0;
  /// Uses shared memory if all ranks of the group are on one machine and the parameters are on the host.
  bool shared_memory = true;
};

/// Parameters of a module, split by rows over the ranks of a group. The module is not wrapped: its parameters keep
/// their sizes, and the first operator of a step that uses one gathers its unit. Gradients are summed over the ranks;
/// each rank gets those of its rows. Outside steps parameters have no values; an operator that reads one throws and
/// names it. docs/parallel_design.md shows how. (PyTorch: fully_shard)
///
/// A group of one rank has no overhead: its parameters stay plain and are the rows.
///
/// All ranks must run the same operators of the model in the same order. Rows may change between finish_backward() and
/// the next step, and after a step without autograd. Not thread-safe.
class ShardedModel {
 public:
  /// Splits the parameters of rank 0 of `group` and of `replicas`, which the other ranks receive. Every rank must call
  /// it. The module may be on any device; buffers do not change.
  /// @throws ConfigError for a pattern that matches no module and options out of range, DistributedError when the
  ///         ranks' models differ, StateError for a module that is already sharded, and for distinct parameters that
  ///         share memory
  ShardedModel(const std::shared_ptr<torch::nn::Module>& module, const Group& group, const ShardOptions& options = {});
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// Rows of this rank by parameter name: leaves for an optimizer; 0 rows if the ranks outnumber the parameter's rows.
  /// They keep their addresses. After finish_backward() they have gradients.
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  /// The rows of a parameter of the module. @throws StateError for another tensor
  at::Tensor rows_of(const at::Tensor& parameter) const;
  /// The rows of a parameter of any ShardedModel; the tensor itself if it is not sharded.
  static at::Tensor to_local(const at::Tensor& parameter);
  /// The tensor whose gradient a backward pass computes if operators use a parameter of any ShardedModel, for the
  /// `inputs` of torch::autograd::backward; the tensor itself if it is not sharded.
  static at::Tensor leaf(const at::Tensor& parameter);
  /// First row and number of rows of this rank, for a parameter with `rows` rows.
  std::pair<std::int64_t, std::int64_t> row_range(std::int64_t rows) const;
  /// Names of the units with their numbers of values; the rest of the model is "".
  std::vector<std::pair<std::string, std::int64_t>> units() const;

  /// During its lifetime operators may use the parameters: forward and backward pass. May be nested.
  class Step {
   public:
    explicit Step(ShardedModel& model);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    std::shared_ptr<detail::ShardedParameters> parameters_;
  };

  /// True: backward passes sum gradients over ranks immediately. False: gradients stay whole in this rank's memory
  /// until a pass with true. (FSDP2: set_requires_gradient_sync)
  void set_requires_gradient_sync(bool value);
  /// Call it after the backward passes of a window: sums the remaining gradients and frees all units. A parameter
  /// without a gradient on any rank gets none. Every rank must call it.
  void finish_backward();
  /// Call it after an update and before the next step: with stage 1 and 2 gathers the new values, otherwise no effect.
  /// Every rank must call it.
  void update_parameters();
  /// Takes the gradients of a shard's backward passes; with virtual ranks, call it after each shard of this rank.
  void end_shard();
  /// Returns whether a shard of this rank is missing; a missing shard counts as zeros.
  bool has_missing_shards() const;
  /// The sum of squared gradients over all rows of all ranks, a float64 scalar on their device, for clipping. With
  /// virtual ranks it has the same bits for any number of ranks. Every rank must call it after finish_backward(). For
  /// parameters that other axes slice, it covers this rank's slice.
  at::Tensor squared_grad_norm() const;
  /// Converts `outputs` of the module to `output_dtype` if it is floating.
  at::Tensor cast_outputs(const at::Tensor& outputs) const;

  /// Bytes that this rank has sent to others since construction, or that they have read from its memory: parameter
  /// values and gradients.
  struct Traffic {
    std::int64_t gathered = 0, reduced = 0;
  };
  Traffic traffic() const;
  /// "shared memory", "collectives of the group" or "one process", for logs.
  std::string transport() const;
  /// Ends the waits of other ranks in shared memory with `reason`; Group::abort ends those in collectives.
  void abort(std::string_view reason);
  /// Drops gradients, including those that are not summed yet.
  void zero_grad();

  /// Called before each collective of a step, with its kind ('g': gather, 'r': reduce) and unit. The program sends both
  /// to ranks without a batch, which call join_collective(). Set it on all ranks of the step, or on none.
  using Announcer = std::function<void(char kind, std::size_t unit)>;
  void set_announcer(Announcer announcer);
  /// Joins a collective that the other ranks announced, with zero gradients.
  void join_collective(char kind, std::size_t unit);

  /// During its lifetime the module's parameters are plain tensors with values and without gradients. Writes to them
  /// are kept if `writes`. Every rank must create it, outside steps; it cannot be nested.
  class FullParameters {
   public:
    explicit FullParameters(ShardedModel& model, bool writes = false);
    ~FullParameters();
    FullParameters(const FullParameters&) = delete;
    FullParameters& operator=(const FullParameters&) = delete;

   private:
    std::shared_ptr<detail::ShardedParameters> parameters_;
    bool writes_;
  };

 private:
  std::shared_ptr<detail::ShardedParameters> parameters_;
  at::ScalarType output_dtype_ = at::ScalarType::Undefined;
};

}  // namespace danling::inline v0
