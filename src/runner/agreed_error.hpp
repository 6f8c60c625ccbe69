// Errors that all ranks throw at the same place, so that none has to tell the others.
#pragma once

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {

struct AgreedError {
  virtual ~AgreedError() = default;
};

template <class E>
struct Agreed final : E, AgreedError {
  using E::E;
};

/// Throws `E`; if `agreed`, on all ranks, whose group stays usable.
template <class E, class... Parts>
[[noreturn]] void fail_agreed(bool agreed, std::string_view where, const Parts&... parts) {
  if (agreed) {
    fail<Agreed<E>>(where, parts...);
  }
  fail<E>(where, parts...);
}

}  // namespace danling::inline v0::detail
