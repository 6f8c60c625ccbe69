// The Python process of a benchmark, which executes one command at a time.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

[[noreturn]] inline void give_up(const std::string& text) { throw std::runtime_error(text); }

/// Rows that were not measured, and tables whose values were not compared. With any gap, finish() of results.hpp fails.
inline std::vector<std::string>& gaps() {
  static std::vector<std::string> found;
  return found;
}

/// The failure of a contestant that an interpreter would run. It is no gap: without Python its rows are absent.
inline const std::string no_python = "no Python";

/// The interpreter of the peers: that of the environment's DANLING_PYTHON, otherwise CMake's. Prints that the rows are
/// absent if it is empty.
inline std::string python_of_peers(const char* of_cmake) {
  const char* chosen = std::getenv("DANLING_PYTHON");
  const std::string python = chosen != nullptr ? chosen : of_cmake;
  if (python.empty()) {
    std::printf("Python's rows are absent: DANLING_PYTHON names no interpreter\n");
  }
  return python;
}

/// An answer of the script other than "ok".
struct NoAnswer : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The Python process. The script documents commands and answers.
class Peers {
 public:
  Peers(const std::string& python, const std::string& script, const std::vector<std::string>& script_arguments) {
    int to[2];
    int from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
      give_up("expected two pipes, got none");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    std::vector<std::string> arguments = {python, "-W", "ignore", script};
    arguments.insert(arguments.end(), script_arguments.begin(), script_arguments.end());
    std::vector<char*> argv;
    for (auto& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    const int failed = posix_spawnp(&process_, python.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
    if (failed != 0) {
      give_up("expected to start " + python);
    }
    receive();
  }
  ~Peers() {
    std::fclose(to_);
    std::fclose(from_);
    waitpid(process_, nullptr, 0);
  }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  pid_t process() const { return process_; }
  double ask(const std::string& command) {
    std::fprintf(to_, "%s\n", command.c_str());
    std::fflush(to_);
    return receive();
  }

 private:
  double receive() {
    char line[512];
    if (std::fgets(line, sizeof line, from_) == nullptr) {
      give_up("expected an answer from Python, got none");
    }
    const std::string text(line, std::char_traits<char>::length(line) - 1);
    if (!text.starts_with("ok")) {
      throw NoAnswer(text);
    }
    return text.size() > 3 ? std::atof(text.c_str() + 3) : 0;
  }

  pid_t process_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace bench
