#include "verify_resume_calls.hpp"

#include <signal.h>

#include <danling/core/format.hpp>

namespace danling_command {
namespace {

bool is_of_checkpoints(const FileCall& call, const std::string& checkpoint_dir) {
  return call.path.find(danling::detail::concat("/", checkpoint_dir)) != std::string::npos;
}

bool is_interrupted(const FileCall& call) { return call.injected() && call.outcome != "short"; }

// Returns true if a failure of the call can fail a save: it concerns a checkpoint, or a file that a save syncs.
bool fails_save(const FileCall& call, const std::string& checkpoint_dir) {
  return (is_interrupted(call) || (call.outcome == "failed" && call.call == "write")) &&
         (call.call == "fsync" || is_of_checkpoints(call, checkpoint_dir));
}

}  // namespace

bool names_history(const FileCall& call) {
  return call.call == "rename" && call.outcome == "ok" && call.path.find("/ckpt-") != std::string::npos;
}

bool first_error_in_checkpoints(const std::vector<FileCall>& calls, const std::string& checkpoint_dir, bool limited) {
  for (const auto& call : calls) {
    if (is_interrupted(call) || (limited && call.outcome == "failed" && call.call == "write")) {
      return is_of_checkpoints(call, checkpoint_dir);
    }
  }
  return false;
}

std::int64_t lost_history(const StartEnd& end, const std::string& checkpoint_dir) {
  std::int64_t failed = 0;
  std::int64_t begun = 0;  // saves after the last failure; the state kept for a retry may be that of an earlier save
  bool counted = false;
  bool shards = false;  // failed saves of shards are not retried
  for (const auto& call : end.calls) {
    shards = shards || (begins_save(call) && call.call == "mkdir");
    if (begins_save(call)) {
      counted = false;
      ++begun;
    }
    if (fails_save(call, checkpoint_dir)) {
      failed += counted ? 0 : 1;
      counted = true;
      begun = 0;
    }
  }
  return failed - (failed > 0 && !shards && begun >= (end.code == 0 ? 1 : 2) ? 1 : 0);
}

std::int64_t completed_saves(const StartEnd& end) {
  std::int64_t ended = 0;
  std::int64_t completed = 0;
  for (const auto& call : end.calls) {
    ended += ends_save(call) ? 1 : 0;
    completed = begins_save(call) ? ended : completed;
  }
  return end.code == -SIGKILL ? completed : ended;
}

}  // namespace danling_command
