// danling supervise: restarts a program that dies or hangs.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include <danling/core/detail/child_process.hpp>
#include <danling/core/error.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/supervisor.hpp>

#include "arguments.hpp"
#include "commands.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::check;
using danling::detail::quote;

constexpr auto where = "supervise";

const std::initializer_list<Option> option_list = {
    {"--max-failures", "N", "give up after N failures in a row without progress (3)"},
    {"--hang-timeout", "S", "seconds without progress that count as a hang; 0: no limit (1800)"},
    {"--start-timeout", "S", "seconds until the first heartbeat; 0: no limit (0)"},
    {"--grace-seconds", "S", "seconds between SIGTERM or a forwarded signal and SIGKILL (60)"},
    {"--backoff", "S", "seconds before a restart; doubles with each failure without progress (1)"},
    {"--max-backoff", "S", "the longest time before a restart (300)"},
    {"--heartbeats", "DIR", "directory of the program's heartbeat files (a temporary directory)"},
    {"--no-arguments", "", "add no arguments, for a program without danling"},
    {"--log", "FILE", "also append the supervisor's lines to a file, with times"},
    {"--help", "", "print this text"},
};

void print_help() {
  std::printf(
      "Usage: danling supervise [options] -- PROGRAM [arguments]\n\n"
      "Runs PROGRAM and restarts it if it dies or hangs. Its output passes through; its stdin is empty.\n"
      "Adds the arguments that it lacks: --auto_resume true --heartbeat.enabled true --heartbeat.interval_seconds 10\n"
      "(or a quarter of the hang timeout) --comm.step_timeout_seconds (the hang timeout, after which PROGRAM logs its\n"
      "stacks). PROGRAM may be danling launch with several workers.\n\n"
      "%s\n"
      "Progress is a global_step above that of all earlier starts. Exit codes 0, 2 (an error of the config) and 75 (a\n"
      "time limit) end the supervision. SIGINT, SIGTERM, SIGHUP and SIGQUIT are forwarded and end it too.\n"
      "If this command dies, the program dies too.\n\n"
      "Exit code: the last exit code of the program, or 128 + signal; 126 or 127 if PROGRAM cannot be started; 2 for\n"
      "wrong options.\n",
      describe(option_list).c_str());
}

/// Opens standard streams that the caller has closed, so that no later file gets the number of one.
void hold_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0) {
      (void)!open("/dev/null", O_RDWR);
    }
  }
}

}  // namespace

int supervise(std::span<const std::string> words) {
  const auto program = std::find(words.begin(), words.end(), "--");
  check<ConfigError>(program != words.end() || std::find(words.begin(), words.end(), "--help") != words.end(), where,
                     "expected -- between the options and the program, as in danling supervise -- ./train, got none");
  const Arguments arguments(where, {words.begin(), program}, option_list);
  if (arguments.has("--help")) {
    print_help();
    return 0;
  }
  const auto& strangers = arguments.positional();
  check<ConfigError>(strangers.empty(), where, "expected only options before --, and the program after it, got ",
                     strangers.empty() ? "" : quote(strangers.front()), "; --help lists them");
  check<ConfigError>(program + 1 != words.end(), where, "expected a program after --, got none");
  hold_standard_streams();
  danling::SupervisorOptions options;
  options.program.assign(program + 1, words.end());
  options.max_failures = arguments.integer("--max-failures", 1).value_or(options.max_failures);
  options.hang_timeout = arguments.number("--hang-timeout").value_or(options.hang_timeout);
  options.start_timeout = arguments.number("--start-timeout").value_or(options.start_timeout);
  options.grace = arguments.number("--grace-seconds").value_or(options.grace);
  options.backoff = arguments.number("--backoff").value_or(options.backoff);
  options.max_backoff = arguments.number("--max-backoff").value_or(options.max_backoff);
  options.heartbeats = arguments.value("--heartbeats").value_or("");
  options.add_arguments = !arguments.has("--no-arguments");
  std::unique_ptr<danling::Logger> file;
  if (const auto path = arguments.value("--log")) {
    file = std::make_unique<danling::Logger>(danling::LoggerOptions{.file = *path, .console = false});
  }
  options.log = [&file](std::string_view line) {
    std::fprintf(stderr, "[supervise] %s\n", std::string(line).c_str());
    if (file != nullptr) {
      file->info(line);
      file->flush();
    }
  };
  try {
    return danling::Supervisor(std::move(options)).run();
  } catch (const danling::ProcessStartError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code;
  }
}

}  // namespace danling_command
