#include <runner/watchdog.hpp>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/runner/run.hpp>

#include <core/signal_mask.hpp>
#include <core/stack_traces.hpp>
#include <distributed/pending.hpp>
#include <distributed/watch.hpp>

namespace danling::inline v0::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Limits for the parts of a report, which may need a lock that the hanging thread holds.
constexpr auto trace_time = std::chrono::seconds(2);
constexpr auto report_time = std::chrono::seconds(30);
constexpr auto part_time = std::chrono::seconds(1);

// Without the locks of stdio.
void write_to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::write(STDERR_FILENO, text.data(), text.size());
    if (sent < 0 && errno != EINTR) {
      return;
    }
    text.remove_prefix(sent > 0 ? static_cast<std::size_t>(sent) : 0);
  }
}

const char* text_of(LoopPhase phase) {
  switch (phase) {
    case LoopPhase::reading:
      return "reading data";
    case LoopPhase::computing:
      return "in the step";
    case LoopPhase::saving:
      return "saving";
    case LoopPhase::between:
      break;
  }
  return "between two steps";
}

}  // namespace

Watchdog::Watchdog(Options options) : options_(std::move(options)), notes_(options_.group) {
  const SignalMask quiet;
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    stopped_.notify_all();
  }
  thread_.join();
}

void Watchdog::begin_loop(const std::string& log) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    log_ = log;
    loop_thread_ = static_cast<pid_t>(syscall(SYS_gettid));
  }
  runs_.store(true, std::memory_order_relaxed);
}

void Watchdog::end_loop() { runs_.store(false, std::memory_order_relaxed); }

// Each interval between two checks counts at most twice its planned length: after SIGCONT the loop has the time that
// remained.
void Watchdog::watch() {
  pthread_setname_np(pthread_self(), "watchdog");
  prepare_stack_traces();
  const auto turn = std::clamp(std::chrono::duration_cast<std::chrono::milliseconds>(options_.limit / 10),
                               std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
  Seconds idle(0);
  std::int64_t seen = -1;
  auto last = Clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopped_.wait_for(lock, turn, [this] { return stopping_; })) {
    const auto now = Clock::now();
    const std::int64_t ended = options_.progress->ended();
    const bool moves = !runs() || ended != seen;
    idle = moves ? Seconds(0) : idle + std::min<Seconds>(now - last, 2 * turn);
    seen = ended;
    last = now;
    if (idle >= options_.limit) {
      lock.unlock();
      end_process(idle.count());
    }
  }
}

std::string Watchdog::who() const {
  return options_.group.alone() ? std::string() : concat("rank ", options_.group.rank(), " of ", options_.group.size());
}

std::string Watchdog::place(bool waits) {
  const auto calls = pending_calls();  // waits for that lock without holding this object's
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string name = who();
  const LoopProgress::Place at = options_.progress->place();
  std::string activity = text_of(at.phase);
  for (const PendingCall& call : calls) {
    if (call.thread == loop_thread_) {
      activity = waits ? concat("waiting for other ranks in ", pending_text(call)) : "waiting for other ranks";
    }
  }
  return concat(name.empty() ? "" : name + ", ", at.mode, ", split ", quote(at.split), ", epoch ",
                at.counters.epoch + 1, ", step ", at.counters.global_step + 1, ", batch ", at.counters.batch + 1, ": ",
                activity);
}

void Watchdog::write_report(double seconds) {
  const std::string own = place(/*waits=*/true);
  const auto places = notes_.exchange(own, options_.answer_time);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    places_ = places;
  }
  std::string report =
      concat("[runner.watchdog] no step has ended for ", format_seconds(seconds), " (comm.step_timeout_seconds)\n");
  for (std::int64_t rank = 0; rank < options_.group.size(); ++rank) {
    const auto found = places.find(rank);
    report += concat(found == places.end() ? concat("rank ", rank, " of ", options_.group.size(), ": no answer within ",
                                                    format_seconds(options_.answer_time))
                                           : found->second,
                     "\n");
  }
  pid_t loop = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    loop = loop_thread_;
  }
  report += concat("threads", options_.group.alone() ? "" : " of " + who(), ":\n",
                   traces_text(capture_stack_traces(trace_time), loop));
  write_to_stderr(report);
  options_.logger.log_to_file(report, LogLevel::error);
}

void Watchdog::end_process(double seconds) {
  const auto found = std::make_shared<std::string>();
  const bool answers = ends_within(part_time, [this, found] { *found = place(/*waits=*/false); });
  const std::string at = answers ? *found : "an unknown place";
  std::string log;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    log = log_;
  }
  ends_within(report_time, [this, seconds] { write_report(seconds); });
  // A rank that ends stops its store, and would look like the cause to the others.
  std::map<std::int64_t, std::string> places;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    places = places_;
  }
  notes_.leave(places, options_.answer_time);
  const std::string line =
      concat("[runner.watchdog] expected a step within ", format_seconds(options_.limit), ", got none for ",
             format_seconds(seconds), " in ", at, "; ", log.empty() ? "see above" : "see " + log);
  ends_within(part_time, [this, line] { options_.logger.log_to_file(line, LogLevel::error); });
  ends_within(part_time, [line] { write_to_stderr(line + "\n"); });  // its reader may block
  _exit(exit_hung);
}

}  // namespace danling::inline v0::detail
