#include <optim/line_search.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace danling::inline v0::optim::detail {
namespace {

constexpr double armijo = 1e-4;
constexpr double curvature = 0.9;

/// The minimum, between the bounds, of the cubic through two points with slopes.
double interpolate(const LinePoint& a, const LinePoint& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) {
    return (low + high) / 2;
  }
  const double d2 = std::sqrt(square);
  const double lowest = a.step <= b.step
                            ? b.step - (b.step - a.step) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
                            : a.step - (a.step - b.step) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2));
  return std::min(std::max(lowest, low), high);
}

/// Two points around a minimum, or one point that satisfies the conditions.
struct Bracket {
  LinePoint points[2];
  bool done = false;

  std::size_t low() const { return points[0].loss <= points[1].loss ? 0 : 1; }
  double width() const { return std::abs(points[1].step - points[0].step); }

  /// A step between the two points; away from both ends if the last step was near the same end.
  double trial(bool& insufficient) const {
    const auto [least, most] = std::minmax(points[0].step, points[1].step);
    const double margin = 0.1 * (most - least);
    double step = interpolate(points[0], points[1], least, most);
    if (!(std::min(most - step, step - least) < margin)) {
      insufficient = false;
    } else if (insufficient || step >= most || step <= least) {
      step = std::abs(step - most) < std::abs(step - least) ? most - margin : least + margin;
      insufficient = false;
    } else {
      insufficient = true;
    }
    return step;
  }
};

}  // namespace

LineResult strong_wolfe(const std::function<LinePoint(double step)>& evaluate, const LinePoint& start, double step,
                        double direction_size, double tolerance_change, std::int64_t max_iterations) {
  const auto too_high = [&](const LinePoint& point) {
    return point.loss > start.loss + armijo * point.step * start.slope;
  };
  const auto is_flat = [&](const LinePoint& point) { return std::abs(point.slope) <= -curvature * start.slope; };

  LinePoint previous = start;
  LinePoint current = evaluate(step);
  std::int64_t evaluations = 1;
  std::int64_t iteration = 0;
  Bracket bracket;
  bool bracketed = false;
  while (iteration < max_iterations) {
    if (too_high(current) || (iteration > 1 && current.loss >= previous.loss) ||
        (!is_flat(current) && current.slope >= 0)) {
      bracket = {{previous, current}};
      bracketed = true;
      break;
    }
    if (is_flat(current)) {
      return {current, evaluations};
    }
    const double least = current.step + 0.01 * (current.step - previous.step);
    const double next = interpolate(previous, current, least, current.step * 10);
    previous = std::exchange(current, evaluate(next));
    ++evaluations;
    ++iteration;
  }
  if (!bracketed) {
    bracket = {{start, current}};
  }
  bool insufficient = false;
  std::size_t low = bracket.low();
  while (!bracket.done && iteration < max_iterations && bracket.width() * direction_size >= tolerance_change) {
    const LinePoint point = evaluate(bracket.trial(insufficient));
    ++evaluations;
    ++iteration;
    const std::size_t high = 1 - low;
    if (too_high(point) || point.loss >= bracket.points[low].loss) {
      bracket.points[high] = point;
      low = bracket.low();
      continue;
    }
    if (is_flat(point)) {
      bracket.done = true;
    } else if (point.slope * (bracket.points[high].step - bracket.points[low].step) >= 0) {
      bracket.points[high] = bracket.points[low];
    }
    bracket.points[low] = point;
  }
  return {bracket.points[low], evaluations};
}

}  // namespace danling::inline v0::optim::detail
