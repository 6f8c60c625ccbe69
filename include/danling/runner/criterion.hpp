// CriterionHandle: a loss module, a callable (prediction, target) -> loss, or several losses.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>

#include <danling/metrics/batch_losses.hpp>
#include <danling/runner/model.hpp>
#include <danling/runner/model_output.hpp>
#include <danling/tensors/detail/loss_targets.hpp>

namespace danling::inline v0 {

class Logger;

namespace detail {

template <class M>
concept LossModule = requires(M& module, const at::Tensor& prediction, const at::Tensor& target) {
  { module.forward(prediction, target) } -> std::convertible_to<at::Tensor>;
};

template <class T>
concept SharedLosses =
    requires { typename T::element_type; } && std::derived_from<typename T::element_type, LossesBase>;

template <class T>
concept LossCallable = std::is_invocable_r_v<at::Tensor, T&, const at::Tensor&, const at::Tensor&>;

/// A loss of (prediction, target), at least one of which is not a tensor.
template <class T>
concept TypedLoss = TypedForward<T> && std::same_as<Output<T>, at::Tensor> && std::tuple_size_v<Parameters<T>> == 2 &&
                    !tensors_only<Parameters<T>>;

/// Logs a warning if prediction and target are floating-point tensors of as many elements in different shapes.
/// @return true if it logged
bool warn_of_shapes(Logger& log, const at::Tensor& prediction, const at::Tensor& target);

}  // namespace detail

/// A value handle: copies share the module, or the losses and their averages. The targets that the loss averages over
/// follow from the module's options `ignore_index` and `reduction`, or from the functions of an nn::TargetLoss.
class CriterionHandle {
 public:
  CriterionHandle() = default;

  template <class T>
    requires(!std::same_as<std::remove_cvref_t<T>, CriterionHandle>)
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  CriterionHandle(T&& criterion) : version_(next_version()) {
    assign(std::forward<T>(criterion));
  }

  explicit operator bool() const { return static_cast<bool>(function_); }

  /// The loss of one micro-batch. @throws StateError when no criterion is assigned
  at::Tensor operator()(const at::Tensor& prediction, const at::Tensor& target) const {
    detail::check<StateError>(
        static_cast<bool>(function_), "runner.criterion",
        "expected a criterion, got none; assign `criterion`, or override train_step and evaluate_step");
    try {
      return function_(prediction, target);
    } catch (...) {
      rethrow_error(prediction, target);
    }
  }

  /// The loss of a prediction or target of another type, or with the batch as target, if the criterion takes these
  /// types. A criterion of tensors receives `model_output(prediction)`, or the tensor of a State.
  template <class P, class T>
    requires(!(detail::TensorLike<P> && detail::TensorLike<T>))
  at::Tensor operator()(const P& prediction, const T& target) const {
    if (takes<T, P>()) {
      return typed_(&prediction, &target);
    }
    if constexpr (std::same_as<T, State>) {
      if (target.is_tensor() || target.is_null()) {
        return (*this)(prediction, target.is_null() ? at::Tensor() : target.tensor());
      }
    }
    if constexpr (!detail::TensorLike<P> && HasTensorOutput<P>) {
      if (prediction_type_ == nullptr || takes<T, at::Tensor>()) {
        return (*this)(detail::output_tensor(prediction), target);
      }
    }
    fail_types(typeid(std::conditional_t<detail::TensorLike<P>, at::Tensor, P>),
               typeid(std::conditional_t<detail::TensorLike<T>, at::Tensor, T>));
  }

  /// True when the criterion takes a prediction `P` and a target `T`, at least one of which is not a tensor.
  template <class T, class P = at::Tensor>
  bool takes() const {
    return target_type_ != nullptr && *target_type_ == typeid(T) && *prediction_type_ == typeid(P);
  }

  /// True for a single loss of a prediction tensor and a target tensor.
  bool takes_tensors() const { return function_ && target_type_ == nullptr && losses_ == nullptr; }

  /// The losses if the criterion is Losses or BatchLosses, else null. The runner resets, synchronizes, reports and
  /// saves them.
  const std::shared_ptr<LossesBase>& losses() const { return losses_; }

  /// The criterion's module, whose weights move to the device; null for callables.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  void to(at::Device device) const;
  /// Converts the floating-point weights.
  void to(at::ScalarType dtype) const;

  /// Changes with each assignment; 0 without a criterion.
  std::uint64_t version() const { return version_; }

  /// The target value that the loss ignores, if any.
  std::optional<std::int64_t> ignore_index() const { return ignore_index_; }

  /// The number of targets that the loss of this batch averages over: the weight of the batch in an accumulation window
  /// and in the average. Empty when unknown: each micro-batch of the window then has the same weight. Call it before
  /// the batch is moved: counting ignored entries on a device waits for the device.
  std::optional<std::int64_t> loss_normalizer(const at::Tensor& target) const {
    return normalizer_ ? normalizer_(target) : std::nullopt;
  }

