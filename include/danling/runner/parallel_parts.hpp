// Parts of ParallelRunner that do not depend on its batch type: grid, slices, stages.
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

/// One pipeline stage of this rank, as a ParallelRunner holds it: a parallel::PipelinePart with its position, and under
/// the names of the whole model.
struct StagePart {
  std::int64_t stage = 0;
  /// The stage's module.
  std::shared_ptr<torch::nn::Module> module;
  /// The stage's modules under their names in the whole model, so that checkpoints of any layout fit.
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

/// @throws StateError before the processes have joined
const ParallelContext& context_of(const Parallelism& parallelism);
ParallelTopology topology_of(const RunnerConfig& config, std::int64_t world_size, std::int64_t rank);
/// True when the config changes the computation even on one process: shards of a batch, other dtypes, rows on the host.
bool needs_grid(const RunnerConfig& config);
std::unique_ptr<Parallelism> build_grid(const ProcessIdentity& identity, const RunnerConfig& config,
                                        ParallelTopology topology);

void parallelize(ModelHandle& model, const ParallelContext& context, const std::vector<std::string>& tensor_plan);

/// Slices a criterion that is a parallel::Parallelizable, such as VocabParallelCrossEntropy; leaves others unchanged.
void parallelize(torch::nn::Module* criterion, const ParallelContext& context);

/// True when this rank has the first or last stage of the pipeline.
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
/// @param batch_size  samples in a batch of one rank; 0 without a loader
std::int64_t micro_batches_of(const ParallelConfig& config, std::int64_t batch_size);
std::unique_ptr<parallel::PipelineSchedule> build_schedule(const std::vector<StagePart>& parts,
                                                           const ParallelConfig& config, std::int64_t micro_batches,
                                                           const ParallelContext& context,
                                                           parallel::PipelineOptions options);
/// With `parallel.draw_pipeline`, logs once when each rank computed during a step, next to the plan.
class PipelineDrawing {
 public:
  /// All ranks of a pipeline call it after each training step. @param micro_batches  of the step
  void after_step(TorchRunnerBase& runner, const parallel::PipelineSchedule& schedule, std::int64_t micro_batches);

 private:
  std::int64_t steps_ = 0;
  bool is_done_ = false;
};

/// A container of all parts' modules, which cannot be called.
ModelHandle joined_parts(const std::vector<StagePart>& parts);

/// First sample and number of samples of each micro-batch of a batch of `size` samples. A batch of `nominal` samples,
/// the loader's batch size, has `micro_batches`.
std::vector<std::pair<std::int64_t, std::int64_t>> micro_ranges(std::int64_t size, std::int64_t nominal,
                                                                std::int64_t micro_batches);

/// Inputs of the first stage: one tensor or several.
inline std::vector<at::Tensor> stage_inputs(const at::Tensor& input) { return {input}; }
std::vector<at::Tensor> stage_inputs(const State& inputs);
/// Returns an undefined tensor for no losses.
at::Tensor weighted_sum(const std::vector<at::Tensor>& losses, const std::vector<double>& shares);
/// Concatenates the first output of each micro-batch; an empty tensor without outputs.
at::Tensor joined_outputs(const std::vector<std::vector<at::Tensor>>& outputs);
[[noreturn]] void fail_prediction();
/// @throws ConfigError for a stream, since this rank cannot count its batches
void check_counted(bool is_stream, std::string_view split);

/// The grid of a runner, used by materialize_model().
class Grid {
 public:
  explicit Grid(TorchRunnerBase& runner);
  /// True when the model stays whole: on one process, or with a Parallelism of the program.
  bool is_alone() const { return sharded_ == nullptr; }
  void prepare_whole(ModelHandle& model) const;
  /// Warns about axes above 1 along which no parameter is sliced: their ranks repeat the same computation.
  void check_slices() const;
  /// @throws ConfigError for settings that a pipeline does not support
  void check_pipeline() const;
  /// After the first step, warns about a model that exchanges nothing over the axis `context`.
  void check_context() const;
  /// Makes the last stage return `fsdp.mp_policy.output_dtype`.
  void convert_outputs(std::vector<StagePart>& parts) const;
  /// @param forward  opens the context of a forward pass
  parallel::PipelineOptions pipeline_options(std::function<PrecisionContext()> forward) const;

 private:
  TorchRunnerBase& runner_;
  ShardedParallel* sharded_;
};

}  // namespace detail
}  // namespace danling::inline v0
