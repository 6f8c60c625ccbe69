// The processes of a fault-tolerant run: they find each other and detect deaths in a shared directory.
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
  std::int64_t number = 0;                  ///< of this process among those that start the run; sets their order
  std::int64_t size = 1;                    ///< number of processes that the first generation waits for
  std::int64_t least = 1;                   ///< minimum size of a generation
  std::int64_t most = 1;                    ///< maximum size of a generation; further processes wait
  std::string program;                      ///< version, code and config: processes with another one may not join
  std::string timestamp;                    ///< of the start
  std::chrono::milliseconds start_limit{};  ///< how long the first generation waits for `size`, later ones for `least`
  std::chrono::milliseconds absence_limit{};  ///< how long a generation waits for a live process that does not come
};

/// A generation: the processes that train together until one dies or another joins.
struct Generation {
  std::int64_t number = 0;
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::string host;  ///< of rank 0, which listens at `port`
  int port = 0;
  std::string timestamp;      ///< start time of the run's first member
  std::string run;            ///< the same for all generations of a run
  bool same_members = false;  ///< the members are those of the previous generation
};

/// Parent of the directories of all runs, in a workspace root.
constexpr const char* default_parent = ".ft";

/// This process's identity in a generation, for its group.
ProcessIdentity identity_in(const Generation& generation, ProcessIdentity own);

/// Each process holds the lock of a file, which the kernel releases when the process ends, and writes into another file
/// which generation it waits for. The process that first sees all live processes waiting writes the next generation
/// into one file, under a lock. Needs a file system whose locks all machines share (`flock`).
class Members {
 public:
  /// @throws DistributedError when a run with other code is in progress there, ConfigError when the directory is not
  /// writable
  explicit Members(MembersOptions options);
  /// Leaves: the others do not wait for this process.
  ~Members();
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  /// True when others already train: this process then joins them with their state.
  bool is_late() const { return late_; }
  const std::string& timestamp() const { return options_.timestamp; }

  /// Waits for the next generation. Called at the start, after a failure, and when all members agreed to admit others.
  /// @throws DistributedError with the message of a member that failed with an error, when too few processes come, when
  /// the others continued without this one, and at a stop_signal()
  Generation next();
  /// True when a process waits to join. Reads the directory.
  bool has_waiting_process() const;
  /// Reports to the other members that this one ends with an error, so that none continues.
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
  std::int64_t generation_ = 0;  // last generation of this process; 0: none
  std::int64_t wanted_ = 0;
  std::int64_t order_ = 0;
  int port_ = 0;
  std::vector<std::string> tokens_;  // of the last generation, sorted
  int life_ = -1;                    // the locked file
  bool late_ = false;
};

}  // namespace danling::inline v0::detail
