#include <danling/metrics/average_meter.hpp>

#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace {

// MPS has no float64.
at::ScalarType sum_type(const at::Device& device) { return device.is_mps() ? at::kFloat : at::kDouble; }

at::Tensor full(at::IntArrayRef shape, double value, const at::Device& device) {
  // A sum made in inference mode could not be added to outside of it.
  const c10::InferenceMode normal(false);
  return at::full(shape, value, at::TensorOptions().dtype(sum_type(device)).device(device));
}

void check_weight(std::int64_t n, const char* where) {
  check<MetricError>(n >= 0, where, "expected a weight of at least 0, got ", n);
}

void check_real(const at::Tensor& value, const char* where) {
  if (!value.defined() || value.is_complex()) [[unlikely]] {
    fail<MetricError>(where, "expected a real tensor, got ", detail::tensor_text(value));
  }
}

void check_scalar(const at::Tensor& sum) {
  check_real(sum, "average_meter.add");
  if (sum.numel() != 1) [[unlikely]] {
    fail<MetricError>("average_meter.add", "expected a scalar, got ", detail::tensor_text(sum));
  }
}

// Without its graph and dimensions.
at::Tensor as_scalar(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.detach() : tensor.detach().reshape({});
}

[[noreturn]] void fail_mixed(at::IntArrayRef before, const std::string& now) {
  fail<MetricError>("average_meter.update", "expected ",
                    before.empty() ? "a scalar" : "a tensor of shape " + detail::shape_text(before), " as before, got ",
                    now, "; call reset() between the two");
}

Result::Value value_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0) {
    return detail::read_scalar(tensor);
  }
  const at::Tensor host = tensor.cpu().to(at::kDouble).contiguous();
  const auto* data = host.const_data_ptr<double>();
  return std::vector<double>(data, data + host.numel());
}

}  // namespace

struct AverageMeter::Tensors {
  Tensors() = default;
  // The two that are added to in place are this meter's own; the others are only ever replaced.
  Tensors(const Tensors& other)
      : last(other.last),
        last_n(other.last_n),
        last_is_sum(other.last_is_sum),
        sum(other.sum.clone()),
        count(other.count.defined() ? other.count.clone() : other.count) {}
  Tensors& operator=(const Tensors&) = delete;

  at::Tensor last;    // undefined when `value_` is the last
  at::Tensor last_n;  // undefined when `n_` is the last weight
  bool last_is_sum = false;
  at::Tensor sum;    // always defined
  at::Tensor count;  // on top of `count_`; undefined while no weight came from a device
};

AverageMeter::AverageMeter() = default;
AverageMeter::~AverageMeter() = default;
AverageMeter::AverageMeter(AverageMeter&&) noexcept = default;
AverageMeter& AverageMeter::operator=(AverageMeter&&) noexcept = default;
AverageMeter& AverageMeter::operator=(const AverageMeter& other) { return *this = AverageMeter(other); }
AverageMeter::AverageMeter(const AverageMeter& other)
    : value_(other.value_),
      sum_(other.sum_),
      n_(other.n_),
      count_(other.count_),
      tensors_(other.tensors_ != nullptr ? std::make_unique<Tensors>(*other.tensors_) : nullptr) {}

void AverageMeter::reset() {
  value_ = 0.0;
  sum_ = 0.0;
  n_ = 0;
  count_ = 0;
  tensors_.reset();
}

void AverageMeter::update(const at::Tensor& value, std::int64_t n) {
  check_real(value, "average_meter.update");
  if (value.numel() != 1) {
    update_elements(value, n);
  } else if (value.is_cpu()) {
    update(detail::read_scalar(value), n);
  } else {
    check_weight(n, "average_meter.update");
    const at::Tensor scalar = as_scalar(value);
    use_tensors(scalar);
    if (n > 0) {
      tensors_->sum.add_(scalar, n);
    }
    record_tensor(scalar, /*is_sum=*/false, n);
  }
}

