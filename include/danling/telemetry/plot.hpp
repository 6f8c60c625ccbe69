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

/// A grid of characters with both axes: `*` the first curve, `o`, `+`, `x` the next, a dot a faint one, `|` a mark.
/// Lines separated by line feeds, none at the end.
std::string plot_text(const std::vector<PlotSeries>& series, const PlotOptions& options);

/// A curve in one line, from the least value to the most: blocks of eight heights, or without `utf8` one of eight
/// characters for each; with `log` by their logarithms. More values than `columns` are averaged. A value that the axis
/// does not take is a space.
std::string plot_line(const std::vector<double>& values, std::size_t columns, bool utf8, bool log = false);

/// Draws the picture of plot_text as an SVG document of 720 by 420 units, without font files or scripts.
std::string plot_svg(const std::vector<PlotSeries>& series, const PlotOptions& options);

}  // namespace danling::inline v0
