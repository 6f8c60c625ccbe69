// danling launch: starts several processes of a program on this machine and restarts them after a failure.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include <danling/core/format.hpp>

#include "commands.hpp"
#include "launch_attempt.hpp"

namespace danling_command {
namespace {

using danling::detail::concat;

/// Opens standard streams that the caller has closed, so that no pipe gets the number of one.
void hold_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0) {
      (void)!open("/dev/null", O_RDWR);  // gets the lowest free number
    }
  }
}

WorkerPlace first_place(const LaunchOptions& options) {
  WorkerPlace place;
  place.world_size = options.workers;
  place.max_restarts = options.max_restarts;
  place.run_id = concat(
      "launch-", getpid(), "-",
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count());
  return place;
}

int run_attempts(const LaunchOptions& options, const danling::SignalQueue& signals, LineQueue& output) {
  const auto say = [&](const std::string& line) { output.add(2, "[launch] ", line); };
  WorkerPlace place = first_place(options);
  for (;;) {
    place.master_port = options.master_port != 0 ? options.master_port : free_port(0);
    const AttemptEnd end = Attempt(options, place, signals, output).run();
    if (!end.failed || options.max_restarts == 0) {
      return end.code;
    }
    if (end.final) {
      say("not restarted: exit code 2 (an error of the config) and 75 (a time limit) would occur again");
      return end.code;
    }
    if (place.restart_count == options.max_restarts) {
      say(concat("not restarted: the limit --max-restarts ", options.max_restarts, " is reached"));
      return end.code;
    }
    ++place.restart_count;
    place.world_size = std::max(options.min_workers, place.world_size - 1);
    say(concat("restart ", place.restart_count, " of ", options.max_restarts, ", with ", place.world_size,
               place.world_size == 1 ? " worker" : " workers"));
  }
}

}  // namespace

int launch(std::span<const std::string> words) {
  const auto options = read_launch_options(words);
  if (!options) {
    return 0;
  }
  hold_standard_streams();
  const danling::SignalQueue signals("launch");
  LineQueue output;
  int code = 0;
  try {
    code = run_attempts(*options, signals, output);
  } catch (const danling::ProcessStartError& error) {
    output.add(2, "", error.what());
    code = error.code;
  } catch (...) {
    output.finish();
    throw;
  }
  output.finish();
  return code;
}

}  // namespace danling_command
