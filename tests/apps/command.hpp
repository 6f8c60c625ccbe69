// The danling command as a process of its own.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

namespace danling_test {

struct CommandResult {
  int code = 0;  ///< exit code, or minus the signal that ended it
  std::string out;
  std::string err;
  long max_kilobytes = 0;  ///< its largest resident set
};

/// Runs `danling <words>` and waits for it, `limit` seconds at most. `meanwhile` is called with the process.
inline CommandResult run_danling(const std::vector<std::string>& words,
                                 const std::function<void(pid_t)>& meanwhile = {}, unsigned limit = 120) {
  const TempDir directory;
  const std::string out = (directory / "out").string();
  const std::string err = (directory / "err").string();
  std::vector<std::string> all = {DANLING_COMMAND_BINARY};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (auto& word : all) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), 1);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), 2);
    alarm(limit);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  if (meanwhile) {
    meanwhile(child);
  }
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(out), read_file(err), usage.ru_maxrss};
}

}  // namespace danling_test
