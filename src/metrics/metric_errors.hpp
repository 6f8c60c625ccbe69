// Errors of a user's metric: adds the metric's name.
#pragma once

#include <string_view>
#include <utility>

namespace danling::inline v0::detail {

/// Rethrows the exception in flight with `; in metric '<name>'` appended. The type stays; exceptions of other types
/// than danling's, LibTorch's and the standard library's common ones pass unchanged.
[[noreturn]] void rethrow_from_metric(std::string_view name);

/// Returns the result of `call`. @throws what it throws, as rethrow_from_metric does
template <class Call>
decltype(auto) in_metric(std::string_view name, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    rethrow_from_metric(name);
  }
}

}  // namespace danling::inline v0::detail
