// State of a Reducer: its parameters and their gradient buckets.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <danling/core/error.hpp>
#include <danling/distributed/reducer.hpp>

#include <distributed/bucket_exchange.hpp>
#include <distributed/powersgd.hpp>

namespace danling::inline v0 {

class Reducer::Impl : public std::enable_shared_from_this<Reducer::Impl> {
 public:
  Impl(const std::vector<at::Tensor>& params, Group group, ReducerOptions options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Called after construction, since the hooks hold weak references to this object.
  void add_hooks();
  bool matches_parameters(const std::vector<at::Tensor>& params) const;
  bool has_started() const { return started_ > 0; }
  void begin_backward(bool closes);
  /// Called when backward has computed the gradient of a parameter.
  void on_gradient(std::size_t index);
  bool has_missing_gradients() const {
    return std::any_of(params_.begin(), params_.end(), [](const Param& param) { return !param.has_gradient; });
  }
  bool has_late_gradients() const { return late_; }

  void finish(bool any_missing, bool any_late);
  void drop_gradients();
  void set_timeout(std::chrono::milliseconds timeout) { exchange_->set_timeout(timeout); }
  void abort(std::string_view reason) { exchange_->abort(reason); }
  void set_loss_scale(const at::Tensor& scale) { exchange_->set_loss_scale(scale); }
  PowerSGDState powersgd_state() const {
    const auto* powersgd = dynamic_cast<const detail::PowerSGDExchange*>(exchange_.get());
    return powersgd != nullptr ? powersgd->state(given_) : PowerSGDState();
  }
  void load_powersgd_state(const PowerSGDState& state) {
    if (auto* powersgd = dynamic_cast<detail::PowerSGDExchange*>(exchange_.get())) {
      powersgd->load_state(state);
    }
  }
  const Group& group() const { return group_; }
  std::string text() const { return text_; }

 private:
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  struct Param {
    at::Tensor tensor;
    std::size_t position = 0;  // among all given parameters, including frozen ones
    at::Tensor view = {};      // into the bucket, with the parameter's shape and strides
    std::size_t bucket = 0;
    Accumulator accumulator = {};
    std::uintptr_t hook = 0;
    bool has_gradient = false;      // in this window
    std::int64_t completed_in = 0;  // number of the backward pass that completed it
  };

  struct Bucket {
    at::Tensor gradients;  // flat
    at::Tensor wire;       // exchanged memory: the gradients, or a narrower copy
    std::vector<std::size_t> params;
    std::int64_t incomplete = 0;  // parameters that the current backward pass has not completed
    std::int64_t version = 0;     // version counter of the gradients when their sum started
    bool started = false;
  };

  // Unknown after construction: sums then start when the window closes, so a resumed run adds in the same order.
  static constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::max();

  void check_alike() const;
  void make_buckets();
  void complete(std::size_t index);
  void adopt(Param& param);
  void start(std::size_t index);
  std::vector<at::Tensor> take_late();
  void add_late(std::vector<at::Tensor> late);
  void forget_unused();
  void check_unchanged() const;

  Group group_;
  ReducerOptions options_;
  std::size_t given_;  // number of parameters, including frozen ones
  std::vector<Param> params_;
  std::vector<Bucket> buckets_;
  std::unique_ptr<detail::BucketExchange> exchange_;
  std::string text_;
  std::size_t started_ = 0;  // number of buckets whose sums have started, in order
  bool closes_ = false;
  bool late_ = false;
  bool is_broken_ = false;
  bool is_observed_ = false;  // a recording is in progress
  std::int64_t pass_ = 0;
  std::int64_t counted_pass_ = 0;           // the last backward pass with gradients of these parameters
  std::int64_t last_passes_ = 0;            // backward passes of the window's last micro-batch
  std::int64_t expected_passes_ = unknown;  // number in the previous window
};

}  // namespace danling::inline v0
