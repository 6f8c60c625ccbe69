#include <formats/text_file.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <danling/core/error.hpp>

#include <formats/gzip.hpp>
#include <formats/utf8.hpp>

namespace danling::inline v0::formats {

TextFile::TextFile(std::filesystem::path path, std::string_view where, Encoding encoding) : path_(std::move(path)) {
  mapped_.emplace(path_, Access::sequential, where);
  text_ = mapped_->text();
  const std::string_view compression = compression_of(text_);
  if (compression == "gzip") {
    content_ = read_gzip(*mapped_);
    text_ = content_;
    mapped_.reset();
  } else if (!compression.empty()) {
    fail<DataError>(where, "expected text, plain or compressed by gzip, got ", compression,
                    ": decompress it first (file ", quote(path_.string()), ")");
  }
  check<DataError>(!text_.starts_with("\xff\xfe") && !text_.starts_with("\xfe\xff"), where,
                   "expected text in UTF-8, got UTF-16 (file ", quote(path_.string()), ")");
  if (text_.starts_with("\xef\xbb\xbf")) {
    text_.remove_prefix(3);
  }
  if (encoding != Encoding::utf8) {
    decode(where, encoding);
  }
}

void TextFile::check_size() const {
  if (!mapped_) {
    return;
  }
  const std::int64_t now = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (now - checked_.load(std::memory_order_relaxed) >= 1'000'000) {
    mapped_->check_size();
    checked_.store(now, std::memory_order_relaxed);
  }
}

void TextFile::advise(Access access) const {
  if (mapped_) {
    mapped_->advise(access);
  }
}

// Windows-1252's characters 0x80 to 0x9f, which are control characters in ISO 8859-1; 0: undefined.
constexpr std::array<std::uint16_t, 32> cp1252_80 = {0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                                     0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017d, 0,
                                                     0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                                     0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

void TextFile::decode(std::string_view where, Encoding encoding) {
  const auto is_ascii = [](char c) { return static_cast<signed char>(c) > 0; };
  if (std::all_of(text_.begin(), text_.end(), is_ascii)) {
    return;
  }
  std::string out;
  out.reserve(text_.size() + text_.size() / 8);
  for (const char& c : text_) {
    std::uint32_t code = static_cast<unsigned char>(c);
    if (encoding == Encoding::cp1252 && code >= 0x80 && code < 0xa0) {
      code = cp1252_80[code - 0x80];
    }
    check<DataError>(code != 0, where, "expected text in ", encoding == Encoding::cp1252 ? "cp1252" : "latin1",
                     ", got ", c == 0 ? "a NUL byte" : concat("the byte ", hex_byte(c)), " (file ",
                     quote(path_.string()), ", ", position_of(text_, &c), ")");
    append_utf8(code, out);
  }
  content_ = std::move(out);
  text_ = content_;
  mapped_.reset();
}

std::string position_of(std::string_view text, const char* at) {
  std::uint64_t line = 1;
  const char* begin = text.data();
  const char* const end = begin + text.size();
  for (const char* c = begin; c < at; ++c) {
    if (*c == '\n' || (*c == '\r' && c + 1 < end && c[1] != '\n')) {
      ++line;
      begin = c + 1;
    }
  }
  return concat("line ", line, ", column ", at - begin + 1);
}

}  // namespace danling::inline v0::formats
