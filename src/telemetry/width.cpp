// Measures the columns of text on a terminal.
#include <algorithm>
#include <iterator>

#include <danling/telemetry/text.hpp>

#include <telemetry/width_table.hpp>

namespace danling::inline v0 {
namespace {

constexpr char32_t zero_width_joiner = 0x200d;
constexpr char32_t emoji_style = 0xfe0f;
constexpr char32_t damaged = 0xfffd;

template <std::size_t N>
bool contains(const detail::CodeRange (&table)[N], char32_t code) {
  const auto* after = std::upper_bound(std::begin(table), std::end(table), code,
                                       [](char32_t value, const auto& range) { return value < range.first; });
  return after != std::begin(table) && code <= std::prev(after)->last;
}

// Returns true for characters that control a terminal: C0, C1 and direction marks, which would reorder the line.
bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0x200e ||
         code == 0x200f || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/// Iterates over the characters of a text and the columns that each adds.
class Characters {
 public:
  explicit Characters(std::string_view text) : rest_(text) {}

  bool next() {
    if (rest_.empty()) {
      return false;
    }
    const std::size_t size = decode();
    bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    columns = measure();
    return true;
  }

  std::string_view bytes;
  char32_t code = 0;
  std::size_t columns = 0;

 private:
  // An invalid byte counts as a character.
  std::size_t decode() {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(rest_[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) {
      code = first;
      return 1;
    }
    const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    static constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    code = first & (0xffU >> (size + 1));
    for (std::size_t i = 1; i < size; ++i) {
      if (i >= rest_.size() || (byte(i) & 0xc0U) != 0x80U) {
        code = damaged;
        return 1;
      }
      code = (code << 6U) | (byte(i) & 0x3fU);
    }
    if (first < 0xc0 || code < least[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      code = damaged;
      return 1;
    }
    return size;
  }

  // An emoji of several characters has the columns of its first character; two in emoji style.
  std::size_t measure() {
    const bool joined = joins_;
    joins_ = code == zero_width_joiner && before_ == 2;
    if (code < 0x300) {
      before_ = 1;
      return 1;
    }
    if (code == emoji_style && before_ == 1) {
      before_ = 2;
      return 1;
    }
    if (contains(detail::zero_width, code)) {
      return 0;
    }
    const bool skin = code >= 0x1f3fb && code <= 0x1f3ff && before_ == 2;
    if (joined || skin) {
      return 0;
    }
    before_ = contains(detail::double_width, code) ? 2 : 1;
    return before_;
  }

  std::string_view rest_;
  std::size_t before_ = 0;
  bool joins_ = false;
};

}  // namespace

std::size_t text_width(std::string_view text) {
  std::size_t width = 0;
  for (Characters character(text); character.next();) {
    width += character.columns;
  }
  return width;
}

std::string cut_to_width(std::string_view text, std::size_t columns) {
  std::string out;
  std::size_t width = 0;
  for (Characters character(text); character.next();) {
    width += character.columns;
    if (width > columns) {
      break;
    }
    if (is_control(character.code)) {
      out.append(character.columns, ' ');
    } else if (character.code == damaged) {
      out += "\xef\xbf\xbd";
    } else {
      out += character.bytes;
    }
  }
  return out;
}

}  // namespace danling::inline v0
