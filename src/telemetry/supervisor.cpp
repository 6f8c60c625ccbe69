#include <danling/telemetry/supervisor.hpp>

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include <danling/core/detail/child_process.hpp>
#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>

#include <telemetry/heartbeat_watch.hpp>

namespace danling::inline v0 {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using std::chrono::milliseconds;

constexpr std::string_view supervisor_where = "supervise";
// Copies of exit_config and exit_time_limit in danling/runner/run.hpp, which includes LibTorch.
constexpr int config_error = 2;
constexpr int time_limit = 75;
/// `timeout` and others send a signal both to the process and to its group; the two count as one request.
constexpr milliseconds same_request{250};
constexpr double most_seconds = 1e7;
/// Seconds between heartbeats of a supervised program: its last heartbeat is at most that old when it dies.
constexpr double heartbeat_seconds = 10.0;

std::optional<std::string> value_of(const std::vector<std::string>& words, const std::string& option) {
  for (std::size_t i = words.size(); i-- > 0;) {
    if (words[i].starts_with(option + "=")) {
      return words[i].substr(option.size() + 1);
    }
    if (words[i] == option) {
      return i + 1 < words.size() ? words[i + 1] : std::string();
    }
  }
  return std::nullopt;
}

void add_arguments(SupervisorOptions& options) {
  std::vector<std::string>& words = options.program;
  const auto add = [&](const std::string& option, const std::string& value) {
    if (!value_of(words, option)) {
      words.insert(words.end(), {option, value});
    }
  };
  const std::string interval_option = "--heartbeat.interval_seconds";
  double interval = heartbeat_seconds;
  if (options.hang_timeout > 0) {
    interval = std::min(interval, options.hang_timeout / 4);
    if (const auto own = value_of(words, interval_option)) {
      double seconds = 0;
      const auto read = std::from_chars(own->data(), own->data() + own->size(), seconds);
      check<ConfigError>(read.ec != std::errc() || seconds <= options.hang_timeout / 2, supervisor_where, "expected ",
                         interval_option, " of at most half the hang timeout of ", format_seconds(options.hang_timeout),
                         ", got ", *own);
    }
  }
  add("--auto_resume", "true");
  add("--heartbeat.enabled", "true");
  add(interval_option, to_text(interval));
  if (options.hang_timeout > 0) {
    add("--comm.step_timeout_seconds", to_text(options.hang_timeout));  // a hanging program then logs its stacks
  }
}

/// A temporary directory for heartbeats; the destructor removes it.
class PrivateDirectory {
 public:
  PrivateDirectory() {
    std::error_code error;
    std::string name = (std::filesystem::temp_directory_path(error) / "danling-supervise-XXXXXX").string();
    check<StateError>(!error && mkdtemp(name.data()) != nullptr, supervisor_where,
                      "expected to make a temporary directory for heartbeats, got ",
                      error ? error.message() : std::strerror(errno), "; TMPDIR sets its location");
    path_ = name;
  }
  ~PrivateDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void clear() const {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
      std::filesystem::remove_all(entry.path(), error);
    }
  }

 private:
  std::filesystem::path path_;
};

/// Supervises a program over all its starts.
class Supervision {
 public:
  explicit Supervision(const SupervisorOptions& options)
      : options_(options),
        watch_(options.heartbeats.empty() ? private_.emplace().path() : options.heartbeats, turn()) {}

  int run() {
    for (;;) {
      const int code = run_once();
      if (code == 0 || stop_signal_ != 0 || is_final(code)) {
        return code;
      }
      if (!restarts(code)) {
        return stop_signal_ != 0 ? 128 + stop_signal_ : code;
      }
    }
  }

 private:
  milliseconds turn() const {
    const double limit = options_.hang_timeout > 0 ? options_.hang_timeout : 10;
    return std::clamp(milliseconds(std::llround(limit * 100)), milliseconds(10), milliseconds(500));
  }
  void say(const std::string& line) const { options_.log(line); }
  std::string beyond() const { return best_step_ >= 0 ? concat(" beyond step ", best_step_) : ""; }

