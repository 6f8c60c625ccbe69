// Parts of ParallelRunner that do not depend on its batch type: the grid, slices, stages.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/parallel/pipeline.hpp>
#include <danling/parallel/topology.hpp>
#include <danling/runner/model.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/precision.hpp>
#include <danling/runner/runner_config.hpp>

namespace danling::inline v0 {

class TorchRunnerBase;

/// A stage of a pipeline on this rank.
struct StagePart {
  std::int64_t stage = 0;
  /// Runs the stage.
  std::shared_ptr<torch::nn::Module> module;
  /// A tree of its modules, by the names that they have in the whole model: so checkpoints of any layout fit.
  std::shared_ptr<torch::nn::Module> tree;
  parallel::PipelineStage::Forward forward;
};

namespace detail {

class ShardedParallel;

template <std::derived_from<RunnerConfig> C>
C on_grid(C config) {
  config.stack = config.stack == "auto" ? "parallel" : config.stack;
  return config;
}

/// @throws StateError before the processes have met
const ParallelContext& context_of(const Parallelism& parallelism);
ParallelTopology topology_of(const RunnerConfig& config, std::int64_t world_size, std::int64_t rank);
/// Whether one process computes otherwise than without the stack: in shards of a batch, in other types, with rows on
/// the host.
bool needs_grid(const RunnerConfig& config);
std::unique_ptr<Parallelism> build_grid(const ProcessIdentity& identity, const RunnerConfig& config,
                                        ParallelTopology topology);

void parallelize(ModelHandle& model, const ParallelContext& context, const std::vector<std::string>& tensor_plan);

/// A criterion that is a parallel::Parallelizable, as VocabParallelCrossEntropy; others are left as they are.
void parallelize(torch::nn::Module* criterion, const ParallelContext& context);

/// Whether this rank has the first or last stage of the pipeline.
bool reads_data(const Parallelism& parallelism);
bool cuts_sequences(const Parallelism& parallelism);
void cut_sequences(data::Batch& batch, const Group& context);
[[noreturn]] void fail_sequences();
template <class B>
void cut_sequences(B&, const Group&) {
  fail_sequences();
}

// ---- pipeline -------------------------------------------------------------------------------------------------------

std::vector<std::int64_t> stage_indices(const ParallelConfig& config, const ParallelTopology& topology);
/// Sets whether this rank reads data. @param indices  returns the stages of this rank
void place_stages(Parallelism& parallelism, const ParallelConfig& config,
                  const std::function<std::vector<std::int64_t>()>& indices);
StagePart build_part(const ModelHandle& whole, std::int64_t stage, const ParallelConfig& config,
                     const ParallelContext& context);
/// @param batch_size  samples of a batch of a rank; 0 without a loader
std::int64_t micro_batches_of(const ParallelConfig& config, std::int64_t batch_size);
std::unique_ptr<parallel::PipelineSchedule> build_schedule(const std::vector<StagePart>& parts,
                                                           const ParallelConfig& config, std::int64_t micro_batches,
                                                           const ParallelContext& context,
                                                           parallel::PipelineOptions options);
/// Logs, once in a run with `parallel.pipeline_picture`, when each rank computed in a step, beside the plan.
class PipelineDrawing {
 public:
  /// Called by all ranks of a pipeline after each training step. @param micro_batches  of the step
  void after_step(TorchRunnerBase& runner, const parallel::PipelineSchedule& schedule, std::int64_t micro_batches);

 private:
  std::int64_t steps_ = 0;
  bool is_done_ = false;
};

/// The modules of all parts as one, which cannot be called.
ModelHandle joined_parts(const std::vector<StagePart>& parts);

/// First sample and number of samples of each micro-batch of `size` samples: as many as the plan has, of batches as
/// large as the loader's.
std::vector<std::pair<std::int64_t, std::int64_t>> micro_ranges(std::int64_t size, std::int64_t nominal,
                                                                std::int64_t micro_batches);

/// Inputs of the first stage: a tensor, or several.
inline std::vector<at::Tensor> stage_inputs(const at::Tensor& input) { return {input}; }
std::vector<at::Tensor> stage_inputs(const State& inputs);
/// Undefined for no losses.
at::Tensor weighted_sum(const std::vector<at::Tensor>& losses, const std::vector<double>& shares);
/// Concatenates the first output of each micro-batch; empty without any.
at::Tensor joined_outputs(const std::vector<std::vector<at::Tensor>>& outputs);
[[noreturn]] void fail_prediction();
/// @throws ConfigError for a stream, whose number of batches this rank cannot know
void check_counted(bool is_stream, std::string_view split);

/// The grid of a runner, for materialize_model().
class Grid {
 public:
  explicit Grid(TorchRunnerBase& runner);
  /// Whether the model stays whole: one process, or a Parallelism of the program.
  bool is_alone() const { return sharded_ == nullptr; }
  void prepare_whole(ModelHandle& model) const;
  /// Warns of axes above 1 along which no parameter of the models is cut: their ranks compute the same.
  void check_slices() const;
  /// @throws ConfigError for what a pipeline cannot do
  void check_pipeline() const;
  /// Warns, after the first step, of a model that exchanges nothing over the axis `context`.
  void check_context() const;
  /// The last stage returns `fsdp.mp_policy.output_dtype`.
  void convert_outputs(std::vector<StagePart>& parts) const;
  /// @param forward  opens the context of a forward pass
  parallel::PipelineOptions pipeline_options(std::function<PrecisionContext()> forward) const;

 private:
  TorchRunnerBase& runner_;
  ShardedParallel* sharded_;
};

}  // namespace detail
}  // namespace danling::inline v0
