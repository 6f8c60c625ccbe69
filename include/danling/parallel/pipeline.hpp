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

/// A part of the model, between its neighbours in the pipeline.
struct PipelineStage {
  /// Takes the outputs of the stage before, or the data; any number of tensors of any dtypes. Must not write to an
  /// input that requires a gradient in place: it is a leaf. Runs once per micro-batch, in the order of the plan.
  using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

  std::int64_t index = 0;  ///< of all stages
  Forward forward;
};

/// An action that is about to run.
struct PipelineEvent {
  PipelineAction action;
  /// In this step the stage's first forward pass, and its last pass that adds to gradients of parameters: gradients may
  /// be reduced in or after it.
  bool first = false;
  bool last = false;
};

struct PipelineOptions {
  at::Device device = at::kCPU;  ///< where the stages compute
  /// Called around the computing part of each action, in place of it, and runs it: for autocast, `no_sync`, profiling.
  /// The loss is computed within the last stage's forward pass.
  std::function<void(const PipelineEvent& event, const std::function<void()>& run)> around;
};

/// Runs steps of a plan: this rank's stages compute, and activations and gradients travel to the neighbours.
/// (torch.distributed.pipelining: PipelineSchedule*)
///
/// All ranks of the group call the same methods. Messages travel through host memory; a sender waits for its device,
/// not for the receiver; a receiver posts its next message before it computes. Shapes and dtypes go with the first
/// message of each micro-batch, and again when they change. Only the first stage reads inputs, only the last one has a
/// loss.
///
/// An exception of a stage aborts the group with its text, so that the other ranks throw DistributedError, and is
/// rethrown. The group cannot be used afterwards.
///
/// Zero-bubble: `backward_input` computes no products for weights, and `backward_weight` none for inputs. An operator
/// that computes both in one kernel whatever is asked (a custom autograd function, recomputation) runs in both parts,
/// and hooks on its node too; gradients are the same. The graph stays in memory until the second part. A stage whose
/// inputs need no gradient, as the first one, does all of it in the second part.
class PipelineSchedule {
 public:
  /// @param stages  those that `plan` places on this rank, in any order
  /// @throws ConfigError for other stages, a group of another size, and what `check_plan` refuses
  PipelineSchedule(PipelinePlan plan, std::vector<PipelineStage> stages, Group group, PipelineOptions options = {});
  ~PipelineSchedule();
  PipelineSchedule(PipelineSchedule&&) noexcept;
  PipelineSchedule& operator=(PipelineSchedule&&) noexcept;

  const PipelinePlan& plan() const;
  bool has_first_stage() const;
  bool has_last_stage() const;

  /// By micro-batch.
  using Inputs = std::vector<std::vector<at::Tensor>>;
  /// Returns the loss of a micro-batch from the outputs of the last stage. Gradients have its weight and scale.
  using Loss = std::function<at::Tensor(const std::vector<at::Tensor>& outputs, std::int64_t micro_batch)>;

  struct Result {
    std::int64_t micro_batches = 0;                ///< of this step, on every rank
    std::vector<at::Tensor> losses;                ///< by micro-batch, detached; on the last stage's rank
    std::vector<std::vector<at::Tensor>> outputs;  ///< the same
  };

  /// Forward and backward passes. Adds gradients to `.grad` of the parameters, the sum over micro-batches, not scaled.
  /// @param inputs  on the first stage's rank: from 1 to as many micro-batches as the plan has, of any sizes; other
  ///                ranks receive their number. Ignored elsewhere
  /// @param loss    on the last stage's rank; a scalar. Ignored elsewhere
  /// @param seeds   gradients of the losses, by micro-batch; ones if empty
  Result step(const Inputs& inputs, const Loss& loss, const std::vector<at::Tensor>& seeds = {});
  /// Forward passes without gradients; with losses if there is a loss.
  Result eval(const Inputs& inputs, const Loss& loss = {});

  /// When this rank computed in the last step, in seconds from its begin by the host's clock, without waits for
  /// messages. On a device, when work was submitted.
  const std::vector<PipelineSpan>& spans() const;
  /// The spans of all ranks. Called by all ranks.
  PipelineTimeline measured() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danling::inline v0::parallel
