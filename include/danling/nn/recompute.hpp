// Activation recompute: a part of a model stores its inputs instead of its activations, and runs again in backward.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <danling/tensors/detail/containers.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0::nn {

namespace detail {

/// One forward pass of a function; a node that runs the function again replaces its graph.
class Recompute {
 public:
  using Tensors = std::vector<at::Tensor>;
  /// @param module  module whose buffers the second run must not change; may be null
  explicit Recompute(std::shared_ptr<const torch::nn::Module> module);
  Recompute(const Recompute&) = delete;
  Recompute& operator=(const Recompute&) = delete;
  ~Recompute();

  /// Call it for each argument before the first run: evaluates deferred values, which would otherwise become a part of
  /// the run that reads them first.
  static void read(const at::Tensor& input);
  /// Detaches the tensors of the first run from its graph. `again` returns those of another run, in the same order.
  void finish(const std::vector<at::Tensor*>& outputs, Tensors inputs, std::function<Tensors(const Tensors&)> again);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// Adds the addresses of the tensors in `value`, a tensor or standard containers of tensors.
template <class T>
void collect_tensors(T& value, std::vector<at::Tensor*>& out) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    if (value.defined()) {
      out.push_back(&value);
    }
  } else if constexpr (danling::detail::Container<T>) {
    danling::detail::each_part(value, [&](auto& part) { collect_tensors(part, out); });
  } else {
    static_assert(danling::detail::Plain<T>,
                  "danling: recompute takes a function that returns a tensor, or standard containers of tensors");
  }
}

/// Calls the forward of a module (shared_ptr or holder); calls other callables directly.
template <class F, class... Args>
decltype(auto) call(F& function, Args&&... args) {
  if constexpr (requires { function->forward(std::forward<Args>(args)...); }) {
    return function->forward(std::forward<Args>(args)...);
  } else {
    return function(std::forward<Args>(args)...);
  }
}

template <class F>
std::shared_ptr<const torch::nn::Module> module_of(const F& function) {
  if constexpr (requires { std::shared_ptr<const torch::nn::Module>(function.ptr()); }) {
    return function.ptr();
  } else if constexpr (std::is_convertible_v<const F&, std::shared_ptr<const torch::nn::Module>>) {
    return function;
  } else {
    return nullptr;
  }
}

// Saves tensors among the arguments as autograd does; stores other arguments unchanged.
template <class T>
void take_tensor(T& argument, Recompute::Tensors& out) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    out.push_back(std::move(argument));
  }
}
template <class T>
void read_tensor(const T& argument) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    Recompute::read(argument);
  }
}
template <class T>
const T& argument_of(const T& kept, const Recompute::Tensors& saved, std::size_t& next) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return saved[next++];
  } else {
    return kept;
  }
}

template <class F, class... Args>
auto recompute(std::shared_ptr<const torch::nn::Module> module, F function, Args... args) {
  (read_tensor(args), ...);
  Recompute pass(std::move(module));
  auto result = call(function, std::as_const(args)...);
  std::vector<at::Tensor*> outputs;
  collect_tensors(result, outputs);
  Recompute::Tensors inputs;
  (take_tensor(args, inputs), ...);
  auto again = [function = std::move(function),
                kept = std::tuple<Args...>(std::move(args)...)](const Recompute::Tensors& saved) mutable {
    std::size_t next = 0;
    // Braces evaluate from left to right.
    const auto arguments = std::apply(
        [&](const Args&... each) { return std::tuple<const Args&...>{argument_of(each, saved, next)...}; }, kept);
    auto repeated = std::apply([&](const Args&... each) { return call(function, each...); }, arguments);
    std::vector<at::Tensor*> found;
    collect_tensors(repeated, found);
    Recompute::Tensors tensors;
    for (const at::Tensor* tensor : found) {
      tensors.push_back(*tensor);
    }
    return tensors;
  };
  pass.finish(outputs, std::move(inputs), std::move(again));
  return result;
}

}  // namespace detail

/// Calls `function` with `args`, and calls it again in the backward pass instead of storing its activations. A function
/// is a callable, or a module (holder or shared_ptr), whose forward is called.
///
///     x = dl::nn::recompute(block, x, mask);
///
/// Results, gradients and generator states equal those of the plain call, bit for bit: the second run uses the
/// generator states and the autocast of the first, and changes neither the generators nor the module's buffers.
/// Captured tensors get gradients too. The function may be nested, take tensors without gradients, return several
/// tensors, and be part of a second derivative. Without gradient recording, the plain call runs.
///
/// The function must do the same in each call; its side effects happen twice. Arguments other than tensors are copied.
/// @throws StateError in backward when the second run uses or returns other tensors
template <class F, class... Args>
auto recompute(F&& function, Args&&... args) {
  using Function = std::decay_t<F>;
  if (!c10::GradMode::is_enabled()) {
    return detail::call(function, std::forward<Args>(args)...);
  }
  return detail::recompute(detail::module_of<Function>(function), Function(std::forward<F>(function)),
                           std::decay_t<Args>(std::forward<Args>(args))...);
}

/// Restores this generator in second runs, as LibTorch's default generators are: for dropout with a generator of the
/// program. Not thread-safe: call it before training. Lasts until the process ends.
void restore_in_recompute(at::Generator generator);

/// Base of a module that recomputes its forward if a pattern of the config selects it:
///
///     struct BlockImpl : torch::nn::Module, dl::nn::Recomputable {
///       at::Tensor forward(const at::Tensor& x) {
///         return recomputed([this](const at::Tensor& x) { return x + mlp->forward(norm->forward(x)); }, x);
///       }
///     };
class Recomputable {
 public:
  virtual ~Recomputable();
  bool recomputes() const { return recomputes_; }
  void set_recompute(bool on) { recomputes_ = on; }

 protected:
  /// recompute(function, args...) if the module is selected, else function(args...).
  template <class F, class... Args>
  auto recomputed(F&& function, Args&&... args) const {
    if (!recomputes_ || !c10::GradMode::is_enabled()) {
      return function(std::forward<Args>(args)...);
    }
    return detail::recompute(as_module(), std::decay_t<F>(std::forward<F>(function)),
                             std::decay_t<Args>(std::forward<Args>(args))...);
  }

 private:
  std::shared_ptr<const torch::nn::Module> as_module() const;

  bool recomputes_ = false;
};

/// Selects the outermost modules whose names contain a match of `patterns` (regular expressions, ECMAScript), and makes
/// them recompute. LibTorch's modules have no hooks around forward: a module must be Recomputable, or an entry of a
/// Sequential that takes and returns one tensor. Names, parameters and saved weights do not change. Such a Sequential
/// then holds a wrapper at this entry: it cannot be cloned, and `at<T>()` does not find the module.
/// @return the names of the selected modules
/// @throws ConfigError for an invalid pattern, a pattern without a match, and a module of another kind
std::vector<std::string> recompute_modules(torch::nn::Module& model, const std::vector<std::string>& patterns);
/// The same for several models, whose names are prefixes of their modules' names: `generator.layers.0`.
std::vector<std::string> recompute_modules(const std::vector<std::pair<std::string, torch::nn::Module*>>& models,
                                           const std::vector<std::string>& patterns);

}  // namespace danling::inline v0::nn
