// Returns the message of the error that a call throws, so that tests can compare the whole text.
#pragma once

#include <string>

#include <support/catch.hpp>

namespace danling_test {

/// Runs `call` and returns what() of the `E` that it throws; fails the test if it throws nothing or another type.
template <class E, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  FAIL("expected an error, got none");
  return {};
}

}  // namespace danling_test
