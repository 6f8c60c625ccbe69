// Lays out live lines for the columns of the terminal.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <danling/telemetry/console.hpp>

namespace danling::inline v0::detail {

/// A level of nested loops: one line with a bar.
struct Level {
  std::string name;                            ///< such as `run` or `train`
  std::string place = {};                      ///< such as `epoch 3/20`; may be empty
  std::optional<double> share = std::nullopt;  ///< fraction done, from 0 to 1; unset: no bar
  std::string count = {};
  std::string left = {};
};

/// Returns aligned lines. With fewer columns the bars become shorter and vanish, then the alignment and the counts of
/// levels that also have a place.
std::vector<StyledLine> level_lines(const std::vector<Level>& levels, std::size_t columns);

/// A number and its name.
struct Cell {
  int rank;  ///< priority: the lowest is the most important
  StyledLine spans;
};

/// Returns the cells that fit, chosen by rank, two columns apart and indented by two; the first one even if it does not
/// fit.
StyledLine cell_line(const std::vector<Cell>& cells, std::size_t columns);

}  // namespace danling::inline v0::detail
