// A type-erased reference to a batch; only the runner's template knows the type.
#pragma once

namespace danling::inline v0::data {

/// Refers to a batch without owning it. The creator and the reader must use the same type.
class BatchRef {
 public:
  template <class B>
  explicit BatchRef(B& batch) : batch_(&batch) {}
  template <class B>
  B& as() const {
    return *static_cast<B*>(batch_);
  }

 private:
  void* batch_;
};

}  // namespace danling::inline v0::data
