#include <danling/distributed/reducer.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <danling/core/error.hpp>

#include "distributed/bucket_exchange.hpp"
#include "distributed/packing.hpp"
#include "distributed/powersgd.hpp"

namespace danling::inline v0 {
namespace {

constexpr std::int64_t alignment = 16;  // elements: a cache line of float32

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
constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::max();

std::string describe(const std::vector<at::Tensor>& params) {
  std::string out;
  for (const at::Tensor& param : params) {
    out += concat(c10::toString(param.scalar_type()), "[", join(param.sizes()), "] ");
  }
  return out;
}

}  // namespace

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

void Reducer::Impl::check_alike() const {
  std::vector<at::Tensor> tensors;
  for (const Param& param : params_) {
    tensors.push_back(param.tensor);
  }
  const auto all = group_.all_gather(describe(tensors));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    check<DistributedError>(all[rank] == all.front(), "reducer.params",
                            "expected the same parameters that require gradients on all ranks, got ", all.front(),
                            "on rank 0 and ", all[rank], "on rank ", rank);
  }
}

// The last parameters are complete first.
void Reducer::Impl::make_buckets() {
  std::vector<detail::BucketShape> shapes;
  std::vector<std::vector<std::pair<std::size_t, std::int64_t>>> places;  // of each bucket: parameter and offset
  std::vector<std::int64_t> sizes;
  std::vector<at::ScalarType> dtypes;
  for (std::size_t left = params_.size(); left > 0; --left) {
    Param& param = params_[left - 1];
    const at::ScalarType dtype = param.tensor.scalar_type();
    check<DistributedError>(at::isFloatingType(dtype), "reducer.params", "expected floating parameters, got ",
                            c10::toString(dtype));
    std::size_t at = sizes.size();
    while (at > 0 && dtypes[at - 1] != dtype) {
      --at;
    }
    const std::int64_t limit = (at == 1 ? options_.first_bucket_bytes : options_.bucket_bytes) /
                               static_cast<std::int64_t>(c10::elementSize(dtype));
    const std::int64_t count = (param.tensor.numel() + alignment - 1) / alignment * alignment;
    if (at == 0 || sizes[at - 1] + count > limit) {
      sizes.push_back(0);
      dtypes.push_back(dtype);
      places.emplace_back();
      at = sizes.size();
    }
    param.bucket = at - 1;
    places[at - 1].emplace_back(left - 1, sizes[at - 1]);
    sizes[at - 1] += count;
  }
  const at::Device device = params_.empty() ? at::Device(at::kCPU) : params_.front().tensor.device();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool narrows = options_.wire_dtype != at::ScalarType::Undefined &&
                         c10::elementSize(dtypes[i]) > c10::elementSize(options_.wire_dtype);
    shapes.push_back({sizes[i], narrows ? options_.wire_dtype : dtypes[i], device});
  }
  if (options_.powersgd) {
    std::vector<std::vector<detail::BucketPiece>> pieces;
    for (const auto& of_bucket : places) {
      auto& out = pieces.emplace_back();
      for (const auto& [index, offset] : of_bucket) {
        out.push_back(detail::piece_of(params_[index].tensor, params_[index].position, offset));
      }
    }
    auto powersgd = std::make_unique<detail::PowerSGDExchange>(group_, shapes, std::move(pieces), *options_.powersgd,
                                                               options_.shared_memory, options_.timeout);
    text_ = powersgd->name();
    exchange_ = std::move(powersgd);
  } else {
    exchange_ = detail::make_exchange(group_, shapes, options_.shared_memory, options_.timeout, text_);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Bucket bucket;
    bucket.wire = exchange_->memory(i);
    bucket.gradients = shapes[i].dtype == dtypes[i]
                           ? bucket.wire
                           : at::zeros({sizes[i]}, at::TensorOptions().dtype(dtypes[i]).device(device));
    for (const auto& [index, offset] : places[i]) {
      bucket.params.push_back(index);
      Param& param = params_[index];
      const at::Tensor flat = bucket.gradients.narrow(0, offset, param.tensor.numel());
      param.view = param.tensor.is_non_overlapping_and_dense()
                       ? flat.as_strided(param.tensor.sizes(), param.tensor.strides(), flat.storage_offset())
                       : flat.view(param.tensor.sizes());
    }
    buckets_.push_back(std::move(bucket));
  }
}

void Reducer::Impl::add_hooks() {
  for (std::size_t index = 0; index < params_.size(); ++index) {
    Param& param = params_[index];
    param.accumulator = torch::autograd::impl::grad_accumulator(param.tensor);
    const std::weak_ptr<Impl> self = weak_from_this();
    param.hook = param.accumulator->add_post_hook(std::make_unique<CompletionHook>([self, index] {
      if (const auto reducer = self.lock()) {
        reducer->complete(index);
      }
    }));
  }
}

// Moves a new gradient into the bucket; later ones of the window are added there by autograd.
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
      params_[member].view.zero_();  // it holds the sum of an earlier window
    }
  }
  if (!bucket.wire.is_same(bucket.gradients)) {
    bucket.wire.copy_(bucket.gradients);
  }
  bucket.started = true;
  ++started_;
  exchange_->start(index);
  bucket.version = bucket.gradients._version();  // PowerSGD adds its feedback
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
  drop();
}

void Reducer::Impl::drop() {
  is_broken_ = is_broken_ || started_ > 0;
  for (Param& param : params_) {
    param.has_gradient = false;
  }
  last_passes_ = 0;
}

void Reducer::Impl::check_unchanged() const {
  for (const Bucket& bucket : buckets_) {
    check<StateError>(bucket.gradients._version() == bucket.version, "reducer.finish",
                      "expected gradients that nothing changes between backward() and step(), got changed ones, whose "
                      "sum over the ranks had begun; set ddp.overlap to false, or change them in optimizer_step()");
  }
}

// Gradients of passes after the bucket's sum began: added in a sum of their own.
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
    at::Tensor sum = late[index].defined() ? late[index].contiguous() : at::zeros_like(params_[index].view);
    group_.all_reduce(sum);
    params_[index].view.add_(sum);
  }
}

// As in one process, where a parameter outside of the graph has no gradient, and the optimizer leaves it alone.
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
bool Reducer::covers(const std::vector<at::Tensor>& params) const { return impl_->covers(params); }
bool Reducer::has_started() const { return impl_->has_started(); }
void Reducer::begin_backward(bool closes) { impl_->begin_backward(closes); }
bool Reducer::is_missing() const { return impl_->is_missing(); }
bool Reducer::is_late() const { return impl_->is_late(); }
void Reducer::finish(bool any_missing, bool any_late) { impl_->finish(any_missing, any_late); }
void Reducer::finish() {
  const std::string all = join(impl_->group().all_gather(concat(is_missing() ? "m" : "", is_late() ? "l" : "")));
  finish(all.find('m') != std::string::npos, all.find('l') != std::string::npos);
}
void Reducer::drop() { impl_->drop(); }
PowerSGDState Reducer::powersgd_state() const { return impl_->powersgd_state(); }
void Reducer::load_powersgd_state(const PowerSGDState& state) { impl_->load_powersgd_state(state); }
void Reducer::set_loss_scale(at::Tensor scale) { impl_->set_loss_scale(std::move(scale)); }
void Reducer::abort(std::string_view reason) { impl_->abort(reason); }
void Reducer::set_timeout(std::chrono::milliseconds timeout) { impl_->set_timeout(timeout); }
std::string Reducer::text() const { return impl_->text(); }

}  // namespace danling::inline v0
