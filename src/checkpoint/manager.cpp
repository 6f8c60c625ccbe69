#include <danling/checkpoint/manager.hpp>

#include <utility>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

namespace danling::inline v0 {
namespace {

std::int64_t progress(const CheckpointRequest& request) {
  return request.step_mode ? request.global_step : request.epoch + 1;
}

bool on_interval(const CheckpointRequest& request, std::int64_t interval) {
  return interval > 0 && progress(request) > 0 && (request.due || progress(request) % interval == 0);
}

}  // namespace

void CheckpointHealth::record_failure(const std::string& error, const std::string& target, const std::string& alias) {
  ++error_count;
  if (first_error.empty()) {
    first_error = error;
  }
  last_error = error;
  last_failed_target = target;
  last_failed_alias = alias;
}

void CheckpointHealth::record_success(const std::string& target, std::vector<std::string> aliases) {
  ++success_count;
  last_successful_target = target;
  last_successful_aliases = std::move(aliases);
}

CheckpointManager::~CheckpointManager() = default;

void CheckpointManager::throw_failure() {
  if (!has_failure()) {
    return;
  }
  std::string text;
  {
    const std::lock_guard lock(health_mutex_);
    text.swap(failure_);
    unthrown_.store(false, std::memory_order_relaxed);
  }
  throw CheckpointError(text);
}

std::string CheckpointManager::take_warning() {
  const std::lock_guard lock(health_mutex_);
  has_warning_.store(false, std::memory_order_relaxed);
  return std::exchange(warning_, {});
}

std::optional<ValidCheckpoint> CheckpointManager::load_newest_valid_from(const std::filesystem::path&,
                                                                         const CheckpointFilter&) {
  return std::nullopt;
}
std::optional<std::filesystem::path> CheckpointManager::find_final_model(const std::filesystem::path&) {
  return std::nullopt;
}
bool CheckpointManager::is_latest(const std::filesystem::path&) const { return false; }
std::vector<std::string> CheckpointManager::adopt(const std::filesystem::path&, const CheckpointHistory&) { return {}; }
std::optional<BestCheckpoint> CheckpointManager::best_checkpoint() const { return std::nullopt; }
std::optional<State> CheckpointManager::load_best() { return std::nullopt; }
std::optional<std::string> CheckpointManager::republish_best(std::int64_t, std::vector<std::string>&) {
  return std::nullopt;
}

bool CheckpointManager::wait(std::optional<double>) { return true; }
bool CheckpointManager::maybe_wait_for_staging(std::optional<double>) { return true; }

CheckpointHealth CheckpointManager::checkpoint_health() const {
  const std::lock_guard lock(health_mutex_);
  return health_;
}

void CheckpointManager::record_success(const std::string& name, const std::string& target,
                                       std::vector<std::string> aliases) {
  const std::lock_guard lock(health_mutex_);
  health_.failing.erase(name);
  health_.record_success(target, std::move(aliases));
}

void CheckpointManager::forget_failure(const std::string& name, const std::string& error) {
  const std::lock_guard lock(health_mutex_);
  const auto found = health_.failing.find(name);
  if (found != health_.failing.end() && (error.empty() || found->second == error)) {
    health_.failing.erase(found);
  }
}

void CheckpointManager::record_failure(const std::string& name, const std::string& error, const std::string& target,
                                       const std::string& alias, bool thrown) {
  const std::lock_guard lock(health_mutex_);
  health_.failing[name] = error;
  health_.record_failure(error, target, alias);
  if (!thrown && !unthrown_.load(std::memory_order_relaxed)) {
    failure_ = error;
    unthrown_.store(true, std::memory_order_relaxed);
  }
}

void CheckpointManager::record_warning(const std::string& text) {
  const std::lock_guard lock(health_mutex_);
  warning_ = text;
  has_warning_.store(true, std::memory_order_relaxed);
}

void CheckpointManager::record_lost_best(const std::string& error) {
  const std::lock_guard lock(health_mutex_);
  health_.failing["best"] = error;
}

bool should_persist(const CheckpointRequest& request, std::int64_t interval) {
  return request.force || request.last_step || on_interval(request, interval);
}

std::optional<std::string> history_name(const CheckpointRequest& request, std::int64_t interval) {
  if (!on_interval(request, interval)) {
    return std::nullopt;
  }
  const std::string digits = to_text(progress(request));
  const std::size_t width = request.step_mode ? 12 : 6;
  return concat(request.step_mode ? "ckpt-s" : "ckpt-e",
                std::string(width > digits.size() ? width - digits.size() : 0, '0'), digits);
}

}  // namespace danling::inline v0
