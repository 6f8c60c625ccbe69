#include "launch_attempt.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>

namespace danling_command {
namespace {

using danling::detail::concat;
using std::chrono::milliseconds;

// Copies of exit_config and exit_time_limit in danling/runner/run.hpp, which includes LibTorch.
constexpr int config_error = 2;
constexpr int time_limit = 75;

/// How long to read the output of a worker that has ended while a process that it started keeps the output open.
constexpr milliseconds patience{5000};
/// `timeout` and others send a signal both to the process and to its group; the two count as one request.
constexpr milliseconds same_request{250};

}  // namespace

Attempt::Attempt(const LaunchOptions& options, const WorkerPlace& first, const danling::SignalQueue& signals,
                 LineQueue& output)
    : options_(options), signals_(signals), output_(output) {
  WorkerPlace place = first;
  for (place.rank = 0; place.rank < place.world_size; ++place.rank) {
    Member& member = members_.emplace_back(options.program, place, signals);
    member.prefix = options.prefix ? concat("[", place.rank, "] ") : "";
  }
}

AttemptEnd Attempt::run() {
  while (!over()) {
    wait();
    take_signals();
    if (kill_at_ && !killed_ && now_ >= *kill_at_) {
      kill_workers();
    }
    release_ended();
    output_.write();
  }
  return result();
}

/// Waits for signals, output and deadlines, and reads available output.
void Attempt::wait() {
  struct Source {
    Member* member;
    Worker::Stream* stream;
  };
  std::vector<pollfd> places = {{signals_.descriptor(), POLLIN, 0}, {output_.awaited(), POLLOUT, 0}};
  std::vector<Source> sources;
  auto wake = LaunchClock::time_point::max();
  if (kill_at_ && !killed_) {
    wake = *kill_at_;
  }
  for (auto& member : members_) {
    if (!member.worker.running() && !member.worker.released()) {
      wake = std::min(wake, member.give_up);
    }
    for (auto& stream : member.worker.streams()) {
      if (stream.descriptor >= 0 && !output_.full()) {
        places.push_back({stream.descriptor, POLLIN, 0});
        sources.push_back({&member, &stream});
      }
    }
  }
  int patience_left = -1;
  if (wake != LaunchClock::time_point::max()) {
    const auto left = std::chrono::ceil<milliseconds>(wake - LaunchClock::now()).count();
    patience_left = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
  }
  const int count = poll(places.data(), places.size(), patience_left);
  now_ = LaunchClock::now();
  for (std::size_t i = 0; count > 0 && i < sources.size(); ++i) {
    if (places[i + 2].revents != 0) {
      read_output(*sources[i].member, *sources[i].stream);
    }
  }
}

void Attempt::read_output(Member& member, Worker::Stream& stream) {
  static std::array<char, 65536> block;
  const LineSplitter::Sink sink = [&](std::string_view line) { output_.add(stream.target, member.prefix, line); };
  const ssize_t got = read(stream.descriptor, block.data(), block.size());
  if (got > 0) {
    stream.lines.add({block.data(), static_cast<std::size_t>(got)}, now_, sink);
  } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
    stream.lines.finish(sink);
    close(stream.descriptor);
    stream.descriptor = -1;
  }
}

void Attempt::take_signals() {
  while (const int signal = signals_.next()) {
    if (signal == SIGCHLD) {
      notice_ends();
    } else if (danling::SignalQueue::requests_stop(signal)) {
      stop_by(signal);
    } else {
      send(signal);
    }
  }
}

void Attempt::stop_by(int signal) {
  if (stop_signal_ == 0) {
    stop_signal_ = signal;
    if (!kill_at_) {
      say(concat("got ", danling::signal_name(signal), ", forwards it to the workers; SIGKILL follows after ",
                 danling::format_seconds(options_.grace)));
      end_workers(signal);
    } else {  // not forwarded: danling::run exits at once at a second, different signal
      say(concat("got ", danling::signal_name(signal), ": the workers are already ending; no restart"));
    }
  } else if (signal == SIGQUIT) {
    send(signal);
  }
  if (signal != SIGINT && signal != SIGTERM) {
    return;
  }
  if (!interrupted_at_) {
    interrupted_at_ = now_;
  } else if (!killed_ && now_ - *interrupted_at_ > same_request) {
    kill_workers();
  }
}

