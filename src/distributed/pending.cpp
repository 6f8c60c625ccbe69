#include <distributed/pending.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <mutex>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

std::mutex scopes_mutex;
PendingScope* newest_scope = nullptr;

}  // namespace

PendingScope::PendingScope(const char* operation, std::int64_t number, std::int64_t bytes)
    : operation_(operation),
      number_(number),
      bytes_(bytes),
      begin_(std::chrono::steady_clock::now()),
      thread_(static_cast<pid_t>(syscall(SYS_gettid))) {
  const std::lock_guard<std::mutex> lock(scopes_mutex);
  before_ = newest_scope;
  if (before_ != nullptr) {
    before_->after_ = this;
  }
  newest_scope = this;
}

PendingScope::~PendingScope() {
  const std::lock_guard<std::mutex> lock(scopes_mutex);
  (after_ == nullptr ? newest_scope : after_->before_) = before_;
  if (before_ != nullptr) {
    before_->after_ = after_;
  }
}

std::vector<PendingCall> pending_calls() {
  const std::lock_guard<std::mutex> lock(scopes_mutex);
  std::vector<PendingCall> out;
  for (const PendingScope* scope = newest_scope; scope != nullptr; scope = scope->before_) {
    out.insert(out.begin(), {scope->thread_, scope->operation_, scope->number_,
                             scope->bytes_.load(std::memory_order_relaxed), scope->begin_});
  }
  return out;
}

std::string pending_text(const PendingCall& call) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - call.begin).count();
  return concat(call.operation, call.number > 0 ? concat(" number ", call.number) : "",
                call.bytes > 0 ? concat(", ", call.bytes, " bytes") : "", ", for ",
                format_seconds(std::round(seconds * 10.0) / 10.0));
}

}  // namespace danling::inline v0::detail
