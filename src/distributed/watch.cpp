#include <distributed/watch.hpp>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <future>
#include <thread>
#include <utility>

#ifdef USE_DISTRIBUTED
#include <torch/csrc/distributed/c10d/Store.hpp>
#else
#include <ATen/core/ivalue.h>
namespace c10d {
class Store : public c10::intrusive_ptr_target {};
}  // namespace c10d
#endif

#include <danling/core/error.hpp>

#include <core/signal_mask.hpp>
#include <distributed/wire.hpp>

namespace danling::inline v0::detail {
namespace {

using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Keys of the store, one per rank.
std::string wake_key(int rank) { return concat("watch/wake/", rank); }
std::string report_key(int rank) { return concat("watch/report/", rank); }
std::string read_key(int rank) { return concat("watch/read/", rank); }

// Values of wake keys.
constexpr const char* news = "failure";
constexpr const char* end_of_store = "end";

// After the store is lost, a collective has this time to fail with its own error, which names the cause better.
constexpr auto lost_time = std::chrono::seconds(2);

}  // namespace

bool ends_within(std::chrono::milliseconds limit, std::function<void()> action) {
  std::packaged_task<void()> task(std::move(action));
  auto ended = task.get_future();
  const WriteSignalMask quiet(SIGPIPE);
  std::thread(std::move(task)).detach();
  return ended.wait_for(limit) == std::future_status::ready;
}

#ifdef USE_DISTRIBUTED

/// Shared with the thread, which may outlive the watch.
struct Watch::State {
  State(const StorePtr& store, Options chosen) : options(std::move(chosen)), writes(store), reads(store->clone()) {}

  const Options options;
  const StorePtr writes;  ///< for the callers, which only set keys
  const StorePtr reads;   ///< for the thread

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::list<Place> places;
  RankReport own;                ///< this rank's report, before it is published
  RankReports reports;           ///< reports read so far
  std::function<void()> cancel;  ///< cancels the message in flight
  std::atomic<bool> failing{false};
  bool published = false;  ///< this rank's report is published
  bool collected = false;  ///< the reports of all ranks that answered are read
  bool released = false;   ///< other ranks have read them, if this process serves the store
  bool stopping = false;
  bool ended = false;   ///< the thread has ended
  bool closed = false;  ///< the process that serves the store has left
  std::atomic<bool> lost{false};
  Clock::time_point lost_since;
  std::string reason;

  template <class Condition>
  bool wait_for(Clock::duration limit, Condition condition) {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, limit, condition);
  }

  void wake_own_thread() {
    if (lost) {
      return;
    }
    try {
      writes->set(wake_key(options.rank), std::string(news));
    } catch (const std::exception&) {  // the thread notices the loss itself
    }
  }

  void announce_leave();
  /// Runs in the thread.
  void run();
  void watch_store();
  void publish();
  void collect();
  void read_reports();
  void release();
};

void Watch::State::run() {
  try {
    watch_store();
  } catch (const std::exception&) {
    const std::lock_guard<std::mutex> lock(mutex);
    lost_since = Clock::now();
    lost = true;
    if (any_aborted(reports)) {
      reason = explain(reports);
      collected = true;
    }
  }
  const std::lock_guard<std::mutex> lock(mutex);
  ended = true;
  changed.notify_all();
}

void Watch::State::watch_store() {
  const std::string key = wake_key(options.rank);
  for (auto begin = Clock::now();; begin = Clock::now()) {
    try {
      reads->wait({key}, longest_timeout);
      break;
    } catch (const std::exception&) {
      if (Clock::now() - begin < longest_timeout) {
        throw;
      }
    }
  }
  const std::string value = reads->get_to_str(key);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    closed = value == end_of_store;
    if (closed && !stopping) {
      reads->set(read_key(options.rank), std::string("1"));
    }
    if (closed || (stopping && own.kind == RankReport::Kind::alive)) {
      return;
    }
    failing = true;
    if (cancel) {
      cancel();
    }
    changed.notify_all();
  }
  publish();
  collect();
  release();
}