  int run_once();
  void wait(milliseconds time);
  void take_signals(const ChildProcess* child);
  void pass_on(int signal, const ChildProcess* child);
  void notice_hang(const ChildProcess& child);
  void end(const ChildProcess& child, int signal);
  void name_failure(const ChildProcess& child) const;
  bool is_final(int code) const;
  bool restarts(int code);

  const SupervisorOptions& options_;
  SignalQueue signals_{supervisor_where};
  std::optional<PrivateDirectory> private_;
  detail::HeartbeatWatch watch_;

  std::int64_t starts_ = 0, failures_ = 0;
  std::int64_t best_step_ = -1;  ///< highest step of all earlier starts; -1: unknown
  double pause_ = 0;
  int stop_signal_ = 0;  ///< the first signal that requested the end of the supervision; 0: none
  int ended_by_ = 0;     ///< the signal that ended the program; 0: none
  Clock::time_point started_, stopped_at_;
  std::optional<Clock::time_point> kill_at_;
  bool hangs_ = false;
};

void Supervision::wait(milliseconds time) {
  pollfd place = {signals_.descriptor(), POLLIN, 0};
  poll(&place, 1, static_cast<int>(std::max<std::int64_t>(time.count(), 0)));
}

int Supervision::run_once() {
  ChildProcessOptions child_options{.where = supervisor_where, .program = options_.program};
  if (private_) {
    private_->clear();
    child_options.variables = {concat("DANLING_HEARTBEATS=", private_->path().string()),
                               concat("DANLING_RESTARTS=", starts_)};
  }
  watch_.begin();
  hangs_ = false;
  kill_at_.reset();
  ChildProcess child(child_options, signals_);
  started_ = Clock::now();
  say(concat("start ", ++starts_, ": ", options_.program.front(), " (pid ", child.pid(), ")"));
  bool ended = false;
  while (!ended) {
    wait(turn());
    take_signals(&child);
    ended = child.poll_exit();
    watch_.look();
    if (!ended) {
      notice_hang(child);
      if (kill_at_ && Clock::now() >= *kill_at_) {
        say("sends SIGKILL to the program, which has not ended");
        child.send(SIGKILL);
        kill_at_ = Clock::time_point::max();
      }
    }
  }
  ended_by_ = child.signal();
  if (child.code() != 0) {
    name_failure(child);
  }
  child.release();
  return child.code();
}

void Supervision::take_signals(const ChildProcess* child) {
  while (const int signal = signals_.next()) {
    if (signal != SIGCHLD) {
      pass_on(signal, child);
    }
  }
}

void Supervision::pass_on(int signal, const ChildProcess* child) {
  if (!SignalQueue::requests_stop(signal)) {
    if (child != nullptr) {
      child->send(signal);
    }
    return;
  }
  const auto now = Clock::now();
  if (stop_signal_ == 0) {
    stop_signal_ = signal;
    if (child != nullptr) {
      say(concat("got ", signal_name(signal), ", forwards it to the program; SIGKILL follows after ",
                 format_seconds(options_.grace)));
      end(*child, signal);
    }
  } else if (child != nullptr && now - stopped_at_ > same_request) {
    child->send(signal);  // dl::run and danling launch then end at once
  }
  stopped_at_ = now;
}

void Supervision::end(const ChildProcess& child, int signal) {
  child.send(signal);
  child.send(SIGCONT);  // a stopped process receives the signal only after SIGCONT
  if (!kill_at_) {
    kill_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(options_.grace));
  }
}

