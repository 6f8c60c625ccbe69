// MetricsHandle: a handle for any container of metrics.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include <danling/metrics/metrics.hpp>

namespace danling::inline v0 {

/// Takes a container by value (`metrics = StreamMetrics({...})`) or as shared_ptr (`metrics = multiclass_metrics(10)`).
/// Copies share it.
class MetricsHandle {
 public:
  MetricsHandle() = default;
  MetricsHandle(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)

  template <class M>
    requires std::derived_from<std::remove_cvref_t<M>, MetricsBase>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  MetricsHandle(M&& metrics) : metrics_(std::make_shared<std::remove_cvref_t<M>>(std::forward<M>(metrics))) {}
  template <std::derived_from<MetricsBase> M>
  MetricsHandle(std::shared_ptr<M> metrics) : metrics_(std::move(metrics)) {}  // NOLINT(google-explicit-constructor)

  MetricsBase* get() const { return metrics_.get(); }
  MetricsBase* operator->() const { return metrics_.get(); }
  MetricsBase& operator*() const { return *metrics_; }
  explicit operator bool() const { return metrics_ != nullptr; }
  bool operator==(std::nullptr_t) const { return metrics_ == nullptr; }

 private:
  std::shared_ptr<MetricsBase> metrics_;
};

}  // namespace danling::inline v0
