// The process of one trial, and the lock by which it is known to run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <danling/core/signal_queue.hpp>

namespace danling_command {

/// The lock of a trial. Its process and the processes which that starts inherit it, so it is held until the last of
/// them has ended, also when the sweep was killed.
class TrialLock {
 public:
  /// Tries to take it. @throws danling::StateError when the file cannot be opened
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

/// A process in a group of its own, which is asked to stop (SIGTERM) when the sweep dies. Its output is appended to a
/// file.
class TrialProcess {
 public:
  /// @throws danling::ConfigError when the program cannot be started
  TrialProcess(const std::vector<std::string>& words, int threads, const std::filesystem::path& log,
               const TrialLock& lock, const danling::SignalQueue& signals);
  /// Kills it if it still runs.
  ~TrialProcess();
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Whether it has ended; sets what follows.
  bool ended();
  int code() const { return code_; }      ///< exit code, or 128 + signal
  int signal() const { return signal_; }  ///< that ended it, or 0
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  /// To its group.
  void send(int signal) const;

 private:
  pid_t pid_ = -1;
  int code_ = 0;
  int signal_ = 0;
  std::uint64_t peak_bytes_ = 0;
};

/// The last line with text that a log has behind `offset`, and is not longer than a message should be.
std::string last_line_of(const std::filesystem::path& log, std::uint64_t offset);

}  // namespace danling_command
