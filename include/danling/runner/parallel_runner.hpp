// ParallelRunner: a runner on a grid of processes, whose model is cut into slices and stages.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/data/batch_part.hpp>
#include <danling/data/placeholder_dataset.hpp>
#include <danling/parallel/pipeline.hpp>
#include <danling/parallel/topology.hpp>
#include <danling/runner/parallel_parts.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/torch_runner.hpp>

namespace danling::inline v0 {

/// TorchRunner on the grid of `parallel.axes`: replicas and shards, slices of layers (tensor, expert), parts of
/// sequences (context) and stages (pipeline). On one process it is a TorchRunner. Every rank builds the whole model;
/// materialize_model() keeps this rank's part. (DanLing: ParallelRunner)
///
/// With `pipeline` above 1, `model` becomes a container of this rank's stages: it has their parameters under the names
/// of the whole model, and cannot be called. Only the ranks of the first and last stages read data. The last stage
/// computes losses, metrics and predictions; the main process receives them with each log line.
template <class B, class P = at::Tensor>
class BasicParallelRunner : public BasicTorchRunner<B, P> {
  using Base = BasicTorchRunner<B, P>;

 public:
  using typename Base::StepOutput;

  /// The grid. @throws StateError before the processes have joined
  const ParallelTopology& topology() const { return parallel().topology(); }
  const ParallelContext& parallel() const { return detail::context_of(this->parallelism()); }

  /// Stages of this rank; empty without a pipeline.
  const std::vector<StagePart>& model_parts() const { return parts_; }
  /// Null without a pipeline.
  const parallel::PipelineSchedule* pipeline_schedule() const { return schedule_.get(); }
  /// True when this rank has the first stage, which reads the inputs; true without a pipeline.
  bool pipeline_has_first_stage() const { return schedule_ == nullptr || schedule_->has_first_stage(); }
  /// True when this rank has the last stage, which computes losses; true without a pipeline.
  bool pipeline_has_last_stage() const { return schedule_ == nullptr || schedule_->has_last_stage(); }

 protected:
  /// Reads `stack: auto` of the config as `parallel`.
  template <std::derived_from<RunnerConfig> C>
  explicit BasicParallelRunner(const C& config) : Base(detail::on_grid(config)) {}

  /// The grid of the processes. Called when: init_distributed runs, once on every rank. Override it for other axes;
  /// degrees are those of `parallel.axes`. An override must have no side effects and return the same axes on all ranks.
  /// @throws ConfigError, with the product, when the degrees do not multiply to the world size
  virtual ParallelTopology build_topology() const {
    return detail::topology_of(this->config(), this->world_size(), this->rank());
  }

  /// Slices a model (tensor, context and expert parallelism); a Parallelizable criterion is sliced too. Called when:
  /// materialize_model runs, once for each model, on every rank; the model is on its device, with the weights of rank
  /// 0. By default calls parallel::Parallelizable::parallelize, then applies `parallel.tensor_plan`. Do not move the
  /// model, build an optimizer, or replace a module that other objects hold.
  /// @throws ConfigError when axes above 1 have neither
  virtual void parallelize_model(ModelHandle& handle) {
    detail::parallelize(handle, parallel(), this->config().parallel.tensor_plan);
  }

  /// Marks modules whose activations are recomputed. Called when: materialize_model has sliced a model and cut it into
  /// stages, once for each, before its parameters are sharded; on every rank. By default does nothing: `recompute` of
  /// the config applies independently. Do not change parameters.
  virtual void apply_activation_checkpointing(ModelHandle&) {}

  /// Pipeline stages of this rank. Called when: init_distributed and materialize_model run, on every rank; must return
  /// the same each time. By default r, r + ranks, ...; for ZBVZeroBubble r and the r-th from the end.
  /// @throws ConfigError for fewer stages than ranks, or a number of stages that the ranks do not divide
  virtual std::vector<std::int64_t> pipeline_stage_indices() const {
    return detail::stage_indices(this->config().parallel, topology());
  }

