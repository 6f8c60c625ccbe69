// Columns of text on a terminal.
#include <danling/telemetry/text.hpp>

#include <support/screen.hpp>

namespace {

using danling::cut_to_width;
using danling::text_width;

std::string utf8(char32_t code) {
  if (code < 0x80) {
    return {static_cast<char>(code)};
  }
  std::string out;
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static constexpr unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(leads[more] | (code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) {
    out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3fU));
  }
  return out;
}

TEST_CASE("text_width: characters have the columns that the C library gives them", "[telemetry][width]") {
  std::size_t compared = 0;
  for (char32_t code = 0x20; code < 0x40000; ++code) {
    if (code >= 0xd800 && code < 0xf900) {
      continue;  // surrogates and private use
    }
    const std::string character = utf8(code);
    const int expected = danling_test::Screen::width_of(character);
    // Not printable there: a control, or not in the C library's version of Unicode. A joined emoji has its own test.
    if (expected < 0 || (code >= 0x1f900 && code < 0x1fb00) || (code >= 0x1f3fb && code < 0x1f400)) {
      continue;
    }
    ++compared;
    if (text_width(character) != static_cast<std::size_t>(expected)) {
      CAPTURE(static_cast<unsigned>(code), character);
      CHECK(text_width(character) == static_cast<std::size_t>(expected));
    }
  }
  CHECK(compared > 140000);
}

TEST_CASE("text_width: sequences have the columns that PyPI's wcwidth 0.9.4 gives them", "[telemetry][width]") {
  const std::vector<std::pair<std::string, std::size_t>> known = {
      {"abc", 3},
      {"e\u0301", 1},
      {"\u00e9", 1},
      {"漢字", 4},
      {"ｆｕｌｌ", 8},
      {"ｶﾅ", 2},
      {"한글", 4},
      {"\u1112\u1161\u11ab", 2},
      {"👍", 2},
      {"👍🏽", 2},
      {"👩‍🚀", 2},
      {"👨‍👩‍👧‍👦", 2},
      {"🏳️‍🌈", 2},
      {"🇩🇪", 2},
      {"\u2764", 1},
      {"\u2764\ufe0f", 2},
      {"1\ufe0f\u20e3", 2},
      {"\u200b", 0},
      {"≤ µ ½ —", 7},
      {"ไทย", 3},
  };
  for (const auto& [text, width] : known) {
    CAPTURE(text);
    CHECK(text_width(text) == width);
  }
}

TEST_CASE("cut_to_width: ends before the character that would not fit, with its marks", "[telemetry][width]") {
  CHECK(cut_to_width("漢字漢字", 8) == "漢字漢字");
  CHECK(cut_to_width("漢字漢字", 7) == "漢字漢");
  CHECK(cut_to_width("a漢", 2) == "a");
  CHECK(cut_to_width("ne\u0301e", 2) == "ne\u0301");
  CHECK(cut_to_width("x👩‍🚀y", 3) == "x👩‍🚀");
  CHECK(cut_to_width("x👩‍🚀y", 2) == "x");
  CHECK(cut_to_width("abc", 0) == "");
}

TEST_CASE("cut_to_width: nothing that a terminal obeys is left", "[telemetry][width]") {
  CHECK(cut_to_width("a\tb\x1b[31mc\nd\x7f", 80) == "a b [31mc d ");
  CHECK(cut_to_width("a\u009b2Jb", 80) == "a 2Jb");     // C1's form of ESC [
  CHECK(cut_to_width("a\u202eb\u2066c", 80) == "abc");  // directions of writing
  CHECK(cut_to_width("a\u2028b", 80) == "a b");         // line separator
  CHECK(cut_to_width("\xff"
                     "a\xe6\xbc",
                     80) ==
        "\ufffd"
        "a\ufffd\ufffd");                                                               // stray bytes
  CHECK(cut_to_width("\xc0\x80\xed\xa0\x80", 80) == "\ufffd\ufffd\ufffd\ufffd\ufffd");  // overlong, surrogate
}

}  // namespace
