// Runs Python with torch, if the machine has it, for tests against the original.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <support/catch.hpp>

namespace danling_test {

/// A Python process that runs the scripts of a test program (python_server.py); started at first use.
class PythonServer {
 public:
  static PythonServer& instance() {
    static PythonServer server;
    return server;
  }
  /// Returns the interpreter: DANLING_PYTHON, or `python3`.
  static std::string name() {
    const char* named = std::getenv("DANLING_PYTHON");
    return named != nullptr ? named : "python3";
  }

  bool can_import(const std::string& module) { return ask({"import", module}) == "1"; }

  /// Runs a script, given by its name in the source directory or by its full path; returns true if it succeeded. Its
  /// output goes to `output`, or to this process's output.
  bool run(const std::string& script, const std::vector<std::string>& arguments, const std::string& output = "") {
    std::vector<std::string> request = {"run", output, std::filesystem::current_path().string(),
                                        (std::filesystem::path(DANLING_SOURCE_DIR) / script).string(),
                                        std::to_string(arguments.size())};
    request.insert(request.end(), arguments.begin(), arguments.end());
    for (char** variable = environ; *variable != nullptr; ++variable) {
      request.emplace_back(*variable);
    }
    return ask(request) == "0";
  }

  PythonServer(const PythonServer&) = delete;
  PythonServer& operator=(const PythonServer&) = delete;

 private:
  PythonServer() {
    int requests[2], answers[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, requests) == 0);  // written without SIGPIPE
    REQUIRE(pipe2(answers, O_CLOEXEC) == 0);
    const int read_end = fcntl(requests[1], F_DUPFD_CLOEXEC, 10);  // above 3, which a dup2 below would overwrite
    const int write_end = fcntl(answers[1], F_DUPFD_CLOEXEC, 10);
    close(requests[1]);
    close(answers[1]);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, read_end, 0);
    posix_spawn_file_actions_adddup2(&files, write_end, 3);
    std::string python = name(), ignore = "-W", what = "ignore",
                server = std::string(DANLING_SOURCE_DIR) + "/tests/support/python_server.py";
    char* const words[] = {python.data(), ignore.data(), what.data(), server.data(), nullptr};
    if (posix_spawnp(&pid_, words[0], &files, nullptr, words, environ) != 0) {
      pid_ = -1;
    }
    posix_spawn_file_actions_destroy(&files);
    close(read_end);
    close(write_end);
    requests_ = requests[0];
    answers_ = answers[0];
  }
  ~PythonServer() {
    close(requests_);
    close(answers_);
    if (pid_ > 0 && getpid() == owner_) {
      waitpid(pid_, nullptr, 0);
    }
  }

  std::string ask(const std::vector<std::string>& fields) {
    std::string request = std::to_string(fields.size()) + "\n";
    for (const auto& field : fields) {
      request += std::to_string(field.size()) + "\n" + field;
    }
    for (std::size_t sent = 0; sent < request.size();) {
      const ssize_t count = send(requests_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno != EINTR) {
        return "no Python";
      }
      sent += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    std::string out;
    for (char c = 0; c != '\n';) {
      const ssize_t count = read(answers_, &c, 1);
      if (count == 0 || (count < 0 && errno != EINTR)) {
        return "no answer";
      }
      out += count == 1 && c != '\n' ? std::string(1, c) : "";
    }
    return out;
  }

  pid_t owner_ = getpid(), pid_ = -1;
  int requests_ = -1, answers_ = -1;
};

/// Returns the interpreter, quoted for the shell; empty if it cannot import torch.
inline const std::string& python_with_torch() {
  static const std::string found =
      PythonServer::instance().can_import("torch") ? "'" + PythonServer::name() + "'" : std::string();
  return found;
}

/// Runs a script by the Python with torch, given by its name in the source directory or by its full path; returns true
/// if it succeeded.
inline bool run_python(const std::string& script, const std::vector<std::string>& arguments) {
  return PythonServer::instance().run(script, arguments);
}

}  // namespace danling_test
