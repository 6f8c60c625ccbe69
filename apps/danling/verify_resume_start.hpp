// One start of the verified program: its process, its traced file calls, and the signal from outside.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace danling_command {

/// A file call of the program below the scratch directory, as traced by libdanling_faults.so.
struct FileCall {
  std::string call;     ///< open, write, fsync, rename ...
  std::string outcome;  ///< ok, failed, or the injected fault: kill, short, torn, the name of an errno
  std::string path;     ///< below the workspace root
  double at = 0;        ///< seconds since the start

  /// True if a rule determined the outcome.
  bool injected() const { return outcome != "ok" && outcome != "failed"; }
};

/// Seconds for the other ranks to end after an unannounced kill.
constexpr double notice_seconds = 30;

/// A signal from outside, at most one per start.
struct Blow {
  int signal = 0;                ///< 0: none
  double seconds = 0;            ///< delay after the event that it waits for
  bool after_begin = true;       ///< waits for the first file call, when the set-up is done
  std::int64_t saves = 0;        ///< waits until so many saves have begun; overrides the time
  std::optional<int> rank = {};  ///< one of several processes; unset: all
  /// Also stops `danling launch` until all ranks have ended, so the ranks must notice the end of one themselves.
  bool unannounced = false;
};

struct StartOptions {
  std::vector<std::string> command;
  int processes = 0;                  ///< processes for `danling launch`; 0: starts `command` directly
  std::filesystem::path root;         ///< workspace root: faults apply only to files below it
  std::filesystem::path library;      ///< libdanling_faults.so
  std::string rules;                  ///< DANLING_FAULTS
  std::optional<std::uint64_t> size;  ///< RLIMIT_FSIZE
  Blow blow;
  double timeout = 0;
  std::filesystem::path output;  ///< file for the program's output
};

struct StartEnd {
  int code = 0;  ///< exit code, or minus the signal that ended it
  double seconds = 0;
  double began = 0;      ///< seconds until the first file call
  double struck_at = 0;  ///< seconds until the signal
  bool struck = false;
  bool hung = false;     ///< killed after its timeout
  std::string unaware;   ///< ranks that did not notice an unannounced kill within `notice_seconds`: "0, 2"
  int left_running = 0;  ///< processes that outlived `danling launch`
  std::string output;
  std::vector<FileCall> calls;
};

/// Runs the program to its end. If this process gets a stop signal, kills the program and returns.
/// @throws danling::Error if no process can be started
StartEnd run_start(const StartOptions& options);

/// Returns true if this call begins a save: it creates the file that becomes `latest.pth`, or a directory of shards.
bool begins_save(const FileCall& call);
/// Returns true if this call renames a checkpoint to its final name.
bool ends_save(const FileCall& call);

}  // namespace danling_command
