#include <telemetry/heartbeat_watch.hpp>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/workspace/files.hpp>

#include <core/host_name.hpp>

namespace danling::inline v0::detail {
namespace {

namespace fs = std::filesystem;

std::string text_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int64_t integer_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

}  // namespace

HeartbeatWatch::HeartbeatWatch(fs::path directory, std::chrono::milliseconds turn)
    : directory_(std::move(directory)), turn_(turn), host_(detail::host_name()) {}

HeartbeatWatch::Files HeartbeatWatch::files() const {
  Files out;
  std::error_code error;
  for (fs::directory_iterator entry(directory_, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    struct stat status{};
    if (path.extension() == ".json" && !path.filename().string().starts_with('.') &&
        ::stat(path.c_str(), &status) == 0) {
      out[path] = {status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
    }
  }
  return out;
}

void HeartbeatWatch::begin() {
  old_ = files();
  seen_.clear();
  first_step_ = best_step_ = -1;
  last_ = std::chrono::steady_clock::now();
}

void HeartbeatWatch::look() {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> passed = std::min<std::chrono::duration<double>>(now - last_, 2 * turn_);
  last_ = now;
  for (auto& [path, heartbeat] : seen_) {
    heartbeat.idle += passed.count();
  }
  for (auto& [path, stamp] : files()) {
    const auto before = old_.find(path);
    if (before == old_.end() || before->second != stamp) {
      old_[path] = stamp;
      read(path);
    }
  }
}

// Treats a file that cannot be read, or is not a heartbeat, as unchanged.
void HeartbeatWatch::read(const fs::path& path) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  } catch (const Error&) {  // it was removed meanwhile
  }
  const auto since = json.is_object() ? json.find("seconds_since_progress") : json.end();
  if (!json.is_object() || since == json.end() || !since->is_number()) {
    return;
  }
  SeenHeartbeat& out = seen_[path];
  if (const auto pid = static_cast<pid_t>(integer_in(json, "pid")); pid != out.pid) {
    out = {};
    out.pid = pid;
  }
  out.rank = integer_in(json, "rank");
  out.world_size = integer_in(json, "world_size");
  out.epoch = integer_in(json, "epoch");
  out.global_step = integer_in(json, "global_step");
  out.host = text_in(json, "hostname");
  out.status = text_in(json, "status");
  out.mode = text_in(json, "mode");
  out.split = text_in(json, "split");
  out.idle = std::min(out.idle, since->get<double>());
  first_step_ = first_step_ < 0 ? out.global_step : first_step_;
  best_step_ = std::max(best_step_, out.global_step);
}

std::vector<SeenHeartbeat> HeartbeatWatch::seen() const {
  std::vector<SeenHeartbeat> out;
  for (const auto& [path, heartbeat] : seen_) {
    const bool gone = heartbeat.host == host_ && heartbeat.pid > 0 && ::kill(heartbeat.pid, 0) != 0 && errno == ESRCH;
    if (!gone && heartbeat.status != "closed") {
      out.push_back(heartbeat);
    }
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return out;
}

std::string process_state(pid_t pid) {
  std::ifstream file(concat("/proc/", pid, "/status"));
  std::string name;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Name:\t")) {
      name = line.substr(6);
    } else if (line.starts_with("State:\t")) {
      return concat(name, ": ", line.substr(7));
    }
  }
  return {};
}

}  // namespace danling::inline v0::detail