void AverageMeter::update_elements(const at::Tensor& value, std::int64_t n) {
  check_weight(n, "average_meter.update");
  if (tensors_ == nullptr && count_ > 0) {
    fail_mixed({}, "a tensor of shape " + detail::shape_text(value.sizes()));
  }
  // A copy: what a metric returns may be its own buffer, changed in place at the next batch.
  const at::Tensor copy = value.detach().to(sum_type(value.device()), /*non_blocking=*/false, /*copy=*/true);
  use_tensors(copy);
  if (n > 0) {
    tensors_->sum.add_(copy, n);
  }
  record_tensor(copy, /*is_sum=*/false, n);
}

void AverageMeter::add(const at::Tensor& sum, std::int64_t n) {
  check_scalar(sum);
  if (sum.is_cpu()) {
    add(detail::read_scalar(sum), n);
    return;
  }
  check_weight(n, "average_meter.add");
  const at::Tensor scalar = as_scalar(sum);
  use_tensors(scalar);
  if (n > 0) {
    tensors_->sum.add_(scalar);
  }
  record_tensor(scalar, /*is_sum=*/true, n);
}

void AverageMeter::add(const at::Tensor& sum, const at::Tensor& n) {
  if (!n.defined() || n.numel() != 1 || !at::isIntegralType(n.scalar_type(), /*includeBool=*/false)) [[unlikely]] {
    fail<MetricError>("average_meter.add", "expected an integer scalar as weight, got ", detail::tensor_text(n));
  }
  if (n.is_cpu()) {
    add(sum, n.item().toLong());
    return;
  }
  check_scalar(sum);
  const at::Tensor scalar = as_scalar(sum).to(n.device());
  const at::Tensor weight = as_scalar(n);
  use_tensors(scalar);
  tensors_->sum.add_(scalar);
  if (tensors_->count.defined()) {
    tensors_->count.add_(weight);
  } else {
    const c10::InferenceMode normal(false);
    tensors_->count = weight.to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
  }
  record_tensor(scalar, /*is_sum=*/true, 0);
  tensors_->last_n = weight;
}

void AverageMeter::record_number(double value, double addend, std::int64_t n) {
  check_weight(n, "average_meter.update");
  if (tensors_ == nullptr) {
    value_ = value;
    sum_ += n > 0 ? addend : 0.0;
  } else if (const auto shape = tensors_->sum.sizes(); !shape.empty()) {
    if (n > 0) {
      fail_mixed(shape, "a number");
    }
    tensors_->last = full(shape, value, tensors_->sum.device());
    tensors_->last_is_sum = false;
  } else {
    value_ = value;
    tensors_->last = at::Tensor();
    tensors_->last_n = at::Tensor();
    if (n > 0) {
      tensors_->sum.add_(addend);
    }
  }
  n_ = n;
  count_ += n;
}

void AverageMeter::record_tensor(const at::Tensor& last, bool is_sum, std::int64_t n) {
  tensors_->last = last;
  tensors_->last_n = at::Tensor();
  tensors_->last_is_sum = is_sum;
  n_ = n;
  count_ += n;
}

// The sum as a tensor of the shape and on the device of `like`. What is on the host so far goes along, so that the
// order of additions, and with it every bit, is that of a meter that was restored from a checkpoint.
void AverageMeter::use_tensors(const at::Tensor& like) {
  if (tensors_ == nullptr) {
    tensors_ = std::make_unique<Tensors>();
    tensors_->sum = full(like.sizes(), sum_, like.device());
    sum_ = 0.0;
    return;
  }
  if (tensors_->sum.sizes() != like.sizes()) {
    fail_mixed(tensors_->sum.sizes(),
               like.dim() == 0 ? "a scalar" : "a tensor of shape " + detail::shape_text(like.sizes()));
  }
  if (tensors_->sum.device() != like.device()) {
    tensors_->sum = tensors_->sum.to(like.device(), sum_type(like.device()));
    if (tensors_->count.defined()) {
      tensors_->count = tensors_->count.to(like.device());
    }
  }
}

std::int64_t AverageMeter::count() const {
  const bool on_device = tensors_ != nullptr && tensors_->count.defined();
  return count_ + (on_device ? tensors_->count.item().toLong() : 0);
}

