// danling watch: serves the page of `danling report` and updates it.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>
#include <danling/telemetry/loopback_server.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "run_page.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::HttpRequest;
using danling::HttpResponse;
using danling::detail::check;
using danling::detail::concat;
using Clock = std::chrono::steady_clock;

constexpr std::string_view command_name = "danling watch";
constexpr std::int64_t max_port = 65535;
constexpr auto interval = std::chrono::milliseconds(500);
// Stops reading files after so long without requests.
constexpr auto idle = std::chrono::seconds(30);

const std::initializer_list<Option> option_list = {{"--port", "N", "port on 127.0.0.1 (default: a free port)"},
                                                   {"--help", "", "print this text"}};

/// The latest data: the main thread makes it, the server's thread sends it.
class Board {
 public:
  void put(std::string data, std::uint64_t version) {
    const std::lock_guard lock(mutex_);
    data_ = std::make_shared<const std::string>(std::move(data));
    version_ = version;
  }

  HttpResponse respond(const HttpRequest& request) {
    asked_ = Clock::now().time_since_epoch().count();
    std::shared_ptr<const std::string> data;
    std::uint64_t version = 0;
    {
      const std::lock_guard lock(mutex_);
      data = data_;
      version = version_;
    }
    if (request.path == "/data.json") {
      if (request.query == concat("have=", version)) {
        return {.status = 204};
      }
      return {.content_type = "application/json", .body = std::move(data)};
    }
    if (request.path == "/") {
      return {.content_type = "text/html; charset=utf-8",
              .body = std::make_shared<const std::string>(page_html(*data, true))};
    }
    return {.status = 404, .body = std::make_shared<const std::string>("expected / or /data.json\n")};
  }

  bool is_watched() const { return Clock::now() - Clock::time_point(Clock::duration(asked_.load())) < idle; }

 private:
  std::mutex mutex_;
  std::shared_ptr<const std::string> data_ = std::make_shared<const std::string>("{}");
  std::uint64_t version_ = 0;
  std::atomic<Clock::rep> asked_ = 0;
};

/// Reads the runs again, and prints a line if a run appears or vanishes.
class Watched {
 public:
  explicit Watched(const std::vector<std::string>& names) : seen_(names.size(), true) {
    for (const auto& name : names) {
      runs_.emplace_back(name);
    }
  }

  /// Returns whether the page changed.
  bool update() {
    bool changed = version_ == 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const bool there = runs_[i].exists();
      if (there != seen_[i]) {
        std::printf("%s: %s\n", runs_[i].dir().string().c_str(), there ? "found the run" : "no run yet; waiting");
        std::fflush(stdout);
        seen_[i] = there;
        changed = true;
      }
      changed = runs_[i].update() || changed;
    }
    // The small files also change without a new line of metrics: at the end of a run, or at a save of a checkpoint.
    const auto now = Clock::now();
    if (!changed && now < next_check_) {
      return false;
    }
    next_check_ = now + std::chrono::seconds(2);
    std::string files;
    for (const auto& run : runs_) {
      files += run.json("");
    }
    const auto hash = std::hash<std::string>{}(files);
    if (version_ != 0 && hash == hash_) {
      return false;
    }
    hash_ = hash;
    ++version_;
    return true;
  }

  std::string data() const { return page_data(runs_, version(), true); }
  /// Also differs from the versions of an earlier server on the same port.
  std::uint64_t version() const { return started_ + version_; }

 private:
  std::vector<RunOfPage> runs_;
  std::vector<bool> seen_;
  const std::uint64_t started_ = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
  std::uint64_t version_ = 0;
  std::size_t hash_ = 0;
  Clock::time_point next_check_;
};

}  // namespace

int watch(std::span<const std::string> words) {
  const Arguments arguments(command_name, words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling watch RUN... [--port N]\n\nServes the page of `danling report` on this machine and updates it "
        "during the runs. A run may start later.\nCtrl-C ends the command.\n\n%s\n",
        describe(option_list).c_str());
    return 0;
  }
  check<ConfigError>(!arguments.positional().empty(), command_name,
                     "expected the directory of at least one run, got none; --help shows the usage");
  const std::int64_t port = arguments.integer("--port", 0).value_or(0);
  check<ConfigError>(port <= max_port, command_name, "expected --port of at most ", max_port, ", got ", port);

  const danling::SignalGuard signals({SIGINT, SIGTERM, SIGHUP});
  Board board;
  const danling::LoopbackServer server({.port = static_cast<std::uint16_t>(port)},
                                       [&board](const HttpRequest& request) { return board.respond(request); });
  Watched watched(arguments.positional());
  watched.update();
  board.put(watched.data(), watched.version());
  std::printf("%s\n", server.url().c_str());
  std::fflush(stdout);
  auto next = Clock::now() + interval;
  while (danling::stop_signal() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // short, since a signal does not interrupt it
    if (Clock::now() < next || !board.is_watched()) {
      continue;
    }
    if (watched.update()) {
      board.put(watched.data(), watched.version());
    }
    next = Clock::now() + interval;
  }
  return 0;
}

}  // namespace danling_command