/// Handles workers that a signal ended first, since the others often fail because of them.
void Attempt::notice_ends() {
  const Worker* failed = nullptr;
  for (auto& member : members_) {
    Worker& worker = member.worker;
    if (!worker.poll_exit()) {
      continue;
    }
    member.give_up = now_ + patience;
    const int code = worker.code();
    const bool asked = stop_signal_ != 0 && danling::SignalQueue::requests_stop(code - 128);
    if (code == time_limit && worker.signal() == 0) {
      time_limit_ = true;
    } else if (asked || (killed_ && worker.signal() == SIGKILL)) {
      stopped_code_ = std::max(stopped_code_, code);
    } else if (code != 0 && (failed == nullptr || (failed->signal() == 0 && worker.signal() != 0))) {
      failed = &worker;
    }
  }
  if (failed != nullptr && failed_rank_ < 0) {
    failed_rank_ = failed->rank();
    failed_code_ = failed->code();
    failed_signal_ = failed->signal();
    if (!kill_at_) {
      end_workers(SIGTERM);
    }
  }
}

void Attempt::release_ended() {
  for (auto& member : members_) {
    Worker& worker = member.worker;
    if (worker.running() || worker.released()) {
      continue;
    }
    if (output_.full() && !hurried()) {  // nobody reads the output: extend the deadline
      member.give_up = now_ + patience;
    }
    if (worker.has_output() && now_ < member.give_up) {
      continue;
    }
    if (worker.has_output()) {
      if (!output_.full()) {
        say(concat("rank ", worker.rank(), " (pid ", worker.pid(), ") has ended, but a process that it started keeps ",
                   "its output open; stops reading it"));
      }
      for (auto& stream : worker.streams()) {
        stream.lines.finish([&](std::string_view line) { output_.add(stream.target, member.prefix, line); });
      }
    }
    if (worker.rank() == failed_rank_) {
      name_failure(worker);
    }
    worker.release();
  }
}

void Attempt::send(int signal) {
  for (auto& member : members_) {
    member.worker.send(signal);
  }
}

void Attempt::end_workers(int signal) {
  send(signal);
  kill_at_ = now_ + options_.grace;
}

void Attempt::kill_workers() {
  killed_ = true;
  std::vector<int> ranks;
  for (auto& member : members_) {
    if (member.worker.running()) {
      ranks.push_back(member.worker.rank());
    }
  }
  if (!ranks.empty()) {
    say(concat("sends SIGKILL to the workers that still run: rank ", danling::detail::join(ranks)));
    send(SIGKILL);
  }
}

/// Returns true if the run must end even if the reader of its output has stopped reading.
bool Attempt::hurried() const { return killed_ || (stop_signal_ != 0 && now_ >= *kill_at_); }

bool Attempt::over() const {
  return (output_.empty() || hurried()) &&
         std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.worker.released(); });
}

AttemptEnd Attempt::result() const {
  if (failed_rank_ >= 0) {
    return {failed_code_, stop_signal_ == 0, time_limit_ || (failed_code_ == config_error && failed_signal_ == 0)};
  }
  return {time_limit_ ? time_limit : stopped_code_, false, false};
}

void Attempt::say(const std::string& line) { output_.add(2, "[launch] ", line); }

void Attempt::name_failure(Worker& worker) {
  const std::string& last = worker.streams()[1].lines.last();
  const std::string end = failed_signal_ == 0 ? concat("failed with exit code ", failed_code_)
                                              : concat("was ended by ", danling::signal_name(failed_signal_), " (",
                                                       strsignal(failed_signal_), ")");
  say(concat("rank ", worker.rank(), " (pid ", worker.pid(), ") ", end,
             last.empty() ? "; it wrote nothing to stderr" : concat("; its last line on stderr: ", last)));
  if (failed_signal_ == SIGKILL) {
    say("SIGKILL comes from a person, a batch system, or the kernel when memory runs out (dmesg names the process)");
  }
  const bool others =
      std::any_of(members_.begin(), members_.end(), [](const Member& member) { return member.worker.running(); });
  if (others && stop_signal_ == 0) {
    say(concat("the other workers got SIGTERM; SIGKILL follows after ", danling::format_seconds(options_.grace)));
  }
}

}  // namespace danling_command
