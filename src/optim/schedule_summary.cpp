#include <danling/optim/schedule_summary.hpp>

#include <algorithm>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim {
namespace {

constexpr std::int64_t most_samples = 100'000;

/// The position of sample `index` of `count` among `updates` positions.
std::int64_t position_of(std::int64_t index, std::int64_t count, std::int64_t updates) {
  if (count == updates) {
    return index;
  }
  return static_cast<std::int64_t>(static_cast<double>(index) / static_cast<double>(count - 1) *
                                   static_cast<double>(updates - 1));
}

}  // namespace

std::string format_rate(double lr) { return to_significant(lr, 4); }

std::string ScheduleSummary::text(const std::string& step) const {
  return concat(format_rate(first), " at first, ", format_rate(highest), " at most (", step, " ", highest_at, "), ",
                format_rate(last), " at last");
}

std::optional<ScheduleSummary> summarize_schedule(const Scheduler& schedule, std::int64_t updates, std::size_t group) {
  if (group >= schedule.base_lrs().size() || updates < 1 || !schedule.rate_at(0, group)) {
    return std::nullopt;
  }
  const auto rate = [&](std::int64_t position) { return *schedule.rate_at(position, group); };
  ScheduleSummary out{rate(0), rate(0), rate(updates - 1), 1, updates};
  const auto try_position = [&](std::int64_t position) {
    if (const double lr = rate(position); lr > out.highest) {
      out.highest = lr;
      out.highest_at = position + 1;
      return true;
    }
    return false;
  };
  const std::int64_t count = std::min(updates, most_samples);
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < count; ++i) {
    best = try_position(position_of(i, count, updates)) ? i : best;
  }
  // Between two samples of a long schedule the rate may be higher.
  const std::int64_t end = position_of(std::min(best + 1, count - 1), count, updates);
  for (std::int64_t at = position_of(std::max<std::int64_t>(best - 1, 0), count, updates); at < end; ++at) {
    try_position(at);
  }
  return out;
}

}  // namespace danling::inline v0::optim
