#include <danling/telemetry/plot.hpp>

#include <cmath>

#include <support/catch.hpp>

namespace {

using danling::plot_line;

TEST_CASE("plot_line: eight heights from the least value to the most", "[telemetry][plot]") {
  const std::vector<double> values = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(plot_line(values, 8, true) == "▁▂▃▄▅▆▇█");
  CHECK(plot_line(values, 8, false) == "_.-=+*%#");
  CHECK(plot_line(values, 100, false) == "_.-=+*%#");
  CHECK(plot_line({7, 0.1, 0}, 8, true) == "█▁▁");
}

TEST_CASE("plot_line: by logarithms each decade has the same height", "[telemetry][plot]") {
  CHECK(plot_line({1e7, 1e6, 1e5, 1e4, 1e3, 1e2, 10, 1}, 8, false, /*log=*/true) == "#%*+=-._");
  CHECK(plot_line({1, 0, 10}, 3, false, /*log=*/true) == "_ #");
}

TEST_CASE("plot_line: more values than columns are averaged", "[telemetry][plot]") {
  CHECK(plot_line({0, 2, 3, 5, 6, 10}, 3, false) == "_=#");  // 1, 4, 8
  CHECK(plot_line({0, 0, 0, 7, 7}, 2, false) == "_#");       // 0, 14/3
}

TEST_CASE("plot_line: what is not finite leaves a gap, a constant lies in the middle", "[telemetry][plot]") {
  CHECK(plot_line({0, std::nan(""), INFINITY, 7}, 4, false) == "_  #");
  CHECK(plot_line({0, std::nan(""), 7, 7}, 2, false) == "_#");  // a gap does not spoil the mean of its column
  CHECK(plot_line({5, 5}, 4, false) == "++");
  CHECK(plot_line({std::nan("")}, 4, true) == " ");
  CHECK(plot_line({}, 4, true).empty());
}

}  // namespace
