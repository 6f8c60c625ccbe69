#include <runner/rank_times.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include <danling/core/format.hpp>

#include <runner/rank_messages.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr double slow = 1.25;  // relative to the median

std::string in_milliseconds(double seconds) { return to_text(std::round(seconds * 1e5) / 100.0); }

/// `9.8 to 14.1 ms (rank 3)`: minimum, maximum, and the rank of the maximum.
std::string range(const std::vector<double>& seconds) {
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  return concat(in_milliseconds(*least), " to ", in_milliseconds(*most), " ms (rank ", most - seconds.begin(), ")");
}

}  // namespace

double RankTimes::Rank::per_step(double seconds) const {
  return counts.steps > 0 ? seconds / static_cast<double>(counts.steps) : 0.0;
}

RankTimes::RankTimes(const Group& group, const LoopCounts& mine, double waited) {
  const Rank own{mine, waited};
  if (group.alone()) {
    ranks_.push_back(own);
    return;
  }
  for (const std::string& bytes : exchange(group, {reinterpret_cast<const char*>(&own), sizeof own})) {
    Rank rank;
    std::memcpy(&rank, bytes.data(), std::min(bytes.size(), sizeof rank));
    ranks_.push_back(rank);
  }
}

LoopCounts RankTimes::total() const {
  LoopCounts out;
  for (const Rank& rank : ranks_) {
    out.steps = std::max(out.steps, rank.counts.steps);
    out.samples += rank.counts.samples;
    out.tokens += rank.counts.tokens;
    out.seconds = std::max(out.seconds, rank.counts.seconds);
    out.data_seconds = std::max(out.data_seconds, rank.counts.data_seconds);
    out.observe_memory(rank.counts);
  }
  return out;
}

std::string RankTimes::report() const {
  if (ranks_.size() == 1 || total().steps == 0) {  // no step was measured after a regrouping
    return {};
  }
  std::vector<double> computing, data, waited, busy;
  for (const Rank& rank : ranks_) {
    computing.push_back(rank.computing());
    data.push_back(rank.per_step(rank.counts.data_seconds));
    waited.push_back(rank.per_step(rank.waited));
    busy.push_back(computing.back() + data.back());
  }
  std::string out = concat("a step computes ", range(computing), ", waits for data ", range(data),
                           " and for other ranks ", range(waited));
  std::vector<double> sorted = busy;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2), sorted.end());
  const double median = sorted[(sorted.size() - 1) / 2];
  for (std::size_t rank = 0; rank < busy.size(); ++rank) {
    if (busy[rank] > slow * median) {
      out += concat("; rank ", rank, " is slow: ", in_milliseconds(busy[rank]), " ms, the median is ",
                    in_milliseconds(median));
    }
  }
  return out;
}

}  // namespace danling::inline v0::detail
