// Readings and pictures of what the finders measured.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/core/quantity.hpp>
#include <danling/runner/finders.hpp>
#include <danling/telemetry/plot.hpp>
#include <danling/telemetry/text.hpp>

namespace danling::inline v0 {
namespace {

std::string short_rate(double lr) {
  char out[32];
  std::snprintf(out, sizeof out, "%.2e", lr);
  return out;
}

PlotOptions lr_picture(const LearningRateReport& report) {
  PlotOptions out{.title = "learning rate finder", .x_label = "learning rate", .y_label = "loss", .log_x = true};
  if (report.steepest) {
    out.marks.push_back({*report.steepest, "steepest " + short_rate(*report.steepest)});
  }
  if (report.minimum) {
    out.marks.push_back({*report.minimum, "minimum/10 " + short_rate(*report.minimum)});
  }
  return out;
}

// The losses up to a quarter above those before the minimum: the divergence would flatten the rest.
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

void LearningRateReport::find_suggestions() {
  steepest = minimum = std::nullopt;
  constexpr std::size_t skipped = 10;  // as Lightning: the average of the first losses is not smooth yet
  const std::size_t count = points.size();
  double fall = 0.0;
  for (std::size_t i = skipped; i + 1 < count; ++i) {
    // Central differences over the logarithm of the rate, one-sided at the ends: numpy.gradient.
    const std::size_t before = i > skipped ? i - 1 : i;
    const std::size_t after = i + 2 < count ? i + 1 : i;
    const double slope =
        after > before ? (points[after].smoothed - points[before].smoothed) / static_cast<double>(after - before) : 0.0;
    if (slope < fall) {
      fall = slope;
      steepest = points[i].lr;
    }
  }
  const auto lowest = std::min_element(points.begin(), points.end(),
                                       [](const auto& a, const auto& b) { return a.smoothed < b.smoothed; });
  if (lowest != points.begin() && lowest != points.end()) {
    minimum = lowest->lr / 10;
  }
}

std::string LearningRateReport::text() const {
  std::string out = plot_text(lr_curves(*this), lr_picture(*this));
  if (!points.empty()) {
    out += concat("\n", points.size(), " updates from ", short_rate(points.front().lr), " to ",
                  short_rate(points.back().lr), diverged ? ", where the loss diverged" : "");
  }
  if (steepest) {
    out += concat("\nsuggested learning rate: ", short_rate(*steepest),
                  " (the smoothed loss falls fastest there; a tenth of the rate of its minimum: ",
                  minimum ? short_rate(*minimum) : "none", ")");
  } else {
    out += "\nno suggestion: the loss does not fall; try another find_lr.min, find_lr.max or find_lr.steps";
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
    table.add_row({format_count(point.batch_size), point.fits ? format_size(point.peak_bytes) : "does not fit",
                   point.fits ? format_count(std::llround(point.samples_per_s)) : ""});
  }
  std::string out = table.text();
  if (largest == 0) {
    return concat(out, "\nno batch size fits into memory", limit_bytes > 0 ? " of " + format_size(limit_bytes) : "",
                  " (", limit_source, ")");
  }
  out += concat("\n\n", plot_text(batch_curve(*this), batch_picture(*this)), "\nlargest batch size: ", largest);
  if (ended_by == "memory") {
    out += concat(" (more does not fit into ", limit_bytes > 0 ? format_size(limit_bytes) + ", " : "the memory of ",
                  limit_source, ")");
  } else {
    out += ended_by == "max" ? " (find_batch_size.max)" : " (as much as a training split has)";
  }
  return concat(out, "\nrecommended batch size: ", recommended,
                " (the smallest within 5 % of the highest rate); scale the learning rate with the batch size");
}

std::string BatchSizeReport::svg() const { return plot_svg(batch_curve(*this), batch_picture(*this)); }

}  // namespace danling::inline v0
