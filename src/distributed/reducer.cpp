#include <danling/distributed/reducer.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function_hook.h>

#include <danling/tape/observer.hpp>

#include <distributed/reducer_impl.hpp>

namespace danling::inline v0 {
namespace {

class CompletionHook : public torch::autograd::FunctionPostHook {
 public:
  explicit CompletionHook(std::function<void()> complete) : complete_(std::move(complete)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    complete_();
    return outputs;
  }

 private:
  std::function<void()> complete_;
};

}  // namespace

Reducer::Impl::Impl(const std::vector<at::Tensor>& params, Group group, ReducerOptions options)
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

Reducer::Impl::~Impl() {
  for (Param& param : params_) {
    if (param.accumulator) {
      param.accumulator->del_post_hook(param.hook);
    }
    if (param.tensor.grad().is_same(param.view)) {  // the bucket's memory is freed
      param.tensor.mutable_grad() = param.has_gradient ? param.view.clone() : at::Tensor();
    }
  }
}

bool Reducer::Impl::matches_parameters(const std::vector<at::Tensor>& params) const {
  std::size_t at = 0;
  for (const at::Tensor& param : params) {
    if (param.requires_grad() && (at == params_.size() || !params_[at++].tensor.is_same(param))) {
      return false;
    }
  }
  return at == params_.size();
}

void Reducer::Impl::begin_backward(bool closes) {
  check<StateError>(
      !is_broken_, "reducer.backward",
      "expected a complete window, got one that was dropped after its sums had started; restart all ranks");
  ++pass_;
  closes_ = closes;
  if (started_ > 0) {
    // Buckets in flight must not change: lets autograd allocate new gradients.
    for (const Param& param : params_) {
      if (buckets_[param.bucket].started && param.tensor.grad().is_same(param.view)) {
        param.tensor.mutable_grad().reset();
      }
    }
  }
}

void Reducer::Impl::complete(std::size_t index) {
  Param& param = params_[index];
  if (counted_pass_ != pass_) {  // first gradient of this pass
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
  if (!closes_ || !options_.overlap || is_observed_ || last_passes_ < expected_passes_ ||
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

void Reducer::Impl::add_hooks() {
  for (std::size_t index = 0; index < params_.size(); ++index) {
    Param& param = params_[index];
    param.accumulator = torch::autograd::impl::grad_accumulator(param.tensor);
    const std::weak_ptr<Impl> self = weak_from_this();
    param.hook = param.accumulator->add_post_hook(std::make_unique<CompletionHook>([self, index] {
      if (const auto reducer = self.lock()) {
        reducer->on_gradient(index);
      }
    }));
  }
}

// Recorded as a host call: replays do the same after they compute the gradient.
void Reducer::Impl::on_gradient(std::size_t index) {
  if (tape::observer() == nullptr) [[likely]] {
    complete(index);
    return;
  }
  if (options_.overlap && closes_ && counted_pass_ != pass_ && last_passes_ > 0) {
    tape::observer()->mark_unrecordable(
        "it has several backward passes, whose sums over processes overlap; set ddp.overlap: false");
  }
  Param& param = params_[index];
  adopt(param);  // the recording includes the copy
  const bool has_gradient = param.tensor.grad().defined();
  const std::weak_ptr<Impl> self = weak_from_this();
  struct End {
    bool& flag;
    ~End() { flag = false; }
  } const end{is_observed_};
  is_observed_ = true;  // sums then start in finish(): the pass may also run in a replay with the same memory
  tape::host_call("a gradient of ddp", {}, [self, index, has_gradient](const tape::Tensors&) {
    if (const auto reducer = self.lock()) {
      Param& again = reducer->params_[index];
      again.tensor.mutable_grad() = has_gradient ? again.view : at::Tensor();
      reducer->complete(index);
    }
  });
}

// Moves a new gradient into the bucket; autograd then accumulates later ones of the window there.
void Reducer::Impl::adopt(Param& param) {
  at::Tensor& grad = param.tensor.mutable_grad();
  if (!grad.defined()) {
    return;
  }
  param.has_gradient = true;
  if (grad.is_same(param.view)) {
    return;
  }
  check<StateError>(grad.layout() == at::kStrided, "reducer.backward",
                    "expected dense gradients, got a sparse one of shape [", join(param.tensor.sizes()),
                    "]; create the embedding with sparse(false)");
  const at::NoGradGuard no_grad;
  param.view.copy_(grad);
  grad = param.view;
}

void Reducer::Impl::start(std::size_t index) {
  const at::NoGradGuard no_grad;
  Bucket& bucket = buckets_[index];
  for (const std::size_t member : bucket.params) {
    if (!params_[member].has_gradient) {
      params_[member].view.zero_();  // contains the sum of an earlier window
    }
  }
  if (!bucket.wire.is_same(bucket.gradients)) {
    bucket.wire.copy_(bucket.gradients);
  }
  bucket.started = true;
  ++started_;
  exchange_->start(index);
  bucket.version = bucket.gradients._version();  // PowerSGD adds its error feedback
}

void Reducer::Impl::finish(bool any_missing, bool any_late) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> late = any_late ? take_late() : std::vector<at::Tensor>();
  for (Param& param : params_) {
    if (!buckets_[param.bucket].started) {
      adopt(param);  // set by the program
    }
  }
  while (started_ < buckets_.size()) {
    start(started_);
  }
  check_unchanged();
  exchange_->finish_all();
  for (Bucket& bucket : buckets_) {
    if (!bucket.wire.is_same(bucket.gradients)) {
      bucket.gradients.copy_(bucket.wire);
    }
    bucket.started = false;
  }
  for (const Param& param : params_) {
    param.tensor.mutable_grad() = param.view;
  }
  if (any_late) {
    add_late(std::move(late));
  }
  if (any_missing) {
    forget_unused();
  }
  expected_passes_ = std::max<std::int64_t>(last_passes_, 1);
  started_ = 0;
  late_ = false;
  drop_gradients();
}

void Reducer::Impl::drop_gradients() {
  is_broken_ = is_broken_ || started_ > 0;
  for (Param& param : params_) {
    param.has_gradient = false;
  }
  last_passes_ = 0;
}

void Reducer::Impl::check_unchanged() const {
  for (const Bucket& bucket : buckets_) {
    check<StateError>(bucket.gradients._version() == bucket.version, "reducer.finish",
                      "expected unchanged gradients between backward() and step(), got changed ones after their "
                      "sum over the ranks had started; set ddp.overlap to false, or change them in optimizer_step()");
  }
}

// Returns gradients of backward passes after the bucket's sum had started; they are summed separately.
std::vector<at::Tensor> Reducer::Impl::take_late() {
  std::vector<at::Tensor> out;
  for (const Param& param : params_) {
    const bool has =
        buckets_[param.bucket].started && param.tensor.grad().defined() && !param.tensor.grad().is_same(param.view);
    out.push_back(has ? param.tensor.grad() : at::Tensor());
  }
  return out;
}

void Reducer::Impl::add_late(std::vector<at::Tensor> late) {
  for (std::size_t index = 0; index < params_.size(); ++index) {
    at::Tensor sum = late[index].defined() ? late[index].resolve_conj().resolve_neg().contiguous()
                                           : at::zeros_like(params_[index].view);
    at::Tensor numbers = sum.is_complex() ? at::view_as_real(sum) : sum;
    group_.all_reduce(numbers);
    params_[index].view.add_(sum);
  }
}

// As in one process: a parameter outside of the graph has no gradient, and the optimizer skips it.
void Reducer::Impl::forget_unused() {
  std::string mine(params_.size(), '0');
  for (std::size_t index = 0; index < params_.size(); ++index) {
    mine[index] = params_[index].has_gradient ? '1' : '0';
  }
  const auto all = group_.all_gather(mine);
  for (std::size_t index = 0; index < params_.size(); ++index) {
    if (std::all_of(all.begin(), all.end(), [index](const std::string& rank) { return rank[index] == '0'; })) {
      params_[index].tensor.mutable_grad().reset();
    }
  }
}

Reducer::Reducer(const std::vector<at::Tensor>& params, Group group, ReducerOptions options)
    : impl_(std::make_shared<Impl>(params, std::move(group), options)) {
  impl_->add_hooks();
}
Reducer::~Reducer() = default;
bool Reducer::matches_parameters(const std::vector<at::Tensor>& params) const {
  return impl_->matches_parameters(params);
}
bool Reducer::has_started() const { return impl_->has_started(); }
void Reducer::begin_backward(bool closes) { impl_->begin_backward(closes); }
bool Reducer::has_missing_gradients() const { return impl_->has_missing_gradients(); }
bool Reducer::has_late_gradients() const { return impl_->has_late_gradients(); }
void Reducer::finish(bool any_missing, bool any_late) { impl_->finish(any_missing, any_late); }
void Reducer::finish() {
  const std::string all =
      join(impl_->group().all_gather(concat(has_missing_gradients() ? "m" : "", has_late_gradients() ? "l" : "")));
  finish(all.find('m') != std::string::npos, all.find('l') != std::string::npos);
}
void Reducer::drop_gradients() { impl_->drop_gradients(); }
PowerSGDState Reducer::powersgd_state() const { return impl_->powersgd_state(); }
void Reducer::load_powersgd_state(const PowerSGDState& state) { impl_->load_powersgd_state(state); }
void Reducer::set_loss_scale(const at::Tensor& scale) { impl_->set_loss_scale(scale); }
void Reducer::abort(std::string_view reason) { impl_->abort(reason); }
void Reducer::set_timeout(std::chrono::milliseconds timeout) { impl_->set_timeout(timeout); }
std::string Reducer::transport() const { return impl_->text(); }

}  // namespace danling::inline v0
