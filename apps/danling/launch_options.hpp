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
  int min_workers = 1;  ///< each restart uses one worker fewer, down to this number
  int max_restarts = 0;
  int master_port = 0;                     ///< 0: a free port for each attempt
  std::chrono::milliseconds grace{30000};  ///< time between the request to end and SIGKILL
  bool prefix = true;
  std::vector<std::string> program;
};

/// Parses the options; for --help prints the help and returns nullopt. @throws danling::ConfigError
std::optional<LaunchOptions> read_launch_options(std::span<const std::string> words);

/// Returns a free TCP port of 127.0.0.1: `port`, or if it is 0 one that the system assigns to no connection.
/// @throws danling::ConfigError if `port` is not free
int free_port(int port);

}  // namespace danling_command
