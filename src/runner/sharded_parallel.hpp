// Sharded training: each rank computes its part of every global batch with rows of the parameters, gradients and
// optimizer states of its own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <danling/parallel/sharded_model.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/process_options.hpp>

#include "runner/data_parallel_buffers.hpp"

namespace danling::inline v0::detail {

class ShardedParallel : public Parallelism {
 public:
  ShardedParallel(Group group, const FsdpConfig& fsdp);

  std::string_view name() const override { return "fsdp"; }
  bool sums_gradients() const override { return true; }
  bool sums_in_backward() const override { return true; }
  bool needs_every_backward() const override { return true; }

  /// @throws ConfigError for a model that is no torch::nn module, DistributedError when models differ.
  void prepare(ModelHandle& model, at::Device device) override;
  NamedTensors trained_parameters(const ModelHandle& model) const override;
  /// @throws ConfigError for an optimizer of whole parameters, or whose rule needs them
  void prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers) override;

  std::shared_ptr<void> expose(const std::vector<const optim::Optimizer*>& optimizers, bool writes) override;
  State optimizer_state(const optim::Optimizer& optimizer) const override;
  void load_optimizer_state(optim::Optimizer& optimizer, const State& state) override;

  void begin_step(const WindowPlace& place) override;
  void end_step(const WindowPlace& place) noexcept override;
  StepPacket agree(const StepPacket& mine) override;
  void reduce_gradients(optim::Optimizer& optimizer) override;
  void drop_gradients(optim::Optimizer& optimizer) override;
  at::Tensor nonfinite_flag(const std::vector<at::Tensor>& params) override;
  at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, optim::GradScale& scale) override;

  bool begin_forward(bool mine) override;
  void end_forward() override;
  void drop_forward() noexcept override { leave(); }

 protected:
  void follow(const std::vector<std::string>& shares) override;

 private:
  struct Exposed;
  struct Sharded {
    std::unique_ptr<ShardedModel> model;
    SharedBuffers buffers;
  };

  void enter(bool syncs, bool announces);
  void leave() noexcept;
  State gather_state(const optim::Optimizer& optimizer) const;

  FsdpConfig options_;
  std::vector<Sharded> models_;
  std::vector<std::unique_ptr<ShardedModel::Step>> steps_;
  std::weak_ptr<void> exposed_;
  std::map<const optim::Optimizer*, State> states_;  // whole ones, while exposed
  std::int64_t source_ = -1;                         // the first rank that has batches, by the last packet
  bool has_ended_ = false;                           // this rank's pass
  bool announces_ = false;                           // the collectives of the step in progress
};

}  // namespace danling::inline v0::detail
