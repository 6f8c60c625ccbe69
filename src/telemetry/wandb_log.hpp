// WandbLog: the transaction log of a Weights & Biases run, a `.wandb` file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <danling/formats/protobuf.hpp>

#include "telemetry/append_file.hpp"

namespace danling::inline v0::detail {

/// Records of wandb_internal.proto in the framing of LevelDB's log, behind wandb's header. Numbers the records.
class WandbLog {
 public:
  /// Creates the file, or empties it. @throws Error
  explicit WandbLog(const std::filesystem::path& path);

  /// Fields of a Record: the number of its kind, and its message.
  struct Entry {
    int kind;
    formats::ProtobufWriter message;
  };
  /// All of `entries`, or none when it throws. @throws Error
  void append(const std::vector<Entry>& entries);

  AppendFile& file() { return file_; }

 private:
  AppendFile file_;
  std::int64_t num_records_ = 0;
};

}  // namespace danling::inline v0::detail
