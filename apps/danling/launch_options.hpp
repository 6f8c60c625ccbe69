// The options of `danling launch`.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace danling_command {

struct LaunchOptions {
  int workers = 1;
  int min_workers = 1;  ///< a restart uses one worker fewer, down to this number
  int max_restarts = 0;
  int master_port = 0;                     ///< 0: a free one for each attempt
  std::chrono::milliseconds grace{30000};  ///< between the request to end and SIGKILL
  bool prefix = true;
  std::vector<std::string> program;
};

/// Nothing when the words ask for the help, which is then printed. @throws danling::ConfigError
std::optional<LaunchOptions> read_launch_options(std::span<const std::string> words);

/// A TCP port of 127.0.0.1 that nobody listens on; `port` itself unless it is 0. @throws danling::ConfigError
int free_port(int port);

}  // namespace danling_command
