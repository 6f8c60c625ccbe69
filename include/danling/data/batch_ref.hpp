// A batch whose type only the typed layer of a runner knows.
#pragma once

namespace danling::inline v0::data {

/// Refers to a batch; does not own it. What passes it on, and reads it, must agree on the type.
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
