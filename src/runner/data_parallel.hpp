// Data parallel training: each rank computes its part of every global batch, and gradients are summed over all ranks.
#pragma once

#include <map>
#include <memory>

#include <danling/distributed/reducer.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/process_options.hpp>

namespace danling::inline v0::detail {

class DataParallel : public Parallelism {
 public:
  DataParallel(Group group, const DdpConfig& ddp, std::chrono::milliseconds timeout);

  std::string_view name() const override { return "ddp"; }
  bool sums_gradients() const override { return true; }
  bool sums_in_backward() const override { return options_.overlap; }

  /// Parameters and buffers become those of rank 0. @throws DistributedError when models differ.
  void prepare(ModelHandle& model, at::Device device) override;
  void prepare_optimizer(optim::Optimizer& optimizer) override;

  void begin_step(const WindowPlace& place) override;
  void backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace& place,
                const BackwardOptions& options) override;
  StepPacket agree(const StepPacket& mine) override;
  void reduce_gradients(optim::Optimizer& optimizer) override;
  void drop_gradients(optim::Optimizer& optimizer) override;
  void abort(std::string_view words) override;
  void set_timeout(std::chrono::milliseconds timeout) override;

 private:
  Reducer& reducer_of(const optim::Optimizer& optimizer);

  ReducerOptions options_;
  std::map<const optim::Optimizer*, std::unique_ptr<Reducer>> reducers_;
  bool any_missing_ = false;  // by the last packet
  bool any_late_ = false;
  bool closes_ = false;
};

}  // namespace danling::inline v0::detail