std::int64_t AverageMeter::n() const {
  const bool on_device = tensors_ != nullptr && tensors_->last_n.defined();
  return on_device ? tensors_->last_n.item().toLong() : n_;
}

// The last value, also while it entered no average.
at::Tensor AverageMeter::last_tensor() const {
  if (tensors_ == nullptr || !tensors_->last.defined()) {
    return at::scalar_tensor(value_, at::kDouble);
  }
  const at::Tensor last = tensors_->last.to(tensors_->sum.scalar_type());
  if (!tensors_->last_is_sum) {
    return last;
  }
  return tensors_->last_n.defined() ? last.div(tensors_->last_n) : last.div(n_);
}

at::Tensor AverageMeter::value_tensor() const {
  const bool counted_on_device = tensors_ != nullptr && tensors_->count.defined();
  if (count_ > 0 || counted_on_device) {
    return last_tensor();
  }
  return tensors_ != nullptr ? at::full(tensors_->sum.sizes(), nan, tensors_->sum.options())
                             : at::scalar_tensor(nan, at::kDouble);
}

at::Tensor AverageMeter::average_tensor() const {
  if (tensors_ == nullptr) {
    return at::scalar_tensor(avg(), at::kDouble);
  }
  return tensors_->count.defined() ? tensors_->sum.div(tensors_->count.add(count_)) : tensors_->sum.div(count_);
}

at::Tensor AverageMeter::sum_tensor() const {
  return tensors_ != nullptr ? tensors_->sum.clone() : at::scalar_tensor(sum_, at::kDouble);
}

double AverageMeter::number_of(const at::Tensor& tensor, const char* what) {
  if (tensor.dim() != 0) {
    fail<MetricError>(concat("average_meter.", what), "expected a scalar, got a tensor of shape ",
                      detail::shape_text(tensor.sizes()), "; read value(), average() or total()");
  }
  return detail::read_scalar(tensor);
}

// Without tensors the numbers are at hand.
Result::Value AverageMeter::value() const {
  return tensors_ != nullptr ? value_of(value_tensor()) : Result::Value(val());
}

Result::Value AverageMeter::average() const {
  return tensors_ != nullptr ? value_of(average_tensor()) : Result::Value(avg());
}

Result::Value AverageMeter::total() const { return tensors_ != nullptr ? value_of(sum_tensor()) : Result::Value(sum_); }

std::string AverageMeter::text(int precision) const {
  return concat(detail::value_text(value(), precision), " (", detail::value_text(average(), precision), ")");
}

State AverageMeter::state_dict() const {
  State state;
  if (tensors_ != nullptr && tensors_->sum.dim() > 0) {
    state["value"] = last_tensor();
    state["sum"] = sum_tensor();
  } else {
    state["value"] = detail::read_scalar(last_tensor());
    state["sum"] = sum();
  }
  state["n"] = n();
  state["count"] = count();
  return state;
}

void AverageMeter::load_state_dict(const State& state) {
  const State& value = state.at("value");
  const State& sum = state.at("sum");
  AverageMeter loaded;
  loaded.n_ = state.at("n").integer();
  loaded.count_ = state.at("count").integer();
  check<StateError>(loaded.n_ >= 0 && loaded.count_ >= 0, "average_meter.load_state_dict",
                    "expected n and count of at least 0, got ", loaded.n_, " and ", loaded.count_);
  if (!sum.is_tensor()) {
    loaded.value_ = value.number();
    loaded.sum_ = sum.number();
  } else {
    const at::Tensor& last = value.tensor();
    check<StateError>(last.defined() && sum.tensor().defined() && last.sizes() == sum.tensor().sizes(),
                      "average_meter.load_state_dict", "expected value and sum of one shape, got ",
                      detail::tensor_text(last), " and ", detail::tensor_text(sum.tensor()));
    const c10::InferenceMode normal(false);
    loaded.tensors_ = std::make_unique<Tensors>();
    loaded.tensors_->last = last.detach();
    loaded.tensors_->sum = sum.tensor().detach().to(sum_type(sum.tensor().device()), false, /*copy=*/true);
  }
  *this = std::move(loaded);
}

}  // namespace danling::inline v0