void Supervision::notice_hang(const ChildProcess& child) {
  if (hangs_ || stop_signal_ != 0) {
    return;
  }
  if (!watch_.any()) {
    if (options_.start_timeout > 0 && Clock::now() - started_ > Seconds(options_.start_timeout)) {
      hangs_ = true;
      say(concat("hang: expected a heartbeat within ", format_seconds(options_.start_timeout),
                 " of the start, got none; ", detail::process_state(child.pid())));
    }
  } else if (options_.hang_timeout > 0) {
    for (const auto& heartbeat : watch_.seen()) {
      if (heartbeat.idle > options_.hang_timeout) {
        hangs_ = true;
        const std::string state = detail::process_state(heartbeat.pid);
        say(concat("hang: rank ", heartbeat.rank, " of ", heartbeat.world_size, " (pid ", heartbeat.pid, " on ",
                   heartbeat.host, ") has made no progress for ", format_seconds(heartbeat.idle), ": ", heartbeat.mode,
                   ", split ", quote(heartbeat.split), ", epoch ", heartbeat.epoch + 1, ", step ",
                   heartbeat.global_step + 1, state.empty() ? "" : concat("; ", state)));
      }
    }
  }
  if (hangs_) {
    say(concat("sends SIGTERM to the program; SIGKILL follows after ", format_seconds(options_.grace)));
    end(child, SIGTERM);
  }
}

void Supervision::name_failure(const ChildProcess& child) const {
  const std::int64_t step = watch_.best_step();
  say(concat("the program (pid ", child.pid(), ") ",
             child.signal() == 0
                 ? concat("ended with exit code ", child.code())
                 : concat("was ended by ", signal_name(child.signal()), " (", strsignal(child.signal()), ")"),
             step >= 0 ? concat(" at step ", step) : ""));
}

bool Supervision::is_final(int code) const {
  const bool final = ended_by_ == 0 && (code == config_error || code == time_limit);
  if (final) {
    say(code == config_error ? "not restarted: exit code 2 (an error of the config) would occur again"
                             : "not restarted: exit code 75 (the time limit); the same command continues the run");
  }
  return final;
}

/// Counts a failure and waits. Returns true if the program is to be restarted.
bool Supervision::restarts(int code) {
  best_step_ = best_step_ < 0 ? watch_.first_step() : best_step_;
  const bool progress = watch_.best_step() > best_step_;
  best_step_ = std::max(best_step_, watch_.best_step());
  failures_ = progress ? 0 : failures_ + 1;
  if (failures_ >= options_.max_failures) {
    say(concat(
        "gave up: ", failures_, failures_ == 1 ? " failure" : " failures in a row", " without progress", beyond(),
        "; the last one ",
        ended_by_ == 0 ? concat("ended with exit code ", code) : concat("was ended by ", signal_name(ended_by_))));
    return false;
  }
  pause_ = failures_ <= 1 ? options_.backoff : std::min(pause_ * 2, options_.max_backoff);
  say(concat("restart in ", format_seconds(pause_),
             progress ? concat(": it had reached step ", best_step_)
                      : concat(": failure ", failures_, " of ", options_.max_failures, " without progress", beyond())));
  const auto until = Clock::now() + Seconds(pause_);
  while (Clock::now() < until && stop_signal_ == 0) {
    wait(std::chrono::ceil<milliseconds>(until - Clock::now()));
    take_signals(nullptr);
  }
  if (stop_signal_ != 0) {
    say(concat("got ", signal_name(stop_signal_), " between two starts"));
  }
  return stop_signal_ == 0;
}

void check_seconds(std::string_view name, double value) {
  check<ConfigError>(value >= 0 && value <= most_seconds, supervisor_where, "expected ", name, " of 0 to ",
                     static_cast<std::int64_t>(most_seconds), " seconds, got ", value);
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options) : options_(std::move(options)) {
  check<ConfigError>(!options_.program.empty(), supervisor_where, "expected a program, got none");
  check<ConfigError>(options_.max_failures >= 1, supervisor_where, "expected max_failures of at least 1, got ",
                     options_.max_failures);
  check_seconds("hang_timeout", options_.hang_timeout);
  check_seconds("start_timeout", options_.start_timeout);
  check_seconds("grace", options_.grace);
  check_seconds("backoff", options_.backoff);
  check_seconds("max_backoff", options_.max_backoff);
  if (options_.add_arguments) {
    add_arguments(options_);
  }
  if (!options_.log) {
    options_.log = [](std::string_view line) { std::fprintf(stderr, "[supervise] %s\n", std::string(line).c_str()); };
  }
}

int Supervisor::run() { return Supervision(options_).run(); }

}  // namespace danling::inline v0
