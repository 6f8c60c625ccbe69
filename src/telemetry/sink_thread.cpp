#include <danling/telemetry/sink_thread.hpp>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include <danling/core/error.hpp>
#include <danling/telemetry/metrics_lines.hpp>
#include <danling/telemetry/text.hpp>

#include <core/signal_mask.hpp>

namespace danling::inline v0 {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // clang 14 needs this guide

void give(Sink& sink, const SinkRecord& record) {
  std::visit(
      Overloaded{[&](const ScalarRecord& r) { sink.scalars(r); }, [&](const ResultRecord& r) { sink.result(r); },
                 [&](const HistogramRecord& r) { sink.histogram(r); }, [&](const TextRecord& r) { sink.text(r); },
                 [&](const ImageRecord& r) { sink.image(r); }, [&](const EndRecord& r) { sink.end(r); }},
      record);
}

std::string points(std::int64_t count) { return concat(format_count(count), count == 1 ? " record" : " records"); }

}  // namespace

struct SinkItem::Late {
  explicit Late(Make function) : make(std::move(function)) {}
  std::mutex mutex;
  Make make;
  std::optional<SinkRecord> record;
};

SinkItem::SinkItem(SinkRecord record, bool final) : now_(std::move(record)), final_(final) {}
SinkItem::SinkItem(Make make, std::size_t bytes)
    : late_(std::make_unique<Late>(std::move(make))), final_(false), bytes_(std::max<std::size_t>(bytes, 1024)) {}
SinkItem::~SinkItem() = default;

const SinkRecord& SinkItem::record() const {
  if (late_ == nullptr) {
    return *now_;
  }
  const std::lock_guard lock(late_->mutex);
  if (!late_->record) {
    late_->record = late_->make();
    late_->make = nullptr;  // frees the memory that it holds
  }
  return *late_->record;
}

struct SinkThread::Shared {
  using Item = std::shared_ptr<const SinkItem>;
  using Task = std::variant<RunInfo, Item>;
  using Clock = std::chrono::steady_clock;

  Shared(std::shared_ptr<Sink> s, Log l, SinkThreadOptions o)
      : sink(std::move(s)), options(o), name(sink->name()), log_(std::move(l)) {}

  const std::shared_ptr<Sink> sink;
  const SinkThreadOptions options;
  const std::string name;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> waiting;   // the thread is writing the front
  std::size_t droppable = 0;  // queued records that may be dropped
  std::size_t held = 0;       // bytes held by records that are built later
  std::int64_t written = 0, dropped = 0, lost = 0;
  bool unflushed = false, failing = false, closing = false, abandoned = false, ended = false;

  // Only for the thread:
  bool told_dropped = false;
  std::string last_failure;
  Clock::time_point failed_at;
  std::int64_t replayed_to = -1;  // line up to which the RunInfo in front was replayed; -1: begin() was not called yet
  std::thread thread;

  void log(LogLevel level, const std::string& text) {
    const std::lock_guard lock(log_mutex_);
    if (log_) {
      log_(level, text);
    }
  }
  /// Drops the log function, since a detached thread may outlive the logger.
  void forget_log() {
    const std::lock_guard lock(log_mutex_);
    log_ = nullptr;
  }

  void run();
  bool write(const Task& task);
  bool attempt(const std::function<void()>& call);
  void begin(const RunInfo& info);
  void pop();

 private:
  std::mutex log_mutex_;
  Log log_;
};

// Calls the sink's begin() once per task, so that a retry does not repeat lines written before the failure.
void SinkThread::Shared::begin(const RunInfo& info) {
  if (replayed_to < 0) {
    replayed_to = sink->begin(info);
  }
  if (replayed_to >= info.lines || info.metrics_file.empty()) {
    return;
  }
  std::error_code missing;
  try {
    if (std::filesystem::exists(info.metrics_file, missing)) {
      read_metrics_lines(info.metrics_file, replayed_to, info.lines, [&](const ScalarRecord& record) {
        sink->scalars(record);
        replayed_to = record.line;
      });
    }
  } catch (const DataError& error) {
    log(LogLevel::warning, concat(name, ": ", error.what(), "; skips the rest of the earlier records"));
    return;
  }
  if (replayed_to < info.lines) {
    log(LogLevel::warning, concat(name, ": expected ", info.lines, " lines in ", info.metrics_file.string(), ", got ",
                                  replayed_to, "; skips the missing records"));
  }
}

bool SinkThread::Shared::attempt(const std::function<void()>& call) {
  std::string reason;
  try {
    call();
    // A disk that is full from time to time counts as one failure.
    if (!last_failure.empty() && Clock::now() - failed_at > 10 * options.retry) {
      last_failure.clear();
      log(LogLevel::info, concat(name, ": recovered"));
    }
    return true;
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
    reason = "an exception that is not a std::exception";
  }
  failed_at = Clock::now();
  if (last_failure != reason) {
    last_failure = reason;
    log(LogLevel::warning, concat(name, ": ", reason, "; training continues and keeps records in memory"));
  }
  return false;
}

bool SinkThread::Shared::write(const Task& task) {
  return attempt([&] {
    if (const auto* info = std::get_if<RunInfo>(&task)) {
      begin(*info);
      return;
    }
    const SinkRecord* record = nullptr;
    try {
      record = &std::get<Item>(task)->record();
    } catch (const std::exception& error) {  // a retry would fail too
      log(LogLevel::warning, concat(name, ": dropped a record: ", error.what()));
    }
    if (record != nullptr) {
      give(*sink, *record);
    }
  });
}

