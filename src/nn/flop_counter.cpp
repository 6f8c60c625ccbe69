#include <nn/flop_counter.hpp>

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <nn/flops.hpp>
#include <nn/recorded_inputs.hpp>

namespace danling::inline v0::nn {
namespace {

thread_local FlopCounter* active = nullptr;

}  // namespace

class FlopCounter::Call : public at::ObserverContext {
 public:
  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    auto call = std::make_unique<Call>();
    if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {  // recompute repeats the forward pass inside it
      call->backward_ = active != nullptr;
      if (active != nullptr) {
        ++active->in_backward_;
      }
      return call;
    }
    if (active == nullptr || active->in_backward_ > 0 || active->in_formula_ > 0) {
      return call;
    }
    // An inner product may be a custom function, whose forward pass records no gradients.
    if (at::GradMode::is_enabled() && has_nested(recorded_inputs(function))) {
      call->nested_ = true;
      ++active->in_nested_;
    } else if (at::GradMode::is_enabled() || active->in_nested_ > 0) {
      call->formula_ = flop_formula(function.name());
    }
    if (call->formula_ != nullptr) {
      const auto inputs = recorded_inputs(function);
      call->inputs_.assign(inputs.begin(), inputs.end());
      ++active->in_formula_;
    }
    return call;
  }

  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    const auto& call = *static_cast<Call*>(context);
    if (active != nullptr && call.backward_) {
      --active->in_backward_;
    }
    if (active != nullptr && call.nested_) {
      --active->in_nested_;
    }
    if (active == nullptr || call.formula_ == nullptr) {
      return;
    }
    --active->in_formula_;
    for (const c10::IValue& output : function.outputs()) {
      if (output.isTensor() && output.toTensor().defined()) {
        active->count_ += call.formula_(call.inputs_, output.toTensor().sizes()).value_or(0);
        return;
      }
    }
  }

 private:
  FlopFormula formula_ = nullptr;
  bool backward_ = false, nested_ = false;
  std::vector<c10::IValue> inputs_;
};

FlopCounter::FlopCounter() {
  active = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(Call::start, Call::end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

FlopCounter::~FlopCounter() {
  at::removeCallback(handle_);
  active = nullptr;
}

}  // namespace danling::inline v0::nn
