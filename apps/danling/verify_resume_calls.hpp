// Derives facts about the saves of a start from its file calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify_resume_start.hpp"

namespace danling_command {

/// Returns true if the call renames a file to a checkpoint of the history.
bool names_history(const FileCall& call);

/// Returns true if the first call that failed or was interrupted concerns a checkpoint. `limited`: the failure is by
/// the file size limit of the kernel.
bool first_error_in_checkpoints(const std::vector<FileCall>& calls, const std::string& checkpoint_dir, bool limited);

/// Returns the number of history checkpoints that a start may have lost: one for each save with a failed call, except
/// the last. The program keeps the state of the last failed save and writes it before a later save or at its end, when
/// no error is injected; it does not keep states of shards.
std::int64_t lost_history(const StartEnd& end, const std::string& checkpoint_dir);

/// Returns the number of saves that a later save or the end of the program follows, so that all their calls are done.
std::int64_t completed_saves(const StartEnd& end);

}  // namespace danling_command
