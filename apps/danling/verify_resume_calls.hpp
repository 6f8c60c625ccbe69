// What the file calls of a start say about its saves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify_resume_start.hpp"

namespace danling_command {

/// Whether the call names a checkpoint of the history.
bool names_history(const FileCall& call);

/// Whether the first call that failed or was interrupted is one of a checkpoint. `limited`: by the file size limit,
/// which the kernel enforces.
bool first_error_in_checkpoints(const std::vector<FileCall>& calls, const std::string& checkpoint_dir, bool limited);

/// Number of history checkpoints that a start may have lost: one for each save with a failed call, except the last.
/// Its state is kept and written before a later save, or at the end of the program, when no error is injected. States
/// of shards are not kept.
std::int64_t lost_history(const StartEnd& end, const std::string& checkpoint_dir);

/// Saves followed by a later save or by the end of the program: all calls after the rename are done too.
std::int64_t completed_saves(const StartEnd& end);

}  // namespace danling_command
