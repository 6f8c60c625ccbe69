// `danling supervise`: restarts a program that died or hangs.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include <danling/core/child_process.hpp>
#include <danling/core/error.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/supervisor.hpp>

#include "arguments.hpp"
#include "commands.hpp"

namespace danling_command {
namespace {

using danling::check;
using danling::ConfigError;
using danling::quote;

constexpr auto where = "supervise";

const std::initializer_list<Option> kOptions = {
    {"--max-failures", "N", "failures in a row without progress, after which it gives up (3)"},
    {"--hang-timeout", "S", "seconds without progress of a process, after which it hangs; 0: never (1800)"},
    {"--start-timeout", "S", "seconds until the first heartbeat; 0: any time (0)"},
    {"--grace-seconds", "S", "time to end after SIGTERM or a signal passed on, before SIGKILL (60)"},
    {"--backoff", "S", "seconds before a restart; doubles with each failure without progress (1)"},
    {"--max-backoff", "S", "the longest time before a restart (300)"},
    {"--heartbeats", "DIR", "where the program writes its heartbeat files (a temporary directory)"},
    {"--no-arguments", "", "add no arguments: PROGRAM is not of danling"},
    {"--log", "FILE", "append the supervisor's lines to a file too, with times"},
    {"--help", "", "show this text"},
};

void print_help() {
  std::printf(
      "Usage: danling supervise [options] -- PROGRAM [arguments]\n\n"
      "Runs PROGRAM and starts it again when it dies or hangs. Its output passes through; it reads nothing from "
      "stdin.\n"
      "Unless they are among its arguments, it gets: --auto_resume true --heartbeat.enabled true\n"
      "--heartbeat.interval_seconds 10 (or a quarter of the hang timeout) and --comm.step_timeout_seconds (the hang\n"
      "timeout), by which it reports its stacks. PROGRAM may be danling launch with several workers.\n\n"
      "%s\n"
      "Progress is a global_step above that of all starts before. Exit codes 0, 2 (an error of the config) and 75 (a\n"
      "time limit) end the supervision. So do SIGINT, SIGTERM, SIGHUP and SIGQUIT, which are passed on to the "
      "program.\n"
      "When this command dies, the program does too.\n\n"
      "Exit code: that of the program's last end, 128 + signal for a signal; 126 and 127 when PROGRAM cannot be\n"
      "started; 2 for wrong options.\n",
      describe(kOptions).c_str());
}

/// No file that is opened later may take the number of a standard stream that the caller has closed.
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
  const Arguments arguments(where, {words.begin(), program}, kOptions);
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
  } catch (const danling::CannotStart& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code;
  }
}

}  // namespace danling_command