/// Runs in the thread that destroys the watch. The store ends after all other ranks have left or know of its end.
void Watch::State::announce_leave() {
  try {
    RankReport report;
    report.kind = RankReport::Kind::left;
    writes->set(report_key(options.rank), pack_report(report));
    if (!options.serves) {
      return;
    }
    for (int rank = 1; rank < options.size; ++rank) {
      writes->set(wake_key(rank), std::string(end_of_store));
    }
    const auto deadline = Clock::now() + teardown_time;
    for (int rank = 1; rank < options.size && Clock::now() < deadline;) {
      if (writes->check({read_key(rank)}) || writes->check({report_key(rank)})) {
        ++rank;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
  } catch (const std::exception&) {  // without a store nobody can read it
  }
}

void Watch::State::publish() {
  for (;;) {
    RankReport report;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      own.places.assign(places.begin(), places.end());
      report = own;
    }
    reads->set(report_key(options.rank), pack_report(report));
    if (report.kind != RankReport::Kind::alive) {
      for (int rank = 0; rank < options.size; ++rank) {
        reads->set(wake_key(rank), std::string(news));
      }
    }
    reads->check({report_key(options.rank)});  // a read ensures that the store has processed the writes
    const std::lock_guard<std::mutex> lock(mutex);
    if (own.kind == report.kind) {  // otherwise an abort arrived meanwhile
      reports[options.rank] = report;
      published = true;
      changed.notify_all();
      return;
    }
  }
}

void Watch::State::read_reports() {
  for (int rank = 0; rank < options.size; ++rank) {
    const std::string key = report_key(rank);
    if (reports.find(rank) == reports.end() && reads->check({key})) {
      RankReport report = unpack_report(reads->get_to_str(key));
      const std::lock_guard<std::mutex> lock(mutex);
      reports[rank] = std::move(report);
    }
  }
}

void Watch::State::collect() {
  const auto deadline = Clock::now() + answer_time;
  for (;;) {
    read_reports();
    // The reason of an abort is enough.
    if (any_aborted(reports) || static_cast<int>(reports.size()) == options.size || Clock::now() >= deadline) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  reason = explain(reports);
  collected = true;
  changed.notify_all();
}

void Watch::State::release() {
  reads->set(read_key(options.rank), std::string("1"));
  if (options.serves) {
    const auto deadline = Clock::now() + reading_time;
    // After an abort some ranks may not have reported yet.
    const bool aborted = any_aborted(reports);
    const auto reader = [&](int rank) {
      const auto found = reports.find(rank);
      return found == reports.end() ? aborted : found->second.kind != RankReport::Kind::left;
    };
    const auto all_have_read = [&] {
      for (int rank = 0; rank < options.size; ++rank) {
        if (reader(rank) && !reads->check({read_key(rank)})) {
          return false;
        }
      }
      return true;
    };
    while (!all_have_read() && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex);
  released = true;
  changed.notify_all();
}

Watch::Watch(const StorePtr& store, Options options) : state_(std::make_shared<State>(store, std::move(options))) {
  // This thread handles no signals.
  const SignalMask quiet;
  thread_ = std::thread([state = state_] { state->run(); });
}

Watch::~Watch() {
  State& state = *state_;
  bool announce = false;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.stopping = true;
    announce = !state.failing && !state.lost && !state.closed;
  }
  const auto ended = [&] { return state.ended; };
  if (announce) {
    state.wake_own_thread();
    if (!state.options.serves) {  // the store ends once this rank has left, and the thread reads from it
      state.wait_for(teardown_time, ended);
    }
    state.announce_leave();
  }
  const bool read_here = state.options.serves && state.failing;
  state.wait_for(read_here ? answer_time + reading_time : teardown_time, ended) ? thread_.join() : thread_.detach();
}

Watch::Entry Watch::add(std::string group, std::vector<std::int64_t> ranks) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->places.insert(state_->places.end(), {std::move(group), std::move(ranks), 0, {}});
}

void Watch::remove(Entry entry) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->places.erase(entry);
}

void Watch::enter(Entry entry, std::int64_t number, const char* operation) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  entry->number = number;
  entry->operation = operation;
}

bool Watch::failed() const {
  if (state_->failing) {
    return true;
  }
  if (!state_->lost) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return Clock::now() - state_->lost_since > lost_time;
}

bool Watch::aborted() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->own.kind == RankReport::Kind::aborted || (state_->collected && any_aborted(state_->reports));
}

std::string Watch::report(RankReport report) {
  State& state = *state_;
  const std::string text = report.text;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    // A failure after another rank's news follows from it. A timeout does not: the other rank's failure may follow from
    // connections that it closed.
    const bool follows = state.failing && (state.published || report.kind != RankReport::Kind::timed_out);
    if (!follows && state.own.kind == RankReport::Kind::alive) {
      state.own = std::move(report);
    }
  }
  state.wake_own_thread();
  const std::string known = reason();
  return known.empty() ? text : known;
}

std::string Watch::reason() {
  State& state = *state_;
  const auto collected = [&] { return state.collected || state.lost || state.closed; };
  const bool answered = state.wait_for(answer_time + std::chrono::seconds(1), collected);
  std::unique_lock<std::mutex> lock(state.mutex);
  if (state.collected) {
    if (state.options.serves) {
      state.changed.wait_for(lock, reading_time, [&] { return state.released || state.lost; });
    }
    return state.reason;
  }
  const bool follows = state.own.text.empty() || state.own.text.starts_with(state.options.server + " has ended");
  const std::string cause = follows ? "" : ": " + state.own.text;
  return concat(state.options.server,
                !answered      ? " does not answer"
                : state.closed ? " has left, so the rank at fault is unknown"
                               : " has ended",
                cause);
}

void Watch::abort(std::string_view reason) {
  State& state = *state_;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (!state.published && state.own.kind != RankReport::Kind::aborted) {
      state.own.kind = RankReport::Kind::aborted;
      state.own.text = reason;
    }
  }
  state.wake_own_thread();
  const bool serves = state.options.serves;
  state.wait_for(reading_time, [&] { return (serves ? state.released : state.published) || state.ended; });
}

void Watch::on_failure(std::function<void()> cancel) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->cancel = std::move(cancel);
  if (state_->cancel && state_->failing) {
    state_->cancel();
  }
}

StorePtr Watch::new_client() const { return state_->writes->clone(); }

#else

struct Watch::State {};
Watch::Watch(const StorePtr&, Options) {}
Watch::~Watch() = default;
Watch::Entry Watch::add(std::string, std::vector<std::int64_t>) { return {}; }
void Watch::remove(Entry) {}
void Watch::enter(Entry, std::int64_t, const char*) {}
bool Watch::failed() const { return false; }
bool Watch::aborted() const { return false; }
std::string Watch::report(RankReport report) { return std::move(report.text); }
std::string Watch::reason() { return {}; }
void Watch::abort(std::string_view) {}
void Watch::on_failure(std::function<void()>) {}
StorePtr Watch::new_client() const { return {}; }

#endif

}  // namespace danling::inline v0::detail
