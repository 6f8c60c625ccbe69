// Errors: one type per kind of failure, one shape of message.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include <danling/core/format.hpp>

namespace danling::inline v0 {

/// Base of the errors that danling detects. Errors of LibTorch, of memory and of the program's functions pass through.
/// `what()` reads `[component.operation] expected X, got Y`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

/// A configuration key, value or file is wrong.
class ConfigError : public Error {
 public:
  using Error::Error;
  ~ConfigError() override;
};

/// A data file, sample or batch is wrong.
class DataError : public Error {
 public:
  using Error::Error;
  ~DataError() override;
};

/// An object was used in a state that does not allow it, or a saved state does not fit the object.
class StateError : public Error {
 public:
  using Error::Error;
  ~StateError() override;
};

/// A checkpoint could not be written or read, or does not fit the run.
class CheckpointError : public Error {
 public:
  using Error::Error;
  ~CheckpointError() override;
};

/// A loss or gradient is infinite or not a number.
class NonFiniteError : public Error {
 public:
  using Error::Error;
  ~NonFiniteError() override;
};

/// Processes could not connect, or a collective failed.
class DistributedError : public Error {
 public:
  using Error::Error;
  ~DistributedError() override;
};

/// A metric or meter received values that it cannot accept.
class MetricError : public Error {
 public:
  using Error::Error;
  ~MetricError() override;
};

namespace detail {

/// `[where] parts...`
std::string error_text(std::string_view where, std::initializer_list<TextPart> parts);

template <class E>
[[noreturn, gnu::cold, gnu::noinline]] void throw_error(std::string_view where, std::initializer_list<TextPart> parts) {
  throw E(error_text(where, parts));
}

/// Throws `E` with the message `[where] parts...`. `where` is `component.operation`.
template <class E = Error, class... Parts>
[[noreturn]] void fail(std::string_view where, const Parts&... parts) {
  throw_error<E>(where, {TextPart(parts)...});
}

/// Calls `fail<E>` unless `condition` holds. The caller always evaluates the parts: keep them cheap on hot paths.
template <class E = Error, class... Parts>
void check(bool condition, std::string_view where, const Parts&... parts) {
  if (!condition) [[unlikely]] {
    throw_error<E>(where, {TextPart(parts)...});
  }
}

}  // namespace detail

#ifdef DANLING_SOURCES  // the library's own files name them without `detail`
using detail::check;
using detail::fail;
#endif

}  // namespace danling::inline v0
