// Pipeline parallel: runs the stages of this rank by a schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/distributed/group.hpp>
#include <danling/parallel/pipeline_schedule.hpp>

namespace danling::inline v0::parallel {

/// A stage as a PipelineSchedule runs it: a position and a function, without module or names (those are in a
/// PipelinePart).
struct PipelineStage {
  /// Takes the outputs of the previous stage, or the data: any number of tensors of any dtypes. Must not write in place
  /// to an input that requires a gradient, which is a leaf. Runs once per micro-batch, in the order of the plan.
  using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

  std::int64_t index = 0;  ///< among all stages
  Forward forward;
};

/// An action that is about to run.
struct PipelineEvent {
  PipelineAction action;
  /// The stage's first forward pass in this step, and its last pass that adds to gradients of parameters, in or after
  /// which gradients may be reduced.
  bool first = false;
  bool last = false;
};

struct PipelineOptions {
  at::Device device = at::kCPU;  ///< device of the stages
  /// Called instead of the computing part of each action; must call `run`: for autocast, `no_sync`, profiling. The last
  /// stage's forward pass includes the loss.
  std::function<void(const PipelineEvent& event, const std::function<void()>& run)> around;
};

/// Runs steps of a plan: this rank's stages compute, and exchange activations and gradients with their neighbours.
/// (torch.distributed.pipelining: PipelineSchedule*)
///
/// All ranks of the group must call the same methods. Messages travel through host memory. A sender waits for its
/// device, not for the receiver; a receiver posts its next message before it computes. The first message of each
/// micro-batch contains shapes and dtypes, as does a message in which they change. Only the first stage reads inputs,
/// only the last stage has a loss.
///
/// An exception in a stage aborts the group with its text, so that the other ranks throw DistributedError, and is
/// rethrown. The group cannot be used afterwards.
///
/// Zero-bubble: `backward_input` computes no products for weights, and `backward_weight` none for inputs. An operator
/// that always computes both in one kernel (a custom autograd function, recompute) runs in both parts, as do the hooks
/// on its node; gradients are the same. The graph stays in memory until the second part. A stage whose inputs need no
/// gradient, such as the first, does everything in the second part.
class PipelineSchedule {
 public:
  /// @param stages  the stages that `plan` places on this rank, in any order
  /// @throws ConfigError for other stages, a group of another size, and plans that `check_plan` rejects or in which a
  /// rank does not begin with micro-batch 0
  PipelineSchedule(PipelinePlan plan, std::vector<PipelineStage> stages, Group group, PipelineOptions options = {});
  ~PipelineSchedule();
  PipelineSchedule(PipelineSchedule&&) noexcept;
  PipelineSchedule& operator=(PipelineSchedule&&) noexcept;

  const PipelinePlan& plan() const;
  bool has_first_stage() const;
  bool has_last_stage() const;

  /// One list of tensors per micro-batch.
  using Inputs = std::vector<std::vector<at::Tensor>>;
  /// Returns the loss of a micro-batch from the outputs of the last stage; gradients include its weight and scale.
  using Loss = std::function<at::Tensor(const std::vector<at::Tensor>& outputs, std::int64_t micro_batch)>;

  struct Result {
    std::int64_t micro_batches = 0;                ///< of this step, on every rank
    std::vector<at::Tensor> losses;                ///< by micro-batch, detached; only on the last stage's rank
    std::vector<std::vector<at::Tensor>> outputs;  ///< of the last stage, by micro-batch; only on its rank
  };

  /// Runs forward and backward passes. Adds to `.grad` of the parameters the sum over micro-batches, without scaling.
  /// @param inputs  on the first stage's rank: from one micro-batch to the number in the plan, of any sizes; the other
  ///                ranks receive the number. Ignored on other ranks
  /// @param loss    on the last stage's rank: returns a scalar. Ignored on other ranks
  /// @param seeds   gradients of the losses, by micro-batch; ones if empty
  Result step(const Inputs& inputs, const Loss& loss, const std::vector<at::Tensor>& seeds = {});
  /// Runs forward passes without gradients; computes losses if `loss` is set.
  Result eval(const Inputs& inputs, const Loss& loss = {});

  /// Times in which this rank computed in the last step, in seconds from its start by the host's clock, without waits
  /// for messages. On a device, the times at which work was submitted.
  const std::vector<PipelineSpan>& spans() const;
  /// The spans of all ranks. Every rank must call it.
  PipelineTimeline measured() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danling::inline v0::parallel
