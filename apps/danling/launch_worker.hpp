// Worker: a process of `danling launch` and the pipes of its output.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <danling/core/detail/child_process.hpp>

#include "launch_output.hpp"

namespace danling_command {

/// The rank of a worker and further values for its environment variables.
struct WorkerPlace {
  int rank = 0;
  int world_size = 1;
  int master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  std::string run_id;
};

class Worker : public danling::ChildProcess {
 public:
  /// The read end of a worker's stdout or stderr, and the target of its lines.
  struct Stream {
    int target;           ///< 1 or 2
    int descriptor = -1;  ///< -1 after its end
    LineSplitter lines;
  };

  /// Starts the program. @throws danling::ProcessStartError; danling::StateError if the system has no process or pipe
  /// left
  Worker(const std::vector<std::string>& program, const WorkerPlace& place, const danling::SignalQueue& signals);
  /// Calls release().
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int rank() const { return rank_; }
  std::array<Stream, 2>& streams() { return streams_; }
  bool has_output() const { return streams_[0].descriptor >= 0 || streams_[1].descriptor >= 0; }
  /// Kills the rest of the process group, reaps the process and closes the pipes.
  void release();

 private:
  struct Pipes {
    danling::Pipe out, err;
  };
  Worker(const std::vector<std::string>& program, const WorkerPlace& place, const danling::SignalQueue& signals,
         Pipes&& pipes);

  int rank_;
  std::array<Stream, 2> streams_{Stream{1, -1, {}}, Stream{2, -1, {}}};
};

}  // namespace danling_command
