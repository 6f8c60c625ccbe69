#include <danling/metrics/average_meter.hpp>

#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>
#include <danling/metrics/metric_value.hpp>
#include <danling/tape/observer.hpp>

#include <metrics/average_meter.hpp>
#include <metrics/compensated.hpp>
#include <metrics/meter_exchange.hpp>
#include <metrics/meter_part.hpp>
#include <metrics/scalar.hpp>
#include <metrics/shapes.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0 {
namespace {

/// Returns whether it is an ordinary float of the host, like the loss of a step. One comparison replaces several
/// checks.
bool is_plain_float(const at::Tensor& value) {
  static const c10::DispatchKeySet plain = [] {
    const c10::InferenceMode normal(false);
    return at::empty({0}, at::kFloat).key_set();
  }();
  const c10::TensorImpl& impl = *value.unsafeGetTensorImpl();
  return impl.key_set() == plain && impl.numel() == 1 && impl.dtype() == caffe2::TypeMeta::Make<float>();
}

double plain_float(const at::Tensor& value) {
  const c10::TensorImpl& impl = *value.unsafeGetTensorImpl();
  return static_cast<double>(static_cast<const float*>(impl.unsafe_storage().data())[impl.storage_offset()]);
}

at::Tensor full(at::IntArrayRef shape, double value, const at::Device& device) {
  // Inference tensors could not be changed outside inference mode.
  const c10::InferenceMode normal(false);
  return at::full(shape, value, at::TensorOptions().dtype(detail::sum_type(device)).device(device));
}

void check_real(const at::Tensor& value, const char* where) {
  if (!value.defined() || value.is_complex()) [[unlikely]] {
    fail<MetricError>(where, "expected a real tensor, got ", detail::tensor_text(value));
  }
  if (value.layout() != at::kStrided || metrics::detail::is_nested(value)) [[unlikely]] {
    fail<MetricError>(where, "expected a dense tensor, got ",
                      metrics::detail::is_nested(value) ? std::string("a nested one")
                                                        : concat("a sparse one, ", detail::tensor_text(value)));
  }
}

void check_scalar(const at::Tensor& sum) {
  check_real(sum, "average_meter.add");
  if (sum.numel() != 1) [[unlikely]] {
    fail<MetricError>("average_meter.add", "expected a scalar, got ", detail::tensor_text(sum));
  }
}

// Drops the graph and the dimensions.
at::Tensor as_scalar(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.detach() : tensor.detach().reshape({});
}

std::string given_text(const at::Tensor& value) {
  return value.dim() == 0 ? "a scalar" : "a tensor of shape " + detail::shape_text(value.sizes());
}

[[noreturn]] void fail_mixed(at::IntArrayRef before, const std::string& now) {
  fail<MetricError>("average_meter.update", "expected ",
                    before.empty() ? "a scalar" : "a tensor of shape " + detail::shape_text(before), " as before, got ",
                    now, "; average over the samples of a batch first, or call reset() between the two");
}

Result::Value value_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0) {
    return detail::read_scalar(tensor);
  }
  return detail::elements_value(tensors::raw(tensor.cpu().to(at::kDouble)));
}

}  // namespace

AverageMeter::AverageMeter() = default;
AverageMeter::~AverageMeter() = default;
AverageMeter::AverageMeter(AverageMeter&&) noexcept = default;
AverageMeter& AverageMeter::operator=(AverageMeter&&) noexcept = default;
AverageMeter& AverageMeter::operator=(const AverageMeter& other) { return *this = AverageMeter(other); }
AverageMeter::AverageMeter(const AverageMeter& other)
    : value_(other.value_),
      sum_(other.sum_),
      rest_(other.rest_),
      n_(other.n_),
      count_(other.count_),
      extra_(other.extra_ != nullptr ? std::make_unique<Extra>(*other.extra_) : nullptr) {}

void AverageMeter::reset() {
  tape::mark_unrecordable("the step resets a meter");
  value_ = 0.0;
  sum_ = 0.0;
  rest_ = 0.0;
  n_ = 0;
  count_ = 0;
  extra_.reset();
}

void AverageMeter::check_weight(std::int64_t n, const char* where) const {
  check<MetricError>(n >= 0, where, "expected a weight of at least 0, got ", n);
  check<MetricError>(n <= max_count - count_, where, "expected weights of at most ", max_count, " together, got ", n,
                     " after ", count_);
}

// Checked here, where the shape is known: on the host the value continues as a number.
void AverageMeter::check_scalar_fits(const at::Tensor& value, std::int64_t n) const {
  if (n > 0 && holds_tensors() && extra_->sum.dim() > 0) [[unlikely]] {
    fail_mixed(extra_->sum.sizes(), given_text(value));
  }
}

