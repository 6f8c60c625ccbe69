// Fully sharded parameters: each rank keeps some rows of every parameter, and units are whole only while they compute.
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

/// Types of sharded parameters; undefined ones are not changed. (FSDP2: MixedPrecisionPolicy)
struct ShardPrecision {
  /// Of whole parameters, in which operators compute, and of their gradients; rows, which an optimizer updates, keep
  /// theirs.
  at::ScalarType param_dtype = at::ScalarType::Undefined;
  /// Of gradients on their way; they are added in float32 at least. Undefined: that of the gradients.
  at::ScalarType reduce_dtype = at::ScalarType::Undefined;
  /// Of what `cast_outputs` returns: modules of C++ have no hook that could see their outputs.
  at::ScalarType output_dtype = at::ScalarType::Undefined;
  /// Whether operators with a parameter convert their other floating inputs to param_dtype. (FSDP2 converts the inputs
  /// of a module: equal but for inputs that reach no parameter.)
  bool cast_forward_inputs = true;
};

struct ShardOptions {
  /// Each module that matches is a unit, gathered at once: regular expressions, searched in the name of a module
  /// ("layers\\.\\d+$") and in its type ("TransformerEncoderLayer"). The rest of the model is a unit too, which stays
  /// whole from its first use until the end of the backward pass.
  std::vector<std::string> units = {};
  /// Whether a unit is freed after its forward pass and gathered again for the backward pass, which costs traffic and
  /// saves memory. (FSDP2: reshard_after_forward)
  bool reshard_after_forward = true;
  /// Ranks that have the same rows in other groups, over which gradients are summed too. (HSDP's replicate axis)
  Group replicas = {};
  /// The stage of ZeRO: ranks divide the optimizer's state (1), gradients too (2), parameters too (3). With 1 and 2
  /// parameters are plain tensors of the module, which update_parameters() brings up to date; with 1 gradients are
  /// summed at the end of a window, with 2 unit by unit in the backward pass.
  int stage = 3;
  /// Units that are gathered ahead of the one that computes, in the order of the step before. Each needs its memory.
  /// Through shared memory nothing travels, and it has no effect.
  std::int64_t prefetch = 1;
  ShardPrecision mixed_precision = {};
  /// Keeps rows, their gradients and so the optimizer's state on the host, in pinned memory, for parameters on a
  /// device. (FSDP2: CPUOffloadPolicy)
  bool offload = false;
  /// Number of shards of a window's batch, a power of two; 0: none. Their gradients are added along one tree, so
  /// parameters have the same bits for any number of ranks. A rank computes neighbouring shards, as many as
  /// lacks_shards() asks for, and calls end_shard() after each.
  std::int64_t virtual_ranks = 0;
  /// Uses shared memory where all ranks of the group are on one machine and parameters on the host.
  bool shared_memory = true;
};

/// Parameters of a module, split by rows over the ranks of a group. The module is not wrapped: its parameters keep
/// their sizes, and the first operator of a step that uses one gathers its unit. Gradients are summed over the ranks,
/// each of which gets those of its rows. Before and after a step parameters have no values; an operator that reads
/// one throws, by name. docs/parallel.md shows how. (PyTorch: fully_shard)
///
/// A group of one rank costs nothing: its parameters stay plain, and are the rows.
///
/// All ranks run the same operators of the model in the same order. Rows may change between finish_backward() and the
/// next step, also after a step without autograd. For one thread at a time.
class ShardedModel {
 public:
  /// Splits the parameters of rank 0 of `group`, and of `replicas`, from which the others get them. Called by all
  /// ranks. The module may be on any device; buffers are left as they are.
  /// @throws ConfigError for a pattern that matches no module and options out of range, DistributedError when the
  ///         ranks' models differ, StateError for a module that is sharded already, and for parameters that share
  ///         memory but are not one
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
  /// The tensor whose gradient a backward pass computes where operators use a parameter of any ShardedModel, for the
  /// `inputs` of torch::autograd::backward; the tensor itself where it is not sharded.
  static at::Tensor leaf(const at::Tensor& parameter);
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
  /// After an update and before the next step: stage 1 and 2 gather the new values, others need nothing. Called by all
  /// ranks.
  void update_parameters();
  /// Takes over the gradients of a shard's backward passes; with virtual ranks, after each of this rank's.
  void end_shard();
  /// Whether a shard of this rank is missing, which counts as zeros.
  bool lacks_shards() const;
  /// The sum of the squared gradients of all rows of all ranks, a float64 scalar on their device, for clipping. With
  /// virtual ranks it has the same bits for any number of ranks. Called by all ranks after finish_backward(). Of
  /// parameters that other axes slice it has this rank's slice.
  at::Tensor grad_norm_squares() const;
  /// `outputs` of the module in `output_dtype`, where it is floating.
  at::Tensor cast_outputs(const at::Tensor& outputs) const;

  /// Bytes that this rank has sent to others since construction, or that they have read in its memory: values of
  /// parameters, and gradients.
  struct Traffic {
    std::int64_t gathered = 0, reduced = 0;
  };
  Traffic traffic() const;
  /// "shared memory", "collectives of the group" or "one process", for logs.
  std::string transport() const;
  /// Ends the waits of the other ranks in shared memory with `reason`; Group::abort ends those in collectives.
  void abort(std::string_view reason);
  /// Drops gradients, also those that are not summed yet.
  void zero_grad();

  /// Called before each collective of a step, with its kind ('g': gather, 'r': reduce) and unit. The program sends both
  /// to ranks without a batch, which call follow(). Set on all ranks of the step, or on none.
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
  at::ScalarType output_dtype_ = at::ScalarType::Undefined;
};

}  // namespace danling::inline v0