 private:
  template <class T>
  void assign(T&& criterion) {
    using C = std::remove_cvref_t<T>;
    if constexpr (std::derived_from<C, LossesBase>) {
      set_losses(std::make_shared<C>(std::forward<T>(criterion)));
    } else if constexpr (detail::SharedLosses<C>) {
      set_losses(std::shared_ptr<typename C::element_type>(std::forward<T>(criterion)));
    } else if constexpr (detail::ModuleHolder<C>) {
      set(std::shared_ptr<typename C::ContainedType>(criterion.ptr()));
    } else if constexpr (requires {
                           typename C::element_type;
                           requires detail::NnModule<typename C::element_type>;
                         }) {
      set(std::shared_ptr<typename C::element_type>(std::forward<T>(criterion)));
    } else if constexpr (detail::PointerToNormalizer<C>) {
      detail::check<StateError>(criterion != nullptr, "runner.criterion", "expected a loss, got a null pointer");
      set_normalizer(criterion);
      function_ = [loss = C(std::forward<T>(criterion))](const at::Tensor& prediction, const at::Tensor& target) {
        return (*loss)(prediction, target);
      };
    } else if constexpr (detail::LossCallable<C>) {
      if constexpr (detail::HasNormalizer<C>) {
        set_normalizer(criterion);
      }
      function_ = std::forward<T>(criterion);
    } else if constexpr (detail::TypedLoss<C>) {
      set_typed(std::make_shared<C>(std::forward<T>(criterion)));
    } else {
      static_assert(std::is_void_v<C>,
                    "danling: `criterion` must be a loss module (holder or shared_ptr) whose forward is (prediction, "
                    "target), a callable at::Tensor(const at::Tensor& prediction, const at::Tensor& target), or "
                    "Losses; prediction and target may be of other types, and the target may be the batch");
    }
  }

  template <class L>
  void set_losses(std::shared_ptr<L> losses) {
    detail::check<StateError>(losses != nullptr, "runner.criterion", "expected losses, got a null pointer");
    function_ = [losses](const at::Tensor& prediction, const at::Tensor& target) {
      if constexpr (detail::LossCallable<L>) {
        return (*losses)(prediction, target);
      } else {
        return no_prediction(prediction, target);
      }
    };
    losses_ = std::move(losses);
  }
  static std::uint64_t next_version();
  /// Rethrows the current exception; LibTorch's of an undefined target becomes a DataError.
  [[noreturn]] static void rethrow_error(const at::Tensor& prediction, const at::Tensor& target);
  [[noreturn]] static at::Tensor no_prediction(const at::Tensor& prediction, const at::Tensor& target);

  template <class Impl>
  void set(std::shared_ptr<Impl> impl) {
    static_assert(detail::LossModule<Impl> || detail::TypedLoss<Impl>,
                  "danling: the criterion's forward must take (prediction, target) and return a tensor");
    detail::check<StateError>(impl != nullptr, "runner.criterion", "expected a module, got an empty holder");
    set_normalizer(impl);
    module_ = impl;
    if constexpr (detail::LossModule<Impl>) {
      function_ = [impl](const at::Tensor& prediction, const at::Tensor& target) {
        return at::Tensor(impl->forward(prediction, target));
      };
    } else {
      set_typed(impl);
    }
  }

  template <class L>
  void set_typed(std::shared_ptr<L> loss) {
    using Prediction = std::tuple_element_t<0, detail::Parameters<L>>;
    using Target = std::tuple_element_t<1, detail::Parameters<L>>;
    prediction_type_ = &typeid(Prediction);
    target_type_ = &typeid(Target);
    typed_ = [loss](const void* prediction, const void* target) -> at::Tensor {
      return detail::ForwardOf<L>::call(*loss, *static_cast<const Prediction*>(prediction),
                                        *static_cast<const Target*>(target));
    };
    function_ = [](const at::Tensor&, const at::Tensor&) -> at::Tensor {
      fail_types(&typeid(Prediction), &typeid(Target), typeid(at::Tensor), typeid(at::Tensor));
    };
  }
  [[noreturn]] void fail_types(const std::type_info& prediction, const std::type_info& target) const {
    fail_types(prediction_type_, target_type_, prediction, target);
  }
  [[noreturn]] static void fail_types(const std::type_info* takes_prediction, const std::type_info* takes_target,
                                      const std::type_info& prediction, const std::type_info& target);

  template <class L>
  void set_normalizer(const L& loss) {
    ignore_index_ = detail::ignore_index_of(loss);
    normalizer_ = [loss](const at::Tensor& target) { return detail::loss_normalizer(loss, target); };
  }

  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> function_;
  std::function<at::Tensor(const void*, const void*)> typed_;
  const std::type_info* prediction_type_ = nullptr;
  const std::type_info* target_type_ = nullptr;
  std::shared_ptr<LossesBase> losses_;
  std::shared_ptr<torch::nn::Module> module_;
  std::optional<std::int64_t> ignore_index_;
  std::function<std::optional<std::int64_t>(const at::Tensor&)> normalizer_;
  std::uint64_t version_ = 0;
};

}  // namespace danling::inline v0
