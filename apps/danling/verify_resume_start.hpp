// One start of the program that is verified: its process, its file calls as they happen, and the blow from outside.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace danling_command {

/// A file call of the program below the scratch directory, as libdanling_faults.so tells it.
struct FileCall {
  std::string call;     ///< open, write, fsync, rename ...
  std::string outcome;  ///< ok, failed, or what was done to it: kill, short, torn, the name of an errno
  std::string path;     ///< below the workspace root
  double at = 0;        ///< seconds since the start

  /// Whether a rule decided it.
  bool injected() const { return outcome != "ok" && outcome != "failed"; }
};

/// A signal sent from outside, at most once in a start.
struct Blow {
  int signal = 0;           ///< 0: none
  double seconds = 0;       ///< after what it waits for
  bool after_begin = true;  ///< waits for the first file call, by which the program is set up; else for nothing
  std::int64_t saves = 0;   ///< waits until so many checkpoints were begun; overrides the time
};

struct StartOptions {
  std::vector<std::string> command;
  std::filesystem::path root;         ///< workspace root: only files below it are touched
  std::filesystem::path library;      ///< libdanling_faults.so
  std::string rules;                  ///< DANLING_FAULTS
  std::optional<std::uint64_t> size;  ///< RLIMIT_FSIZE
  Blow blow;
  double timeout = 0;
  std::filesystem::path output;  ///< file for what the program prints
};

struct StartEnd {
  int code = 0;  ///< exit code, or minus the signal that ended it
  double seconds = 0;
  double began = 0;  ///< seconds until the first file call
  bool struck = false;
  bool hung = false;  ///< killed when its time was over
  std::string output;
  std::vector<FileCall> calls;
};

/// Runs the program to its end. Ends early, with the program killed, when this process is asked to stop.
/// @throws danling::Error when no process can be started
StartEnd run_start(const StartOptions& options);

/// Whether this call begins a checkpoint: a file that will be `latest.pth` is made.
bool begins_save(const FileCall& call);
/// Whether this call gives a checkpoint its name.
bool ends_save(const FileCall& call);

}  // namespace danling_command
