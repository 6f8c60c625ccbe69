#include <danling/telemetry/heartbeat.hpp>

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/workspace/files.hpp>

#include <core/host_name.hpp>
#include <core/signal_mask.hpp>

namespace danling::inline v0 {
namespace {

constexpr auto longest_stop = std::chrono::seconds(5);
constexpr double longest_wait = 1e7;  // seconds; longer intervals overflow the clock

std::string text_of_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

/// Shared with the thread, which stop() may detach.
struct Heartbeat::Shared {
  HeartbeatOptions options;
  std::shared_ptr<const LoopProgress> progress;
  pid_t pid = ::getpid();
  std::string host = detail::host_name();
  std::filesystem::path copy;  ///< directory of the supervisor; empty without one

  std::mutex mutex;
  std::condition_variable woken, ended;
  std::string status = "starting", event = "startup";
  bool stopping = false, due = true, has_ended = false, abandoned = false;
  std::thread thread;

  std::string last_failure;  ///< only for the thread

  void run();
  std::string text(const std::string& status_now, const std::string& event_now) const;
  void beat(std::unique_lock<std::mutex>& lock);
};

std::string Heartbeat::Shared::text(const std::string& status_now, const std::string& event_now) const {
  const LoopProgress::Place place = progress->place();
  const LoopCounters& counters = place.counters;
  const double since = progress->seconds_since_step();
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  nlohmann::json out = {{"status", status_now},
                        {"event", event_now.empty() ? nlohmann::json() : nlohmann::json(event_now)},
                        {"updated_at_unix", now},
                        {"last_progress_at_unix", now - since},
                        {"seconds_since_progress", since},
                        {"id", options.id},
                        {"name", options.name},
                        {"hostname", host},
                        {"pid", pid},
                        {"rank", options.rank},
                        {"local_rank", options.local_rank},
                        {"world_size", options.world_size},
                        {"mode", place.mode.empty() ? nlohmann::json() : nlohmann::json(place.mode)},
                        {"split", place.split.empty() ? nlohmann::json() : nlohmann::json(place.split)},
                        {"global_step", counters.global_step},
                        {"micro_step", counters.micro_step},
                        {"epoch", counters.epoch},
                        {"restart_count", options.restart_count},
                        {"progress", nullptr}};
  const auto add = [&](const char* key, const std::optional<std::int64_t>& total, std::int64_t done) {
    if (total) {
      out[key] = *total;
      if (*total > 0 && out["progress"].is_null()) {
        out["progress"] = static_cast<double>(done) / static_cast<double>(*total);
      }
    }
  };
  add("steps", options.steps, counters.global_step);
  add("epochs", options.epochs, counters.epoch);
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Writes without the lock, so that no other thread waits for the disk.
void Heartbeat::Shared::beat(std::unique_lock<std::mutex>& lock) {
  due = false;
  const auto file = options.directory / file_name(options.rank);
  const std::string content = text(status, event);
  lock.unlock();
  std::string failure;
  const auto attempt = [&](const auto& write) {
    try {
      write();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  };
  if (!copy.empty()) {  // written first, since the run's disk may not respond
    attempt([&] { write_atomic(copy / concat(pid, ".json"), content); });
  }
  attempt([&] {
    ensure_dir(options.directory);
    write_atomic(file, content);
  });
  const bool is_new = !failure.empty() && failure != std::exchange(last_failure, failure);
  lock.lock();
  if (is_new && !abandoned) {
    options.warn(concat("heartbeat: ", failure, "; the run continues, and the next beat retries"));
  }
}

void Heartbeat::Shared::run() {
  pthread_setname_np(pthread_self(), "heartbeat");
  const std::chrono::duration<double> interval(std::min(options.interval_seconds, longest_wait));
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopping) {
    beat(lock);
    woken.wait_for(lock, interval, [this] { return stopping || due; });
    if (!stopping && !due && status == "starting") {
      status = "running";
      event.clear();
    }
  }
  beat(lock);
  has_ended = true;
  ended.notify_all();
}

Heartbeat::Heartbeat(HeartbeatOptions options, std::shared_ptr<const LoopProgress> progress)
    : shared_(std::make_shared<Shared>()) {
  check<ConfigError>(options.interval_seconds > 0, "heartbeat", "expected an interval_seconds above 0, got ",
                     options.interval_seconds);
  shared_->options = std::move(options);
  shared_->progress = std::move(progress);
  shared_->copy = text_of_variable("DANLING_HEARTBEATS");
  shared_->options.restart_count += std::strtoll(text_of_variable("DANLING_RESTARTS").c_str(), nullptr, 10);
  if (!shared_->options.warn) {
    shared_->options.warn = [](std::string_view message) {
      std::fprintf(stderr, "warning: %s\n", std::string(message).c_str());
    };
  }
  const detail::SignalMask quiet;
  shared_->thread = std::thread([shared = shared_] { shared->run(); });
}

Heartbeat::~Heartbeat() { stop(); }

void Heartbeat::set_status(std::string_view status, std::string_view event) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->status = status;
  shared_->event = event;
  shared_->due = true;
  shared_->woken.notify_all();
}

void Heartbeat::set_rank(std::int64_t rank, std::int64_t local_rank, std::int64_t world_size) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->options.rank = rank;
  shared_->options.local_rank = local_rank;
  shared_->options.world_size = world_size;
  shared_->due = true;
  shared_->woken.notify_all();
}

void Heartbeat::stop(std::string_view event) {
  if (::getpid() != shared_->pid) {
    // A forked process has no heartbeat thread, and the state of the lock is unknown.
    new std::shared_ptr<Shared>(shared_);  // leaked on purpose
    return;
  }
  std::unique_lock<std::mutex> lock(shared_->mutex);
  if (shared_->stopping) {
    return;
  }
  shared_->stopping = true;
  shared_->status = "closed";
  shared_->event = event;
  shared_->woken.notify_all();
  const bool has_ended = shared_->ended.wait_for(lock, longest_stop, [this] { return shared_->has_ended; });
  shared_->abandoned = !has_ended;
  lock.unlock();
  if (has_ended) {
    shared_->thread.join();
  } else {
    shared_->thread.detach();
  }
}

std::string Heartbeat::file_name(std::int64_t rank) {
  const std::string digits = to_text(rank);
  return concat("rank-", std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0'), digits, ".json");
}

}  // namespace danling::inline v0
