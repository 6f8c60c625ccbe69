// A Python with torch, where the machine has one, for tests against the original.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include <support/catch.hpp>

namespace danling_test {

/// The interpreter, quoted for the shell: the environment's DANLING_PYTHON, else `python3`; empty when it cannot import
/// torch.
inline const std::string& python_with_torch() {
  static const std::string found = [] {
    const char* named = std::getenv("DANLING_PYTHON");
    const std::string python = "'" + std::string(named != nullptr ? named : "python3") + "'";
    return std::system((python + " -c 'import torch' >/dev/null 2>&1").c_str()) == 0 ? python : std::string();
  }();
  return found;
}

/// Runs `<python> -W ignore <source directory>/<script> <arguments>`; says whether it succeeded.
inline bool run_python(const std::string& script, const std::vector<std::string>& arguments) {
  std::string command = python_with_torch() + " -W ignore '" + DANLING_SOURCE_DIR + "/" + script + "'";
  for (const auto& argument : arguments) {
    command += " '" + argument + "'";
  }
  return std::system(command.c_str()) == 0;
}

}  // namespace danling_test
