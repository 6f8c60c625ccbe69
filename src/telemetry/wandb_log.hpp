// WandbLog: the transaction log of a Weights & Biases run, a `.wandb` file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <danling/formats/detail/protobuf.hpp>

#include <telemetry/append_file.hpp>

namespace danling::inline v0::detail {

/// Writes wandb's header, then numbered records of wandb_internal.proto in the framing of LevelDB's log.
class WandbLog {
 public:
  /// Creates or empties the file. @throws Error
  explicit WandbLog(const std::filesystem::path& path);

  /// A Record: the field number of its kind, and its message.
  struct Entry {
    int kind;
    formats::ProtobufWriter message;
  };
  /// Appends all of `entries`, or none if it throws. @throws Error
  void append(const std::vector<Entry>& entries);

  AppendFile& file() { return file_; }

 private:
  AppendFile file_;
  std::int64_t num_records_ = 0;
};

}  // namespace danling::inline v0::detail
