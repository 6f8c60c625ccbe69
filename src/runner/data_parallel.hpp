// Data parallel training: each rank computes its part of every global batch, and gradients are summed over all ranks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <danling/distributed/reducer.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/process_options.hpp>

#include <runner/data_parallel_buffers.hpp>
#include <runner/data_parallel_layers.hpp>

namespace danling::inline v0::detail {

class DataParallel : public Parallelism {
 public:
  DataParallel(Group group, const DdpConfig& ddp, std::chrono::milliseconds timeout);

  std::string_view name() const override { return "ddp"; }
  bool sums_gradients() const override { return true; }
  bool sums_in_backward() const override { return options_.overlap; }

  /// Copies parameters and buffers of rank 0 to all ranks. @throws DistributedError when models differ
  void prepare(ModelHandle& model, at::Device device) override;
  void prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers) override;

  State state_dict() const override;
  std::string load_state_dict(const State& state) override;

  void begin_step(const WindowPlace& place) override;
  void end_step(const WindowPlace& place) noexcept override;
  void set_loss_scale(const optim::Optimizer& optimizer, const at::Tensor& scale) override;
  void begin_backward(const WindowPlace& place) override;
  void backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace& place,
                const BackwardOptions& options) override;
  StepPacket exchange_packets(const StepPacket& mine) override;
  void reduce_gradients(optim::Optimizer& optimizer) override;
  void drop_gradients(optim::Optimizer& optimizer) override;
  void abort(std::string_view words) override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  bool needs_every_backward() const override { return !layers_.empty(); }
  std::string unrecordable_reason() const override;
  std::int64_t recording_version() const override { return reducers_made_; }
  void end_updates() override;

 protected:
  void join_exchange(const std::vector<std::string>& shares) override { layers_.join_exchange(shares); }

 private:
  Reducer& reducer_of(const optim::Optimizer& optimizer);

  ReducerOptions options_;
  std::map<const optim::Optimizer*, std::unique_ptr<Reducer>> reducers_;
  std::map<const optim::Optimizer*, at::Tensor> loss_scales_;
  std::vector<const optim::Optimizer*> learners_;  // by their number in a packet
  std::vector<const optim::Optimizer*> order_;     // order in which their reducers were built, the same on all ranks
  std::vector<PowerSGDState> restored_;            // for reducers that are not built yet, in this order
  SyncedLayers layers_;
  std::vector<SharedBuffers> buffers_;  // of each model
  std::int64_t reducers_made_ = 0;
  bool has_stale_buffers_ = false;
  bool broadcasts_buffers_;
  bool any_missing_ = false;  // in the last packet
  bool any_late_ = false;
  std::int64_t source_ = -1;
  bool closes_ = false;
};

}  // namespace danling::inline v0::detail
