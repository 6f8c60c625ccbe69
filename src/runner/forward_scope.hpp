// Scope of a forward pass of evaluation or inference, which ranks may compute together.
#pragma once

#include <utility>

#include <danling/runner/parallelism.hpp>

namespace danling::inline v0::detail {

/// After Parallelism::begin_forward(): drops the pass unless end() was called.
class ForwardScope {
 public:
  explicit ForwardScope(Parallelism& parallelism) : parallelism_(&parallelism) {}
  ~ForwardScope() {
    if (parallelism_ != nullptr) {
      parallelism_->drop_forward();
    }
  }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

  void end() { std::exchange(parallelism_, nullptr)->end_forward(); }

 private:
  Parallelism* parallelism_;
};

}  // namespace danling::inline v0::detail
