// A program that is run to its end by the shell, and what it printed.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include <support/catch.hpp>

namespace reliability {

/// The variables that preload the library of faults: by its folder, which unlike a name to preload may have spaces.
inline std::string preload() {
  const std::filesystem::path library = DANLING_FAULTS_LIBRARY;
  return "LD_LIBRARY_PATH='" + library.parent_path().string() + "' LD_PRELOAD=" + library.filename().string();
}

struct Ended {
  int code;  ///< as the shell tells it: 128 + signal after a signal
  std::string output;
};

/// Runs `command`, with what it writes to stderr among the output.
inline Ended run(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  Ended out{};
  char block[4096];
  for (std::size_t got = 0; (got = fread(block, 1, sizeof block, pipe)) > 0;) {
    out.output.append(block, got);
  }
  const int status = pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

}  // namespace reliability
