#include <telemetry/live_layout.hpp>

#include <algorithm>
#include <numeric>

#include <danling/telemetry/text.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::size_t least_bar = 10;
constexpr std::size_t most_bar = 42;

std::size_t width_of(const StyledLine& spans) {
  std::size_t width = 0;
  for (const Span& span : spans) {
    width += text_width(span.text);
  }
  return width;
}

std::string spaces(std::size_t count) { return std::string(count, ' '); }

std::size_t gap(std::size_t width, std::size_t columns) { return width > 0 ? width + columns : 0; }

void trim(StyledLine& line) {
  while (!line.empty()) {
    std::string& text = line.back().text;
    text.erase(text.find_last_not_of(' ') + 1);
    if (!text.empty()) {
      return;
    }
    line.pop_back();
  }
}

// The head `>` shows that work is in progress.
void append_bar(StyledLine& line, double share, std::size_t width) {
  const std::size_t inside = width - 2;
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(inside));
  line.push_back({"["});
  line.push_back({std::string(filled, '=') + (filled < inside ? ">" : ""), Tone::good});
  line.push_back({spaces(filled < inside ? inside - filled - 1 : 0) + "]"});
}

// Returns a line without a bar; a level with a place also loses its count.
StyledLine narrow_line(const Level& level) {
  StyledLine line = {{level.name, Tone::strong}};
  for (const std::string& part : {level.place.empty() ? level.count : level.place, level.left}) {
    if (!part.empty()) {
      line.push_back({"  " + part});
    }
  }
  return line;
}

}  // namespace

std::vector<StyledLine> level_lines(const std::vector<Level>& levels, std::size_t columns) {
  std::size_t name = 0, place = 0, count = 0, left = 0;
  for (const Level& level : levels) {
    name = std::max(name, text_width(level.name));
    place = std::max(place, text_width(level.place));
    count = std::max(count, text_width(level.count));
    left = std::max(left, text_width(level.left));
  }
  const std::size_t fixed = name + gap(place, 2) + gap(count, 2) + gap(left, 2);
  std::vector<StyledLine> out;
  if (fixed > columns) {
    for (const Level& level : levels) {
      out.push_back(narrow_line(level));
    }
    return out;
  }
  const std::size_t room = columns - fixed;
  const std::size_t bar = room < least_bar + 2 ? 0 : std::min(room - 2, most_bar);
  for (const Level& level : levels) {
    StyledLine line = {{level.name, Tone::strong}, {spaces(name - text_width(level.name))}};
    if (place > 0) {
      line.push_back({"  " + level.place + spaces(place - text_width(level.place))});
    }
    if (bar > 0) {
      line.push_back({"  "});
      level.share ? append_bar(line, *level.share, bar) : line.push_back({spaces(bar)});
    }
    if (count > 0) {
      line.push_back({"  " + spaces(count - text_width(level.count)) + level.count});
    }
    line.push_back({"  " + spaces(left - text_width(level.left)) + level.left});
    trim(line);
    out.push_back(std::move(line));
  }
  return out;
}

StyledLine cell_line(const std::vector<Cell>& cells, std::size_t columns) {
  std::vector<std::size_t> order(cells.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return cells[a].rank < cells[b].rank; });
  std::vector<bool> shown(cells.size(), false);
  std::size_t width = 0;
  for (const std::size_t i : order) {
    const std::size_t own = 2 + width_of(cells[i].spans);
    if (width == 0 || width + own <= columns) {
      shown[i] = true;
      width += own;
    }
  }
  StyledLine out;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (shown[i]) {
      out.push_back({"  "});
      out.insert(out.end(), cells[i].spans.begin(), cells[i].spans.end());
    }
  }
  return out;
}

}  // namespace danling::inline v0::detail
