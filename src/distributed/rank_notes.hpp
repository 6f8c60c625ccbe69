// Notes that ranks leave for each other when a run hangs: without a collective, from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

class Watch;

/// Notes of the ranks of a group in its store, once per group. Whatever the others do, each call ends by its limit.
class RankNotes {
 public:
  explicit RankNotes(const Group& group);

  /// Writes the note of this rank, and returns those of the ranks that write one within the limit, by rank; only its
  /// own where the store does not answer.
  std::map<std::int64_t, std::string> exchange(const std::string& note, std::chrono::milliseconds limit) const;
  /// Returns when all of `ranks` are here, or at the limit: the store, and with it other notes, may end with a rank.
  void leave(const std::map<std::int64_t, std::string>& ranks, std::chrono::milliseconds limit) const;

 private:
  std::int64_t rank_ = 0, size_ = 1;
  std::shared_ptr<Watch> watch_;
};

}  // namespace danling::inline v0::detail
