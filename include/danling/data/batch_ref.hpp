// A reference to a batch whose type only the runner's template knows.
#pragma once

namespace danling::inline v0::data {

/// Refers to a batch; does not own it. Its creator and its reader must agree on the type.
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
