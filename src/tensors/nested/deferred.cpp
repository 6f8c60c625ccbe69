#include <tensors/nested/deferred.hpp>

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

namespace danling::inline v0::detail {
namespace {

bool counts_changes(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->version_counter().enabled(); }

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

std::optional<c10::Stream> stream_of(at::Device device) {
  return device.is_cpu() ? std::nullopt : std::optional(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

}  // namespace

UnchangedTensor::UnchangedTensor(const at::Tensor& tensor) : tensor_(tensor) {
  if (counts_changes(tensor)) {
    version_ = version_of(tensor);
  } else {
    tensor_ = tensor.clone();
  }
}

const at::Tensor& UnchangedTensor::get(const char* operation) const {
  check<DataError>(
      !version_ || version_of(tensor_) == *version_, concat("nested_tensor.", operation),
      "expected queries and keys that are not changed in place before the attention scores are read, got one "
      "at version ",
      version_ ? version_of(tensor_) : 0, " instead of ", version_.value_or(0), "; read the scores first, by concat()");
  return tensor_;
}

Deferred::Deferred(Shape shape, std::vector<at::Tensor> sources, Compute compute,
                   std::optional<AttentionScores> attention)
    : shape_(std::move(shape)),
      sources_(std::move(sources)),
      compute_(std::make_shared<const Compute>(std::move(compute))),
      attention_(std::move(attention)),
      grad_mode_(c10::GradMode::is_enabled()),
      inference_(c10::InferenceMode::is_enabled()),
      requires_grad_(grad_mode_ && std::any_of(sources_.begin(), sources_.end(),
                                               [](const at::Tensor& source) { return source.requires_grad(); })),
      stream_(stream_of(shape_.device)) {}

at::Tensor Deferred::run(const Compute& compute) const {
  std::optional<c10::InferenceMode> inference;
  if (inference_ != c10::InferenceMode::is_enabled()) {
    inference.emplace(inference_);
  }
  const c10::AutoGradMode grad_mode(grad_mode_);
  const c10::impl::ExcludeDispatchKeyGuard after_autocast(c10::autocast_dispatch_keyset);
  at::Tensor out;
  if (const auto now = stream_of(shape_.device); now == stream_) {
    out = compute();
  } else {
    c10::Event done(shape_.device.type());
    {
      const c10::StreamGuard guard(*stream_);
      out = compute();
      done.record(*stream_);
    }
    done.block(*now);
    out.record_stream(*now);
  }
  check<StateError>(out.sizes() == c10::IntArrayRef(shape_.sizes) && out.dtype() == shape_.dtype,
                    "nested_tensor.values", "expected deferred values of shape (", join(shape_.sizes), "), got (",
                    join(out.sizes()), ")");
  return out;
}

const at::Tensor& Deferred::values() {
  if (!is_computed()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_computed()) {
      values_ = run(*compute_);
      if (counts_changes(values_)) {
        unchanged_.emplace(values_);
      }
      compute_ = nullptr;
      is_computed_.store(true, std::memory_order_release);
    }
  }
  return values_;
}

Deferred::Compute Deferred::source_of_values(const std::shared_ptr<Deferred>& deferred) {
  const std::lock_guard<std::mutex> lock(deferred->mutex_);
  if (deferred->inference_ && deferred->compute_ != nullptr) {
    return [deferred, compute = deferred->compute_] { return deferred->run(*compute); };
  }
  return [deferred] {
    const at::Tensor& values = deferred->values();
    return deferred->unchanged_ ? deferred->unchanged_->get("values") : values;
  };
}

}  // namespace danling::inline v0::detail
