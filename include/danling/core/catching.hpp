// catching(): turns exceptions of a call into a callback, so that the program continues (DanLing's `catch`).
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace danling::inline v0 {

/// Writes `error: ` and the text of an error to the standard error stream.
void print_error(const std::exception& error);

/// Wraps `function`. The wrapper returns an optional of the result, or for a void function whether the call completed.
/// Exceptions of type `E` go to `callback`; those of the types `Except`, and all others, propagate.
///
///     auto upload = catching<std::runtime_error>([&] { copy_to_bucket(path); });
///     if (!upload()) { ... }  // error printed; the run continues
template <class E = std::exception, class... Except, class F, class Callback = void (*)(const std::exception&)>
auto catching(F function, Callback callback = &print_error) {
  return [function = std::move(function), callback = std::move(callback)](auto&&... args) mutable {
    using R = std::invoke_result_t<F&, decltype(args)...>;
    try {
      if constexpr (std::is_void_v<R>) {
        std::invoke(function, std::forward<decltype(args)>(args)...);
        return true;
      } else {
        return std::optional<R>(std::invoke(function, std::forward<decltype(args)>(args)...));
      }
    } catch (const E& error) {
      if ((false || ... || (dynamic_cast<const Except*>(&error) != nullptr))) {
        throw;
      }
      std::invoke(callback, error);
      if constexpr (std::is_void_v<R>) {
        return false;
      } else {
        return std::optional<R>();
      }
    }
  };
}

}  // namespace danling::inline v0
