// ModelHandle: a handle for a torch::nn module, a TorchScript module or a callable.
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/core/error.hpp>
#include <danling/runner/detail/signature.hpp>
#include <danling/state/state.hpp>
#include <danling/tensors/detail/tree_values.hpp>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace danling::inline v0::nn {
class LoraAdapters;
struct LoraOptions;
struct ModuleTensors;
}  // namespace danling::inline v0::nn

namespace danling::inline v0 {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

namespace detail {

/// Interface that the runner uses for every kind of model.
class ModelConcept {
 public:
  virtual ~ModelConcept();
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  /// TorchScript: takes any input as a tree and returns the output as a tree.
  virtual State call(const State& input);
  virtual NamedTensors named_parameters() const = 0;
  /// Parameters and buffers, with the names and in the order of Python's `state_dict()`.
  virtual NamedTensors named_state() const = 0;
  virtual void to(at::Device device) = 0;
  virtual void train(bool on) = 0;
  virtual const std::type_info& type() const = 0;
  virtual void* get() = 0;
  virtual bool is_script() const { return false; }
  virtual void save_script(const std::filesystem::path& path) const;
  virtual std::vector<nn::ModuleTensors> modules() const;
};

using Forward1 = at::Tensor (*)(void*, const at::Tensor&);

/// Wraps a torch::nn module. The body is compiled once, in the library.
std::unique_ptr<ModelConcept> wrap_module(std::shared_ptr<torch::nn::Module> module, void* object,
                                          const std::type_info& type, Forward1 forward, const TypedCall& typed);

template <class T>
concept NnModule = std::is_class_v<T> && std::derived_from<T, torch::nn::Module>;

template <class T>
concept ModuleHolder = requires(const T& holder) {
  typename T::ContainedType;
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<typename T::ContainedType>>;
};

template <class M>
concept ForwardsTensor = requires(M& module, const at::Tensor& input) {
  { module.forward(input) } -> std::convertible_to<at::Tensor>;
};

template <class M>
Forward1 forward_function() {
  if constexpr (ForwardsTensor<M>) {
    return [](void* object, const at::Tensor& input) -> at::Tensor { return static_cast<M*>(object)->forward(input); };
  } else {
    return nullptr;
  }
}

template <class T>
concept ScriptModule = std::same_as<T, torch::jit::Module>;

std::unique_ptr<ModelConcept> wrap_script(const torch::jit::Module& module);

/// @throws StateError that names the input or output type that does not fit
[[noreturn]] void fail_forward(const TypedCall& model, const std::type_info& input, const std::type_info& output);
/// @throws StateError that names the type that `as` expected and that of the model, which may be null
[[noreturn]] void fail_as(const std::type_info& type, const ModelConcept* model);
[[noreturn]] void fail_script_input(const std::type_info& input);
[[noreturn]] void fail_script_output(const State& given, const std::type_info& expected);

template <class F>
class CallableModel final : public ModelConcept {
 public:
  explicit CallableModel(F function) : function_(std::move(function)) {}
  at::Tensor forward(const at::Tensor& input) override {
    if constexpr (std::is_invocable_r_v<at::Tensor, F&, const at::Tensor&>) {
      return function_(input);
    } else {
      fail_forward(typed_call<F>(), typeid(at::Tensor), typeid(at::Tensor));
    }
  }
  NamedTensors named_parameters() const override { return {}; }
  NamedTensors named_state() const override { return {}; }
  void to(at::Device) override {}
  void train(bool) override {}
  const std::type_info& type() const override { return typeid(F); }
  void* get() override { return &function_; }

 private:
  F function_;
};

}  // namespace detail

/// A value handle: copies share the module. Empty until assigned.
///
///     model = Net();                          // a module holder (TORCH_MODULE)
///     model = std::make_shared<NetImpl>();    // or the module itself
///     model = torch::jit::load("net.pt");     // TorchScript
///     model = [](const at::Tensor& x) { ... } // a function without parameters
///
/// A forward may take another type (a struct, a batch, a State, several tensors) and return another (a struct, a tuple,
/// a map). Its parameters must be values or const references; it must not be overloaded or a template.
class ModelHandle {
 public:
  ModelHandle() = default;

  template <class T>
    requires(!std::same_as<std::remove_cvref_t<T>, ModelHandle>)
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  ModelHandle(T&& model) {
    assign(std::forward<T>(model));
  }

