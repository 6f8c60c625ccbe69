// Reports of ranks after a failed collective, and the error message derived from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0::detail {

/// The position of a rank in one group.
struct Place {
  std::string group;                ///< equal on all ranks of the group
  std::vector<std::int64_t> ranks;  ///< members, by rank in the first group
  std::int64_t number = 0;          ///< of the last collective that the rank entered; 0: none
  std::string operation;
};

struct RankReport {
  enum class Kind : std::int64_t {
    alive,      ///< another rank failed, this one did not
    left,       ///< destroyed its groups
    timed_out,  ///< waited longer than `limit`
    failed,     ///< a connection broke
    aborted,    ///< called `abort`; `text` is the reason
  };

  Kind kind = Kind::alive;
  std::string text;
  std::chrono::milliseconds limit{0};
  /// The operation that failed, with the ranks that take part. The number is 0 for point-to-point messages.
  Place failed_at;
  std::vector<Place> places;
};

std::string pack_report(const RankReport& report);
RankReport unpack_report(std::string_view bytes);

using RankReports = std::map<std::int64_t, RankReport>;

/// Explains a failure from the reports: reasons of aborts if there are any, else which ranks have ended, left, do not
/// answer or did not join. The same reports yield the same text. Empty if no rank reports a failure.
std::string explain(const RankReports& reports);
bool any_aborted(const RankReports& reports);

/// `rank 2` or `ranks 0, 1, 3`.
std::string ranks_text(const std::vector<std::int64_t>& ranks);

}  // namespace danling::inline v0::detail
