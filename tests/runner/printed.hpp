// The text that a call prints.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

#include <support/terminal.hpp>

namespace runner_test {

/// The text of both streams.
template <class Run>
std::string printed_by(const Run& run) {
  danling_test::Pipe output;
  const int out = ::dup(STDOUT_FILENO);
  const int err = ::dup(STDERR_FILENO);
  std::fflush(stdout);
  ::dup2(output.end(), STDOUT_FILENO);
  ::dup2(output.end(), STDERR_FILENO);
  run();
  std::fflush(stdout);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::close(out);
  ::close(err);
  return output.text();
}

}  // namespace runner_test
