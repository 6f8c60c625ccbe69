// Notes that ranks exchange when a run hangs: without a collective, from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

class Watch;

/// Exchanges notes of a group's ranks in its store, once per group. Each call returns by its limit, whatever other
/// ranks do.
class RankNotes {
 public:
  explicit RankNotes(const Group& group);

  /// Writes this rank's note and returns, by rank, the notes that ranks write within the limit; only this rank's note
  /// if the store does not answer.
  std::map<std::int64_t, std::string> exchange(const std::string& note, std::chrono::milliseconds limit) const;
  /// Returns when all of `ranks` have called it, or at the limit: a rank that exits may end the store and with it other
  /// notes.
  void leave(const std::map<std::int64_t, std::string>& ranks, std::chrono::milliseconds limit) const;

 private:
  std::int64_t rank_ = 0, size_ = 1;
  std::shared_ptr<Watch> watch_;
};

}  // namespace danling::inline v0::detail