  explicit operator bool() const { return concept_ != nullptr; }

  /// Runs the model's `forward(Tensor)`. @throws StateError when the handle is empty or the forward takes another type
  at::Tensor operator()(const at::Tensor& input) const {
    danling::detail::check<StateError>(
        concept_ != nullptr, "runner.model",
        "expected a model, got none; assign `model`, or check the name in `models[name]`");
    return concept_->forward(input);
  }
  template <class I>
    requires(!detail::TensorLike<I>)
  at::Tensor operator()(const I& input) const {
    return forward(input);
  }

  /// Runs a forward that takes an `I` and returns a `P`; a tuple or pair holds several arguments. A model of tensors
  /// also accepts a State that is a tensor.
  ///
  /// TorchScript takes tensors, numbers, texts, States and standard containers of them. A mapping sets arguments by
  /// name, a tuple or list by position, unless the only argument is a dict, tuple or list. It returns a `P` of the same
  /// kinds (a named tuple is a mapping), or a type with a constructor from a State.
  /// @throws StateError that names the input or output type that does not fit
  template <class P = at::Tensor, class I>
  P forward(const I& input) const {
    if constexpr (detail::TensorLike<I> && std::same_as<P, at::Tensor>) {
      return (*this)(static_cast<const at::Tensor&>(input));
    } else if constexpr (detail::TensorLike<I> && !std::same_as<I, at::Tensor>) {
      return forward<P>(static_cast<const at::Tensor&>(input));
    } else {
      danling::detail::check<StateError>(
          concept_ != nullptr, "runner.model",
          "expected a model, got none; assign `model`, or check the name in `models[name]`");
      if (typed_.fits<I, P>()) {
        if (output_dtype_ != at::ScalarType::Undefined) [[unlikely]] {
          return with_dtype(typed_.call<P>(concept_->get(), &input), output_dtype_);
        }
        return typed_.call<P>(concept_->get(), &input);
      }
      if (is_script()) {
        return forward_script<P>(input);
      }
      if constexpr (std::same_as<I, State>) {
        if (input.is_tensor()) {
          return forward<P>(input.tensor());
        }
      } else if constexpr (requires { std::tuple(input.first, input.second); }) {
        return forward<P>(std::tuple(input.first, input.second));
      }
      detail::fail_forward(typed_, typeid(I), typeid(P));
    }
  }

  /// True when the signature of the model's forward takes an `I`; false for TorchScript and for an overloaded or
  /// templated forward.
  template <class I>
  bool takes() const {
    return typed_.takes<I>();
  }

  /// The assigned object: `model.as<Net>()` for a holder, `model.as<NetImpl>()` for its module.
  /// @throws StateError when it has another type
  template <class T>
  decltype(auto) as() const {
    if constexpr (detail::ModuleHolder<T>) {
      return T(shared<typename T::ContainedType>());
    } else if constexpr (detail::NnModule<T>) {
      return *shared<T>();
    } else {
      if (concept_ == nullptr || concept_->type() != typeid(T)) {
        detail::fail_as(typeid(T), concept_.get());
      }
      return *static_cast<T*>(concept_->get());
    }
  }

  /// Converts a floating-point output of forward() to `dtype`; undefined: no conversion. A forward that does not return
  /// one tensor then throws StateError. Call it once, before the model is called.
  void set_output_dtype(at::ScalarType dtype);

  /// Address of the assigned object; null when empty.
  const void* address() const { return concept_.get(); }

  /// The module as torch::nn::Module; null for TorchScript and callables.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }

  bool is_script() const { return concept_ != nullptr && concept_->is_script(); }
  /// Saves a TorchScript model with its current weights, for torch.jit.load in Python and torch::jit::load in C++: on
  /// the CPU, with the code, attributes and training mode of the module. Replaces an existing file atomically.
  /// @throws StateError for another kind of model, CheckpointError when the file cannot be written
  void save_script(const std::filesystem::path& path) const;

  /// Adds low-rank adapters to linear layers of a torch::nn module. Freezes all other parameters, except those that the
  /// options name. named_parameters() and state_dict() then include the adapters, as `fc.lora_A.weight`. Loading
  /// weights without adapters sets the adapters to zero. Without a runner, call `lora()->update()` after each update.
  /// @throws ConfigError for options that match no layer, StateError for a model with adapters; messages name `section`
  void add_lora(const nn::LoraOptions& options, const std::string& section = "lora");
  /// The adapters, or null.
  const std::shared_ptr<nn::LoraAdapters>& lora() const { return lora_; }

