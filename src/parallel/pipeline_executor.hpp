// State of a pipeline's executor.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include <danling/parallel/pipeline.hpp>

#include <parallel/pipeline_backward.hpp>
#include <parallel/pipeline_channel.hpp>

namespace danling::inline v0::parallel {

struct PipelineSchedule::Impl {
  Impl(PipelinePlan plan_of_all, std::vector<PipelineStage> stages_of_rank, Group group_of_axis,
       PipelineOptions options_of_rank);

  Result run(bool training, const Inputs& inputs, const Loss& loss, const std::vector<at::Tensor>& seeds);

  PipelinePlan plan;
  std::map<std::int64_t, PipelineStage> stages;
  Group group;
  PipelineOptions options;
  std::int64_t rank;
  std::vector<PipelineSpan> spans;

 private:
  using Tensors = std::vector<at::Tensor>;
  /// A micro-batch in a stage, between its forward and its backward pass.
  struct Slot {
    bool ran = false;                ///< forward
    Tensors outputs_here;            ///< detached outputs for the next stage, if it is on this rank
    std::vector<bool> outputs_need;  ///< by output: whether it needs a gradient
    std::vector<bool> inputs_need;
    Tensors gradients;  ///< of the outputs, from the next stage on this rank or from the loss
    detail::StageGraph graph;
    at::Tensor buffer;  ///< memory of the inputs
    at::Tensor gradient_buffer;
  };
  struct Outstanding {
    std::int64_t peer;
    std::size_t consumed_at;  ///< index of the receiving action in the peer's list
    detail::PipelineChannel::Sending sending;
  };
  using Key =
      std::tuple<bool, bool, std::int64_t, std::int64_t>;  ///< training, backward, stage that sends, micro-batch

  bool is_last(std::int64_t stage) const { return stage + 1 == plan.stages; }
  bool waits_for_gradients(const Slot& slot) const;
  Slot& slot(std::int64_t stage, std::int64_t micro_batch) { return slots_[{stage, micro_batch}]; }
  std::size_t place_of(PipelineWork work, std::int64_t stage, std::int64_t micro_batch) const;
  /// The channel on which an action receives; null if it needs no message.
  detail::PipelineChannel* incoming(const PipelineAction& action);
  detail::PipelineChannel& channel(bool backward, std::int64_t sender, std::int64_t micro_batch, std::int64_t peer);

  void run_actions(const std::vector<PipelineAction>& actions);
  /// Posts the next receive if its message is certain to come.
  void start_next_receive(const std::vector<PipelineAction>& actions, std::size_t from);
  Tensors receive(const PipelineAction& action, Slot& into);
  void send(const PipelineAction& action, const std::vector<detail::SentTensor>& tensors);
  void forward(const PipelineAction& action, Tensors received);
  void pass_on(const PipelineAction& action, Slot& at, const Tensors& outputs);
  at::Tensor compute_loss(const PipelineAction& action, const Tensors& outputs) const;
  void backward(const PipelineAction& action, Tensors received);
  void backward_weight(const PipelineAction& action);
  void compute(const PipelineAction& action, const std::function<void()>& work);
  bool stage_begins(const PipelineAction& action) const;
  void release(const PipelineAction& action);
  void release_sent(std::int64_t peer, std::size_t consumed);
  void finish_step();
  void forget_step();
  void abort_group(std::string_view reason) const;

  std::map<std::tuple<PipelineWork, std::int64_t, std::int64_t>, std::size_t> places_;  ///< indices of actions
  std::map<Key, detail::PipelineChannel> channels_;
  detail::BufferPool pool_;

  // State of the step.
  std::map<std::pair<std::int64_t, std::int64_t>, Slot> slots_;
  std::vector<Outstanding> outstanding_;
  std::map<std::int64_t, std::int64_t> left_;  ///< by stage: passes left until its parameters have all gradients
  std::optional<std::int64_t> micro_batches_;  ///< unknown until the first message
  bool training_ = false;
  PipelineAction current_;  ///< for error messages
  const Inputs* inputs_ = nullptr;
  const Loss* loss_ = nullptr;
  const std::vector<at::Tensor>* seeds_ = nullptr;
  Result result_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace danling::inline v0::parallel
