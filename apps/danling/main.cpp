// The `danling` command: finds the subcommand by name and prints every error as one line.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/version.hpp>

#include "commands.hpp"

namespace {

using Entry = danling_command::CommandEntry;

const std::vector<Entry>& commands() {
  static const std::vector<Entry> known = {
      {"ckpt", danling_command::ckpt, "inspect, verify, compare and convert checkpoints of danling and Python"},
      {"launch", danling_command::launch, "start several processes of a program on this machine"},
      {"new", danling_command::new_project, "write a project that trains a model"},
      {"pipeline", danling_command::pipeline, "draw and compare the schedules of a pipeline"},
      {"profile", danling_command::profile, "print which operators and ranges take the time of a profiler trace"},
      {"report", danling_command::report, "write a page with the curves, configs and results of runs"},
      {"runs", danling_command::runs, "list, show, compare and remove runs"},
      {"schedule", danling_command::schedule, "draw the learning rates of a config"},
      {"supervise", danling_command::supervise, "restart a program that dies or hangs, until it ends"},
      {"sweep", danling_command::sweep, "try values of config keys: a grid, random search or halving"},
      {"verify-resume", danling_command::verify_resume, "check that an interrupted program resumes bit for bit"},
      {"watch", danling_command::watch, "serve the page of runs while they train"},
  };
  return known;
}

int run_command(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "--version") {
    std::printf("danling %s\n", danling::version);
    return 0;
  }
  return danling_command::dispatch("danling", "", commands(), words);
}

}  // namespace

danling_command::Command danling_command::find_command(std::string_view name) {
  for (const auto& entry : commands()) {
    if (entry.name == name) {
      return entry.run;
    }
  }
  return nullptr;
}

int main(int argc, char** argv) {
  int code = 2;
  try {
    code = run_command(std::vector<std::string>(argv + 1, argv + argc));
    danling::detail::check<danling::Error>(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, "danling",
                                           "expected to write all output, got an error");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = 2;
  }
  std::fflush(nullptr);
  // Skips destructors: unregistering LibTorch's operators takes a third of the time of a short command.
  std::_Exit(code);
}
