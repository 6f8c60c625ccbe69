// Suggestions and plots of the finders.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/optim/schedule_summary.hpp>
#include <danling/runner/finders.hpp>
#include <danling/telemetry/plot.hpp>
#include <danling/telemetry/text.hpp>

namespace danling::inline v0 {
namespace {

std::string size_text(std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

PlotOptions lr_picture(const LearningRateReport& report) {
  PlotOptions out{.title = "learning rate finder", .x_label = "learning rate", .y_label = "loss", .log_x = true};
  if (report.steepest) {
    out.marks.push_back({*report.steepest, "steepest " + optim::format_rate(*report.steepest)});
  }
  if (report.minimum) {
    out.marks.push_back({*report.minimum, "minimum/10 " + optim::format_rate(*report.minimum)});
  }
  return out;
}

// The losses up to a quarter above those before the minimum: higher ones would flatten the plot.
std::vector<PlotSeries> lr_curves(const LearningRateReport& report) {
  const auto& points = report.points;
  const auto less = [](const auto& a, const auto& b) { return a.smoothed < b.smoothed; };
  const auto lowest = std::min_element(points.begin(), points.end(), less);
  double ceiling = std::numeric_limits<double>::infinity();
  if (lowest != points.begin() && lowest != points.end()) {
    const double highest = std::max_element(points.begin(), lowest, less)->smoothed;
    ceiling = highest + 0.25 * (highest - lowest->smoothed);
  }
  PlotSeries raw{.name = "of each update", .x = {}, .y = {}, .faint = true};
  PlotSeries smoothed{.name = "smoothed", .x = {}, .y = {}};
  for (const LearningRatePoint& point : points) {
    for (const auto& [curve, loss] : {std::pair(&raw, point.loss), std::pair(&smoothed, point.smoothed)}) {
      if (loss <= ceiling) {
        curve->x.push_back(point.lr);
        curve->y.push_back(loss);
      }
    }
  }
  return {raw, smoothed};
}

PlotOptions batch_picture(const BatchSizeReport& report) {
  PlotOptions out{.title = "batch size finder",
                  .x_label = "batch size",
                  .y_label = "samples per second",
                  .log_x = true,
                  .rows = 12};
  if (report.recommended > 0) {
    out.marks.push_back({static_cast<double>(report.recommended), concat("recommended ", report.recommended)});
  }
  if (report.largest > report.recommended) {
    out.marks.push_back({static_cast<double>(report.largest), concat("largest ", report.largest)});
  }
  return out;
}

std::vector<PlotSeries> batch_curve(const BatchSizeReport& report) {
  PlotSeries rate;
  for (const BatchSizePoint& point : report.points) {
    if (point.fits) {
      rate.x.push_back(static_cast<double>(point.batch_size));
      rate.y.push_back(point.samples_per_s);
    }
  }
  return {rate};
}

}  // namespace

namespace {

constexpr std::size_t skipped = 10;  // as in Lightning: the average of the first losses is not smooth yet

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The standard deviation of each smoothed loss, from that of the losses, which are independent: with a share k of the
/// new loss, the variance is (1 - k)^2 of the previous variance plus k^2 of that of one loss.
std::vector<double> deviations(const std::vector<LearningRatePoint>& points, std::size_t end) {
  std::vector<double> changes;
  for (std::size_t i = 1; i < end; ++i) {
    changes.push_back(std::abs(points[i].loss - points[i - 1].loss));
  }
  const double of_loss = median(std::move(changes)) / (0.6745 * std::sqrt(2.0));  // for a normal distribution
  std::vector<double> out;
  double share = 1.0;
  double variance = 1.0;
  for (std::size_t i = 0; i < end; ++i) {
    if (i > 0 && points[i].loss != points[i - 1].smoothed) {
      share = (points[i].smoothed - points[i - 1].smoothed) / (points[i].loss - points[i - 1].smoothed);
    }
    variance = i == 0 ? 1.0 : (1 - share) * (1 - share) * variance + share * share;
    out.push_back(of_loss * std::sqrt(variance));
  }
  return out;
}

/// The points at which the smoothed loss starts to fall and is lowest.
struct Valley {
  std::size_t begin, lowest;
};

/// The first valley of the smoothed loss that is deeper than its noise: 4 standard deviations.
std::optional<Valley> find_valley(const std::vector<LearningRatePoint>& points) {
  if (points.size() <= skipped) {
    return std::nullopt;
  }
  const auto first = points.begin() + skipped;
  const auto bottom =
      std::min_element(first, points.end(), [](const auto& a, const auto& b) { return a.smoothed < b.smoothed; });
  auto lowest = static_cast<std::size_t>(bottom - points.begin());
  std::vector<double> plateau;  // first quarter of the points
  for (std::size_t i = skipped; i <= skipped + (lowest - skipped) / 4; ++i) {
    plateau.push_back(points[i].smoothed);
  }
  const std::vector<double> noise = deviations(points, lowest + 1);
  const double before = noise[skipped + (lowest - skipped) / 8];
  const double high = median(std::move(plateau));
  const auto fall = [&](std::size_t i) { return high - points[i].smoothed; };
  const auto is_deep = [&](std::size_t i) { return fall(i) > 4 * std::hypot(before, noise[i]); };
  // A loss that has risen by half of its fall has left the valley, whatever follows.
  for (std::size_t i = skipped, low = skipped; i < lowest; ++i) {
    low = fall(i) > fall(low) ? i : low;
    if (is_deep(low) && fall(i) < fall(low) / 2) {
      lowest = low;
    }
  }
  if (!is_deep(lowest)) {
    return std::nullopt;
  }
  const double begun = std::max(fall(lowest) / 10, 2 * std::hypot(before, noise[lowest]));
  std::size_t begin = lowest;
  while (begin > skipped && fall(begin) > begun) {
    --begin;
  }
  return Valley{begin, lowest};
}

}  // namespace

void LearningRateReport::find_suggestions() {
  steepest = minimum = std::nullopt;
  const auto valley = find_valley(points);
  if (!valley) {
    return;
  }
  double fall = 0.0;
  for (std::size_t i = valley->begin; i < valley->lowest; ++i) {
    // Central differences over the logarithm of the rate, one-sided at the first: numpy.gradient.
    const std::size_t before = i > skipped ? i - 1 : i;
    const double slope = (points[i + 1].smoothed - points[before].smoothed) / static_cast<double>(i + 1 - before);
    if (slope < fall) {
      fall = slope;
      steepest = points[i].lr;
    }
  }
  minimum = points[valley->lowest].lr / 10;
}

std::string LearningRateReport::text() const {
  std::string out = plot_text(lr_curves(*this), lr_picture(*this));
  if (!points.empty()) {
    out += concat("\n", points.size(), " updates from ", optim::format_rate(points.front().lr), " to ",
                  optim::format_rate(points.back().lr), diverged ? ", where the loss diverged" : "");
  }
  if (steepest) {
    out += concat("\nsuggested learning rate: ", optim::format_rate(*steepest),
                  " (the smoothed loss falls fastest there; a tenth of the rate of its minimum: ",
                  minimum ? optim::format_rate(*minimum) : "none", ")");
  } else if (points.size() <= skipped) {
    out += concat("\nno suggestion: expected more than ", skipped, " updates, got ", points.size(),
                  diverged ? "; the loss after them was not finite, or far above the others" : "");
  } else {
    out +=
        "\nno suggestion: the loss does not fall by more than its noise; try more find_lr.steps, larger batches, or "
        "another find_lr.min or find_lr.max";
  }
  return out;
}

std::string LearningRateReport::svg() const { return plot_svg(lr_curves(*this), lr_picture(*this)); }

void BatchSizeReport::find_recommended() {
  largest = recommended = 0;
  double best = 0.0;
  for (const BatchSizePoint& point : points) {
    if (point.fits) {
      largest = std::max(largest, point.batch_size);
      best = std::max(best, point.samples_per_s);
    }
  }
  for (const BatchSizePoint& point : points) {
    if (recommended == 0 && point.fits && point.samples_per_s >= 0.95 * best) {
      recommended = point.batch_size;
    }
  }
}

std::string BatchSizeReport::text() const {
  TextTable table({"batch size", "memory", "samples/s"});
  for (const BatchSizePoint& point : points) {
    table.add_row({format_count(point.batch_size), point.fits ? size_text(point.peak_bytes) : "does not fit",
                   point.fits ? format_count(std::llround(point.samples_per_s)) : ""});
  }
  std::string out = table.text();
  if (largest == 0) {
    return concat(out, "\nno batch size fits into memory", limit_bytes > 0 ? " of " + size_text(limit_bytes) : "", " (",
                  limit_source, ")");
  }
  out += concat("\n\n", plot_text(batch_curve(*this), batch_picture(*this)), "\nlargest batch size: ", largest);
  if (ended_by == "memory") {
    out += concat(" (more does not fit into ", limit_bytes > 0 ? size_text(limit_bytes) + ", " : "the memory of ",
                  limit_source, ")");
  } else {
    out += ended_by == "max" ? " (find_batch_size.max)" : " (as much as a training split has)";
  }
  return concat(out, "\nrecommended batch size: ", recommended,
                " (the smallest within 5 % of the highest rate); scale the learning rate with the batch size");
}

std::string BatchSizeReport::svg() const { return plot_svg(batch_curve(*this), batch_picture(*this)); }

}  // namespace danling::inline v0
