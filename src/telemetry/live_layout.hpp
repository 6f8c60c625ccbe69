// Layout of live lines for the columns that there are.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <danling/telemetry/console.hpp>

namespace danling::inline v0::detail {

/// A loop within another: one line, with a bar.
struct Level {
  std::string name;                            ///< `run`, `train`
  std::string place = {};                      ///< `epoch 3/20`; may be empty
  std::optional<double> share = std::nullopt;  ///< done, between 0 and 1; unknown: no bar
  std::string count = {};
  std::string left = {};
};

/// Lines whose parts stand below each other. Where there are too few columns the bars become shorter and go, then the
/// alignment and the counts of levels that have a place besides.
std::vector<StyledLine> level_lines(const std::vector<Level>& levels, std::size_t columns);

/// A number with its name.
struct Cell {
  int rank;  ///< the least is most important
  StyledLine spans;
};

/// The cells that fit, chosen by rank, two columns apart and indented by two; the first one even where it does not fit.
StyledLine cell_line(const std::vector<Cell>& cells, std::size_t columns);

}  // namespace danling::inline v0::detail
