// Times of all ranks in a loop: sums for the records, and names of slow ranks.
#pragma once

#include <string>
#include <vector>

#include <danling/distributed/group.hpp>
#include <danling/telemetry/loop_telemetry.hpp>

namespace danling::inline v0::detail {

class RankTimes {
 public:
  /// Collective. @param waited  seconds that this rank waited for the others
  RankTimes(const Group& group, const LoopCounts& mine, double waited);

  /// Samples and tokens of all ranks; steps and seconds of the rank with the most.
  LoopCounts total() const;
  /// `a step computes 20.84 to 22.71 ms (rank 1), waits for data 0.14 to 0.84 ms (rank 0) and for other ranks 0.98 to
  /// 2.2 ms (rank 0)`: minimum, maximum, and the rank of the maximum. Names ranks that are slower than the median by a
  /// quarter. Empty for one process.
  std::string report() const;

 private:
  struct Rank {
    LoopCounts counts;
    double waited = 0.0;

    double per_step(double seconds) const;
    double computing() const { return per_step(counts.seconds - counts.data_seconds - waited); }
  };

  std::vector<Rank> ranks_;
};

}  // namespace danling::inline v0::detail
