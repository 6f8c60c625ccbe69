#include <danling/telemetry/plot.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include <danling/core/format.hpp>

#include <core/fmt.hpp>

namespace danling::inline v0 {
namespace {

std::string short_number(double value) { return format_text("{:.4g}", value); }

/// Maps the values of one axis to [0, 1].
class Axis {
 public:
  explicit Axis(bool log) : log_(log) {}

  bool takes(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  void include(double value) {
    low_ = std::min(low_, mapped(value));
    high_ = std::max(high_, mapped(value));
  }
  /// Fixes the range: [0, 1] without points; a single value is in the middle.
  void close() {
    if (low_ > high_) {
      low_ = 0, high_ = 1;
    } else if (low_ == high_) {
      const double half = log_ ? 1.0 : low_ == 0 ? 1.0 : std::abs(low_) / 2;
      low_ -= half, high_ += half;
    }
  }
  double place(double value) const { return (mapped(value) - low_) / (high_ - low_); }
  double value_at(double place) const {
    const double mapped_value = low_ + place * (high_ - low_);
    return log_ ? std::pow(10.0, mapped_value) : mapped_value;
  }
  /// Returns powers of ten for a logarithmic axis of at least one decade, else steps of 1, 2 or 5 times a power of ten.
  std::vector<double> ticks(int most) const {
    std::vector<double> out;
    if (log_ && high_ - low_ >= 1) {
      const int step = std::max(1, static_cast<int>(std::ceil((high_ - low_) / most)));
      for (int power = static_cast<int>(std::ceil(low_ - 1e-9)); power <= high_ + 1e-9; ++power) {
        if (power % step == 0) {
          out.push_back(std::pow(10.0, power));
        }
      }
      return out;
    }
    const double low = value_at(0), high = value_at(1);
    const double rough = (high - low) / most;
    const double base = std::pow(10.0, std::floor(std::log10(rough)));
    double step = 10 * base;
    for (const double factor : {5.0, 2.0, 1.0}) {
      step = factor * base >= rough ? factor * base : step;
    }
    for (double tick = std::ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) {
      out.push_back(std::abs(tick) < step * 1e-9 ? 0.0 : tick);
    }
    return out;
  }

 private:
  double mapped(double value) const { return log_ ? std::log10(value) : value; }

  bool log_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

struct Frame {
  Frame(const std::vector<PlotSeries>& series, const PlotOptions& options) : x(options.log_x), y(options.log_y) {
    for (const PlotSeries& curve : series) {
      for (std::size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i) {
        if (x.takes(curve.x[i]) && y.takes(curve.y[i])) {
          x.include(curve.x[i]);
          y.include(curve.y[i]);
        }
      }
    }
    x.close();
    y.close();
  }
  /// Returns points in [0, 1]; nullopt marks a gap in the curve.
  std::vector<std::optional<std::pair<double, double>>> points(const PlotSeries& curve) const {
    std::vector<std::optional<std::pair<double, double>>> out;
    for (std::size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i) {
      const bool shown = x.takes(curve.x[i]) && y.takes(curve.y[i]);
      out.push_back(shown ? std::optional(std::pair(x.place(curve.x[i]), y.place(curve.y[i]))) : std::nullopt);
    }
    return out;
  }
  bool shows(const PlotMark& mark) const {
    return x.takes(mark.x) && x.place(mark.x) >= -1e-9 && x.place(mark.x) <= 1 + 1e-9;
  }

  Axis x, y;
};

std::size_t cell(double place, std::size_t count) {
  return static_cast<std::size_t>(std::lround(std::clamp(place, 0.0, 1.0) * static_cast<double>(count - 1)));
}

// Writes `text` centred on `column` and returns true, unless it would touch another text.
bool write_centred(std::string& line, std::size_t column, const std::string& text) {
  const std::size_t half = text.size() / 2;
  const std::size_t begin =
      std::min(column > half ? column - half : 0, line.size() - std::min(line.size(), text.size()));
  const std::size_t from = begin > 0 ? begin - 1 : 0;
  const std::size_t to = std::min(line.size(), begin + text.size() + 1);
  if (begin + text.size() <= line.size() &&
      std::all_of(line.begin() + static_cast<std::ptrdiff_t>(from), line.begin() + static_cast<std::ptrdiff_t>(to),
                  [](char c) { return c == ' '; })) {
    line.replace(begin, text.size(), text);
    return true;
  }
  return false;
}

void append_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += (out.empty() ? "" : "\n") + line;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string plot_text(const std::vector<PlotSeries>& series, const PlotOptions& options) {
  static constexpr std::string_view symbols = "*o+x";
  const Frame frame(series, options);
  const std::size_t columns = std::max<std::size_t>(options.columns, 8), rows = std::max<std::size_t>(options.rows, 4);
  std::vector<std::string> grid(rows, std::string(columns, ' '));
  for (const PlotMark& mark : options.marks) {
    for (std::string& line : grid) {
      if (frame.shows(mark)) {
        line[cell(frame.x.place(mark.x), columns)] = '|';
      }
    }
  }
  std::string legend;
  std::size_t drawn = 0;
  for (const bool faint : {true, false}) {
    for (const PlotSeries& curve : series) {
      if (curve.faint != faint) {
        continue;
      }
      const char symbol = faint ? '.' : symbols[drawn++ % symbols.size()];
      if (!curve.name.empty()) {
        legend += concat(legend.empty() ? "" : "   ", symbol, " ", curve.name);
      }
      for (const auto& point : frame.points(curve)) {
        if (point) {
          grid[rows - 1 - cell(point->second, rows)][cell(point->first, columns)] = symbol;
        }
      }
    }
  }
  // The labels of the vertical axis, at the rows nearest to their values.
  std::vector<std::string> labels(rows);
  std::size_t width = 0;
  for (const double tick : frame.y.ticks(5)) {
    labels[rows - 1 - cell(frame.y.place(tick), rows)] = short_number(tick);
  }
  for (const std::string& label : labels) {
    width = std::max(width, label.size());
  }
  std::string out;
  for (const std::string& title : {options.title, concat(options.y_label, legend.empty() ? "" : "   ", legend)}) {
    if (title.find_first_not_of(' ') != std::string::npos) {
      append_line(out, title);
    }
  }
  for (std::size_t row = 0; row < rows; ++row) {
    append_line(out, format_text("{:>{}} {}{}", labels[row], width, labels[row].empty() ? '|' : '+', grid[row]));
  }
  std::string axis(columns, '-');
  std::string below(columns, ' ');
  std::vector<std::string> marks;
  for (const double tick : frame.x.ticks(8)) {
    const std::size_t column = cell(frame.x.place(tick), columns);
    axis[column] = '+';
    write_centred(below, column, short_number(tick));
  }
  for (const PlotMark& mark : options.marks) {
    if (frame.shows(mark)) {
      axis[cell(frame.x.place(mark.x), columns)] = '^';
      if (marks.empty() || !write_centred(marks.back(), cell(frame.x.place(mark.x), columns), mark.label)) {
        marks.emplace_back(std::max(columns, mark.label.size()), ' ');
        write_centred(marks.back(), cell(frame.x.place(mark.x), columns), mark.label);
      }
    }
  }
  const std::string indent(width + 2, ' ');
  append_line(out, format_text("{:>{}}{}", '+', width + 2, axis));
  append_line(out, indent + below);
  for (const std::string& line : marks) {
    append_line(out, indent + line);
  }
  if (!options.x_label.empty()) {
    append_line(out, indent + options.x_label);
  }
  return out;
}

std::string plot_line(const std::vector<double>& values, std::size_t columns, bool utf8, bool log) {
  static constexpr std::array<std::string_view, 8> blocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::string_view characters = "_.-=+*%#";
  const std::size_t count = std::min(columns, values.size());
  std::vector<double> means;
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0.0, finite = 0.0;
    for (std::size_t j = i * values.size() / count; j < (i + 1) * values.size() / count; ++j) {
      if (std::isfinite(values[j])) {
        sum += values[j];
        ++finite;
      }
    }
    means.push_back(sum / finite);
  }
  Axis axis(log);
  for (const double mean : means) {
    if (axis.takes(mean)) {
      axis.include(mean);
    }
  }
  axis.close();
  std::string out;
  for (const double mean : means) {
    const std::size_t height = axis.takes(mean) ? cell(axis.place(mean), blocks.size()) : 0;
    out += !axis.takes(mean) ? " " : utf8 ? blocks[height] : characters.substr(height, 1);
  }
  return out;
}

std::string plot_svg(const std::vector<PlotSeries>& series, const PlotOptions& options) {
  static constexpr std::array<std::string_view, 4> colours = {"#1f6fb4", "#d9730d", "#2a8f4f", "#8a4fb0"};
  constexpr double width = 720, height = 420, left = 70, right = 20, top = 40, bottom = 60;
  const Frame frame(series, options);
  const auto at_x = [&](double place) { return left + place * (width - left - right); };
  const auto at_y = [&](double place) { return height - bottom - place * (height - top - bottom); };
  const auto number = [](double value) { return to_fixed(value, 1); };
  std::string out = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", to_fixed(width, 0), " ",
                           to_fixed(height, 0), "\" font-family=\"sans-serif\" font-size=\"12\">\n",
                           "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  const auto text = [&](double x, double y, std::string_view anchor, std::string_view content,
                        std::string_view more = "") {
    out += concat("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\"", more, ">",
                  escaped(content), "</text>\n");
  };
  const auto line = [&](double x1, double y1, double x2, double y2, std::string_view style) {
    out += concat("<line x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2), "\" y2=\"", number(y2),
                  "\" ", style, "/>\n");
  };
  for (const double tick : frame.x.ticks(8)) {
    const double x = at_x(frame.x.place(tick));
    line(x, at_y(0), x, at_y(1), "stroke=\"#e3e3e3\"");
    text(x, at_y(0) + 18, "middle", short_number(tick));
  }
  for (const double tick : frame.y.ticks(5)) {
    const double y = at_y(frame.y.place(tick));
    line(at_x(0), y, at_x(1), y, "stroke=\"#e3e3e3\"");
    text(at_x(0) - 8, y + 4, "end", short_number(tick));
  }
  out += concat("<rect x=\"", number(left), "\" y=\"", number(top), "\" width=\"", number(width - left - right),
                "\" height=\"", number(height - top - bottom), "\" fill=\"none\" stroke=\"#555\"/>\n");
  std::size_t drawn = 0;
  double legend = at_x(1) - 8;
  for (const bool faint : {true, false}) {
    for (const PlotSeries& curve : series) {
      if (curve.faint != faint) {
        continue;
      }
      const std::string_view colour = faint ? "#b8c4cf" : colours[drawn++ % colours.size()];
      std::string path;
      bool pen_up = true;
      for (const auto& point : frame.points(curve)) {
        if (point) {
          path += concat(pen_up ? "M" : "L", number(at_x(point->first)), " ", number(at_y(point->second)), " ");
        }
        pen_up = !point;
      }
      out += concat("<path d=\"", path, "\" fill=\"none\" stroke=\"", colour, "\" stroke-width=\"", faint ? "1.2" : "2",
                    "\"/>\n");
      if (!curve.name.empty()) {
        text(legend, top + 16, "end", curve.name, concat(" fill=\"", colour, "\""));
        legend -= 8.0 * static_cast<double>(curve.name.size()) + 16;
      }
    }
  }
  double below = top + 34;
  for (const PlotMark& mark : options.marks) {
    if (frame.shows(mark)) {
      const double x = at_x(frame.x.place(mark.x));
      line(x, at_y(0), x, at_y(1), "stroke=\"#c0392b\" stroke-dasharray=\"5 4\"");
      const bool flip = x > width / 2;
      text(flip ? x - 5 : x + 5, below, flip ? "end" : "start", mark.label, " fill=\"#c0392b\"");
      below += 16;
    }
  }
  text(width / 2, 24, "middle", options.title, " font-size=\"15\"");
  text(width / 2, height - 16, "middle", options.x_label);
  text(18, height / 2, "middle", options.y_label, concat(" transform=\"rotate(-90 18 ", number(height / 2), ")\""));
  return out + "</svg>\n";
}

}  // namespace danling::inline v0
