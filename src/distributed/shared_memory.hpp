// Memory shared by the processes of a group on one machine, with flags for synchronization.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

/// One part of memory per rank, readable and writable by all, and flags per rank: counters that only the owning rank
/// raises. A wait throws if a rank has ended (the kernel then releases its file lock, also after SIGKILL), has aborted,
/// or does not raise its flag within the timeout. `create` removes the name before it returns; names left by killed
/// processes are removed by a later `create`, after an hour. Use it in one thread at a time.
class SharedMemory {
 public:
  /// A failed wait: the missing ranks, by rank in the first group, and the kind of failure.
  struct Failure final : DistributedError {
    using DistributedError::DistributedError;
    std::vector<std::int64_t> ranks = {};
    bool timed_out = false;
  };

  struct Options {
    std::size_t bytes = 0;  ///< per rank
    std::size_t flags = 1;  ///< per rank
    std::chrono::milliseconds timeout = std::chrono::minutes(5);
  };

  /// Called by all ranks of `group` with the same options. Returns null on all ranks if they are on several machines or
  /// the memory is not available; `reason` explains it.
  static std::shared_ptr<SharedMemory> create(const Group& group, const Options& options,
                                              std::string* reason = nullptr);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Returns a rank's number in the first group, for error messages.
  std::int64_t name(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  void set_timeout(std::chrono::milliseconds timeout);
  /// Sets a function that `await` calls while it waits; it throws if waiting is pointless.
  void set_look(std::function<void()> look) { look_ = std::move(look); }

  /// Returns the part of `rank`, aligned to a page.
  std::byte* part(int rank) const;

  /// Raises this rank's flag; other ranks then see its earlier writes. Each increase must be less than 2^31.
  void raise(std::size_t flag, std::uint32_t value) const;
  /// Returns true if `rank` has raised its flag to `value`: its earlier writes are then visible.
  bool is_raised(int rank, std::size_t flag, std::uint32_t value) const;
  bool all_raised(std::size_t flag, std::uint32_t value) const;
  /// Waits until all ranks have raised the flag to `value`.
  /// @throws Failure with the ranks that have not; DistributedError with the reason of a rank that has aborted.
  void await(std::size_t flag, std::uint32_t value, std::string_view operation) const;
  /// Waits at most `limit`, without checking that ranks are alive.
  /// @return true if all ranks have raised the flag
  bool wait_for(std::size_t flag, std::uint32_t value, std::chrono::milliseconds limit) const;
  /// Returns a rank that has ended without raising the flag.
  std::optional<int> ended_rank(std::size_t flag, std::uint32_t value) const;

  /// Ends waits of other ranks, now and later, with this rank's number and `reason`.
  void abort(std::string_view reason) const;

 private:
  struct Header;
  SharedMemory(int file, std::byte* base, std::size_t length, Options options, int rank,
               std::vector<std::int64_t> ranks);
  Header& header(int rank) const;
  std::atomic<std::uint32_t>& flag(int rank, std::size_t index) const;
  bool lock_own() const;
  bool has_ended(int rank) const;
  /// Waits briefly for the flag, first spinning, then yielding the core; returns true if it is raised.
  bool spin(int rank, std::size_t flag, std::uint32_t value) const;
  bool sleep(int rank, std::size_t flag, std::uint32_t value) const;
  void await_rank(int rank, std::size_t flag, std::uint32_t value, std::chrono::steady_clock::time_point deadline,
                  std::string_view operation) const;
  void check_aborts(std::string_view operation) const;
  [[noreturn]] void fail_ended(int rank, std::string_view operation) const;
  [[noreturn]] void time_out(std::size_t flag, std::uint32_t value, std::string_view operation) const;

  std::function<void()> look_;
  int file_;
  std::byte* base_;
  std::size_t length_;
  Options options_;
  int rank_;
  int size_;
  std::vector<std::int64_t> ranks_;  // in the first group
};

}  // namespace danling::inline v0::detail
