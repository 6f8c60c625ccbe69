// Pipeline schedules as data: lists of actions per rank, their timelines, and text diagrams.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0::parallel {

/// A kind of work of a stage on a micro-batch.
enum class PipelineWork : std::uint8_t {
  forward,
  backward,         ///< gradients of the inputs and of the parameters
  backward_input,   ///< gradients of the inputs only, which the previous stage waits for
  backward_weight,  ///< gradients of the parameters, after `backward_input`
};

struct PipelineAction {
  PipelineWork work = PipelineWork::forward;
  std::int64_t stage = 0;  ///< among all stages; 0 reads the data
  std::int64_t micro_batch = 0;

  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

/// PyTorch's notation: stage, letter (F, B, I, W), micro-batch: "2F0".
std::string to_string(const PipelineAction& action);

/// The actions of each rank in one step, in order.
struct PipelinePlan {
  std::string name;
  std::int64_t ranks = 1;
  std::int64_t stages = 1;
  std::int64_t micro_batches = 1;
  std::vector<std::int64_t> rank_of_stage;
  std::vector<std::vector<PipelineAction>> actions;  ///< by rank

  /// In ascending order.
  std::vector<std::int64_t> stages_of_rank(std::int64_t rank) const;
};

/// The rank from which an action must first receive a message, and the rank to which it then sends one; empty if the
/// neighbour stage is on the same rank or missing.
struct PipelineMessages {
  std::optional<std::int64_t> from;
  std::optional<std::int64_t> to;
};
PipelineMessages messages_of(const PipelinePlan& plan, const PipelineAction& action);

/// "GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble".
const std::vector<std::string>& pipeline_schedule_names();
/// Places stages on ranks: rank r has the stages r, r + ranks, ...; for ZBVZeroBubble the r-th and the r-th from the
/// end.
std::vector<std::int64_t> pipeline_rank_of_stage(std::string_view name, std::int64_t ranks,
                                                 std::int64_t stages_per_rank);

/// The actions of a schedule of torch.distributed.pipelining, by its name in upper or lower case.
///
/// - GPipe (Huang et al. 2019) and 1F1B (Narayanan et al. 2019): one stage per rank.
/// - LoopedBFS (Lamy-Poirier 2023), Interleaved1F1B (Narayanan et al. 2021), InterleavedZeroBubble (ZB1P of Qi et al.
///   2024, and with one stage per rank their ZB-H1): any number of stages per rank.
/// - ZBVZeroBubble (Qi et al. 2024, section 6): two stages per rank.
///
/// @throws ConfigError for an unknown name, listing the names; a number below 1; a number of stages per rank that the
///         schedule does not support; and, for Interleaved*, micro-batches that do not fill their rounds, as in PyTorch
PipelinePlan pipeline_schedule(std::string_view name, std::int64_t ranks, std::int64_t stages_per_rank,
                               std::int64_t micro_batches);

/// Checks a custom plan. @throws ConfigError unless each micro-batch passes each stage once, on the stage's rank,
///         forward and then backward, without a deadlock between ranks
void check_plan(const PipelinePlan& plan);

/// Durations of actions, in any unit. `backward` includes both parts.
struct PipelineCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double message = 0;  ///< from the end of an action to the start of one on another rank that needs it

  double of(PipelineWork work) const;
};

struct PipelineSpan {
  PipelineAction action;
  double begin = 0;
  double end = 0;
};

/// Times of the actions of each rank, from 0, predicted or measured.
struct PipelineTimeline {
  std::vector<std::vector<PipelineSpan>> spans;  ///< by rank
  double length = 0;                             ///< end of the last action of all ranks
  double bubble = 0;                             ///< fraction of the ranks' time without an action
  /// By rank: peak number of micro-batches, summed over the rank's stages, that are held for backward.
  std::vector<std::int64_t> live_activations;
};

/// Predicts a step: each action begins as soon as its rank and its inputs are ready; messages are buffered, and ranks
/// receive in the order of their actions. @throws ConfigError for a deadlock, naming the action that each rank waits
/// for.
PipelineTimeline simulate_pipeline(const PipelinePlan& plan, const PipelineCosts& costs = {});
/// The same with a duration per action.
PipelineTimeline simulate_pipeline(const PipelinePlan& plan,
                                   const std::function<double(const PipelineAction& action)>& duration,
                                   double message = 0);
/// Length, bubble and live activations of measured spans, in the order in which they ran.
PipelineTimeline pipeline_timeline(std::vector<std::vector<PipelineSpan>> spans);

/// One line per rank, time from left to right: the micro-batch of a forward pass, with `b`, `i` or `w` before it for a
/// backward pass, that of its input or of its weights, and a letter after it for the rank's second and later stages;
/// dots are bubbles. The last line is the bubble.
/// @param measured  drawn below the prediction, if set
/// @param width     maximum number of characters per line; labels that do not fit are cut
std::string draw_pipeline(const PipelinePlan& plan, const PipelineTimeline& predicted,
                          const PipelineTimeline* measured = nullptr, std::int64_t width = 160);

}  // namespace danling::inline v0::parallel
