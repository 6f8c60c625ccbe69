#include "telemetry/live_layout.hpp"

#include <algorithm>

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

// The head of the bar shows that work is going on.
void append_bar(StyledLine& line, double share, std::size_t width) {
  const std::size_t inside = width - 2;
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(inside));
  line.push_back({"["});
  line.push_back({std::string(filled, '=') + (filled < inside ? ">" : ""), Tone::good});
  line.push_back({spaces(filled < inside ? inside - filled - 1 : 0) + "]"});
}

}  // namespace

std::vector<StyledLine> level_lines(const std::vector<Level>& levels, std::size_t columns) {
  std::size_t name = 0, place = 0, count = 0, left = 0;
  for (const Level& level : levels) {
    const std::size_t own = text_width(level.name);
    name = std::max(name, own);
    place = std::max(place, text_width(level.place));
    left = std::max(left, text_width(level.left));
  }
  const auto title = [&] { return name + (place > 0 ? 2 + place : 0); };
  const auto measure = [&](bool all) {
    count = 0;
    for (const Level& level : levels) {
      count = std::max(count, all || level.place.empty() ? text_width(level.count) : 0);
    }
    return title() + gap(count, 2) + gap(left, 2);
  };
  std::size_t fixed = measure(true);
  const bool all = fixed <= columns;
  fixed = all ? fixed : measure(false);
  const std::size_t room = columns > fixed + 2 ? columns - fixed - 2 : 0;
  const std::size_t bar = room < least_bar ? 0 : std::min(room, most_bar);
  std::vector<StyledLine> out;
  for (const Level& level : levels) {
    StyledLine line = {{level.name, Tone::strong}};
    std::string rest = spaces(name - text_width(level.name));
    if (place > 0) {
      rest += "  " + level.place + spaces(place - text_width(level.place));
    }
    line.push_back({rest});
    if (bar > 0) {
      line.push_back({"  "});
      if (level.share) {
        append_bar(line, *level.share, bar);
      } else {
        line.push_back({spaces(bar)});
      }
    }
    const std::string own = all || level.place.empty() ? level.count : std::string();
    std::string end;
    if (count > 0) {
      end += "  " + spaces(count - text_width(own)) + own;
    }
    if (left > 0 && !level.left.empty()) {
      end += "  " + spaces(left - text_width(level.left)) + level.left;
    }
    line.push_back({end});
    trim(line);
    out.push_back(std::move(line));
  }
  return out;
}

StyledLine cell_line(const std::vector<Cell>& cells, std::size_t columns) {
  std::vector<const Cell*> shown;
  std::size_t width = 0;
  for (const Cell& cell : cells) {
    shown.push_back(&cell);
    width += 2 + width_of(cell.spans);
  }
  while (width > columns && shown.size() > 1) {
    const auto last =
        std::max_element(shown.begin(), shown.end(), [](const Cell* a, const Cell* b) { return a->rank < b->rank; });
    width -= 2 + width_of((*last)->spans);
    shown.erase(last);
  }
  StyledLine out;
  for (const Cell* cell : shown) {
    out.push_back({"  "});
    out.insert(out.end(), cell->spans.begin(), cell->spans.end());
  }
  return out;
}

}  // namespace danling::inline v0::detail