  /// Modules without children, and others that own tensors, in order: for nn::summarize.
  std::vector<nn::ModuleTensors> modules() const;
  /// All parameters by name, frozen ones included; none for a callable.
  NamedTensors named_parameters() const;
  bool is_trainable() const;  ///< true if any parameter requires a gradient
  void to(at::Device device) const;
  /// Parameters and buffers, with the names and in the order of Python's `state_dict()`.
  NamedTensors named_state() const;
  /// Sets training mode, or evaluation mode if `on` is false.
  void train(bool on) const;

  /// Parameters and buffers by name, as Python's `state_dict()`; the tensors share the model's memory.
  State state_dict() const;
  /// Copies values into the model's tensors, in place.
  /// @throws CheckpointError that names missing and unexpected keys and wrong shapes; the model is then unchanged
  void load_state_dict(const State& state) const;

 private:
  template <class T>
  void assign(T&& model) {
    using M = std::remove_cvref_t<T>;
    if constexpr (detail::ModuleHolder<M>) {
      set(std::shared_ptr<typename M::ContainedType>(model.ptr()));
    } else if constexpr (requires {
                           typename M::element_type;
                           requires detail::NnModule<typename M::element_type>;
                         }) {
      set(std::shared_ptr<typename M::element_type>(std::forward<T>(model)));
    } else if constexpr (detail::ScriptModule<M>) {
      concept_ = detail::wrap_script(model);
    } else if constexpr (std::is_invocable_r_v<at::Tensor, M&, const at::Tensor&> || detail::TypedForward<M>) {
      typed_ = detail::typed_call<M>();
      concept_ = std::make_shared<detail::CallableModel<M>>(std::forward<T>(model));
    } else {
      static_assert(
          std::is_void_v<M>,
          "danling: `model` must be a module holder, a shared_ptr to a torch::nn module, a TorchScript module "
          "or a callable at::Tensor(const at::Tensor&); a callable may take other inputs, by value or const reference, "
          "and must return a value");
    }
  }

  template <class Impl>
  void set(std::shared_ptr<Impl> impl) {
    danling::detail::check<StateError>(impl != nullptr, "runner.model", "expected a module, got an empty holder");
    object_ = impl;
    type_ = &typeid(Impl);
    module_ = impl;
    typed_ = detail::typed_call<Impl>();
    concept_ = detail::wrap_module(module_, impl.get(), typeid(Impl), detail::forward_function<Impl>(), typed_);
  }

  template <class P, class I>
  P forward_script(const I& input) const {
    if constexpr (detail::TreeValue<I>) {
      const State output = concept_->call(detail::to_tree(input));
      auto prediction = detail::from_tree<P>(output);
      if (!prediction) {
        detail::fail_script_output(output, typeid(P));
      }
      return *std::move(prediction);
    } else {
      detail::fail_script_input(typeid(I));
    }
  }

  template <class P>
  static P with_dtype(P output, at::ScalarType dtype) {
    if constexpr (std::same_as<P, at::Tensor>) {
      return output.is_floating_point() ? output.to(dtype) : output;
    } else {
      danling::detail::fail<StateError>(
          "runner.model",
          "expected a model that returns one tensor with fsdp.mp_policy.output_dtype, got another type");
    }
  }

  template <class Impl>
  std::shared_ptr<Impl> shared() const {
    if (type_ != nullptr && *type_ == typeid(Impl)) {
      return std::static_pointer_cast<Impl>(object_);
    }
    std::shared_ptr<Impl> found;
    if constexpr (detail::NnModule<Impl>) {
      found = std::dynamic_pointer_cast<Impl>(module_);
    }
    if (found == nullptr) {
      detail::fail_as(typeid(Impl), concept_.get());
    }
    return found;
  }

  std::shared_ptr<detail::ModelConcept> concept_;
  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<void> object_;
  std::shared_ptr<nn::LoraAdapters> lora_;
  const std::type_info* type_ = nullptr;
  detail::TypedCall typed_;
  at::ScalarType output_dtype_ = at::ScalarType::Undefined;
};

}  // namespace danling::inline v0
