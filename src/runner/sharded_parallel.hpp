// Training on a grid of processes: each rank computes its part of every global batch with rows, slices or layers of the
// parameters, gradients and optimizer states.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <danling/parallel/sharded_model.hpp>
#include <danling/parallel/slices.hpp>
#include <danling/parallel/topology.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/process_options.hpp>

#include <runner/data_parallel_buffers.hpp>
#include <runner/shard_buffers.hpp>

namespace danling::inline v0::detail {

/// The grid that the config describes, with the domains of DanLing and "replicas": the ranks with the same rows.
/// @throws ConfigError, with the product, when it does not match the world size
ParallelTopology grid_topology(std::int64_t world_size, std::int64_t rank, std::vector<ParallelAxis> axes);

/// A dtype of `fsdp.mp_policy`; undefined if unset.
at::ScalarType shard_dtype(const std::optional<std::string>& name);

/// Sums gradients over the axes of the domain `fsdp`; shards parameters over the axis `shard`. Slices (tensor, expert)
/// and stages (pipeline) belong to the model and communicate by themselves.
class ShardedParallel : public Parallelism {
 public:
  /// For one axis, `shard`.
  ShardedParallel(Group group, const FsdpConfig& fsdp);
  /// Called by all ranks. @param world  has the ranks of the topology. @param tensor_plan  for models that do not slice
  /// themselves
  /// @param virtual_ranks  shards of each global batch, only with the axes replicate and shard: parameters then have
  /// the same bits for every layout. @throws ConfigError for more processes than virtual ranks
  ShardedParallel(Group world, ParallelTopology topology, const FsdpConfig& fsdp,
                  std::vector<std::string> tensor_plan = {}, std::optional<std::int64_t> virtual_ranks = {});

  std::string_view name() const override { return context_.topology().axis_degree("shard") > 1 ? "fsdp" : "parallel"; }
  AxisPlace axis(std::string_view name) const override;
  AxisPlace data_share() const override;
  std::uint64_t seed(std::uint64_t run_seed) const override;
  std::optional<std::int64_t> generators_from(const State& axes, std::int64_t ranks) const override;
  /// True on one of the ranks that compute the same samples: on the last stage, the first slice.
  bool reports_metrics() const override;
  std::int64_t num_reporting_ranks() const override { return context_.topology().domain_degree("fsdp"); }
  const ParallelContext& context() const { return context_; }
  /// For a pipeline, before data is loaded: sets whether this rank has the first and the last stage. Default: the first
  /// and the last rank have them.
  void set_stages(bool has_first, bool has_last);
  /// True when this rank has the first or the last stage of the pipeline.
  bool reads_data() const { return has_first_stage_ || has_last_stage_; }
  /// Inside a step, before a backward pass of a pipeline: sets whether its gradients are summed, if the window closes.
  void sync_gradients(bool last);
  bool sums_gradients() const override { return true; }
  bool sums_in_backward() const override { return true; }
  bool has_same_weights() const override;
  /// Stages run at different times, so a rank without a batch could not follow what others gather.
  bool needs_equal_batches() const override;
  bool needs_every_backward() const override { return true; }
  bool computes_shards() const override { return !shards_.empty(); }

  /// @throws ConfigError for a model that is not a torch::nn module, DistributedError when models differ
  void prepare(ModelHandle& model, at::Device device) override;
  /// Before prepare(), for a runner that cuts the model into slices or stages: moves it to the device and copies rank
  /// 0's weights, which prepare() then skips. Called by all ranks.
  void prepare_whole(ModelHandle& model, at::Device device);
  NamedTensors trained_parameters(const ModelHandle& model) const override;
  /// @throws ConfigError for an optimizer over whole parameters, or whose rule needs them
  void prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers) override;

  std::shared_ptr<void> gather_full_state(const std::vector<const optim::Optimizer*>& optimizers, bool writes) override;
  State optimizer_state(const optim::Optimizer& optimizer) const override;
  void load_optimizer_state(optim::Optimizer& optimizer, const State& state) override;
  std::optional<TensorShard> shard_of(const at::Tensor& parameter) const override;
  bool can_gather_full_state() const override;
  void parameters_changed() override;

  bool splits_parameters() const override;
  bool has_whole_parameters() const override;
  at::Tensor full_tensor(const at::Tensor& trained, const at::Tensor& part) const override;
  at::Tensor local_tensor(const at::Tensor& trained, const at::Tensor& whole) const override;

  void begin_step(const WindowPlace& place) override;
  void backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace& place,
                const BackwardOptions& options) override;
  void end_step(const WindowPlace& place) noexcept override;
  StepPacket exchange_packets(const StepPacket& mine) override;
  void end_shard(optim::Optimizer& optimizer) override;
  void reduce_gradients(optim::Optimizer& optimizer) override;
  void zero_grad(optim::Optimizer& optimizer) override;
  void end_updates() override;
  void abort(std::string_view words) override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  void drop_gradients(optim::Optimizer& optimizer) override;
  at::Tensor nonfinite_flag(const std::vector<at::Tensor>& params) override;
  at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, optim::GradScale& scale) override;

  bool begin_forward(bool mine) override;
  void end_forward() override;
  void drop_forward() noexcept override { leave(); }

 protected:
  void join_exchange(const std::vector<std::string>& shares) override;

 private:
  struct Exposed;
  struct Sharded {
    std::unique_ptr<ShardedModel> model;
    std::set<const c10::TensorImpl*> trained;  // updated by its optimizer
    SharedBuffers buffers;
    std::optional<ShardBuffers> of_shards;  // with virtual ranks, in place of `buffers`
    bool is_stale = false;                  // an update has changed parameters of stage 1 or 2 since

    bool is_of(const optim::Optimizer& optimizer) const;
  };

  void make_whole(ModelHandle& model, at::Device device);
  void enter(bool syncs, bool announces);
  void leave() noexcept;
  void announce(bool announces);
  void bring_up_to_date(Sharded& sharded);
  /// With virtual ranks: joins the collectives of ranks that have more shards of the batch.
  void follow_shards(const Group& peers);
  State gather_state(const optim::Optimizer& optimizer) const;
  bool owns(const at::Tensor& trained) const;

  FsdpConfig options_;
  std::vector<Subtree> shards_;  // by rank; empty without virtual ranks
  std::vector<std::string> tensor_plan_;
  ParallelContext context_;
  bool is_cut_by_runner_ = false;
  bool has_first_stage_ = true, has_last_stage_ = true;
  std::map<const c10::TensorImpl*, std::vector<parallel::Slice>> slices_;  // of tensors that the optimizer updates
  std::map<const c10::TensorImpl*, at::Tensor> trained_;                   // by the model's parameter
  std::map<const c10::TensorImpl*, std::vector<std::int64_t>> sizes_;      // of the whole parameters of those
  std::map<const c10::TensorImpl*, at::Tensor> leaves_;                    // of graphs, for those
  std::vector<Sharded> models_;
  std::vector<std::unique_ptr<ShardedModel::Step>> steps_;
  std::weak_ptr<void> exposed_;
  std::map<const optim::Optimizer*, State> states_;  // full states, while exposed
  std::int64_t source_ = -1;                         // first rank that has batches, from the last packet
  bool has_ended_ = false;                           // the pass of this rank
  bool syncs_ = true;                                // the window closes with the step in progress
  bool announces_ = false;                           // announces the collectives of the step in progress
  const Group* announced_to_ = nullptr;              // the ranks that receive the announcements
};

}  // namespace danling::inline v0::detail