[[gnu::cold]] void AverageMeter::observe_update(const at::Tensor& value, std::int64_t n) {
  tape::host_call(
      concat("a meter, n = ", n), {value}, [this, n](const tape::Tensors& now) { update(now[0], n); }, &lifetime_);
}

void AverageMeter::update(const at::Tensor& value, std::int64_t n) {
  if (tape::observer() != nullptr) [[unlikely]] {
    observe_update(value, n);
    return;
  }
  if (extra_ == nullptr && is_plain_float(value)) [[likely]] {
    update_number(plain_float(value), n);
    return;
  }
  check_real(value, "average_meter.update");
  if (value.numel() != 1) {
    update_elements(value, n);
    return;
  }
  check_scalar_fits(value, n);
  if (value.is_cpu()) {
    update_number(detail::read_scalar(value), n);
  } else {
    check_weight(n, "average_meter.update");
    const at::Tensor scalar = as_scalar(value);
    use_tensors(scalar);
    if (n > 0) {
      detail::add_compensated(extra_->sum, extra_->rest, scalar, n);
    }
    record_tensor(scalar, /*is_sum=*/false, n);
  }
}

void AverageMeter::update_elements(const at::Tensor& value, std::int64_t n) {
  check_weight(n, "average_meter.update");
  if (!holds_tensors() && count_ > 0) {
    fail_mixed({}, given_text(value));
  }
  // A copy: a metric may return its buffer and change it in place at the next batch.
  const at::Tensor copy = value.detach().to(detail::sum_type(value.device()), /*non_blocking=*/false, /*copy=*/true,
                                            at::MemoryFormat::Contiguous);
  use_tensors(copy);
  if (n > 0) {
    detail::add_compensated(extra_->sum, extra_->rest, copy, n);
  }
  record_tensor(copy, /*is_sum=*/false, n);
}

void AverageMeter::add(const at::Tensor& sum, std::int64_t n) {
  if (tape::observer() != nullptr) [[unlikely]] {
    tape::host_call(
        concat("a meter, n = ", n), {sum}, [this, n](const tape::Tensors& now) { add(now[0], n); }, &lifetime_);
    return;
  }
  check_scalar(sum);
  check_scalar_fits(sum, n);
  if (sum.is_cpu()) {
    add(detail::read_scalar(sum), n);
    return;
  }
  check_weight(n, "average_meter.add");
  const at::Tensor scalar = as_scalar(sum);
  use_tensors(scalar);
  if (n > 0) {
    detail::add_compensated(extra_->sum, extra_->rest, scalar);
  }
  record_tensor(scalar, /*is_sum=*/true, n);
}

void AverageMeter::add(const at::Tensor& sum, const at::Tensor& n) {
  if (tape::observer() != nullptr) [[unlikely]] {
    tape::host_call("a meter", {sum, n}, [this](const tape::Tensors& now) { add(now[0], now[1]); }, &lifetime_);
    return;
  }
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
  detail::add_compensated(extra_->sum, extra_->rest, scalar);
  if (extra_->count.defined()) {
    extra_->count.add_(weight);
  } else {
    const c10::InferenceMode normal(false);
    extra_->count = weight.to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
  }
  record_tensor(scalar, /*is_sum=*/true, 0);
  extra_->last_n = weight;
}

void AverageMeter::record(const MetricValue& value, std::int64_t n) {
  const auto* tensor = std::get_if<at::Tensor>(&value.get());
  if (tensor != nullptr && tensor->defined() && tensor->numel() == 0) {
    update(nan, n);
    return;
  }
  std::visit(
      [&](const auto& given) {
        if constexpr (requires { given.sum; }) {
          add(given.sum, given.n);
        } else {
          update(given, n);
        }
      },
      value.get());
}

void AverageMeter::record_number(double value, double addend, std::int64_t n) {
  tape::mark_unrecordable("a meter is updated with a number; pass a tensor");
  check_weight(n, "average_meter.update");
  const bool elements = holds_tensors() && extra_->sum.dim() > 0;
  if (elements && n > 0) {
    fail_mixed(extra_->sum.sizes(), "a number");
  }
  begin_update();
  if (!holds_tensors()) {
    value_ = value;
    accumulate(n > 0 ? addend : 0.0);
  } else if (elements) {
    extra_->last = full(extra_->sum.sizes(), value, extra_->sum.device());
    extra_->last_n = at::Tensor();
    extra_->last_is_sum = false;
  } else {
    value_ = value;
    extra_->last = at::Tensor();
    extra_->last_n = at::Tensor();
    if (n > 0) {
      detail::add_compensated(extra_->sum, extra_->rest, at::scalar_tensor(addend, extra_->sum.options()));
    }
  }
  n_ = n;
  count_ += n;
}

