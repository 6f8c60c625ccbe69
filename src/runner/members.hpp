// The processes of a fault-tolerant run: they find each other, and notice who has died, in a directory that all of them
// reach.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/distributed/process.hpp>

namespace danling::inline v0::detail {

struct MembersOptions {
  std::filesystem::path directory;
  std::int64_t number = 0;                    ///< of this process among those that start the run: their order
  std::int64_t size = 1;                      ///< processes that the first generation waits for
  std::int64_t least = 1;                     ///< no generation has fewer
  std::int64_t most = 1;                      ///< no generation has more; further processes wait
  std::string program;                        ///< version, code and config: others may not join
  std::string timestamp;                      ///< of the start
  std::chrono::milliseconds start_limit{};    ///< how long a generation waits for `size` at first, and `least` later
  std::chrono::milliseconds absence_limit{};  ///< how long one waits for a process that is alive but does not come
};

/// A generation: the processes that train together until one of them dies or another comes.
struct Generation {
  std::int64_t number = 0;
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::string host;  ///< of rank 0, which listens at `port`
  int port = 0;
  std::string timestamp;      ///< of the start of the run's first member
  std::string run;            ///< the same for all generations of a run
  bool same_members = false;  ///< nobody has gone or come since the generation before
};

/// Of the directories of all runs in a workspace root.
constexpr const char* default_parent = ".ft";

/// The process in a generation, for the group of its members.
ProcessIdentity identity_in(const Generation& generation, ProcessIdentity own);

/// Each process holds the lock of a file, which the kernel releases however the process ends, and says in another one
/// which generation it waits for. A new generation is agreed on by whoever first sees that all who live wait for it;
/// it is one file, written under a lock. Needs a file system with locks that all machines see (`flock`).
class Members {
 public:
  /// @throws DistributedError when a run of other code is in progress there, ConfigError when the directory cannot be
  /// written.
  explicit Members(MembersOptions options);
  /// Leaves: the others need not wait for this process.
  ~Members();
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  /// Whether others train already: this process then joins them with their state.
  bool is_late() const { return late_; }
  const std::string& timestamp() const { return options_.timestamp; }

  /// Waits for the next generation. Called at the start, after a failure, and when all members agreed to let others in.
  /// @throws DistributedError with the words of a member that failed with an error, when too few processes come, when
  /// the others went on without this one, and at a stop_signal().
  Generation next();
  /// Whether a process waits to join. Reads the directory.
  bool someone_waits() const;
  /// Tells the others, who are about to notice, that this member ends with an error: nobody may go on.
  void fail(std::string_view words) noexcept;

 private:
  struct Entry;
  struct Plan;

  std::vector<Entry> entries() const;
  std::optional<Plan> read_plan() const;
  void announce();
  bool make_plan(const std::vector<Entry>& all, const std::optional<Plan>& last, bool overdue);
  void check_failed() const;
  void remove_files() const;

  MembersOptions options_;
  std::string token_;
  std::string machine_;
  std::int64_t generation_ = 0;  // the last one of this process; 0: none
  std::int64_t wanted_ = 0;
  std::int64_t order_ = 0;
  int port_ = 0;
  std::vector<std::string> tokens_;  // of the last generation, sorted
  int life_ = -1;                    // the locked file
  bool late_ = false;
};

}  // namespace danling::inline v0::detail
