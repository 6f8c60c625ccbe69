// Memory that the processes of a group on one machine share, and flags by which they wait for each other.
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

/// One part of memory per rank, readable and writable by all, and flags per rank: numbers that only this rank raises.
/// A wait ends with an error when a rank has ended (the kernel then releases its file lock, also after SIGKILL), has
/// aborted, or does not come within the timeout. The name is removed before `create` returns; one whose process was
/// killed before goes with another `create`, after an hour. For one thread at a time.
class SharedMemory {
 public:
  /// Of a wait: which ranks, by their numbers in the first group, and how.
  struct Failure final : DistributedError {
    using DistributedError::DistributedError;
    std::vector<std::int64_t> ranks = {};
    bool timed_out = false;
  };

  struct Options {
    std::size_t bytes = 0;  ///< of each rank's part
    std::size_t flags = 1;  ///< of each rank
    std::chrono::milliseconds timeout = std::chrono::minutes(5);
  };

  /// Called by all ranks of `group` with the same options. Null on all of them where they are not on one machine or the
  /// memory cannot be had; `reason` then says why.
  static std::shared_ptr<SharedMemory> create(const Group& group, const Options& options,
                                              std::string* reason = nullptr);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Of a rank, in the first group: errors have it.
  std::int64_t name(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  void set_timeout(std::chrono::milliseconds timeout);
  /// Called while `await` waits: throws where a wait has no hope.
  void set_look(std::function<void()> look) { look_ = std::move(look); }

  /// The part of `rank`, aligned to a page.
  std::byte* part(int rank) const;

  /// Sets this rank's flag, after its writes; values grow by less than 2^31 from one to the next.
  void raise(std::size_t flag, std::uint32_t value) const;
  /// Whether `rank` has raised its flag to `value`: its writes before are then visible.
  bool is_raised(int rank, std::size_t flag, std::uint32_t value) const;
  bool all_raised(std::size_t flag, std::uint32_t value) const;
  /// Waits until all ranks have raised the flag to `value`. @throws Failure naming the ranks that have not,
  /// DistributedError with the words of one that has aborted.
  void await(std::size_t flag, std::uint32_t value, std::string_view operation) const;
  /// The same for at most `limit`, and without a look at the ranks. @return whether all have raised it
  bool wait_for(std::size_t flag, std::uint32_t value, std::chrono::milliseconds limit) const;
  /// A rank that has ended and not raised the flag.
  std::optional<int> ended_rank(std::size_t flag, std::uint32_t value) const;

  /// Ends the waits of the other ranks, now and later, with this rank's number and `reason`.
  void abort(std::string_view reason) const;

 private:
  struct Header;
  SharedMemory(int file, std::byte* base, std::size_t length, Options options, int rank,
               std::vector<std::int64_t> ranks);
  Header& header(int rank) const;
  std::atomic<std::uint32_t>& flag(int rank, std::size_t index) const;
  bool lock_own() const;
  bool has_ended(int rank) const;
  /// Whether the flag is raised after a short wait: one that keeps the core, one that gives it away.
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