void AverageMeter::record_tensor(const at::Tensor& last, bool is_sum, std::int64_t n) {
  extra_->last = last;
  extra_->last_n = at::Tensor();
  extra_->last_is_sum = is_sum;
  n_ = n;
  count_ += n;
}

// Makes the sum a tensor of the shape and on the device of `like`. Includes the sum on the host so far: this order of
// additions yields the same bits as a meter restored from a checkpoint.
void AverageMeter::use_tensors(const at::Tensor& like) {
  if (holds_tensors() && extra_->sum.sizes() != like.sizes()) {
    fail_mixed(extra_->sum.sizes(), given_text(like));
  }
  begin_update();
  if (!holds_tensors()) {
    extra().sum = full(like.sizes(), sum_, like.device());
    extra_->rest = full(like.sizes(), rest_, like.device());
    sum_ = rest_ = 0.0;
    return;
  }
  if (extra_->sum.device() != like.device()) {
    extra_->sum = extra_->sum.to(like.device(), detail::sum_type(like.device()));
    extra_->rest = extra_->rest.to(extra_->sum.options());
    if (extra_->count.defined()) {
      extra_->count = extra_->count.to(like.device());
    }
  }
}

bool AverageMeter::holds_tensors() const { return extra_ != nullptr && extra_->sum.defined(); }

const AverageMeter::Ranks* AverageMeter::ranks() const { return extra_ != nullptr ? extra_->ranks.get() : nullptr; }

AverageMeter::Extra& AverageMeter::extra() {
  if (extra_ == nullptr) {
    extra_ = std::make_unique<Extra>();
  }
  return *extra_;
}

void AverageMeter::synchronize(const Group& group) {
  detail::MeterExchange exchange("average_meter.synchronize");
  exchange.add("", *this);
  exchange.run(group);
}

std::int64_t AverageMeter::own_count() const {
  const bool on_device = extra_ != nullptr && extra_->count.defined();
  return count_ + (on_device ? extra_->count.item().toLong() : 0);
}

std::int64_t AverageMeter::count() const {
  note_read();
  return ranks() != nullptr ? ranks()->count : own_count();
}

std::int64_t AverageMeter::n() const {
  note_read();
  return ranks() != nullptr ? ranks()->n : own_n();
}

// The last value, also one that entered no average.
at::Tensor AverageMeter::last_tensor() const {
  if (extra_ == nullptr || !extra_->last.defined()) {
    return at::scalar_tensor(value_, at::kDouble);
  }
  const at::Tensor last = extra_->last.to(extra_->sum.scalar_type());
  if (!extra_->last_is_sum) {
    return last;
  }
  return extra_->last_n.defined() ? last.div(extra_->last_n) : detail::divided(last, n_);
}

at::Tensor AverageMeter::average_tensor() const {
  note_read();
  return ranks() != nullptr ? detail::divided(ranks()->sum, ranks()->count) : own_average();
}

at::Tensor AverageMeter::own_average() const {
  if (!holds_tensors()) {
    return at::scalar_tensor(count_ == 0 ? nan : own_number() / static_cast<double>(count_), at::kDouble);
  }
  return extra_->count.defined() ? own_sum().div_(extra_->count.add(count_)) : detail::divided(own_sum(), count_);
}

at::Tensor AverageMeter::sum_tensor() const {
  note_read();
  return ranks() != nullptr ? ranks()->sum.clone() : own_sum();
}

at::Tensor AverageMeter::own_sum() const {
  return holds_tensors() ? detail::whole_sum(extra_->sum, extra_->rest) : at::scalar_tensor(own_number(), at::kDouble);
}

double AverageMeter::number_of(const at::Tensor& tensor, const char* what) {
  if (tensor.dim() != 0) {
    fail<MetricError>(concat("average_meter.", what), "expected a scalar, got a tensor of shape ",
                      detail::shape_text(tensor.sizes()), "; read value(), average() or total()");
  }
  return detail::read_scalar(tensor);
}

// Without tensors, the values are numbers on the host.
Result::Value AverageMeter::value() const {
  return extra_ != nullptr ? value_of(value_tensor()) : Result::Value(val());
}

Result::Value AverageMeter::batch() const {
  return extra_ != nullptr ? value_of(batch_tensor()) : Result::Value(bat());
}

Result::Value AverageMeter::average() const {
  return extra_ != nullptr ? value_of(average_tensor()) : Result::Value(avg());
}

Result::Value AverageMeter::total() const {
  return extra_ != nullptr ? value_of(sum_tensor()) : Result::Value(own_number());
}

std::string AverageMeter::text(int precision) const {
  return concat(detail::value_text(value(), precision), " (", detail::value_text(average(), precision), ")");
}

}  // namespace danling::inline v0
