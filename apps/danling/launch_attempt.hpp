// Attempt: one attempt of `danling launch`, from the start of all workers to the end of the last.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launch_options.hpp"
#include "launch_output.hpp"
#include "launch_worker.hpp"

namespace danling_command {

struct AttemptEnd {
  int code = 0;         ///< exit code of the command if no attempt follows
  bool failed = false;  ///< a worker failed without a request to stop
  bool final =
      false;  ///< another attempt would end the same way: `code` means an error of the config or the time limit
};

class Attempt {
 public:
  /// Starts all workers; `first` describes rank 0. @throws danling::ProcessStartError, danling::StateError; no worker
  /// remains
  Attempt(const LaunchOptions& options, const WorkerPlace& first, const danling::SignalQueue& signals,
          LineQueue& output);
  /// Runs the workers to their end.
  AttemptEnd run();

 private:
  struct Member {
    Worker worker;
    std::string prefix;
    LaunchClock::time_point give_up{};  ///< deadline for the rest of its output after its end
    Member(const std::vector<std::string>& program, const WorkerPlace& place, const danling::SignalQueue& signals)
        : worker(program, place, signals) {}
  };

  void wait();
  void read_output(Member& member, Worker::Stream& stream);
  void take_signals();
  void stop_by(int signal);
  void notice_ends();
  void release_ended();
  void send(int signal);
  void end_workers(int signal);
  void kill_workers();
  bool hurried() const;
  bool over() const;
  AttemptEnd result() const;
  void say(const std::string& line);
  void name_failure(Worker& worker);

  const LaunchOptions& options_;
  const danling::SignalQueue& signals_;
  LineQueue& output_;
  LaunchClock::time_point now_ = LaunchClock::now();

  std::deque<Member> members_;  // a deque, since members cannot be moved

  std::optional<LaunchClock::time_point> kill_at_;  ///< time of SIGKILL; set after the request to end
  bool killed_ = false;
  int stop_signal_ = 0;                                    ///< the first signal that requested a stop
  std::optional<LaunchClock::time_point> interrupted_at_;  ///< time of the first SIGINT or SIGTERM

  int failed_rank_ = -1;
  int failed_code_ = 0;
  int failed_signal_ = 0;
  bool time_limit_ = false;
  int stopped_code_ = 0;  ///< exit code of a worker that ended because of `stop_signal_`
};

}  // namespace danling_command