void SinkThread::Shared::pop() {
  const auto* item = std::get_if<Item>(&waiting.front());
  written += item != nullptr ? 1 : 0;
  if (item != nullptr && !(*item)->is_final()) {
    (*item)->bytes() > 0 ? held -= (*item)->bytes() : --droppable;
  }
  waiting.pop_front();
  replayed_to = -1;
}

void SinkThread::Shared::run() {
  constexpr std::chrono::seconds flush_interval(1);
  auto last_flush = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return !waiting.empty() || unflushed || closing; });
    if (abandoned || (closing && waiting.empty() && !unflushed)) {
      break;
    }
    bool done = true;
    if (!waiting.empty()) {
      const Task& front = waiting.front();  // push_back keeps references into a deque valid
      lock.unlock();
      done = write(front);
      lock.lock();
      if (done) {
        pop();
        unflushed = true;
      }
    }
    const auto now = std::chrono::steady_clock::now();
    if (done && unflushed && (waiting.empty() || now - last_flush >= flush_interval)) {
      lock.unlock();
      done = attempt([&] { sink->flush(); });
      lock.lock();
      last_flush = now;
      unflushed = !done;
    }
    if (dropped > 0 && !std::exchange(told_dropped, true)) {
      lock.unlock();
      log(LogLevel::warning, concat(name,
                                    ": the sink is too slow or fails: drops records between log boundaries; the "
                                    "end of the run logs their number"));
      lock.lock();
    }
    failing = !done;
    changed.notify_all();
    if (!done && closing) {  // tries each record once; if begin() fails, none can be written
      if (waiting.empty() || std::holds_alternative<RunInfo>(waiting.front())) {
        lost += static_cast<std::int64_t>(waiting.size());
        break;
      }
      ++lost;
      pop();
      --written;
    } else if (!done) {
      changed.wait_for(lock, options.retry, [&] { return closing; });
    }
  }
  const bool recovered = lost == 0 && !abandoned && !last_failure.empty();
  lock.unlock();
  if (recovered) {
    log(LogLevel::info, concat(name, ": recovered"));
  }
  lock.lock();
  ended = true;
  changed.notify_all();
}

SinkThread::SinkThread(std::shared_ptr<Sink> sink, Log log, SinkThreadOptions options) {
  check<ConfigError>(sink != nullptr, "sink", "expected a sink, got null");
  shared_ = std::make_shared<Shared>(std::move(sink), std::move(log), options);
  name_ = shared_->name;
  const detail::SignalMask none;  // the program's threads handle signals
  shared_->thread = std::thread([shared = shared_] { shared->run(); });
}

SinkThread::~SinkThread() { close(std::chrono::milliseconds(0)); }

void SinkThread::begin_close() {
  const std::lock_guard lock(shared_->mutex);
  shared_->closing = true;
  shared_->changed.notify_all();
}

void SinkThread::begin(const RunInfo& run) {
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.emplace_back(run);
  shared_->changed.notify_all();
}

void SinkThread::post(const std::shared_ptr<const SinkItem>& item) {
  const std::lock_guard lock(shared_->mutex);
  if (!item->is_final()) {
    const std::size_t bytes = item->bytes();
    // Accepts a record of any size if no other one is held.
    if (bytes > 0 ? shared_->held > 0 && shared_->held + bytes > shared_->options.capacity_bytes
                  : shared_->droppable >= shared_->options.capacity) {
      ++shared_->dropped;
      return;
    }
    bytes > 0 ? shared_->held += bytes : ++shared_->droppable;
  }
  shared_->waiting.emplace_back(item);
  shared_->changed.notify_all();
}

bool SinkThread::drain(std::chrono::milliseconds most) {
  std::unique_lock lock(shared_->mutex);
  const auto empty = [&] { return shared_->waiting.empty() && !shared_->unflushed; };
  shared_->changed.wait_for(lock, most, [&] { return empty() || shared_->failing || shared_->ended; });
  return empty();
}

void SinkThread::close(std::chrono::milliseconds most) {
  if (std::exchange(closed_, true)) {
    return;
  }
  begin_close();
  std::unique_lock lock(shared_->mutex);
  const bool ended = shared_->changed.wait_for(lock, most, [&] { return shared_->ended; });
  shared_->abandoned = !ended;
  const std::int64_t lost = shared_->lost + (ended ? 0 : static_cast<std::int64_t>(shared_->waiting.size()));
  const std::int64_t dropped = shared_->dropped;
  lock.unlock();
  if (ended) {
    shared_->thread.join();
  } else {
    shared_->thread.detach();  // it shares ownership of its data
  }
  if (lost > 0) {
    shared_->log(LogLevel::warning, concat(name_, ": ", points(lost), " could not be written",
                                           ended ? "" : ": the sink did not return in time"));
  }
  if (dropped > 0) {
    shared_->log(LogLevel::warning,
                 concat(name_, ": ", points(dropped), " between log boundaries were dropped: the sink was too slow"));
  }
  shared_->forget_log();
}

std::int64_t SinkThread::num_written() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->written;
}

std::int64_t SinkThread::num_dropped() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->dropped;
}

}  // namespace danling::inline v0
