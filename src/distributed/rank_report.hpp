// What ranks say when a collective has failed, and the sentence that follows from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0::detail {

/// Where a rank is in one group.
struct Place {
  std::string group;                ///< the same on all ranks of the group
  std::vector<std::int64_t> ranks;  ///< of the group, in the first group
  std::int64_t number = 0;          ///< of the last collective that the rank entered; 0: none
  std::string operation;
};

struct RankReport {
  enum class Kind : std::int64_t {
    alive,      ///< saw that another rank failed
    left,       ///< destroyed its groups
    timed_out,  ///< waited longer than `limit`
    failed,     ///< its connection broke
    aborted,    ///< called `abort`; the reason is `text`
  };

  Kind kind = Kind::alive;
  std::string text;
  std::chrono::milliseconds limit{0};
  /// The operation that failed; its ranks are those that take part. The number is 0 for messages between two ranks.
  Place failed_at;
  std::vector<Place> places;
};

std::string pack_report(const RankReport& report);
RankReport unpack_report(std::string_view bytes);

using RankReports = std::map<std::int64_t, RankReport>;

/// Why a collective failed, from the reports of the ranks that answered: those of aborts alone, else which ranks have
/// ended, left, do not answer or did not join. The same reports give the same text. Empty if no rank reports a failure.
std::string explain(const RankReports& reports);
bool any_aborted(const RankReports& reports);

/// `rank 2` or `ranks 0, 1, 3`.
std::string ranks_text(const std::vector<std::int64_t>& ranks);

std::string seconds_text(std::chrono::milliseconds time);

}  // namespace danling::inline v0::detail
