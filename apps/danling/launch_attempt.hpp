// One attempt of `danling launch`: all workers from their start until the last has ended.
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
  bool failed = false;  ///< a worker failed, and nobody asked the run to stop
  bool final =
      false;  ///< `code` says that another attempt would end the same way: an error of the config, a time limit
};

class Attempt {
 public:
  /// `first` describes rank 0. @throws danling::CannotStart, danling::StateError; no worker is left then
  Attempt(const LaunchOptions& options, const WorkerPlace& first, const danling::SignalQueue& signals,
          LineQueue& output);
  /// Runs the workers to their end.
  AttemptEnd run();

 private:
  struct Member {
    Worker worker;
    std::string prefix;
    LaunchClock::time_point give_up{};  ///< on the rest of its output, after its end
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

  std::deque<Member> members_;  // its elements cannot move

  std::optional<LaunchClock::time_point> kill_at_;  ///< set once the workers were asked to end
  bool killed_ = false;
  int stop_signal_ = 0;                                    ///< the first signal that asked the run to stop
  std::optional<LaunchClock::time_point> interrupted_at_;  ///< the first SIGINT or SIGTERM

  int failed_rank_ = -1;
  int failed_code_ = 0;
  int failed_signal_ = 0;
  bool time_limit_ = false;
  int stopped_code_ = 0;  ///< of a worker that ended as `stop_signal_` asked
};

}  // namespace danling_command