  /// Builds the stages of this rank. Called when: materialize_model runs with a pipeline, once on every rank, after
  /// parallelize_model. By default calls build_pipeline_model_part() for each. Do not build an optimizer here.
  virtual std::vector<StagePart> build_pipeline_model_parts(ModelHandle& whole) {
    std::vector<StagePart> out;
    for (const std::int64_t stage : pipeline_stage_indices()) {
      out.push_back(build_pipeline_model_part(whole, stage));
    }
    return out;
  }
  /// Builds one stage: the module that the model's parallel::PipelineModel returns for it, or the sequence of modules
  /// that `parallel.module_fqns_per_model_part` lists.
  /// @throws ConfigError for names that the model lacks, names listed twice, or when there is neither
  virtual StagePart build_pipeline_model_part(ModelHandle& whole, std::int64_t stage) {
    return detail::build_part(whole, stage, this->config().parallel, parallel());
  }

  /// Builds the executor of this rank's stages. Called when: materialize_model runs with a pipeline, once on every
  /// rank. An override passes `options` on: they sum gradients and enable autocast. Do not scale gradients.
  /// @throws ConfigError when the config does not determine the number of micro-batches
  virtual std::unique_ptr<parallel::PipelineSchedule> build_pipeline_schedule(const std::vector<StagePart>& parts,
                                                                              parallel::PipelineOptions options) {
    return detail::build_schedule(parts, this->config().parallel, micro_batches(), parallel(), std::move(options));
  }

  /// With `context` above 1, keeps this rank's part of each sequence. Called when: a batch is loaded, before it is
  /// counted, once on every rank. By default takes, from `input` and `target` of a dl::Batch, both [N, length, ...],
  /// the part that balances causal attention (parallel::context_part). @throws ConfigError for other batches
  virtual void cut_sequences(B& batch) { detail::cut_sequences(batch, parallel().group("context")); }

  std::unique_ptr<Parallelism> build_parallelism(const ProcessIdentity& identity) override {
    return detail::build_grid(identity, this->config(), build_topology());
  }

  void init_distributed() override {
    Base::init_distributed();
    detail::place_stages(this->parallelism(), this->config().parallel, [this] { return pipeline_stage_indices(); });
  }

  void materialize_model() override {
    detail::Grid grid(*this);
    if (grid.is_alone()) {
      Base::materialize_model();
      return;
    }
    const auto transform = [this, &grid](ModelHandle& handle) {
      if (handle) {
        grid.prepare_whole(handle);
        parallelize_model(handle);
      }
    };
    transform(this->model);
    for (auto& [name, handle] : this->models) {
      transform(handle);
    }
    detail::parallelize(this->criterion.module().get(), parallel());
    grid.check_slices();
    grid.check_context();
    if (topology().axis_degree("pipeline") > 1) {
      grid.check_pipeline();
      parts_ = build_pipeline_model_parts(this->model);
      grid.convert_outputs(parts_);
      schedule_ = build_pipeline_schedule(parts_, grid.pipeline_options([this] { return forward_now(); }));
      this->model = detail::joined_parts(parts_);
    }
    apply_activation_checkpointing(this->model);
    for (auto& [name, handle] : this->models) {
      apply_activation_checkpointing(handle);
    }
    Base::materialize_model();
  }

  void build_dataloaders() override {
    if (!detail::reads_data(this->parallelism())) {
      for (const auto& name : this->datasets.names()) {
        withhold(name);
      }
    }
    Base::build_dataloaders();
  }

  data::BatchRef current_batch(data::LoaderBase& loader) override {
    const data::BatchRef ref = Base::current_batch(loader);
    if (detail::cuts_sequences(this->parallelism())) {
      cut_sequences(ref.as<B>());
    }
    return ref;
  }

  /// Without a pipeline: TorchRunner's. With a pipeline, cuts the batch into micro-batches; the schedule runs their
  /// forward and backward passes. Each is weighted by its loss normalizer, as micro-batches of a window are.
  StepOutput train_step(B& batch) override {
    if (schedule_ == nullptr) {
      return Base::train_step(batch);
    }
    const Micro micro = cut(batch);
    const at::Tensor seed = this->begin_manual_backward();
    std::vector<at::Tensor> seeds;
    for (const double share : micro.shares) {
      seeds.push_back(seed.mul(share));
    }
    const auto result = schedule_->step(micro.inputs, loss_over(micro), seeds);
    StepOutput out = joined(result, micro);
    measure(out, batch);
    drawing_.after_step(*this, *schedule_, result.micro_batches);
    this->step();
    return out;
  }

  StepOutput evaluate_step(B& batch) override {
    if (schedule_ == nullptr) {
      return Base::evaluate_step(batch);
    }
    const Micro micro = cut(batch);
    StepOutput out = joined(schedule_->eval(micro.inputs, loss_over(micro)), micro);
    measure(out, batch);
    return out;
  }

