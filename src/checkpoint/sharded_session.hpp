// Saves of one sharded manager: each rank's thread writes, rank 0's thread completes, all ranks agree.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <danling/distributed/group.hpp>

#include <checkpoint/directory.hpp>
#include <checkpoint/sharded_directory.hpp>
#include <checkpoint/sharded_write.hpp>

namespace danling::inline v0 {

/// One save, the same on all ranks.
struct ShardedSave {
  std::int64_t number = 0;
  std::string target;   ///< name of its directory
  std::string running;  ///< see ShardedDirectory::publish
  Publication what;
  bool verify = false;  ///< read each file back: an older checkpoint may be removed for it
  std::chrono::steady_clock::time_point requested;
};

/// Outcome of a save; rank 0 learns it first.
struct ShardedOutcome {
  std::int64_t number = 0;
  std::string name;     ///< see Publication
  std::string history;  ///< empty without a history name
  bool best = false;
  double seconds = 0.0;
  Published done;
};

/// Message of a rank to the others at each call.
struct ShardedMessage {
  std::string error;  ///< the state could not be created
  bool flag = false;  ///< meaning depends on the call
  bool expired = false;
  std::string digest;                                          ///< digest of the boxes of its tensors
  std::vector<std::pair<std::int64_t, std::string>> failures;  ///< saves that this rank could not write
  std::vector<ShardedOutcome> outcomes;                        ///< sent by rank 0
};

std::string pack_message(const ShardedMessage& message);
ShardedMessage unpack_message(const std::string& bytes);

/// State of the saving thread, which may outlive the manager.
class ShardedSession {
 public:
  ShardedSession(const std::filesystem::path& path, int rank, int world_size, std::chrono::milliseconds timeout)
      : directory(path), rank_(rank), world_size_(world_size), timeout_(timeout) {}

  /// Writes this rank's part and reports; on rank 0 also completes and publishes the checkpoint. Does not throw.
  void run(const ShardedSave& save, const ShardWork& work, const std::string& copying_error);
  /// The parts of run(), for saves on the calling thread. @return the error, or an empty string
  std::string write(const ShardedSave& save, const ShardWork& work);
  void complete(const ShardedSave& save);
  void fail(const ShardedSave& save, const std::string& error);

  /// Rank 0: stops waiting for a save that another rank failed to write.
  void abandon(std::int64_t number, const std::string& reason);
  /// From now on, a save waits at most 5 s for shards of other ranks.
  void end();
  /// Moves failures and outcomes of saves since the last call into the message.
  void take(ShardedMessage& message);

  ShardedDirectory directory;

 private:
  std::string reason_to_give_up(std::int64_t number);
  void finish(const ShardedSave& save, Published done);

  int rank_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  std::optional<ShardReport> own_;
  std::mutex mutex_;
  std::map<std::int64_t, std::string> abandoned_;
  std::optional<std::chrono::steady_clock::time_point> ended_;
  std::vector<std::pair<std::int64_t, std::string>> failures_;
  std::vector<ShardedOutcome> outcomes_;
};

/// Writes the weights of each model in a checkpoint, and of its average, as a safetensors file beside it, piece by
/// piece: `<name>.safetensors`, `<name>-ema.safetensors`, `<name>-<model>.safetensors` and so on. Leaves out weights
/// with a dtype that the format lacks. Returns the names of the files. @throws CheckpointError
std::vector<std::string> export_sharded(const std::filesystem::path& checkpoint, const std::string& name);

}  // namespace danling::inline v0
