// Plots curves as text for a terminal and as SVG.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace danling::inline v0 {

/// A curve. Points that are not finite, or not positive on a logarithmic axis, are omitted.
struct PlotSeries {
  std::string name;  ///< name in the legend; empty: no legend entry
  std::vector<double> x, y;
  bool faint = false;  ///< drawn behind the other curves
};

/// A vertical line with a label.
struct PlotMark {
  double x = 0.0;
  std::string label;
};

struct PlotOptions {
  std::string title = {};
  std::string x_label = {}, y_label = {};
  bool log_x = false, log_y = false;
  std::vector<PlotMark> marks = {};
  std::size_t columns = 72, rows = 16;  ///< size of the text plot without axes
};

/// Draws a grid of characters with both axes: `*` is the first curve, `o`, `+` and `x` the next ones, a dot a faint
/// curve, `|` a mark. Line feeds separate the lines; there is none at the end.
std::string plot_text(const std::vector<PlotSeries>& series, const PlotOptions& options);

/// Draws a curve in one line, scaled from the smallest to the largest value: blocks of eight heights, or without `utf8`
/// eight characters. `log` uses logarithms. Averages neighbouring values if there are more than `columns`. A
/// value outside the domain of the axis is a space.
std::string plot_line(const std::vector<double>& values, std::size_t columns, bool utf8, bool log = false);

/// Draws the picture of plot_text as an SVG document of 720 by 420 units, without font files or scripts.
std::string plot_svg(const std::vector<PlotSeries>& series, const PlotOptions& options);

}  // namespace danling::inline v0
