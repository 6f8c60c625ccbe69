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

  /// Whether a rule decided it.
  bool injected() const { return outcome != "ok" && outcome != "failed"; }
};

/// For the other ranks to end after an unannounced kill.
constexpr double notice_seconds = 30;

/// A signal sent from outside, at most once in a start.
struct Blow {
  int signal = 0;                ///< 0: none
  double seconds = 0;            ///< after the event that it waits for
  bool after_begin = true;       ///< waits for the first file call, when the program is set up
  std::int64_t saves = 0;        ///< waits until that many checkpoints were begun; overrides the time
  std::optional<int> rank = {};  ///< of several processes; none: all
  /// Stops `danling launch` too until all ranks have ended: they must notice the end of one by themselves.
  bool unannounced = false;
};

struct StartOptions {
  std::vector<std::string> command;
  int processes = 0;                  ///< that `danling launch` starts; 0: `command` is started itself
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
  int left_running = 0;  ///< processes of several that outlived `danling launch`
  std::string output;
  std::vector<FileCall> calls;
};

/// Runs the program to its end. Ends early, with the program killed, when this process is asked to stop.
/// @throws danling::Error when no process can be started
StartEnd run_start(const StartOptions& options);

/// Whether this call begins a checkpoint: creates the file that becomes `latest.pth`, or a
/// directory of shards.
bool begins_save(const FileCall& call);
/// Whether this call renames a checkpoint to its final name.
bool ends_save(const FileCall& call);

}  // namespace danling_command
