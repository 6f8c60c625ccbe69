// The state of a Reducer: its parameters and the buckets that hold their gradients.
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

#include "distributed/bucket_exchange.hpp"
#include "distributed/powersgd.hpp"

namespace danling::inline v0 {

class Reducer::Impl : public std::enable_shared_from_this<Reducer::Impl> {
 public:
  Impl(const std::vector<at::Tensor>& params, Group group, ReducerOptions options)
      : group_(std::move(group)), options_(options), given_(params.size()) {
    for (std::size_t position = 0; position < given_; ++position) {
      const at::Tensor& param = params[position];
      if (!param.requires_grad()) {
        continue;
      }
      if (!params_.empty() && param.device() != params_.front().tensor.device()) {
        fail<DistributedError>("reducer.params", "expected parameters on one device, got ",
                               c10::str(params_.front().tensor.device()), " and ", c10::str(param.device()));
      }
      params_.push_back({.tensor = param, .position = position});
    }
    check_alike();
    make_buckets();
  }

  // After construction, since the hooks refer to this object weakly.
  void add_hooks();

  ~Impl() {
    for (Param& param : params_) {
      if (param.accumulator) {
        param.accumulator->del_post_hook(param.hook);
      }
      if (param.tensor.grad().is_same(param.view)) {  // its memory is going
        param.tensor.mutable_grad() = param.has_gradient ? param.view.clone() : at::Tensor();
      }
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool covers(const std::vector<at::Tensor>& params) const {
    std::size_t at = 0;
    for (const at::Tensor& param : params) {
      if (param.requires_grad() && (at == params_.size() || !params_[at++].tensor.is_same(param))) {
        return false;
      }
    }
    return at == params_.size();
  }

  bool has_started() const { return started_ > 0; }

  void begin_backward(bool closes) {
    check<StateError>(
        !is_broken_, "reducer.backward",
        "expected whole windows, got one that was dropped after its sums had begun; start all ranks again");
    ++pass_;
    closes_ = closes;
    if (started_ > 0) {
      // A bucket that is being summed must not change: autograd makes new gradients.
      for (const Param& param : params_) {
        if (buckets_[param.bucket].started && param.tensor.grad().is_same(param.view)) {
          param.tensor.mutable_grad().reset();
        }
      }
    }
  }

  void complete(std::size_t index) {
    Param& param = params_[index];
    if (counted_pass_ != pass_) {  // this pass has gradients of these parameters
      counted_pass_ = pass_;
      last_passes_ += closes_ ? 1 : 0;
      for (Bucket& bucket : buckets_) {
        bucket.incomplete = std::ssize(bucket.params);
      }
    }
    Bucket& bucket = buckets_[param.bucket];
    if (bucket.started) {
      late_ = true;
      return;
    }
    adopt(param);
    if (!closes_ || !options_.overlap || last_passes_ < expected_passes_ ||
        std::exchange(param.completed_in, pass_) == pass_) {
      return;
    }
    if (--bucket.incomplete == 0) {
      while (started_ < buckets_.size() && buckets_[started_].incomplete == 0) {
        start(started_);
      }
    }
    exchange_->poll();
  }

  bool is_missing() const {
    return std::any_of(params_.begin(), params_.end(), [](const Param& param) { return !param.has_gradient; });
  }
  bool is_late() const { return late_; }

  void finish(bool any_missing, bool any_late);
  void drop();
  void set_timeout(std::chrono::milliseconds timeout) { exchange_->set_timeout(timeout); }
  void abort(std::string_view reason) { exchange_->abort(reason); }
  void set_loss_scale(at::Tensor scale) { exchange_->set_loss_scale(std::move(scale)); }
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
    std::size_t position = 0;  // among those given, frozen ones too
    at::Tensor view = {};      // of its bucket, with the parameter's shape and strides
    std::size_t bucket = 0;
    Accumulator accumulator = {};
    std::uintptr_t hook = 0;
    bool has_gradient = false;      // in this window
    std::int64_t completed_in = 0;  // the backward pass that has completed it
  };

  struct Bucket {
    at::Tensor gradients;  // flat
    at::Tensor wire;       // what travels: the gradients themselves, or narrower numbers
    std::vector<std::size_t> params;
    std::int64_t incomplete = 0;  // parameters that the current backward pass has not completed
    std::int64_t version = 0;     // of the gradients when their sum began
    bool started = false;
  };

  // Sums then begin when the window closes: a run that is resumed there adds in the same order.
  static constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::max();

  void check_alike() const;
  void make_buckets();
  void adopt(Param& param);
  void start(std::size_t index);
  std::vector<at::Tensor> take_late();
  void add_late(std::vector<at::Tensor> late);
  void forget_unused();
  void check_unchanged() const;

  Group group_;
  ReducerOptions options_;
  std::size_t given_;  // parameters, frozen ones too
  std::vector<Param> params_;
  std::vector<Bucket> buckets_;
  std::unique_ptr<detail::BucketExchange> exchange_;
  std::string text_;
  std::size_t started_ = 0;  // buckets whose sums have begun, in order
  bool closes_ = false;
  bool late_ = false;
  bool is_broken_ = false;
  std::int64_t pass_ = 0;
  std::int64_t counted_pass_ = 0;           // the last one with gradients of these parameters
  std::int64_t last_passes_ = 0;            // passes of the window's last micro-batch
  std::int64_t expected_passes_ = unknown;  // as many as in the window before
};

}  // namespace danling::inline v0
