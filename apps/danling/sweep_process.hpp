// TrialProcess: the process of one trial. TrialLock: the lock that a running trial holds.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <danling/core/detail/signal_queue.hpp>

namespace danling_command {

/// The lock of a trial. The trial's process and its children inherit it, so it is held until the last of them has
/// ended, even if the sweep was killed.
class TrialLock {
 public:
  /// Tries to take the lock. @throws danling::StateError if the file cannot be opened
  explicit TrialLock(const std::filesystem::path& path);
  ~TrialLock();
  TrialLock(const TrialLock&) = delete;
  TrialLock& operator=(const TrialLock&) = delete;

  bool taken() const { return taken_; }
  int descriptor() const { return file_; }

 private:
  int file_ = -1;
  bool taken_ = false;
};

/// A process in a separate group, which gets SIGTERM if the sweep dies. Its output is appended to a file.
class TrialProcess {
 public:
  /// @throws danling::ConfigError if the program cannot be started
  TrialProcess(const std::vector<std::string>& words, int threads, const std::filesystem::path& log,
               const TrialLock& lock, const danling::SignalQueue& signals);
  /// Kills the process if it still runs.
  ~TrialProcess();
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Returns true if the process has ended, and then sets code() and signal().
  bool ended();
  int code() const { return code_; }      ///< exit code, or 128 + signal
  int signal() const { return signal_; }  ///< the signal that ended it, or 0
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  /// Sends `signal` to the process group.
  void send(int signal) const;

 private:
  pid_t pid_ = -1;
  int code_ = 0;
  int signal_ = 0;
  std::uint64_t peak_bytes_ = 0;
};

/// Returns the last line of a log behind `offset` that is not blank, cut to the length of a message.
std::string last_line_of(const std::filesystem::path& log, std::uint64_t offset);

}  // namespace danling_command