  /// The last stage returns the predictions; other ranks of a pipeline return none.
  P infer_step(B& batch) override {
    if (schedule_ == nullptr) {
      return Base::infer_step(batch);
    }
    const Micro micro = cut(batch);
    return joined(schedule_->eval(micro.inputs), micro).prediction;
  }

 private:
  /// The micro-batches of a batch, and the weight of each in its loss.
  struct Micro {
    std::vector<B> batches;
    std::vector<std::vector<at::Tensor>> inputs;
    std::vector<double> shares;
  };

  Micro cut(B& batch) const {
    static_assert(data::HasParts<B>,
                  "a pipeline cuts batches into micro-batches: declare `B batch_part(const B&, "
                  "std::int64_t begin, std::int64_t count)` in the namespace of your batch type");
    Micro out;
    if (!detail::reads_data(this->parallelism())) {
      return out;
    }
    using data::batch_part;
    const auto ranges =
        detail::micro_ranges(data::batch_size(batch), nominal_batch_size_, schedule_->plan().micro_batches);
    double sum = 0;
    if (schedule_->has_last_stage()) {  // before the move: on a device, counting waits
      for (const auto& [begin, count] : ranges) {
        const B piece = batch_part(std::as_const(batch), begin, count);
        out.shares.push_back(static_cast<double>(detail::normalizer_of(piece, this->criterion).value_or(count)));
        sum += out.shares.back();
      }
    }
    this->move_to_device(batch);
    for (const auto& [begin, count] : ranges) {
      out.batches.push_back(batch_part(std::as_const(batch), begin, count));
      if (schedule_->has_first_stage()) {
        out.inputs.push_back(detail::stage_inputs(model_input(out.batches.back())));
      }
    }
    for (double& share : out.shares) {
      share = sum > 0 ? share / sum : 0.0;
    }
    return out;
  }

  parallel::PipelineSchedule::Loss loss_over(const Micro& micro) const {
    if (!this->criterion) {
      return {};
    }
    return [this, &micro](const std::vector<at::Tensor>& outputs, std::int64_t number) -> at::Tensor {
      if constexpr (std::same_as<P, at::Tensor>) {
        B batch = micro.batches.at(static_cast<std::size_t>(number));
        return this->compute_loss(outputs.at(0), batch);
      } else {
        detail::fail_prediction();
      }
    };
  }

  /// Loss and prediction of the whole batch, on the last stage.
  StepOutput joined(const parallel::PipelineSchedule::Result& result, const Micro& micro) const {
    StepOutput out;
    if constexpr (std::same_as<P, at::Tensor>) {
      out.loss = detail::weighted_sum(result.losses, micro.shares);
      out.prediction = detail::joined_outputs(result.outputs);
    }
    return out;
  }

  void measure(const StepOutput& out, B& batch) const {
    if (schedule_->has_last_stage()) {
      this->update_split_metrics(out.prediction, batch);
    }
  }

  PrecisionContext forward_now() {
    return this->mode() == RunnerMode::train ? this->train_context() : this->forward_context();
  }

  std::int64_t micro_batches() {
    const auto& names = this->dataloaders.names();
    const auto training = this->train_splits();
    nominal_batch_size_ =
        names.empty() ? 0
                      : this->dataloaders.at(training.empty() ? names.front() : training.front())->options().batch_size;
    return detail::micro_batches_of(this->config().parallel, nominal_batch_size_);
  }

  void withhold(const std::string& split) {
    if constexpr (data::HasPlaceholder<B>) {  // other types of batches are read and not used
      data::Source<B>& source = this->datasets[split];
      detail::check_counted(source.is_stream(), split);
      if (source.dataset() != nullptr && !this->dataloaders.contains(split)) {
        source = std::make_shared<data::PlaceholderDataset<B>>(source.dataset());
      }
    }
  }

  std::vector<StagePart> parts_;
  std::unique_ptr<parallel::PipelineSchedule> schedule_;
  detail::PipelineDrawing drawing_;
  std::int64_t nominal_batch_size_ = 0;
};

/// The runner over the default `Batch`.
class ParallelRunner : public BasicParallelRunner<Batch> {
 public:
  ~ParallelRunner() override;

 protected:
  template <std::derived_from<RunnerConfig> C>
  explicit ParallelRunner(const C& config) : BasicParallelRunner<Batch>(config) {}
};

}  // namespace danling::inline v0
