#include <danling/runner/criterion.hpp>

#include <atomic>
#include <exception>

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <danling/telemetry/logger.hpp>
#include <danling/tensors/detail/describe.hpp>

#include <runner/torch_warnings.hpp>

namespace danling::inline v0 {

bool detail::warn_of_shapes(Logger& log, const at::Tensor& prediction, const at::Tensor& target) {
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_floating_point() && !tensor.is_nested();
  };
  if (!is_plain(prediction) || !is_plain(target) || prediction.numel() != target.numel() ||
      prediction.sizes() == target.sizes()) {
    return false;
  }
  log.warning(concat("criterion: the prediction has shape [", join(prediction.sizes()), "] and the target [",
                     join(target.sizes()), "]; a loss of elements broadcasts them and compares each with each; ",
                     shape_remedy(prediction, target)));
  if (auto* warnings = dynamic_cast<TorchWarnings*>(c10::WarningUtils::get_warning_handler())) {
    warnings->drop_for(prediction, target);
  }
  return true;
}

std::uint64_t CriterionHandle::next_version() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

void CriterionHandle::to(at::Device device) const {
  if (module_) {
    module_->to(device);
  }
  if (losses_) {
    for (const auto& module : losses_->modules()) {
      module->to(device);
    }
  }
}

void CriterionHandle::to(at::ScalarType dtype) const {
  const auto convert = [dtype](const torch::nn::Module& module) {
    for (auto tensors : {module.parameters(), module.buffers()}) {
      for (at::Tensor& tensor : tensors) {
        if (tensor.defined() && tensor.is_floating_point()) {
          tensor.set_data(tensor.to(dtype));
        }
      }
    }
  };
  if (module_) {
    convert(*module_);
  }
  if (losses_) {
    for (const auto& module : losses_->modules()) {
      convert(*module);
    }
  }
}

void CriterionHandle::fail_types(const std::type_info* takes_prediction, const std::type_info* takes_target,
                                 const std::type_info& prediction, const std::type_info& target) {
  // Names the type of the prediction, which is long, only when it does not match.
  const std::type_info& taken = takes_prediction == nullptr ? typeid(at::Tensor) : *takes_prediction;
  const bool fits = taken == prediction;
  fail<StateError>(
      "runner.criterion", "expected a criterion of (", fits ? "prediction" : detail::name_of(prediction), ", ",
      detail::name_of(target), "), got one of (", fits ? "prediction" : detail::name_of(taken), ", ",
      takes_target == nullptr ? "tensor" : detail::name_of(*takes_target), "); let ",
      fits
          ? "model_target(batch), in the namespace of the batch's type, return what it takes"
          : "model_output(prediction) and model_target(batch), in the namespaces of their types, return what it takes");
}

void CriterionHandle::rethrow_error(const at::Tensor& prediction, const at::Tensor& target) {
  if (target.defined() || !prediction.defined()) {
    throw;
  }
  try {
    throw;
  } catch (const c10::Error& error) {
    const std::string_view message = error.what_without_backtrace();
    if (detail::is_of_undefined_tensor(message) || message.find("target") != std::string_view::npos) {
      std::throw_with_nested(
          DataError("[runner.criterion] expected a target in the batch, got none; return one from the dataset, set a "
                    "criterion that does not read it, or override train_step and evaluate_step"));
    }
    throw;  // a criterion that reads no target may throw too
  }
}

at::Tensor CriterionHandle::no_prediction(const at::Tensor&, const at::Tensor&) {
  fail<StateError>("runner.criterion",
                   "expected losses of (prediction, target) or over this runner's batch type, got losses over another; "
                   "call them in your own train_step and evaluate_step");
}

}  // namespace danling::inline v0
